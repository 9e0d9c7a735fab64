"""A `/create` whose answer was lost is settled; the same session id is never posted twice; sessions that cannot be are reported."""

import asyncio
from collections import Counter

import pytest

from ors_gym import errors
from ors_gym.client import AsyncEnvironment, AsyncORSClient, RequestTrace, Retry, Timeout
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


def posted(server: FaultServer) -> list[str]:
    return [request.session_id for request in server.received("create")]


async def test_a_session_whose_answer_was_lost_is_adopted(server: FaultServer, environment: AsyncEnvironment) -> None:
    server.script("create", Fault(cut=0))
    async with environment.session(split="train", index=0) as session:
        assert {session.session_id} == server.sessions
        await session.call_tool("echo", {"text": "alive"})
    assert len(posted(server)) == 1
    assert len(server.received("delete")) == 1
    assert server.sessions == set()


async def test_a_session_that_did_not_come_to_be_is_deleted_and_another_id_taken(
    server: FaultServer, environment: AsyncEnvironment
) -> None:
    server.script("create", Fault(status=502), Fault(raw=b""), Fault(status=504))
    async with environment.session(split="train", index=0) as session:
        assert {session.session_id} == server.sessions
    assert Counter(posted(server)).most_common(1)[0][1] == 1
    assert Counter(request.session_id for request in server.received("delete")) == Counter(posted(server))
    assert server.sessions == set()


async def test_a_create_that_never_succeeds_is_given_up(server: FaultServer, environment: AsyncEnvironment) -> None:
    server.decide = lambda request: Fault(status=502, body=b"no upstream") if request.endpoint == "create" else None
    with pytest.raises(errors.ServerError, match="HTTP 502: no upstream"):
        await environment.session(split="train", index=0).start()
    assert len(posted(server)) == len(set(posted(server))) == 4
    assert environment.client.stats().sessions_open == 0


async def test_429_waits_its_turn_and_costs_no_attempt(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, retry=Retry(attempts=1, backoff=0.01))
    server.script("create", *[Fault(status=429, headers={"Retry-After": "0"})] * 6)
    async with client.environment("fault").session(split="train", index=0):
        assert len(server.sessions) == 1
    assert len(posted(server)) == len(set(posted(server))) == 7


async def test_429_for_longer_than_the_setup_budget_is_an_error(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(setup=0.3))
    server.decide = lambda request: Fault(status=429) if request.endpoint == "create" else None
    with pytest.raises(errors.InfrastructureError):
        await client.environment("fault").session(split="train", index=0).start()
    assert client.stats().sessions_open == 0


async def test_a_create_that_raises_in_the_environment_is_a_failed_setup(
    server: FaultServer, environment: AsyncEnvironment
) -> None:
    server.script("create", Fault(status=500, body=b'{"detail": "ValueError: no such board"}'))
    with pytest.raises(errors.SessionSetupFailed, match="ValueError: no such board") as failed:
        await environment.session(split="train", index=0).start()
    assert failed.value.detail == "ValueError: no such board"
    assert len(posted(server)) == 1
    assert len(server.received("delete")) == 1


async def test_a_setup_that_raises_is_known_at_the_first_use(server: FaultServer, environment: AsyncEnvironment) -> None:
    for use in ("get_prompt", "call_tool"):
        server.script("prompt", Fault(status=500, body=b'{"detail": "RuntimeError: no sandbox"}'))
        async with environment.session(split="train", index=0) as session:
            with pytest.raises(errors.SessionSetupFailed, match="RuntimeError: no sandbox"):
                await (session.get_prompt() if use == "get_prompt" else session.call_tool("echo", {"text": "?"}))
    assert server.received("call") == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, errors.RequestRejected), (401, errors.RequestRejected), (404, errors.NotFound), (422, errors.RequestRejected)],
)
async def test_a_refused_create_is_not_tried_again(
    server: FaultServer, environment: AsyncEnvironment, status: int, kind: type[errors.ORSError]
) -> None:
    server.script("create", Fault(status=status, body=b'{"detail": "Invalid split"}'))
    with pytest.raises(kind, match="Invalid split"):
        await environment.session(split="train", index=0).start()
    assert len(posted(server)) == 1
    assert environment.client.stats().sessions_open == 0


async def test_a_refused_connection_at_create_is_tried_again_with_another_id(server: FaultServer, connect: Connect) -> None:
    refusals: list[str] = []

    def count(trace: RequestTrace) -> None:
        if trace.url.endswith("/create_session") and not refusals:
            server.stop_listening()
        if "cannot connect" in trace.error:
            refusals.append(trace.url)
            server.listen()

    client = connect(server.base_url, event_hooks={"response": [count]})
    server.script("create_session", Fault(headers={"Connection": "close"}))
    async with client.environment("fault").session(split="train", index=0):
        assert len(posted(server)) == 1
    assert refusals == [f"{server.base_url}/create"]
    assert len(server.received("create_session")) == 2
    assert len(server.received("delete")) == 1


