"""What a client says of itself: counters and a trace of each request."""

import logging

import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient, RequestTrace, Stats
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


async def test_the_counters_of_an_episode(server: FaultServer, client: AsyncORSClient) -> None:
    assert client.stats() == Stats()
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
        assert client.stats().sessions_open == 1
        await session.call_tool("submit", {"answer": "right"})
    stats = client.stats()
    assert (stats.sessions_open, stats.sessions_started, stats.in_flight, stats.requests) == (0, 1, 0, 5)
    assert (stats.retries, stats.resumes, stats.losses) == (0, 0, 0)
    assert stats.bytes_sent == sum(len(request.body) for request in server.requests)
    assert stats.bytes_received > 300


async def test_retries_resumes_and_losses_are_counted(server: FaultServer, client: AsyncORSClient) -> None:
    server.script("list_environments", Fault(status=503), Fault(status=503))
    await client.list_environments()
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
        server.script("call", Fault(cut=b"event: end"), None, Fault(cut=0))
        await session.call_tool("echo", {"text": "resumed"})
        with pytest.raises(errors.ResultLost):
            await session.call_tool("echo", {"text": "lost"})
        server.forget_sessions()
        with pytest.raises(errors.SessionLost):
            await session.call_tool("echo", {"text": "gone"})
    stats = client.stats()
    assert (stats.retries, stats.resumes, stats.losses, stats.in_flight) == (2, 1, 2, 0)


async def test_a_trace_of_each_request(server: FaultServer, connect: Connect) -> None:
    begun: list[RequestTrace] = []
    ended: list[RequestTrace] = []
    client = connect(server.base_url, event_hooks={"request": [begun.append], "response": [ended.append]})
    server.script("num_tasks", Fault(status=503, body=b"busy"), Fault(cut=0))
    await client.environment("fault").num_tasks("train")
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.call_tool("echo", {"text": "hello"})
    assert len(begun) == len(ended) == 8
    assert [trace.status for trace in ended] == [503, None, 200, 200, 200, 200, 200, 200]
    assert "connection broke" in ended[1].error
    assert [trace.error for trace in ended if trace is not ended[1]] == [""] * 7
    call = ended[6]
    assert (call.method, call.url) == ("POST", f"{server.base_url}/fault/call")
    assert call.session_id == session.session_id
    assert call.bytes_received > 100
    assert call.elapsed > 0
    assert begun[6].status is None


async def test_a_hook_that_raises_loses_nothing(server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    def broken(trace: RequestTrace) -> None:
        raise ZeroDivisionError

    client = connect(server.base_url, event_hooks={"request": [broken], "response": [broken]})
    async with client.environment("fault").session(split="train", index=0) as session:
        assert (await session.call_tool("submit", {"answer": "right"})).reward == 1.0
    assert "ZeroDivisionError" in caplog.text
    assert server.sessions == set()


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not \['requests'\]"):
        AsyncORSClient("http://localhost", event_hooks={"requests": []})  # type: ignore[dict-item]


async def test_a_client_is_quiet_by_default(server: FaultServer, client: AsyncORSClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.call_tool("echo", {"text": "hello"})
    assert [record for record in caplog.records if record.name.startswith("ors_gym")] == []
