"""An event stream, read as the WHATWG says, with a note of everything in it that does not belong there."""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """One dispatched event."""

    name: str
    data: str


@dataclass
class Stream:
    """The events of a stream, and its faults: lines that are no field, an end within an event, bytes that are not UTF-8."""

    events: list[Event] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]


def parse_stream(content: bytes) -> Stream:
    """Read a whole stream.

    >>> parse_stream(b"event: task_id\\r\\ndata: 7\\r\\n\\r\\n").events
    [Event(name='task_id', data='7')]
    """
    stream = Stream()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        stream.faults.append(f"it is not UTF-8: {error.reason} at byte {error.start}")
        text = content.decode("utf-8", "replace")
    name, data, open_fields = "", list[str](), False
    lines = re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff"))
    for line in lines[:-1]:
        if not line:
            if data:
                stream.events.append(Event(name or "message", "\n".join(data)))
            elif name:
                stream.faults.append(f"an event {name!r} without data")
            name, data, open_fields = "", [], False
            continue
        if line.startswith(":"):
            continue
        field_name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field_name == "event":
            name, open_fields = value, True
        elif field_name == "data":
            data.append(value)
            open_fields = True
        elif field_name not in ("id", "retry"):
            stream.faults.append(f"a line that is no field of an event: {line!r:.80}")
    if lines[-1] or open_fields:
        stream.faults.append(f"it ends within an event: {(lines[-1] or name)!r:.80}")
    return stream