async def test_env_name_is_always_sent_and_secrets_only_where_there_are_any(
    server: FaultServer, environment: AsyncEnvironment
) -> None:
    async with environment.session(split="train", index=3):
        pass
    async with environment.session(task_spec={}, secrets={"key": "value"}):
        pass
    first, second = (request.json() for request in server.received("create"))
    assert first == {"env_name": "fault", "split": "train", "index": 3}
    assert second == {"env_name": "fault", "task_spec": {}, "secrets": {"key": "value"}}
    assert all("x-secrets" not in request.headers for request in server.requests)


async def test_secrets_go_into_the_header_where_the_body_refuses_them(server: FaultServer, environment: AsyncEnvironment) -> None:
    refusal = (
        b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "secrets"], "msg": "Extra inputs", "input": {"key": "value"}}]}'
    )
    server.script("create", Fault(status=422, body=refusal))
    async with environment.session(split="train", index=0, secrets={"key": "value"}):
        pass
    async with environment.session(split="train", index=0, secrets={"key": "value"}):
        pass
    assert ["x-secrets" in request.headers for request in server.received("create")] == [False, True, True]
    assert [("secrets" in request.json()) for request in server.received("create")] == [True, False, False]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "application/json"}, b'{"sid": "abc"}'),
        ({"Content-Type": "text/event-stream"}, b"event: task_id\r\ndata: abc\r\n\r\nevent: end\r\ndata: \r\n\r\n"),
        ({"Content-Type": "text/event-stream; charset=utf-8"}, b": hello\n\nevent:task_id\ndata:abc\n\n"),
        ({}, b'{"sid": "abc"}'),
    ],
)
async def test_the_session_id_is_read_as_json_or_as_events(
    server: FaultServer, environment: AsyncEnvironment, headers: dict[str, str], body: bytes
) -> None:
    server.script("create_session", Fault(body=body, headers=headers))
    async with environment.session(split="train", index=0) as session:
        assert session.session_id == "abc"


@pytest.mark.parametrize("sid", ["", "a b", "a\\r\\nX-Evil: 1", "a\\u0000", "ü", "x" * 513, "a\\u2028b"])
async def test_a_session_id_that_could_forge_a_header_is_refused(
    server: FaultServer, environment: AsyncEnvironment, sid: str
) -> None:
    server.script("create_session", Fault(body=b'{"sid": "%b"}' % sid.encode()))
    with pytest.raises(errors.ProtocolError, match="session id"):
        await environment.session(split="train", index=0).start()
    assert posted(server) == []


async def test_max_sessions_bounds_how_many_are_open_at_once(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, max_sessions=3)
    environment = client.environment("fault")
    most = 0

    async def episode(index: int) -> None:
        nonlocal most
        async with environment.session(split="train", index=index) as session:
            most = max(most, len(server.sessions))
            await session.call_tool("echo", {"text": "hello"})

    await asyncio.gather(*(episode(index) for index in range(10)))
    assert most == 3
    assert client.stats().sessions_started == 10


async def test_a_place_is_free_again_after_a_failed_start(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, max_sessions=1)
    server.script("create", Fault(status=404), Fault(status=500))
    for _ in range(2):
        with pytest.raises(errors.ORSError):
            await client.environment("fault").session(split="train", index=0).start()
    async with client.environment("fault").session(split="train", index=0):
        pass


async def test_those_who_wait_for_a_place_are_told_when_the_client_closes(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, max_sessions=1)
    environment = client.environment("fault")
    await environment.session(split="train", index=0).start()
    waiting = [asyncio.create_task(environment.session(split="train", index=0).start()) for _ in range(3)]
    await asyncio.sleep(0)
    await client.aclose()
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, errors.SessionClosed)
    assert server.sessions == set()


async def test_a_session_starts_once(server: FaultServer, client: AsyncORSClient) -> None:
    async with client.environment("fault").session(split="train", index=0) as session:
        with pytest.raises(errors.SessionClosed, match="started before"):
            await session.start()
    with pytest.raises(errors.SessionClosed, match="closed"):
        await session.get_prompt()
    with pytest.raises(errors.SessionClosed, match="not started"):
        await client.environment("fault").session(split="train", index=0).get_prompt()


@pytest.mark.parametrize(
    "task", [{}, {"split": "train"}, {"index": 0}, {"split": "train", "index": 0, "task_spec": {}}, {"split": "train", "index": -1}]
)
def test_a_task_is_named_in_exactly_one_way(client: AsyncORSClient, task: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        client.environment("fault").session(**task)  # type: ignore[arg-type]


async def test_an_empty_prompt_is_asked_for_once_by_two_at_once(server: FaultServer, client: AsyncORSClient) -> None:
    server.script("prompt", Fault(body=b"[]", delay=0.1))
    async with client.environment("fault").session(split="train", index=0) as session:
        assert await asyncio.gather(session.get_prompt(), session.get_prompt()) == [(), ()]
    assert len(server.received("prompt")) == 1
