"""One scheduler pings the sessions that have no traffic, and nobody else."""

import asyncio
import time
from collections import Counter

import pytest

from ors_gym import Retry, errors
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


async def test_an_idle_session_is_pinged_and_a_busy_one_is_not(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url, keepalive=0.3).environment("fault")
    async with environment.session(split="train", index=0) as idle, environment.session(split="train", index=1) as busy:
        while len(server.received("ping")) < 3:
            await busy.call_tool("echo", {"text": "busy"})
            await asyncio.sleep(0.02)
        assert {request.session_id for request in server.received("ping")} == {idle.session_id}


async def test_pings_go_on_during_a_long_tool_call(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url, keepalive=0.1).environment("fault")
    async with environment.session(split="train", index=0) as session:
        call = asyncio.create_task(session.call_tool("slow", {"seconds": 30}))
        await asyncio.to_thread(server.wait_for, "ping", 2)
        call.cancel()


async def test_a_closed_session_is_pinged_no_more(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url, keepalive=0.1).environment("fault")
    async with environment.session(split="train", index=0) as kept:
        async with environment.session(split="train", index=1) as closed:
            pass
        await asyncio.to_thread(server.wait_for, "ping", 2)
        assert {request.session_id for request in server.received("ping")} == {kept.session_id}
    assert closed.session_id != kept.session_id


async def test_one_ping_that_fails_is_tried_again_and_is_no_reason_to_give_a_session_up(
    server: FaultServer, connect: Connect
) -> None:
    environment = connect(server.base_url, keepalive=0.1).environment("fault")
    async with environment.session(split="train", index=0) as session:
        server.script("ping", Fault(raw=b""), None, Fault(status=500), Fault(status=503))
        await asyncio.to_thread(server.wait_for, "ping", 5, 20.0)
        assert (await session.call_tool("echo", {"text": "alive"})).reward == 0.0


async def test_a_ping_that_fails_is_tried_again_before_the_next_is_due(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url, keepalive=4.0).environment("fault")
    async with environment.session(split="train", index=0):
        server.script("ping", Fault(status=500))
        await asyncio.to_thread(server.wait_for, "ping", 1)
        first = time.monotonic()
        await asyncio.to_thread(server.wait_for, "ping", 2)
        assert 0.5 < time.monotonic() - first < 3.0


async def test_pings_spread_out(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    await asyncio.gather(*(client.environment("fault").session(split="train", index=0).start() for _ in range(50)))
    due = [at - session.last_request for at, _, session in client._core.keepalive._due]
    assert 53.0 <= min(due) < 56.0
    assert 58.0 < max(due) <= 60.0


async def test_many_failed_pings_do_not_kill_a_healthy_session(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url, keepalive=0.05).environment("fault")
    async with environment.session(split="train", index=0) as session:
        server.script("ping", *[Fault(status=500)] * 8)
        await asyncio.to_thread(server.wait_for, "ping", 9, 20.0)
        assert (await session.call_tool("echo", {"text": "alive"})).reward == 0.0


@pytest.mark.parametrize("status", [404, 410])
async def test_only_404_and_410_mean_that_the_session_is_gone(server: FaultServer, connect: Connect, status: int) -> None:
    environment = connect(server.base_url, keepalive=0.1).environment("fault")
    async with environment.session(split="train", index=0) as session:
        await session.get_prompt()
        server.script("ping", Fault(status=status, body=b'{"detail": "reaped"}'))
        await asyncio.to_thread(server.wait_for, "ping", 1)
        with pytest.raises(errors.SessionLost, match=rf"HTTP {status}: reaped; it had been idle for \d+ s") as lost:
            while True:
                await session.call_tool("echo", {"text": "?"})
        assert "reaped" in lost.value.detail
        with pytest.raises(errors.SessionLost):
            await session.ping()
        assert environment.client.stats().losses == 1


async def test_many_idle_sessions_are_each_pinged_about_once_a_period(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url, keepalive=0.5).environment("fault")
    sessions = [environment.session(split="train", index=0) for _ in range(50)]
    await asyncio.gather(*(session.start() for session in sessions))
    await asyncio.to_thread(server.wait_for, "ping", 100, 20.0)
    counts = Counter(request.session_id for request in server.received("ping"))
    assert len(counts) == 50
    assert max(counts.values()) <= 4


async def test_a_keepalive_of_none_pings_nobody(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, keepalive=None)
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.ping()
        assert client._core.keepalive._due == []
    assert len(server.received("ping")) == 1


async def test_sessions_that_are_over_are_forgotten(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    for _ in range(300):
        async with client.environment("fault").session(split="train", index=0):
            pass
    assert len(client._core.keepalive._due) < 100


async def test_the_servers_words_come_with_how_long_the_session_was_idle(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
        session._live.last_request = time.monotonic() - 900  # type: ignore[union-attr]
        server.forget_sessions()
        with pytest.raises(errors.SessionLost, match="Active environment not found; it had been idle for 900 s") as lost:
            await session.call_tool("echo", {"text": "?"})
        assert lost.value.session_id == session.session_id
        with pytest.raises(errors.SessionLost):
            await session.call_tool("echo", {"text": "?"})
    assert client.stats().losses == 1


async def test_a_request_that_is_tried_again_is_traffic(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, keepalive=0.3, retry=Retry(backoff=0.1, max_backoff=0.1))
    starting = Fault(status=503, headers={"X-Backend-State": "starting"})
    server.script("prompt", *[starting] * 30)
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
    assert server.received("ping") == []


async def test_a_ping_of_a_session_that_is_starting_is_not_tried_for_ever(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, keepalive=0.2)
    server.decide = lambda request: (
        Fault(status=503, headers={"X-Backend-State": "starting"}) if request.endpoint == "ping" else None
    )
    async with client.environment("fault").session(split="train", index=0):
        await asyncio.sleep(0.5)
    pings = len(server.received("ping"))
    await asyncio.sleep(1.5)
    assert 1 <= pings <= 2
    assert len(server.received("ping")) <= pings + 1
