"""The synchronous faces: the same client, environment and session, whose calls wait for the portal's event loop.

They work in scripts, in several threads at once, inside a running loop, in Jupyter and, each process with connections of its
own, after a fork. Ctrl-C ends a call at once.
"""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

import httpx

from ors_gym.client._client import CANNOT_PICKLE, AsyncORSClient
from ors_gym.client._config import Retry, Timeout
from ors_gym.client._environment import AsyncEnvironment, Discovery
from ors_gym.client._session import AsyncSession
from ors_gym.client._stats import EventHooks, Stats
from ors_gym.portal import portal
from ors_gym.protocol import Blocks, JSONObject, Split, Task, ToolOutput, ToolSpec
from ors_gym.secrets import SecretLike
from ors_gym.tasks import TaskRef


class ORSClient:
    """A synchronous client of an Open Reward Standard server. Its arguments are those of `AsyncORSClient`.

    Use it with `with`, or `close` it. In a forked child it goes on with connections of its own; the sessions of the parent
    stay the parent's.

    >>> with ORSClient(base_url) as client:
    ...     print(client.health(), client.list_environments())
    ...     with client.environment("largest_digit").session(split="train", index=0) as session:
    ...         output = session.call_tool("submit", {"answer": "no digit"})
    ...     print(output.reward, output.finished, client.stats().sessions_started)
    True ('largest_digit',)
    0.0 True 1
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | httpx.Auth | None = None,
        timeout: Timeout = Timeout(),
        retry: Retry = Retry(),
        max_sessions: int | None = None,
        keepalive: float | None = 60.0,
        max_response_bytes: int = 64 * 2**20,
        event_hooks: EventHooks | None = None,
        verify: ssl.SSLContext | bool = True,
        cert: str | tuple[str, str] | tuple[str, str, str] | None = None,
        proxy: str | httpx.URL | httpx.Proxy | None = None,
        trust_env: bool = True,
    ) -> None:
        self._make: Callable[[], AsyncORSClient] = partial(
            AsyncORSClient,
            base_url,
            api_key=api_key,
            headers=headers,
            auth=auth,
            timeout=timeout,
            retry=retry,
            max_sessions=max_sessions,
            keepalive=keepalive,
            max_response_bytes=max_response_bytes,
            event_hooks=event_hooks,
            verify=verify,
            cert=cert,
            proxy=proxy,
            trust_env=trust_env,
        )
        self._by_process = {os.getpid(): self._make()}

    def __repr__(self) -> str:
        return repr(self.asynchronous).replace("AsyncORSClient", "ORSClient")

    def __reduce__(self) -> NoReturn:
        raise TypeError(CANNOT_PICKLE)

    @property
    def asynchronous(self) -> AsyncORSClient:
        """The asynchronous client behind it, on the portal's loop; a forked child has its own."""
        client = self._by_process.get(os.getpid())
        return client if client is not None else self._by_process.setdefault(os.getpid(), self._make())

    @property
    def base_url(self) -> str:
        """The server's URL, ending with a slash, without credentials; the first, if there are several."""
        return self.asynchronous.base_url

    @property
    def max_sessions(self) -> int | None:
        """How many sessions may be open at once; None is without limit."""
        return self.asynchronous.max_sessions

    def __enter__(self) -> "ORSClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Deletes every session that is open and closes the connections. Further calls do nothing."""
        portal().call(self.asynchronous.aclose)

    def environment(self, env_name: str | None = None) -> "Environment":
        """An environment, without I/O. See `AsyncORSClient.environment`."""
        return Environment(self, env_name)

    def health(self) -> bool:
        """Whether the server says that it is well. See `AsyncORSClient.health`."""
        return portal().call(self.asynchronous.health)

    def list_environments(self) -> tuple[str, ...]:
        """The names of the server's environments. See `AsyncORSClient.list_environments`."""
        return portal().call(self.asynchronous.list_environments)

    def stats(self) -> Stats:
        """The client's counters as they are now."""
        return self.asynchronous.stats()


