"""Environments of the tests' servers, opened and closed for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from ors_gym.client import AsyncORSClient
from ors_gym.env import AsyncORSEnv, ORSEnv, ORSVectorEnv
from ors_gym.testing import FaultServer
from tests.servers.sdk_server import SDKServer

ADD_5 = {"name": "add", "input": {"amount": 5}}
RIGHT = {"name": "submit", "input": {"answer": "right"}}


@pytest.fixture
def fault_server() -> Iterator[FaultServer]:
    """A server that misbehaves on demand."""
    with FaultServer() as server:
        yield server


@pytest.fixture
async def open_engine() -> AsyncIterator[Callable[..., Any]]:
    """Opens an `AsyncORSEnv` on a server; closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_engine(server: SDKServer | FaultServer, env_name: str | None = None, **options: Any) -> AsyncORSEnv:
            client = await stack.enter_async_context(AsyncORSClient(server.base_url, **options.pop("client", {})))
            environment = client.environment(env_name)
            env = AsyncORSEnv(environment, await environment.discover(), **options)
            stack.push_async_callback(env.close)
            return env

        yield open_engine


@pytest.fixture
def open_env() -> Iterator[Callable[..., ORSEnv]]:
    """Opens an `ORSEnv` on a server; closed after the test."""
    with ExitStack() as stack:

        def open_env(server: SDKServer | FaultServer, env_name: str | None = None, **options: Any) -> ORSEnv:
            env = ORSEnv(server.base_url, env_name, **options)
            stack.callback(env.close)
            return env

        yield open_env


@pytest.fixture
def open_envs() -> Iterator[Callable[..., ORSVectorEnv]]:
    """Opens an `ORSVectorEnv` on a server; closed after the test."""
    with ExitStack() as stack:

        def open_envs(num_envs: int, server: SDKServer | FaultServer, env_name: str | None = None, **options: Any) -> ORSVectorEnv:
            envs = ORSVectorEnv(num_envs, server.base_url, env_name, **options)
            stack.callback(envs.close)
            return envs

        yield open_envs
