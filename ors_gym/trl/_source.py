"""`Source`: one environment of a server as training uses it, connected on first use, in every process anew."""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ors_gym.actions import ActionFormat
from ors_gym.client import AsyncEnvironment, Discovery, ORSClient, Retry, Timeout
from ors_gym.env.engine import AsyncORSEnv, OnToolError, Shared
from ors_gym.rewards import RewardReduction
from ors_gym.secrets import Redactor, SecretLike, resolve_secrets


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What `ORSSpec` is told about an environment and its episodes; each field is the argument of that name.

    `live_prompt` is `prompt="session"`: the prompt is the session's, not the dataset's.
    """

    base_url: str | Sequence[str]
    env_name: str | None = None
    split: str | None = None
    secrets: Mapping[str, SecretLike] | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    timeout: Timeout | None = None
    retry: Retry | None = None
    keepalive: float | None = 60.0
    reward: RewardReduction = "sum"
    max_steps: int | None = None
    max_concurrency: int = 256
    action_format: ActionFormat = "tool_call"
    text_tool: str | None = None
    invalid_action_reward: float = 0.0
    on_tool_error: OnToolError = "truncate"
    live_prompt: bool = False

    def __post_init__(self) -> None:
        urls = [self.base_url] if isinstance(self.base_url, str) else list(self.base_url)
        if names := [url for url in urls if "://" not in url]:
            raise NotImplementedError(
                f"{names[0]!r} is no URL; names from a catalogue are not supported yet: pass the URL of the ORS server, "
                "for example 'http://localhost:8080'"
            )
        if self.max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {self.max_concurrency!r}")


@dataclass(frozen=True)
class _Connection:
    """What a process holds once it is connected."""

    pid: int
    client: ORSClient
    environment: AsyncEnvironment
    discovery: Discovery
    shared: Shared
    slots: asyncio.Semaphore


class Source:
    """An environment and how its episodes are run. It pickles by its options; each process has connections of its own.

    Args:
        options: What `ORSSpec` was told.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._connection: _Connection | None = None
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type["Source"], tuple[SourceOptions]]:
        return Source, (self.options,)

    @property
    def environment(self) -> AsyncEnvironment:
        """The environment, for use on the portal's loop."""
        return self._connected().environment

    @property
    def discovery(self) -> Discovery:
        """Its name, tools, splits and counts, asked for once.

        Raises:
            ORSError: The server, or the environment on it, cannot be had.
        """
        return self._connected().discovery

    @property
    def split(self) -> str:
        """The split that the tasks are from.

        Raises:
            ValueError: The environment has no such split.
        """
        return self.discovery.split(self.options.split).name

    @property
    def slots(self) -> asyncio.Semaphore:
        """What bounds the work under way at once, for use on the portal's loop."""
        return self._connected().slots

    def new_env(self) -> AsyncORSEnv:
        """An engine for one episode after another, without I/O. Its own reset is the caller's to retry."""
        connection = self._connected()
        options = self.options
        return AsyncORSEnv(
            connection.environment,
            connection.discovery,
            shared=connection.shared,
            secrets=options.secrets,
            max_steps=options.max_steps,
            action_format=options.action_format,
            text_tool=options.text_tool,
            invalid_action_reward=options.invalid_action_reward,
            on_tool_error=options.on_tool_error,
        )

    def secrets(self) -> list[str]:
        """Every value that must not be printed."""
        resolved = [secret.value for secret in resolve_secrets(self.options.secrets).values()]
        return [*resolved, self.options.api_key or "", *(self.options.headers or {}).values()]

    def connect(self) -> None:
        """Connects, where that has not been done.

        Raises:
            ORSError: The server, or the environment on it, cannot be had.
        """
        self._connected()

    def health(self) -> bool:
        """Whether the server answers and says that it is well."""
        return self._connected().client.health()

    def close(self) -> None:
        """Closes every session and connection. Used again, it connects again."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.pid == os.getpid():
            connection.client.close()

    def _connected(self) -> _Connection:
        with self._connecting:
            if self._connection is None or self._connection.pid != os.getpid():
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> _Connection:
        options = self.options
        client = ORSClient(
            options.base_url,
            api_key=options.api_key,
            headers=options.headers,
            timeout=options.timeout or Timeout(),
            retry=options.retry or Retry(),
            keepalive=options.keepalive,
        )
        try:
            environment = client.environment(options.env_name)
            discovery = environment.discover()
            shared = AsyncORSEnv(
                environment.asynchronous, discovery, action_format=options.action_format, text_tool=options.text_tool
            ).shared
        except BaseException:
            client.close()
            raise
        slots = asyncio.Semaphore(options.max_concurrency)
        return _Connection(os.getpid(), client, environment.asynchronous, discovery, shared, slots)


class Sources:
    """The environments of a training by their names in the rows.

    Args:
        by_name: One, whatever its name; or several.
    """

    def __init__(self, by_name: Mapping[str, Source]) -> None:
        self._by_name = dict(by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def of(self, name: str) -> Source:
        """The environment of a name in a row.

        Raises:
            ValueError: There is none of that name.
        """
        if name in self._by_name:
            return self._by_name[name]
        known = list(self._by_name)
        if len(known) == 1:
            source = self._by_name[known[0]]
            if name in ("", source.discovery.env_name):
                return source
            known = [source.discovery.env_name]
        raise ValueError(f"a row is of environment {name!r}, but this spec has {', '.join(map(repr, known))}")

    def redactor(self) -> Redactor:
        """What knows the secrets of all, which no record may hold."""
        redactor = Redactor()
        for source in self._by_name.values():
            redactor.add(*source.secrets())
        return redactor

    def close(self) -> None:
        """Closes every session and connection."""
        for source in self._by_name.values():
            source.close()
