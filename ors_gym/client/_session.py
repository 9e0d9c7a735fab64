"""One session: from `/create_session` to `/delete`, with its prompt, its tools and its tool calls."""

import asyncio
import base64
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import httpx

from ors_gym.client._config import Timeout
from ors_gym.client._core import Core, Live
from ors_gym.client._http import Answer, Broken, Call, shorten
from ors_gym.client._json import BadPayload, decode, dump, parse
from ors_gym.client._limits import Attempts, Limit, retry_after
from ors_gym.client._servers import Server
from ors_gym.client._sse import Outcome, is_event_stream, read_events, session_id_in
from ors_gym.client._urls import is_session_id, quote_segment
from ors_gym.errors import (
    InvalidAction,
    ORSError,
    ProtocolError,
    ResultLost,
    SessionClosed,
    SessionLost,
    SessionSetupFailed,
    ToolCallRejected,
    ToolFailed,
)
from ors_gym.protocol import (
    Blocks,
    CreateSession,
    JSONObject,
    Prompt,
    RunToolError,
    ToolOutput,
    Tools,
    ToolSpec,
    blocks_adapter,
    list_tools_adapter,
    run_tool_output_adapter,
)
from ors_gym.secrets import ResolvedSecret
from ors_gym.tasks import TaskRef

if TYPE_CHECKING:
    from ors_gym.client._environment import AsyncEnvironment

_GONE = re.compile(r"\b(session|sid|active environment)\b.*\b(deleted|gone|lost|expired|unknown|closed|not found)\b", re.I)
_UNKNOWN_TASK_ID = re.compile(r"unknown task[_ ]?id|task[_ ]?id .*(unknown|not found)", re.I)
_STALE = 1.0  # seconds after which a server may have closed an idle connection


