"""One session, from its start to its end, with its prompt, its tools and its tool calls."""

import asyncio
import re
import time
from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ors_gym.client._config import Timeout
from ors_gym.client._core import Core
from ors_gym.client._creation import Creation, secrets_header
from ors_gym.client._limits import limited
from ors_gym.client._live import Live
from ors_gym.client._messages import Answer
from ors_gym.client._tool_run import ToolRun, input_object
from ors_gym.errors import ORSError, SessionClosed, SessionLost, SessionSetupFailed, ToolFailed
from ors_gym.protocol import Blocks, Prompt, ToolOutput, Tools, ToolSpec, blocks_adapter, list_tools_adapter
from ors_gym.secrets import ResolvedSecret
from ors_gym.tasks import TaskRef

if TYPE_CHECKING:
    from ors_gym.client._environment import AsyncEnvironment

_GONE = re.compile(r"\b(session|sid|active environment)\b.*\b(deleted|gone|lost|expired|unknown|closed|not found)\b", re.I)


class AsyncSession:
    """An episode on a server: `async with environment.session(...) as session`. Made by `AsyncEnvironment.session`.

    It is deleted exactly once, however it ends: by the end of the `async with`, an exception, cancellation, the end of the
    event loop or of the interpreter. A forked child never deletes it.

    Standard: Sessions & Episodes.

    >>> from ors_gym.client import AsyncORSClient
    >>> from ors_gym.protocol import text_of
    >>> async def main():
    ...     async with AsyncORSClient(base_url) as client:
    ...         async with client.environment("largest_digit").session(split="train", index=0) as session:
    ...             digits = text_of(await session.get_prompt()).rstrip("=")
    ...             tools = await session.list_tools()
    ...             await session.ping()  # while something else takes long; the client does it by itself
    ...             return await session.call_tool(tools[0].name, {"answer": max(digits)})
    >>> asyncio.run(main()).reward
    1.0
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
            values = [secret.value for secret in secrets.values()]
            self._redactor = core.redactor.extended(*values, secrets_header(secrets))
        self._live: Live | None = None
        self._started = self._closed = False
        self._deadline: float | None = None
        self._preparing = asyncio.Lock()
        self._readiness: Answer | None = None
        self._prompt: Prompt | None = None
        self._tools: Tools | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._live else "not started"
        return self._redactor.redact(f"<AsyncSession {self.session_id or '?'} of {self.env_name!r} on {self._task.key!r}, {state}>")

    @property
    def session_id(self) -> str | None:
        """The server's id; None before the start."""
        return self._live.sid if self._live else None

    @property
    def env_name(self) -> str | None:
        """The environment's name; None where the server's first is meant, until the start."""
        return self._live.env_name if self._live else self._task.env_name or self._environment.env_name

    @property
    def task(self) -> TaskRef:
        """The task."""
        return self._task

    def __aenter__(self) -> Awaitable["AsyncSession"]:
        return self.start()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[None]:
        return self.aclose()

    # ── start and end ──

    async def start(self) -> "AsyncSession":
        """Creates the session on the server, and returns it. `async with` does it by itself.

        Raises:
            SessionSetupFailed: The environment could not be built for this task.
            RequestRejected: There is no such environment, split or index.
            TimeoutExceeded: It took longer than `Timeout.setup` or `Timeout.episode`, which begin when `max_sessions` lets it.
            ConnectionFailed, ServerError, ProtocolError: The server did not create it.
            SessionClosed: It was started before, or the client is closed.
            ValueError: The task is not JSON.

        Standard: HTTP API, POST /create_session and POST /create.
        """
        self._core.enter("start")
        if self._started:
            raise SessionClosed(f"{self!r} was started before; make another one")
        self._started = True
        await self._core.take_slot()
        if self._timeout.episode is not None:
            self._deadline = time.monotonic() + self._timeout.episode
        try:
            with self._within_episode(), limited("setup", self._timeout.setup, self):
                env_name = self._task.env_name or await self._environment.resolve()
                self._live = await Creation(self._core, env_name, self._task, self._secrets, self._timeout, self._redactor).run()
        finally:
            if self._live is None:
                self._core.free_slot()
        if self._closed:
            await self._end(self._live)
            raise SessionClosed(f"{self!r} was closed while it was started")
        self._core.http.counters.sessions_started += 1
        return self

    async def aclose(self) -> None:
        """Deletes the session on the server. Further calls do nothing. It raises nothing: what cannot be deleted is logged.

        Standard: HTTP API, POST /delete.
        """
        closed, self._started, self._closed = self._closed, True, True
        if not closed and self._live is not None:
            await self._end(self._live)

    async def _end(self, live: Live) -> None:
        try:
            await self._core.delete(live)
        finally:
            self._core.free_slot()

    def describe(self) -> str:
        """The session in words, for a message.

        >>> from ors_gym.client import AsyncORSClient
        >>> AsyncORSClient(base_url).environment("largest_digit").session(split="train", index=0).describe()
        'session of largest_digit, task train/0'
        """
        words = f"session of {self.env_name or 'the first environment'}" if self._live is None else self._live.describe()
        return self._redactor.redact(f"{words}, task {self._task.key}")

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
        if self._prompt is None:
            with self._within_episode():
                answer = await self._ready(live)
            blocks: Blocks = answer.decode(blocks_adapter)
            self._prompt = Prompt(blocks)
        return self._prompt

    async def list_tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this task, shared ones included; asked for once.

        Raises:
            SessionSetupFailed: The constructor or `setup()` of the environment raised.
            SessionLost, TimeoutExceeded, ConnectionFailed, ServerError, ProtocolError, SessionClosed: As everywhere.

        Standard: HTTP API, GET /{env_name}/task_tools.
        """
        live = self._use("list_tools")
        if self._tools is None:
            with self._within_episode(), limited("setup", self._timeout.setup, self):
                answer = await self._core.http.request(live.env_call("GET", "task_tools"), limit="")
                if answer.status == 404 and await self._core.is_alive(live):
                    answer = await self._core.http.request(live.env_call("GET", "tools"))
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
        run = ToolRun(self._core, live, name, input_object(name, input))
        with self._within_episode():
            await self._ready(live)
            with limited("tool_call", self._timeout.tool_call, self):
                outcome = await run.run()
            if outcome.result is None:
                raise await self._tool_error(live, run, outcome.error)
        return run.result(outcome)

    def _use(self, what: str) -> Live:
        """The session on its server.

        Raises:
            SessionClosed, SessionLost: It is not there, or not any more.
        """
        self._core.enter(what)
        live = self._live
        if live is None or self._closed or not live.open:
            raise SessionClosed(f"{what}: {self.describe()} is {'closed' if self._started else 'not started: use `async with`'}")
        if live.gone:
            raise self._core.lost(live, live.gone)
        return live

    def _within_episode(self) -> AbstractContextManager[None]:
        left = None if self._deadline is None else self._deadline - time.monotonic()
        return limited("episode", self._timeout.episode, self, left=left)

    async def _ready(self, live: Live) -> Answer:
        """The answer of `/prompt`, which waits for `setup()`. A tool call may not wait for it: its silence would be a loss."""
        if self._readiness is None:
            with limited("setup", self._timeout.setup, self):
                async with self._preparing:
                    if self._readiness is None:
                        answer = await self._core.http.request(live.env_call("GET", "prompt"), limit="")
                        if answer.status != 200:
                            raise self._failure(live, answer)
                        self._readiness = answer
        return self._readiness

    def _failure(self, live: Live, answer: Answer) -> ORSError:
        """The error of an answer to a session's request that is not 200."""
        words = answer.words()
        if answer.status == 500 and self._readiness is None:
            message = f"{self.describe()}: its setup failed: {words}"
            return SessionSetupFailed(message, session_id=live.sid, status=answer.status, detail=words)
        if answer.status in (404, 410):
            return self._core.lost(live, f"HTTP {answer.status}: {words}")
        return answer.error()

    async def _tool_error(self, live: Live, run: ToolRun, words: str) -> ORSError:
        """What an `error` event means: by whether the tool is listed, then by whether the session is still there."""
        try:
            listed = run.name in {tool.name for tool in await self.list_tools()}
            lost = listed and _GONE.search(words) is not None and not await self._core.is_alive(live)
        except ORSError as error:
            if isinstance(error, SessionLost):
                return error
            listed, lost = True, False
        if not listed:
            return run.rejected(words)
        detail = run.words(words)
        if lost:
            return self._core.lost(live, detail)
        message = self._redactor.redact(f"tool {run.name!r} failed: ") + (detail or "the server does not say why")
        return ToolFailed(message, session_id=live.sid, detail=detail)
