"""One tool call: run at most once, its result delivered once, and what it means when there is none."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ors_gym.client._core import Core
from ors_gym.client._json import BadPayload, decode, dump
from ors_gym.client._limits import Attempts, retry_after
from ors_gym.client._live import Live
from ors_gym.client._messages import Answer, Broken, shorten
from ors_gym.client._sse import Outcome, is_event_stream, read_events
from ors_gym.errors import InvalidAction, ORSError, ProtocolError, ResultLost, ToolCallRejected
from ors_gym.protocol import JSONObject, RunToolError, ToolOutput, run_tool_output_adapter

_UNKNOWN_TASK_ID = re.compile(r"unknown task[_ ]?id|task[_ ]?id .*(unknown|not found)", re.I)
_STALE = 1.0  # seconds after which a server may have closed an idle connection
_HELD = 15.0  # seconds after which a stream that breaks is another trouble, with a `Retry` of its own


@dataclass
class ToolRun:
    """A call of a tool.

    Attributes:
        core: The client's state.
        live: The session.
        name, input: The call.
        task_id: The server's id for it, once it has arrived.
    """

    core: Core
    live: Live
    name: str
    input: JSONObject
    task_id: str = ""
    _content: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        self._content = self._dump({"name": self.name, "input": self.input})

    async def run(self) -> Outcome:
        """Posts the call, and takes up its stream again for as long as its `task_id` is known and `Retry` allows.

        Raises:
            ResultLost: It ran, or may have run, and there is no result to be had.
            ORSError: It was refused, or could not be sent.
        """
        http = self.core.http
        attempts = Attempts(http.retry, self.live.timeout.setup)
        if time.monotonic() - self.live.last_request > _STALE:
            await _notice_closed_connections()
        while True:
            resuming, begun = bool(self.task_id), time.monotonic()
            try:
                outcome = await self._post()
            except Broken as broken:
                if not self.task_id and broken.sent:
                    raise self._lost(str(broken)) from None
                if not self.task_id and not broken.retryable:
                    raise broken.error from None
                failure, delay, asked_to_wait = broken.error, None, False
            else:
                if isinstance(outcome, Outcome):
                    if resuming and _UNKNOWN_TASK_ID.search(outcome.error):
                        raise self._lost(f"the server does not know its task_id any more: {outcome.error}")
                    return outcome
                asked_to_wait = outcome.starting or outcome.status == 429
                if not asked_to_wait and not (resuming and outcome.status in (502, 503, 504)):
                    raise await self._refused(outcome, resuming=resuming)
                failure, delay = outcome.error(about_session=False), retry_after(outcome.headers)
            if time.monotonic() - begun > _HELD:
                attempts = Attempts(http.retry, self.live.timeout.setup)
            await self._pause(attempts, failure, delay, asked_to_wait)

    def result(self, outcome: Outcome) -> ToolOutput:
        """The output of an outcome that is no error.

        Raises:
            ToolCallRejected: The environment refused the call.
            ProtocolError: It is not what the standard says.
        """
        try:
            result = decode(run_tool_output_adapter, outcome.result or b"")
        except BadPayload as problem:
            where = f"tool {self.name!r} in {self.live.describe()}"
            message = self.live.redactor.redact(f"the result of {where} is not what the standard says: {problem}")
            raise ProtocolError(message, session_id=self.live.sid) from None
        if isinstance(result, RunToolError):
            raise self.rejected(result.error)
        return result.output

    def rejected(self, words: str, status: int | None = None) -> ToolCallRejected:
        """The error of a call that the environment refused, in its words."""
        detail = self.words(words)
        message = self.live.redactor.redact(f"the environment refused the call of tool {self.name!r}: ") + detail
        return ToolCallRejected(message, session_id=self.live.sid, status=status, detail=detail)

    def words(self, words: str) -> str:
        """A server's words, as they may stand in a message."""
        return shorten(self.live.redactor.redact(words))

    async def _post(self) -> Outcome | Answer:
        reply = await self.core.http.send(self.live.env_call("POST", "call", self._content), silence=self.live.timeout.silence)
        try:
            if reply.status == 200 and is_event_stream(reply.headers):
                return await read_events(reply, self._note)
            answer = await reply.read()
            return Outcome(answer.body) if answer.status == 200 else answer
        finally:
            await reply.aclose()

    def _note(self, task_id: str) -> None:
        if task_id and task_id != self.task_id:
            self.task_id = task_id
            self._content = self._dump({"name": self.name, "input": self.input, "task_id": task_id})

    async def _pause(self, attempts: Attempts, failure: ORSError, delay: float | None, asked_to_wait: bool) -> None:
        counters = self.core.http.counters
        try:
            await attempts.pause(failure, retry_after=delay, asked_to_wait=asked_to_wait)
        except ORSError:
            if self.task_id:
                raise self._lost(str(failure)) from failure
            raise
        if self.task_id:
            counters.resumes += 1
        else:
            counters.retries += 1

    def _lost(self, reason: str) -> ResultLost:
        self.core.http.counters.losses += 1
        message = f"tool {self.name!r} ran, or may have run, and its result is lost: {shorten(reason)}; it is not called again"
        return ResultLost(self.live.redactor.redact(message), session_id=self.live.sid)

    async def _refused(self, answer: Answer, *, resuming: bool) -> ORSError:
        """The error of a call that was answered with a status instead of a result."""
        if answer.status == 410 or (answer.status == 404 and not await self.core.is_alive(self.live)):
            return self.core.lost(self.live, f"HTTP {answer.status}: {answer.words()}")
        if resuming or answer.status in (502, 503, 504):
            return self._lost(str(answer.error(about_session=False)))
        if 400 <= answer.status < 500 and answer.status not in (401, 403, 407, 408, 425):
            return self.rejected(answer.words(), answer.status)
        return answer.error(about_session=False)

    def _dump(self, body: dict[str, Any]) -> bytes:
        try:
            return dump(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidAction(f"the input of tool {self.name!r} is not JSON: {error}") from None


def input_object(name: Any, input: Any) -> JSONObject:
    """The input of a call as an object; None is an empty one.

    Raises:
        InvalidAction: It is none, or the name is no string: a policy said so, and no server needs to be asked.
    """
    if isinstance(name, str) and (input is None or isinstance(input, Mapping)):
        return dict(input or {})
    given = f"{type(name).__name__} and {type(input).__name__}"
    raise InvalidAction(f"a tool call needs a name and an object as its input, not {given}")


async def _notice_closed_connections() -> None:
    """Lets the loop poll its sockets and handle what came: a call on a connection that the server has closed would be lost."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
