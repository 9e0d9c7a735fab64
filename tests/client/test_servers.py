"""Several equal servers: a session goes to the least busy one and stays there; one that is down takes no new sessions."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from ors_gym import errors
from ors_gym.client import Retry, Timeout, _servers
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


@pytest.fixture
def servers() -> Iterator[list[FaultServer]]:
    with FaultServer() as one, FaultServer() as two, FaultServer() as three:
        yield [one, two, three]


def urls(servers: list[FaultServer]) -> list[str]:
    return [server.base_url for server in servers]


async def test_sessions_are_spread_evenly_and_stay(servers: list[FaultServer], connect: Connect) -> None:
    environment = connect(urls(servers)).environment("fault")
    sessions = [environment.session(split="train", index=0) for _ in range(30)]
    await asyncio.gather(*(session.start() for session in sessions))
    assert [len(server.sessions) for server in servers] == [10, 10, 10]
    await asyncio.gather(*(session.call_tool("echo", {"text": "hello"}) for session in sessions for _ in range(3)))
    assert [len(server.calls) for server in servers] == [30, 30, 30]
    await asyncio.gather(*(session.aclose() for session in sessions))
    assert [len(server.sessions) for server in servers] == [0, 0, 0]


async def test_the_least_busy_one_gets_the_next_session(servers: list[FaultServer], connect: Connect) -> None:
    environment = connect(urls(servers)).environment("fault")
    sessions = [environment.session(split="train", index=0) for _ in range(6)]
    for session in sessions:
        await session.start()
    for session in (sessions[1], sessions[4]):
        await session.aclose()
    for _ in range(2):
        await environment.session(split="train", index=0).start()
    assert [len(server.sessions) for server in servers] == [2, 2, 2]


async def test_a_server_that_is_down_takes_no_sessions_until_it_is_back(
    servers: list[FaultServer], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_servers, "_FIRST_PROBE", 0.05)
    environment = connect(urls(servers)).environment("fault")
    servers[0].stop_listening()
    sessions = [environment.session(split="train", index=0) for _ in range(6)]
    for session in sessions:
        await session.start()
    assert [len(server.sessions) for server in servers] == [0, 3, 3]
    servers[0].listen()
    while not servers[0].received("health"):
        await environment.list_tools()
    await asyncio.to_thread(servers[0].wait_for, "health")
    while not servers[0].sessions:
        await environment.session(split="train", index=0).start()


async def test_a_gateway_error_at_create_counts_as_down(servers: list[FaultServer], connect: Connect) -> None:
    environment = connect(urls(servers)).environment("fault")
    servers[0].decide = lambda request: Fault(status=502)
    async with environment.session(split="train", index=0), environment.session(split="train", index=0):
        assert [len(server.sessions) for server in servers] == [0, 1, 1]


@pytest.mark.parametrize("endpoint", ["create_session", "create", "list_environments"])
async def test_what_one_server_refuses_for_now_another_is_asked(
    servers: list[FaultServer], connect: Connect, endpoint: str
) -> None:
    client = connect(urls(servers))
    busy = Fault(status=429, headers={"Retry-After": "0"})
    servers[0].decide = lambda request: busy if request.endpoint == endpoint else None
    await client.list_environments()
    async with client.environment("fault").session(split="train", index=0) as session:
        assert (await session.call_tool("submit", {"answer": "right"})).reward == 1.0
    assert len(servers[0].received(endpoint)) == 1
    assert [server.sessions for server in client._core.servers.all] == [0, 0, 0]


async def test_with_all_servers_down_the_error_comes_within_the_budget(servers: list[FaultServer], connect: Connect) -> None:
    client = connect(urls(servers))
    for server in servers:
        server.stop_listening()
    with pytest.raises(errors.ConnectionFailed):
        await client.environment("fault").session(split="train", index=0).start()
    with pytest.raises(errors.ConnectionFailed):
        await client.list_environments()


async def test_discovery_moves_on_to_another_server(servers: list[FaultServer], connect: Connect) -> None:
    client = connect(urls(servers))
    servers[0].stop_listening()
    servers[1].stop_listening()
    assert await client.list_environments() == ("fault",)


async def test_a_session_does_not_move(servers: list[FaultServer], connect: Connect) -> None:
    environment = connect(urls(servers)).environment("fault")
    async with environment.session(split="train", index=0) as session:
        await session.get_prompt()
        (home,) = (server for server in servers if server.sessions)
        home.stop_listening()
        with pytest.raises(errors.InfrastructureError):
            await session.call_tool("echo", {"text": "?"})
    assert Counter(request.endpoint for server in servers for request in server.requests)["call"] == 0


def test_credentials_of_equal_servers_are_equal(connect: Connect) -> None:
    with pytest.raises(ValueError, match="same credentials"):
        connect(["http://a:b@one", "http://c:d@two"])


async def test_a_server_that_hangs_takes_no_more_sessions(servers: list[FaultServer], connect: Connect) -> None:
    environment = connect(urls(servers), timeout=Timeout(request=0.3), retry=Retry(attempts=1)).environment("fault")
    servers[0].decide = lambda request: Fault(stall=0)
    with pytest.raises(errors.TimeoutExceeded, match=r"request=0\.3"):
        await environment.session(split="train", index=0).start()
    await asyncio.gather(*(environment.session(split="train", index=0).start() for _ in range(6)))
    assert [len(server.sessions) for server in servers] == [0, 3, 3]


async def test_pings_that_hang_on_one_server_hold_up_no_others(servers: list[FaultServer], connect: Connect) -> None:
    environment = connect(urls(servers[:2]), keepalive=0.3).environment("fault")
    servers[0].decide = lambda request: Fault(stall=0) if request.endpoint == "ping" else None
    sessions = [environment.session(split="train", index=0) for _ in range(200)]
    await asyncio.gather(*(session.start() for session in sessions))
    await asyncio.to_thread(servers[1].wait_for, "ping", 300, 20.0)
    assert len({request.session_id for request in servers[1].received("ping")}) == 100
    assert len(servers[0].received("ping")) == 64  # a hundred hang there, and no more connections than that
    servers[0].decide = None
    servers[0].drop_connections()