class AsyncSession:
    """An episode on a server: `async with environment.session(...) as session`. Made by `AsyncEnvironment.session`.

    It is deleted exactly once, however it ends: by the end of the `async with`, an exception, cancellation, the end of the
    event loop or of the interpreter. A forked child never deletes it.

    Standard: Sessions & Episodes.
    """

    def __init__(
        self, environment: "AsyncEnvironment", core: Core, task: TaskRef, secrets: dict[str, ResolvedSecret], timeout: Timeout
    ) -> None:
        self._environment = environment
        self._core = core
        self._task = task
        self._secrets = secrets
        self._timeout = timeout
        self._redactor = core.redactor
        if secrets:
            self._redactor = core.redactor.extended(
                *(secret.value for secret in secrets.values()), _secrets_header(secrets).decode()
            )
        self._name = ""
        self._live: Live | None = None
        self._started = self._closed = False
        self._deadline: float | None = None
        self._readiness: Answer | None = None
        self._preparing = asyncio.Lock()
        self._tools: tuple[ToolSpec, ...] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._live else "not started"
        return f"<AsyncSession {self.session_id or '?'} of {self.env_name!r} on {self._task.key!r}, {state}>"

    @property
    def session_id(self) -> str | None:
        """The server's id; None before the start."""
        return self._live.sid if self._live else None

    @property
    def env_name(self) -> str | None:
        """The environment's name; None where the server's first is meant, until the start."""
        return self._name or self._task.env_name or self._environment.env_name

    @property
    def task(self) -> TaskRef:
        """The task."""
        return self._task

    async def __aenter__(self) -> "AsyncSession":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    # ── start and end ──

    async def start(self) -> None:
        """Creates the session on the server. `async with` does it by itself.

        Raises:
            SessionSetupFailed: The environment could not be built for this task.
            RequestRejected: There is no such environment, split or index.
            TimeoutExceeded: It took longer than `Timeout.setup`.
            ConnectionFailed, ServerError, ProtocolError: The server did not create it.
            SessionClosed: It was started before, or the client is closed.

        Standard: HTTP API, POST /create_session and POST /create.
        """
        self._core.enter(self.describe())
        if self._started:
            raise SessionClosed(f"{self!r} was started before; make another one")
        self._started = True
        started_at = time.monotonic()
        has_slot = False
        try:
            async with Limit("setup", self._timeout.setup, self):
                self._name = self._task.env_name or await self._environment.resolve()
                await self._core.take_slot()
                has_slot = True
                self._live = await self._create()
        finally:
            if has_slot and self._live is None:
                self._core.free_slot()
        self._core.http.counters.sessions_started += 1
        if self._timeout.episode is not None:
            self._deadline = started_at + self._timeout.episode

    async def aclose(self) -> None:
        """Deletes the session on the server. Further calls do nothing. It raises nothing: what cannot be deleted is logged.

        Standard: HTTP API, POST /delete.
        """
        self._started = True
        if not self._closed and self._live is not None:
            try:
                await self._core.delete(self._live)
            finally:
                self._core.free_slot()
        self._closed = True

    def describe(self) -> str:
        """The session in words, for a message."""
        where = f" ({self._live.sid} on {self._live.server.base_url})" if self._live else ""
        return self._redactor.redact(f"session of {self.env_name or 'the first environment'} on task {self._task.key}{where}")

    async def _create(self) -> Live:
        """Tries until the server has created the session; each try takes a new session id, so that none is posted twice."""
        core = self._core
        attempts = Attempts(core.http.retry, self._timeout.setup)
        while True:
            with core.pick_server().expecting_session() as server:
                cookies = httpx.Cookies()
                call = Call("POST", server, "create_session", core.headers, self._redactor, cookies=cookies)
                answer = await core.http.attempt(call, attempts, seconds=self._timeout.request, patient=True)
                if answer is None:
                    continue
                if answer.status != 200:
                    raise answer.error()
                sid = await session_id_in(answer)
                if not is_session_id(sid):
                    raise answer.broken_standard("the session id is not 1 to 512 visible ASCII characters")
                secrets_form = await self._secrets_form(server)
                live = core.adopt(sid, server, self._redactor, cookies)
            refusal = await self._post_create(live, secrets_form)
            if refusal is None:
                return live
            await attempts.pause(refusal.error, retry_after=refusal.retry_after, asked_to_wait=refusal.asked_to_wait)
            core.http.counters.retries += 1

    async def _secrets_form(self, server: Server) -> Literal["body", "header"]:
        """How the server takes secrets, so that none is sent in a form that it only logs: `openreward` servers have a /version."""
        if not self._secrets:
            return "body"
        if server.secrets_form is None:
            core = self._core
            answer = await core.http.request(
                lambda: Call("GET", server, "version", core.headers, self._redactor), seconds=self._timeout.request
            )
            version = _json_or_none(answer) if answer.status == 200 else None
            server.secrets_form = "header" if isinstance(version, dict) and "build_sha" in version else "body"
        return server.secrets_form

    async def _post_create(self, live: Live, secrets_form: Literal["body", "header"]) -> "_Refusal | None":
        """Posts `/create` once and settles what comes of it.

        Returns:
            None if the session exists now; else why not, for another try with another id.

        Raises:
            ORSError: There is no use in another try.
        """
        core, headers = self._core, live.json_headers
        if self._secrets and secrets_form == "header":
            headers = httpx.Headers([*headers.raw, (b"X-Secrets", _secrets_header(self._secrets))])
        call = live.call("POST", "create", self._create_body(secrets_form), headers)
        creation = core.cleanups.start(core.http.exchange(call, seconds=None))
        try:
            await asyncio.wait((creation,))
        except BaseException:
            await core.delete(live, creation)
            raise
        try:
            answer = creation.result()
        except Broken as broken:
            if not broken.sent:
                live.server.went_down()
                core.release(live)
                if not broken.retryable:
                    raise broken.error from broken.__cause__
                return _Refusal(broken.error)
            return await self._settle(live, broken.error)
        except BaseException:
            await core.delete(live)
            raise
        match answer.status:
            case 200 | 201 | 202 | 204:
                live.server.is_back()
                return None
            case 502 | 503 | 504 if not answer.starting:
                live.server.went_down()
                return await self._settle(live, answer.error(about_session=False))
            case 429 | 503:
                core.release(live)
                return _Refusal(answer.error(about_session=False), retry_after(answer.headers), asked_to_wait=True)
            case 500:
                await core.delete(live)
                raise SessionSetupFailed(
                    f"{self.describe()}: the server could not create it: {answer.words()}",
                    session_id=live.sid,
                    status=500,
                    detail=answer.words(),
                )
        core.release(live)
        if secrets_form == "body" and self._secrets and answer.refuses_field("secrets"):
            live.server.secrets_form = "header"
            return _Refusal(answer.error(about_session=False), retry_after=0.0, asked_to_wait=True)
        raise answer.error(about_session=False)

    async def _settle(self, live: Live, error: ORSError) -> "_Refusal | None":
        """A `/create` whose answer was lost: the session is kept if it lives, else deleted for certain."""
        try:
            answer = await self._core.ping(live)
        except ORSError as failure:
            error = failure
        except BaseException:
            await self._core.delete(live)
            raise
        else:
            if answer.status == 200:
                return None
        await self._core.delete(live)
        return _Refusal(error)

    def _create_body(self, secrets_form: Literal["body", "header"]) -> bytes:
        secrets = (
            {name: secret.value for name, secret in self._secrets.items()} if secrets_form == "body" and self._secrets else None
        )
        body = CreateSession(
            env_name=self._name,
            task_spec=self._task.task_spec,
            split=self._task.split,
            index=self._task.index,
            secrets=secrets or None,
        )
        return dump({name: value for name, value in body if value is not None})

    # ── use ──

    async def get_prompt(self) -> Blocks:
        """The prompt; asked for once. Waits until the environment's `setup()` has ended.

        Raises:
            SessionSetupFailed: The constructor, `setup()` or `get_prompt()` of the environment raised.
            TimeoutExceeded: It took longer than `Timeout.setup`.
            SessionLost, ConnectionFailed, ServerError, ProtocolError, SessionClosed: As everywhere.

        Standard: HTTP API, GET /{env_name}/prompt.
        """
        live = self._use("get_prompt")
        async with self._within_episode():
            blocks: Blocks = (await self._ready(live)).decode(blocks_adapter)
        return Prompt(blocks)

    async def list_tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this task, shared ones included; asked for once.

        Standard: HTTP API, GET /{env_name}/task_tools.
        """
        live = self._use("list_tools")
        if self._tools is None:
            async with self._within_episode(), Limit("setup", self._timeout.setup, self):
                answer = await self._ask(live, "GET", self._path("task_tools"), name="setup", seconds=self._timeout.setup)
                if answer.status == 404 and await self._is_alive(live):
                    answer = await self._ask(live, "GET", self._path("tools"))
            if answer.status == 500 and self._readiness is None:
                raise self._setup_failed(answer)
            if answer.status != 200:
                raise self._failure(live, answer)
            self._tools = Tools(answer.decode(list_tools_adapter).tools)
        return self._tools

    async def ping(self) -> None:
        """Resets the server's idle time-out. Not needed: the client pings sessions that have no traffic.

        Raises:
            SessionLost: The server does not know the session any more.

        Standard: HTTP API, POST /ping.
        """
        live = self._use("ping")
        answer = await self._core.ping(live)
        if answer.status != 200:
            raise self._failure(live, answer)

    async def call_tool(self, name: str, input: Mapping[str, Any] | None = None) -> ToolOutput:
        """Runs a tool, at most once, whatever happens to connections.

        Args:
            name: The tool's name. It need not be listed.
            input: Its input, JSON values.

        Returns:
            What the tool returned.

        Raises:
            InvalidAction: `input` is not JSON; nothing was sent.
            ToolCallRejected: The environment refused the call: unknown tool, invalid input.
            ToolFailed: The tool raised.
            SessionSetupFailed: The environment could not be built for this task.
            ResultLost: The tool ran, or may have run, and its result cannot be had.
            SessionLost: The server does not know the session any more.
            TimeoutExceeded: It took longer than `Timeout.tool_call` or `Timeout.episode`.
            ConnectionFailed, ServerError, ProtocolError, RequestRejected, SessionClosed: As everywhere.

        Standard: HTTP API, POST /{env_name}/call.
        """
        live = self._use("call_tool")
        body = self._call_body(name, input)
        async with self._within_episode():
            await self._ready(live)
            async with Limit("tool_call", self._timeout.tool_call, self):
                outcome = await self._run_tool(live, name, body)
            return await self._output(live, name, outcome)

    def _path(self, endpoint: str) -> str:
        return f"{quote_segment(self._name)}/{endpoint}"

    def _use(self, what: str) -> Live:
        self._core.enter(what)
        live = self._live
        if live is None or self._closed or not live.open:
            raise SessionClosed(f"{what}: {self.describe()} is {'closed' if self._started else 'not started: use `async with`'}")
        if live.gone:
            raise SessionLost(f"{what}: {self.describe()} is gone: {live.gone}", session_id=live.sid)
        return live

    def _within_episode(self) -> Limit:
        left = None if self._deadline is None else self._deadline - time.monotonic()
        return Limit("episode", self._timeout.episode, self, left=left)

    async def _ask(self, live: Live, method: str, path: str, *, name: str = "request", seconds: float | None = None) -> Answer:
        return await self._core.http.request(lambda: live.call(method, path), name=name, seconds=seconds or self._timeout.request)

    async def _ready(self, live: Live) -> Answer:
        """The answer of `/prompt`, which waits for `setup()`. A tool call may not wait for it: its silence would be a loss."""
        if self._readiness is None:
            async with self._preparing, Limit("setup", self._timeout.setup, self):
                if self._readiness is None:
                    answer = await self._ask(live, "GET", self._path("prompt"), name="setup", seconds=self._timeout.setup)
                    if answer.status == 500:
                        raise self._setup_failed(answer)
                    if answer.status != 200:
                        raise self._failure(live, answer)
                    self._readiness = answer
        return self._readiness

    def _setup_failed(self, answer: Answer) -> SessionSetupFailed:
        words = answer.words()
        return SessionSetupFailed(
            f"{self.describe()}: its setup failed: {words}", session_id=self.session_id, status=answer.status, detail=words
        )

    def _failure(self, live: Live, answer: Answer) -> ORSError:
        error = answer.error()
        if isinstance(error, SessionLost):
            return self._lost(live, f"HTTP {answer.status}: {answer.words()}")
        return error

    def _lost(self, live: Live, reason: str) -> SessionLost:
        self._core.http.counters.losses += 1
        live.gone = live.gone or reason
        return SessionLost(
            f"{self.describe()} is gone: {reason}; it had been idle for {live.idle:.0f} s", session_id=live.sid, detail=reason
        )

    async def _is_alive(self, live: Live) -> bool:
        idle = live.idle
        alive = (await self._core.ping(live)).status == 200
        live.idle = idle  # the ping asks about the request before it
        return alive

    # ── tool calls ──

    def _call_body(self, name: str, input: Mapping[str, Any] | None) -> JSONObject:
        if not isinstance(name, str) or not isinstance(input, Mapping | None):
            raise InvalidAction(
                f"a tool call needs a name and an object as input, not {type(name).__name__} and {type(input).__name__}"
            )
        return {"name": name, "input": dict(input or {})}

    async def _run_tool(self, live: Live, name: str, body: JSONObject) -> Outcome:
        """Posts the call, and takes up its stream again for as long as its `task_id` is known and `Retry` allows."""
        http = self._core.http
        path = self._path("call")
        content = _dump_input(body)
        attempts = Attempts(http.retry, self._timeout.setup)
        task_id = ""
        if time.monotonic() - live.last_request > _STALE:
            await _notice_closed_connections()

        def note(data: str) -> None:
            nonlocal task_id
            task_id = data

        while True:
            resumed = bool(task_id)
            begun = time.monotonic()
            try:
                outcome = await self._stream(live.call("POST", path, content), note)
            except Broken as broken:
                failure, cause = broken.error, broken.__cause__
                if not task_id and (broken.sent or not broken.retryable):
                    raise self._result_lost(live, name, str(failure)) if broken.sent else failure from cause
            else:
                if isinstance(outcome, Outcome):
                    if resumed and _UNKNOWN_TASK_ID.search(outcome.error):
                        raise self._result_lost(live, name, f"the server does not know its task_id any more: {outcome.error}")
                    return outcome
                answer = outcome
                if answer.starting or answer.status == 429:
                    await attempts.pause(answer.error(), retry_after=retry_after(answer.headers), asked_to_wait=True)
                    http.counters.retries += 1
                    continue
                if not (resumed and answer.status in (502, 503, 504)):
                    raise await self._refused(live, name, answer, resumed=resumed)
                failure = answer.error()
            if time.monotonic() - begun > http.retry.max_backoff:
                attempts = Attempts(http.retry, self._timeout.setup)
            if task_id:
                failure = self._result_lost(live, name, str(failure), counted=False)
                content = _dump_input({**body, "task_id": task_id})
            try:
                await attempts.pause(failure)
            except ResultLost:
                http.counters.losses += 1
                raise
            if task_id:
                http.counters.resumes += 1
            else:
                http.counters.retries += 1

    async def _stream(self, call: Call, note: Callable[[str], None]) -> Outcome | Answer:
        reply = await self._core.http.send(call, silence=self._timeout.silence)
        try:
            if reply.status == 200 and is_event_stream(reply.headers):
                return await read_events(reply, note)
            answer = Answer(call, reply.status, reply.headers, await reply.read())
            return Outcome(answer.body) if answer.status == 200 else answer
        finally:
            await reply.aclose()

    def _result_lost(self, live: Live, name: str, reason: str, *, counted: bool = True) -> ResultLost:
        self._core.http.counters.losses += counted
        return ResultLost(
            self._redactor.redact(
                f"tool {name!r} ran, or may have run, and its result is lost: {shorten(reason)}; it is not called again"
            ),
            session_id=live.sid,
        )

    async def _refused(self, live: Live, name: str, answer: Answer, *, resumed: bool) -> ORSError:
        """The error of a call that was answered with a status instead of a result."""
        if answer.status == 410 or (answer.status == 404 and not await self._is_alive(live)):
            return self._lost(live, f"HTTP {answer.status}: {answer.words()}")
        if resumed or answer.status in (502, 503, 504):
            return self._result_lost(live, name, str(answer.error(about_session=False)))
        if 400 <= answer.status < 500 and answer.status not in (401, 403, 407, 408, 425):
            return self._rejected(live, name, answer.words(), answer.status)
        return answer.error(about_session=False)

    def _rejected(self, live: Live, name: str, words: str, status: int | None = None) -> ToolCallRejected:
        detail = shorten(self._redactor.redact(words))
        message = self._redactor.redact(f"the environment refused the call of tool {name!r}: ") + detail
        return ToolCallRejected(message, session_id=live.sid, status=status, detail=detail)

    async def _output(self, live: Live, name: str, outcome: Outcome) -> ToolOutput:
        if outcome.result is None:
            raise await self._tool_error(live, name, outcome.error)
        try:
            result = decode(run_tool_output_adapter, outcome.result)
        except BadPayload as problem:
            raise ProtocolError(
                self._redactor.redact(f"the result of tool {name!r} is not what the standard says: {problem} ({self.describe()})"),
                session_id=live.sid,
            ) from None
        if isinstance(result, RunToolError):
            raise self._rejected(live, name, result.error)
        return result.output

    async def _tool_error(self, live: Live, name: str, words: str) -> ORSError:
        """What an `error` event means: by whether the tool is listed, then by whether the session is still there."""
        if name not in {tool.name for tool in await self.list_tools()}:
            return self._rejected(live, name, words)
        detail = shorten(self._redactor.redact(words))
        if _GONE.search(words) and not await self._is_alive(live):
            return self._lost(live, detail)
        message = self._redactor.redact(f"tool {name!r} failed: ") + (detail or "the server does not say why")
        return ToolFailed(message, session_id=live.sid, detail=detail)


@dataclass(frozen=True)
class _Refusal:
    """Why a `/create` did not bring a session, where another may."""

    error: ORSError
    retry_after: float | None = None
    asked_to_wait: bool = False


async def _notice_closed_connections() -> None:
    """Lets the loop poll its sockets and handle what came: a call on a connection that the server has closed would be lost."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _dump_input(body: JSONObject) -> bytes:
    try:
        return dump(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidAction(f"the input of tool {body['name']!r} is not JSON: {error}") from None


def _secrets_header(secrets: dict[str, ResolvedSecret]) -> bytes:
    forms = {name: {"value": secret.value, "allowed_domains": list(secret.allowed_domains)} for name, secret in secrets.items()}
    return base64.b64encode(dump(forms))


def _json_or_none(answer: Answer) -> Any:
    try:
        return parse(answer.body)
    except BadPayload:
        return None
