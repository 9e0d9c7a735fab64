"""Event streams: what a tool call's stream, or that of `/create_session`, says so far and in the end."""

import asyncio
import codecs
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from httpx_sse import EventSource

from ors_gym.client._messages import TRANSPORT_ERRORS, Answer, Broken, Reply
from ors_gym.errors import ConnectionFailed, ProtocolError
from ors_gym.protocol import session_id_adapter

logger = logging.getLogger("ors_gym.client")
_REST = 65536  # bytes that may follow the last event
_REST_SECONDS = 1.0
# Looked up here: a child that is forked while a thread looks a codec up for the first time cannot find it.
_Decoder = codecs.getincrementaldecoder("utf-8-sig")
_CHECKED = {"content-type": "text/event-stream"}  # by `is_event_stream`, whatever its case


@dataclass(slots=True)
class Outcome:
    """How an event stream ended.

    Attributes:
        result: The data of its chunks and of its `end`, joined; None if it ended with an `error`.
        error: The data of its `error`.
    """

    result: str | bytes | None = None
    error: str = ""


def session_id_in(answer: Answer) -> str:
    """The session id that `/create_session` answered with: as JSON, or as the `task_id` of an event stream.

    Raises:
        ProtocolError: It has none.

    Standard: HTTP API, POST /create_session; Quick Start.
    """
    if not is_event_stream(answer.headers):
        return answer.decode(session_id_adapter).sid
    try:
        for event in EventSource(_Whole(answer)).iter_sse():  # type: ignore[arg-type]
            if event.event == "task_id":
                return event.data
    except UnicodeDecodeError as error:
        raise answer.broken_standard(f"the event stream is not UTF-8: {error.reason}") from None
    raise answer.broken_standard("the event stream has no task_id, which is the session id")


@dataclass(slots=True)
class _Whole:
    """An answer that was read already, as `httpx_sse` wants it."""

    answer: Answer
    headers: ClassVar = _CHECKED

    def iter_text(self) -> Iterator[str]:
        yield self.answer.body.decode("utf-8-sig")


@dataclass(slots=True)
class _Text:
    """An answer as `httpx_sse` wants it: strictly UTF-8, whatever its charset says, and limited in size."""

    reply: Reply
    headers: ClassVar = _CHECKED

    async def aiter_text(self) -> AsyncGenerator[str, None]:
        decoder = _Decoder()
        reply = self.reply
        try:
            async for chunk in reply.received.chunks():
                reply.count(chunk)
                if text := decoder.decode(chunk):
                    yield text
        except UnicodeDecodeError as error:
            raise reply.broken_standard(f"the event stream is not UTF-8: {error.reason}") from None
        except TRANSPORT_ERRORS as failure:
            raise reply.broken(failure) from None


def is_event_stream(headers: Mapping[str, str]) -> bool:
    """Whether an answer says that it is an event stream."""
    content_type = headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


async def read_events(reply: Reply, on_task_id: Callable[[str], None]) -> Outcome:
    """Reads a stream to its `end` or `error`, then its rest, so that the connection can be used again.

    Args:
        reply: The answer; it is not closed.
        on_task_id: Called with the data of a `task_id` event, when it comes.

    Raises:
        Broken: The connection broke, or the stream ended, before `end` or `error`.
        ProtocolError: It is not UTF-8, or too long.

    Standard: HTTP API, POST /{env_name}/call, SSE Event Types.
    """
    source = EventSource(_Text(reply))  # type: ignore[arg-type]
    events = source.aiter_sse()
    chunks: list[str] = []
    try:
        async for event in events:
            match event.event:
                case "task_id":
                    on_task_id(event.data)
                case "chunk":
                    chunks.append(event.data)
                case "end":
                    chunks.append(event.data)
                    await _read_rest(reply, events)
                    return Outcome("".join(chunks))
                case "error":
                    await _read_rest(reply, events)
                    return Outcome(error=event.data)
    finally:
        await events.aclose()
    raise Broken(
        ConnectionFailed(f"{reply.call.describe()}: the stream ended without an end", session_id=reply.call.session_id), sent=True
    )


async def _read_rest(reply: Reply, events: AsyncGenerator[object, None]) -> None:
    """The result is there; what may follow must neither cost it nor make it wait."""
    limit = reply.length + _REST
    try:
        async with asyncio.timeout(_REST_SECONDS):
            async for _ in events:
                if reply.length > limit:
                    return
    except (TimeoutError, Broken, ProtocolError) as error:
        logger.debug("%s: the stream's rest did not come: %r", reply.call.describe(), error)
