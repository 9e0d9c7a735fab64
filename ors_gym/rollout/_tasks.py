"""`Tasks`: which tasks, and on which server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ors_gym.client import AsyncEnvironment, AsyncORSClient, Discovery, Retry, Timeout
from ors_gym.secrets import SecretLike
from ors_gym.tasks import TaskRef

Target = str | Sequence[str] | AsyncORSClient | AsyncEnvironment
"""A server's base URL, the URLs of several equal servers, or a client or environment that the caller closes."""


@dataclass(frozen=True)
class Tasks:
    """Tasks on a server. Making one does no I/O; which tasks they are is asked of the server when they are used.

    Args:
        target: The server's base URL, several equal servers' URLs, or a client or environment that the caller closes. Only
            URLs can go to other processes.
        env_name: The environment; None is the server's first.
        split: The split, or several; None is the first of type train.
        indices: Which tasks of each split; None is all of them.
        num_tasks: How many of them at most, from the first.
        refs: The tasks themselves, in place of `split`, `indices` and `num_tasks`. They may span several environments.
        secrets: What the environment needs: names to a `str`, `(str, [allowed domains])` or an `EnvSecret`.
        api_key: The server's key. With a client or environment this and the following are that client's own.
        headers: More headers for every request.
        timeout: Limits in seconds.
        retry: How often requests are tried again.

    Raises:
        ValueError: `refs` beside a way to choose from splits; or an option of a client that is already made.

    >>> Tasks("http://localhost:8080", "gsm8k", split="test", num_tasks=100)
    Tasks('http://localhost:8080', 'gsm8k', split='test', num_tasks=100)
    """

    target: Target
    env_name: str | None = None
    split: str | Sequence[str] | None = field(default=None, kw_only=True)
    indices: Sequence[int] | None = field(default=None, kw_only=True)
    num_tasks: int | None = field(default=None, kw_only=True)
    refs: Sequence[TaskRef] | None = field(default=None, kw_only=True)
    secrets: Mapping[str, SecretLike] | None = field(default=None, kw_only=True)
    api_key: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    timeout: Timeout | None = field(default=None, kw_only=True)
    retry: Retry | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        choosing = [name for name in ("split", "indices", "num_tasks") if getattr(self, name) is not None]
        if self.refs is not None and choosing:
            raise ValueError(f"refs says which tasks; leave out {', '.join(choosing)}")
        if isinstance(self.target, (AsyncORSClient, AsyncEnvironment)):
            given = [name for name in ("api_key", "headers", "timeout", "retry") if getattr(self, name) is not None]
            if given:
                raise ValueError(f"{', '.join(given)} belong to the client, which is made already; give them to it")
        if isinstance(self.target, AsyncEnvironment) and self.env_name is not None:
            raise ValueError("the environment is given; leave out env_name")

    def __repr__(self) -> str:
        target = self.target if isinstance(self.target, str) else type(self.target).__name__
        shown = [repr(target), *([repr(self.env_name)] if self.env_name else [])]
        shown += [f"{name}={getattr(self, name)!r}" for name in ("split", "num_tasks") if getattr(self, name) is not None]
        for name in ("indices", "refs"):
            if getattr(self, name) is not None:
                shown.append(f"{name}=<{len(getattr(self, name))}>")
        return f"Tasks({', '.join(shown)})"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Environments"]:
        """The environments to run the tasks in; a client that is made for it is closed at the end.

        Raises:
            ORSError: The server cannot be reached, or has no such environment.
        """
        match self.target:
            case AsyncEnvironment():
                yield Environments(self.target.client, self.target)
            case AsyncORSClient():
                yield Environments(self.target, self.target.environment(self.env_name))
            case _:
                options: dict[str, Any] = {"api_key": self.api_key, "headers": self.headers}
                options |= {name: value for name in ("timeout", "retry") if (value := getattr(self, name)) is not None}
                async with AsyncORSClient(self.target, **options) as client:
                    yield Environments(client, client.environment(self.env_name))

    async def resolve(self, environments: "Environments") -> list[TaskRef]:
        """Which tasks they are.

        Raises:
            ValueError: A split that the environment has not, or an index that is out of range.
        """
        if self.refs is not None:
            return list(self.refs)
        _, discovery = await environments.get(None)
        names = (self.split,) if self.split is None or isinstance(self.split, str) else self.split
        return [ref for name in names for ref in self._of_split(discovery, name)]

    def _of_split(self, discovery: Discovery, name: str | None) -> list[TaskRef]:
        split = discovery.split(name).name
        size = discovery.num_tasks[split]
        indices = range(size) if self.indices is None else self.indices
        wrong = [index for index in indices if not 0 <= index < size]
        if wrong:
            raise ValueError(f"split {split!r} has the tasks 0 to {size - 1}; there is no {wrong[0]}")
        return [TaskRef(split, int(index)) for index in indices[: self.num_tasks]]


class Environments:
    """The environments of a client by name, each discovered once."""

    def __init__(self, client: AsyncORSClient, default: AsyncEnvironment) -> None:
        self.client = client
        self.default = default
        self._named: dict[str, AsyncEnvironment] = {}

    async def get(self, env_name: str | None) -> tuple[AsyncEnvironment, Discovery]:
        """The environment of that name, and what it offers; None is the default one."""
        if env_name is None or env_name == self.default.env_name:
            environment = self.default
        else:
            environment = self._named.setdefault(env_name, self.client.environment(env_name))
        return environment, await environment.discover()
