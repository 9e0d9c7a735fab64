"""What a client has done: `Stats` to read, and a `RequestTrace` a request for event hooks."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

logger = logging.getLogger("ors_gym.client")

Event = Literal["request", "response"]


@dataclass(frozen=True, slots=True)
class Stats:
    """A client's counters, since it was made.

    Attributes:
        sessions_open: Sessions that are on a server now, those being started or deleted included.
        sessions_started: Sessions that were started.
        in_flight: Requests under way now, keepalive pings included.
        requests: Requests sent, retries and resumes included.
        retries: Requests that were sent again.
        resumes: Tool calls whose broken stream was taken up again.
        losses: Sessions and tool results that were lost.
        bytes_sent, bytes_received: Of bodies, without headers.
    """

    sessions_open: int = 0
    sessions_started: int = 0
    in_flight: int = 0
    requests: int = 0
    retries: int = 0
    resumes: int = 0
    losses: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(slots=True)
class Counters:
    """The counters behind `Stats`."""

    sessions_started: int = 0
    in_flight: int = 0
    requests: int = 0
    retries: int = 0
    resumes: int = 0
    losses: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request, for an event hook: `"request"` when it is about to be sent, `"response"` when it has ended.

    Attributes:
        method, url: The request line.
        session_id: The session that it is about, or None.
        bytes_sent: The length of its body.
        status: The HTTP status; None before the answer, or if none came.
        bytes_received: The length of the answer's body, as far as it was read.
        elapsed: Seconds from sending to the end.
        error: What went wrong, or "". Redacted.
    """

    method: str
    url: str
    session_id: str | None
    bytes_sent: int
    status: int | None = None
    bytes_received: int = 0
    elapsed: float = 0.0
    error: str = ""


EventHook = Callable[[RequestTrace], None]
EventHooks = Mapping[Event, Sequence[EventHook]]


def checked_hooks(event_hooks: EventHooks | None) -> dict[Event, tuple[EventHook, ...]]:
    """The hooks by event.

    Raises:
        ValueError: An event that there is not.
    """
    hooks = {event: tuple(functions) for event, functions in (event_hooks or {}).items()}
    if unknown := set(hooks) - {"request", "response"}:
        raise ValueError(f"event_hooks has the events 'request' and 'response', not {sorted(unknown)}")
    return hooks


def fire(hooks: Sequence[EventHook], trace: RequestTrace) -> None:
    """Calls each hook. One that raises is logged: a trace must not lose a session."""
    for hook in hooks:
        try:
            hook(trace)
        except Exception:
            logger.exception("an event hook of an ORS client raised; the request goes on")