class Environment:
    """An environment of a server. Made by `ORSClient.environment`, without I/O.

    >>> client = ORSClient(base_url)
    >>> environment = client.environment("largest_digit")
    >>> [tool.name for tool in environment.list_tools()], [split.name for split in environment.list_splits()]
    (['submit'], ['train', 'test'])
    >>> tasks = environment.list_tasks("test")
    >>> len(tasks) == environment.num_tasks("test") == environment.discover().num_tasks["test"]
    True
    >>> tasks[7] == environment.get_task("test", 7), tasks[-2:] == environment.get_task_range("test", -2)
    (True, True)
    >>> with environment.session(split="test", index=7) as session:
    ...     session.task.key
    'test/7'
    >>> client.close()
    """

    def __init__(self, client: ORSClient, env_name: str | None) -> None:
        self._client = client
        self._by_process = {os.getpid(): client.asynchronous.environment(env_name)}
        self._asked_for = env_name

    def __repr__(self) -> str:
        return repr(self.asynchronous).replace("AsyncEnvironment", "Environment")

    @property
    def asynchronous(self) -> AsyncEnvironment:
        """The asynchronous environment behind it."""
        environment = self._by_process.get(os.getpid())
        if environment is None:
            environment = self._by_process.setdefault(os.getpid(), self._client.asynchronous.environment(self._asked_for))
        return environment

    @property
    def client(self) -> ORSClient:
        """The client that made it."""
        return self._client

    @property
    def env_name(self) -> str | None:
        """The environment's name; None where the server's first is meant and was not asked for yet."""
        return self.asynchronous.env_name

    def list_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that all tasks share. See `AsyncEnvironment.list_tools`."""
        return portal().call(self.asynchronous.list_tools)

    def list_splits(self) -> tuple[Split, ...]:
        """The splits. See `AsyncEnvironment.list_splits`."""
        return portal().call(self.asynchronous.list_splits)

    def list_tasks(self, split: str) -> tuple[Task, ...]:
        """All tasks of a split. See `AsyncEnvironment.list_tasks`."""
        return portal().call(self.asynchronous.list_tasks, split)

    def num_tasks(self, split: str) -> int:
        """The number of tasks in a split. See `AsyncEnvironment.num_tasks`."""
        return portal().call(self.asynchronous.num_tasks, split)

    def get_task(self, split: str, index: int) -> Task:
        """One task. See `AsyncEnvironment.get_task`."""
        return portal().call(self.asynchronous.get_task, split, index)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> tuple[Task, ...]:
        """The tasks from `start` to `stop`. See `AsyncEnvironment.get_task_range`."""
        return portal().call(self.asynchronous.get_task_range, split, start, stop)

    def discover(self) -> Discovery:
        """Its name, tools, splits and task counts, kept. See `AsyncEnvironment.discover`."""
        return portal().call(self.asynchronous.discover)

    def session(
        self,
        *,
        split: str | None = None,
        index: int | None = None,
        task_spec: JSONObject | None = None,
        task: TaskRef | None = None,
        secrets: Mapping[str, SecretLike] | None = None,
        timeout: Timeout | None = None,
    ) -> "Session":
        """A session on a task, not yet started: use `with`. See `AsyncEnvironment.session`."""
        session = self.asynchronous.session(
            split=split, index=index, task_spec=task_spec, task=task, secrets=secrets, timeout=timeout
        )
        return Session(session)


class Session:
    """An episode on a server: `with environment.session(...) as session`. Made by `Environment.session`.

    Deleted exactly once, however it ends; never by a forked child.

    >>> from ors_gym.protocol import text_of
    >>> with ORSClient(base_url) as client, client.environment("largest_digit").session(split="train", index=0) as session:
    ...     digits = text_of(session.get_prompt()).rstrip("=")
    ...     tools = session.list_tools()
    ...     session.ping()  # while something else takes long; the client does it by itself
    ...     session.call_tool(tools[0].name, {"answer": max(digits)}).reward
    1.0
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session).replace("AsyncSession", "Session")

    @property
    def asynchronous(self) -> AsyncSession:
        """The asynchronous session behind it."""
        return self._session

    @property
    def session_id(self) -> str | None:
        """The server's id; None before the start."""
        return self._session.session_id

    @property
    def env_name(self) -> str | None:
        """The environment's name; None where the server's first is meant, until the start."""
        return self._session.env_name

    @property
    def task(self) -> TaskRef:
        """The task."""
        return self._session.task

    def __enter__(self) -> "Session":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> "Session":
        """Creates the session on the server, and returns it; `with` does it by itself. See `AsyncSession.start`."""
        portal().call(self._session.start)
        return self

    def close(self) -> None:
        """Deletes the session on the server. Further calls do nothing."""
        portal().call(self._session.aclose)

    def get_prompt(self) -> Blocks:
        """The prompt. See `AsyncSession.get_prompt`."""
        return portal().call(self._session.get_prompt)

    def list_tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this task. See `AsyncSession.list_tools`."""
        return portal().call(self._session.list_tools)

    def call_tool(self, name: str, input: Mapping[str, Any] | None = None) -> ToolOutput:
        """Runs a tool, at most once. See `AsyncSession.call_tool`."""
        return portal().call(self._session.call_tool, name, input)

    def ping(self) -> None:
        """Resets the server's idle time-out. See `AsyncSession.ping`."""
        portal().call(self._session.ping)
