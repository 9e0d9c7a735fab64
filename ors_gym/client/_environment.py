"""One environment of a server: its tools, splits and tasks, and sessions on them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index as as_int
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, TypeAdapter

from ors_gym.client._config import Timeout, check_options
from ors_gym.client._core import Core
from ors_gym.client._json import dump
from ors_gym.client._session import AsyncSession
from ors_gym.client._urls import quote_segment
from ors_gym.errors import NotFound, ProtocolError
from ors_gym.protocol import (
    GetTask,
    GetTaskRange,
    JSONObject,
    ListTasks,
    NumTasks,
    Split,
    Task,
    Tools,
    ToolSpec,
    list_tools_adapter,
    num_tasks_adapter,
    splits_adapter,
    task_adapter,
    tasks_adapter,
)
from ors_gym.secrets import SecretLike, resolve_secrets
from ors_gym.tasks import TaskRef

if TYPE_CHECKING:
    from ors_gym.client._client import AsyncORSClient

T = TypeVar("T")


@dataclass(frozen=True)
class Discovery:
    """What an environment says about itself.

    Attributes:
        env_name: Its name.
        tools: The tools that all its tasks share.
        splits: Its splits.
        num_tasks: The number of tasks by the split's name.
    """

    env_name: str
    tools: tuple[ToolSpec, ...]
    splits: tuple[Split, ...]
    num_tasks: Mapping[str, int]

    def split(self, name: str | None = None) -> Split:
        """A split by name; None is the first of type train, or else the first.

        Raises:
            ValueError: There is no such split, or none at all.

        >>> splits = (Split(name="test", type="test"), Split(name="main", type="train"))
        >>> discovery = Discovery("gsm8k", tools=(), splits=splits, num_tasks={"test": 1, "main": 9})
        >>> discovery.split().name, discovery.split("test").name
        ('main', 'test')
        """
        for split in self.splits:
            if split.name == name or (name is None and split.type == "train"):
                return split
        if name is None and self.splits:
            return self.splits[0]
        known = ", ".join(repr(split.name) for split in self.splits) or "none"
        raise ValueError(f"environment {self.env_name!r} has no split {name!r}; it has {known}")

    def __reduce__(self) -> tuple[type["Discovery"], tuple[object, ...]]:
        return Discovery, (self.env_name, self.tools, self.splits, dict(self.num_tasks))


class AsyncEnvironment:
    """An environment of a server. Made by `AsyncORSClient.environment`, without I/O.

    Standard: HTTP API, Discovery Endpoints.

    >>> from ors_gym.client import AsyncORSClient
    >>> async def main():
    ...     async with AsyncORSClient(base_url) as client:
    ...         environment = client.environment()  # the server's first
    ...         print(await environment.resolve(), [tool.name for tool in await environment.list_tools()])
    ...         print([(split.name, await environment.num_tasks(split.name)) for split in await environment.list_splits()])
    ...         tasks = await environment.list_tasks("test")
    ...         print(tasks[7] == await environment.get_task("test", 7), tasks[-2:] == await environment.get_task_range("test", -2))
    ...         async with environment.session(split="test", index=7) as session:
    ...             print(session.task.key)
    >>> asyncio.run(main())
    largest_digit ['submit']
    [('train', 900), ('test', 100)]
    True True
    test/7
    """

    def __init__(self, client: "AsyncORSClient", core: Core, env_name: str | None) -> None:
        if env_name is not None:
            quote_segment(env_name)
        self._client = client
        self._core = core
        self._env_name = env_name
        self._discovery: Discovery | None = None
        self._discovering = asyncio.Lock()

    def __repr__(self) -> str:
        return self._core.redactor.redact(f"<AsyncEnvironment {self._env_name or '(the first)'!r} of {self._client.base_url}>")

    @property
    def client(self) -> "AsyncORSClient":
        """The client that made it."""
        return self._client

    @property
    def env_name(self) -> str | None:
        """The environment's name; None where the server's first is meant and was not asked for yet."""
        return self._env_name

    async def list_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that all tasks share. A session's own are `AsyncSession.list_tools`.

        Raises:
            NotFound: There is no such environment.
            ConnectionFailed, TimeoutExceeded, ServerError, ProtocolError, RequestRejected, SessionClosed: As everywhere.

        Standard: HTTP API, GET /{env_name}/tools.
        """
        return Tools((await self._ask("GET", ("tools",), None, list_tools_adapter)).tools)

    async def list_splits(self) -> tuple[Split, ...]:
        """The splits. Standard: HTTP API, GET /{env_name}/splits."""
        return await self._ask("GET", ("splits",), None, splits_adapter)

    async def list_tasks(self, split: str) -> tuple[Task, ...]:
        """All tasks of a split. Standard: HTTP API, POST /{env_name}/tasks."""
        return (await self._ask("POST", ("tasks",), ListTasks(split=split), tasks_adapter)).tasks

    async def num_tasks(self, split: str) -> int:
        """The number of tasks in a split. Standard: HTTP API, POST /{env_name}/num_tasks."""
        return (await self._ask("POST", ("num_tasks",), NumTasks(split=split), num_tasks_adapter)).num_tasks

    async def get_task(self, split: str, index: int) -> Task:
        """One task. Standard: HTTP API, POST /{env_name}/task; on another page, /get_task."""
        body = GetTask(split=split, index=as_int(index))
        return (await self._ask("POST", ("task", "get_task"), body, task_adapter)).task

    async def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> tuple[Task, ...]:
        """The tasks from `start`, inclusive, to `stop`, exclusive; both may be negative, as in a slice.

        Standard: HTTP API, POST /{env_name}/task_range; on another page, /get_task_range.
        """
        body = GetTaskRange(
            split=split, start=None if start is None else as_int(start), stop=None if stop is None else as_int(stop)
        )
        return (await self._ask("POST", ("task_range", "get_task_range"), body, tasks_adapter)).tasks

    async def discover(self) -> Discovery:
        """Its name, tools, splits and task counts, asked for concurrently, once, and kept.

        >>> from ors_gym.client import AsyncORSClient
        >>> async def main():
        ...     async with AsyncORSClient(base_url) as client:
        ...         return await client.environment("largest_digit").discover()
        >>> dict(asyncio.run(main()).num_tasks)
        {'train': 900, 'test': 100}
        """
        if self._discovery is None:
            async with self._discovering:
                if self._discovery is None:
                    env_name = await self.resolve()
                    tools, splits = await asyncio.gather(self.list_tools(), self.list_splits())
                    counts = await asyncio.gather(*(self.num_tasks(split.name) for split in splits))
                    num_tasks = MappingProxyType({split.name: count for split, count in zip(splits, counts, strict=True)})
                    self._discovery = Discovery(env_name, tools, splits, num_tasks)
        return self._discovery

    def session(
        self,
        *,
        split: str | None = None,
        index: int | None = None,
        task_spec: JSONObject | None = None,
        task: TaskRef | None = None,
        secrets: Mapping[str, SecretLike] | None = None,
        timeout: Timeout | None = None,
    ) -> AsyncSession:
        """A session on a task, not yet started: use `async with`.

        Args:
            split, index: The task by its place in a split.
            task_spec: Or the task itself.
            task: Or a `TaskRef`.
            secrets: For the environment: names to a string, `(string, [allowed domains])` or `EnvSecret`. Read now.
            timeout: Limits, if not the client's.

        Raises:
            ValueError: The task is named in no way or in two.
            KeyError: A secret's environment variable is not set.
            TypeError: `timeout` is no `Timeout`, or a secret has none of its forms.
        """
        if task is None:
            task = TaskRef(split, None if index is None else as_int(index), task_spec)
        elif not (split is None and index is None and task_spec is None):
            raise ValueError("name the task once: by task, by split and index, or by task_spec")
        if timeout is None:
            timeout = self._core.http.timeout
        check_options(timeout, self._core.http.retry)
        return AsyncSession(self, self._core, task, resolve_secrets(secrets), timeout)

    async def resolve(self) -> str:
        """Its name, asked for where the server's first environment is meant."""
        if self._env_name is None:
            names = await self._client.list_environments()
            if not names:
                raise NotFound(f"{self._client.base_url} has no environment")
            try:
                quote_segment(names[0])
            except ValueError as error:
                words = self._core.redactor.redact(str(error))
                raise ProtocolError(f"{self._client.base_url} lists an environment that cannot be asked for: {words}") from None
            self._env_name = names[0]
        return self._env_name

    async def _ask(self, method: str, paths: tuple[str, ...], body: BaseModel | None, adapter: TypeAdapter[T]) -> T:
        """Asks the first path that the server knows: the standard has two names for some."""
        prefix = quote_segment(await self.resolve())
        content = b"" if body is None else dump(body.model_dump(exclude_none=True))
        answer = await self._core.ask(method, f"{prefix}/{paths[0]}", content)
        for path in paths[1:]:
            if answer.status == 404:
                other = await self._core.ask(method, f"{prefix}/{path}", content)
                answer = answer if other.status == 404 else other
        if answer.status != 200:
            raise answer.error()
        return answer.decode(adapter)
