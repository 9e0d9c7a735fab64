"""What the client's tests share: a fault server of their own, and clients that do not wait long."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from multidict import CIMultiDict

from ors_gym.client import AsyncEnvironment, AsyncORSClient, AsyncSession, Retry
from ors_gym.client._messages import Call, Reply
from ors_gym.testing import FaultServer

Connect = Callable[..., AsyncORSClient]
QUICK = Retry(attempts=4, total=20.0, backoff=0.01, max_backoff=0.05)


@dataclass
class _Stream:
    """An answer without a connection."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: CIMultiDict[str] = field(default_factory=lambda: CIMultiDict({"Content-Type": "text/event-stream"}))

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    def close(self) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """There is nothing to give back."""


class Pieces:
    """Makes answers that come in given pieces, without a server."""

    def __init__(self, client: AsyncORSClient) -> None:
        core = client._core
        self._http = core.http
        self._call = Call("POST", core.servers.all[0], "fault/call", core.headers, core.http.timeout, core.redactor)

    def reply(self, *pieces: bytes) -> Reply:
        return Reply(self._call, _Stream(pieces), self._http, 0.0)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes clients with short pauses, and closes them at the end."""
    async with AsyncExitStack() as stack:

        def connect(base_url: Any, **options: Any) -> AsyncORSClient:
            client = AsyncORSClient(base_url, **{"retry": QUICK, **options})
            stack.push_async_callback(client.aclose)
            return client

        yield connect


@pytest.fixture
def client(connect: Connect, server: FaultServer) -> AsyncORSClient:
    return connect(server.base_url)


@pytest.fixture
def environment(client: AsyncORSClient) -> AsyncEnvironment:
    return client.environment("fault")


@pytest.fixture
async def session(environment: AsyncEnvironment) -> AsyncIterator[AsyncSession]:
    """A session that is ready, so that the next request is the test's."""
    async with environment.session(split="train", index=0) as session:
        await session.get_prompt()
        yield session
