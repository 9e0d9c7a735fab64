"""Every limit of `Timeout` has its own error, which says which one it was and how long."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from ors_gym import errors
from ors_gym.client import AsyncSession, RequestTrace, Timeout
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


@contextmanager
def socket_that_does_not_accept(base_url: str = "http://127.0.0.1:0") -> Iterator[str]:
    """A listening socket whose queue is full: a connection to it is neither accepted nor refused."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", urlsplit(base_url).port))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_connect(connect: Connect) -> None:
    async with asyncio.timeout(60):
        with socket_that_does_not_accept() as url:
            client = connect(url, timeout=Timeout(connect=0.05))
            with pytest.raises(errors.TimeoutExceeded, match=r"took longer than Timeout\(connect=0.05\)") as raised:
                await client.health()
    assert isinstance(raised.value, TimeoutError)
    assert client.stats().requests == 4


async def test_connect_holds_for_a_deletion_which_nothing_cancels(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with FaultServer() as server:
        client = connect(server.base_url, timeout=Timeout(connect=0.05))
        session = await client.environment("fault").session(split="train", index=0).start()
    with socket_that_does_not_accept(server.base_url):
        async with asyncio.timeout(20):
            await session.aclose()
        assert "took longer than Timeout(connect=0.05)" in caplog.text
        await client.aclose()


async def test_connect_holds_for_a_creation_which_nothing_cancels(connect: Connect) -> None:
    with FaultServer() as server, ExitStack() as stack:

        def stop_accepting(trace: RequestTrace) -> None:
            if trace.url.endswith("create_session"):
                server.close()
                stack.enter_context(socket_that_does_not_accept(server.base_url))

        server.script("create_session", Fault(headers={"Connection": "close"}))
        client = connect(server.base_url, timeout=Timeout(connect=0.05), event_hooks={"response": [stop_accepting]})
        async with asyncio.timeout(20):
            with pytest.raises(errors.TimeoutExceeded, match=r"POST .*/create.*: took longer than Timeout\(connect=0.05\)"):
                await client.environment("fault").session(split="train", index=0).start()


@pytest.mark.parametrize("fault", [Fault(stall=0), Fault(stall=b"\r\n\r\n"), Fault(stall=b'{"num')], ids=["none", "head", "half"])
async def test_request(server: FaultServer, connect: Connect, fault: Fault) -> None:
    client = connect(server.base_url, timeout=Timeout(request=0.1))
    server.script("num_tasks", fault)
    with pytest.raises(errors.TimeoutExceeded, match=r"POST .*/fault/num_tasks: took longer than Timeout\(request=0.1\)"):
        await client.environment("fault").num_tasks("train")
    assert len(server.requests) == 1


async def test_request_is_a_limit_in_all_and_not_on_silence(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(request=0.3))
    server.script("tasks", Fault(body=b"[" * 100_000, packet=1))
    with pytest.raises(errors.TimeoutExceeded, match=r"request=0\.3"):
        await client.environment("fault").list_tasks("train")


async def test_tool_call(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(tool_call=0.2))
    async with client.environment("fault").session(split="train", index=0) as session:
        with pytest.raises(errors.TimeoutExceeded, match=r"took longer than Timeout\(tool_call=0.2\)"):
            await session.call_tool("slow", {"seconds": 30})
        assert (await session.call_tool("echo", {"text": "the session goes on"})).reward == 0.0


async def test_setup_at_create(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(setup=0.2))
    server.script("create", Fault(delay=0.6))
    with pytest.raises(errors.TimeoutExceeded, match=r"session of fault, task train/0: .*Timeout\(setup=0.2\)"):
        await client.environment("fault").session(split="train", index=0).start()
    assert server.sessions == set()
    assert len(server.received("delete")) == 1


async def test_setup_while_the_environment_is_not_ready(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(setup=0.2, request=0.05))
    server.script("prompt", Fault(stall=0))
    async with client.environment("fault").session(split="train", index=0) as session:
        with pytest.raises(errors.TimeoutExceeded, match=r"Timeout\(setup=0.2\)"):
            await session.get_prompt()


async def test_episode(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    async with client.environment("fault").session(split="train", index=0, timeout=Timeout(episode=0.5)) as session:
        await session.get_prompt()
        with pytest.raises(errors.TimeoutExceeded, match=r"Timeout\(episode=0.5\)"):
            await session.call_tool("slow", {"seconds": 30})
        with pytest.raises(errors.TimeoutExceeded, match=r"Timeout\(episode=0.5\)"):
            await session.call_tool("echo", {"text": "too late"})
    assert len(server.calls) == 1
    assert server.sessions == set()


async def test_episode_while_it_is_started(server: FaultServer, connect: Connect) -> None:
    server.script("create", Fault(delay=1.0))
    session = connect(server.base_url).environment("fault").session(split="train", index=0, timeout=Timeout(episode=0.2))
    with pytest.raises(errors.TimeoutExceeded, match=r"Timeout\(episode=0.2\)"):
        await session.start()
    assert server.sessions == set()


async def test_no_limit_begins_while_a_session_waits_for_its_turn(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, max_sessions=1)
    environment = client.environment("fault")
    async with environment.session(split="train", index=0) as first:
        second = environment.session(split="train", index=1, timeout=Timeout(setup=0.5, episode=1.0))
        starting = asyncio.create_task(second.start())
        await asyncio.sleep(1.2)
        assert not starting.done()
        await first.aclose()
        await starting
        assert (await second.call_tool("echo", {"text": "in time"})).reward == 0.0
        await second.aclose()


async def test_no_limit_by_default_on_a_tool_call(session: AsyncSession) -> None:
    assert Timeout().tool_call is None
    assert Timeout() == Timeout(connect=10.0, request=60.0, tool_call=None, setup=600.0, episode=None, silence=60.0)
    await session.call_tool("slow", {"seconds": 0.2})


@pytest.mark.parametrize("name", ["connect", "request", "tool_call", "setup", "episode", "silence"])
@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_limit_that_cannot_be_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=name):
        Timeout(**{name: seconds})
