"""A tool runs at most once: a lost result is resumed by its task_id, or reported lost; the call is never sent again."""

import asyncio
import time

import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient, AsyncSession, RequestTrace, Retry, Timeout, _tool_run
from ors_gym.protocol import text_of
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect

LONG = "x" * 20_000


async def test_a_drop_before_the_task_id_is_a_lost_result(server: FaultServer, session: AsyncSession) -> None:
    server.script("call", Fault(cut=b"event: task_id"))
    with pytest.raises(errors.ResultLost, match=r"'echo' ran, or may have run.*not called again"):
        await session.call_tool("echo", {"text": "once"})
    assert len(server.calls) == 1
    assert len(server.received("call")) == 1


@pytest.mark.parametrize("cut", [0, 10, b"\r\n\r\n"], ids=["nothing", "half a status line", "the head"])
async def test_a_drop_before_any_event_is_a_lost_result(server: FaultServer, session: AsyncSession, cut: int | bytes) -> None:
    server.script("call", Fault(cut=cut))
    with pytest.raises(errors.ResultLost):
        await session.call_tool("echo", {"text": "once"})
    assert len(server.received("call")) == 1


async def test_a_drop_after_the_task_id_is_resumed(server: FaultServer, session: AsyncSession, client: AsyncORSClient) -> None:
    server.script("call", Fault(cut=b"event: chunk"))
    output = await session.call_tool("echo", {"text": LONG})
    assert text_of(output.blocks) == LONG
    assert len(server.calls) == 1
    first, second = (request.json() for request in server.received("call"))
    assert "task_id" not in first
    assert second["task_id"]
    assert client.stats().resumes == 1
    assert client.stats().losses == 0


async def test_several_drops_are_resumed_and_the_result_comes_once(server: FaultServer, session: AsyncSession) -> None:
    server.script("call", Fault(cut=b"data: {"), Fault(cut=0), Fault(cut=3000), Fault(status=502), Fault(status=503))
    session._core.http.retry = Retry(attempts=10, backoff=0.01)
    output = await session.call_tool("echo", {"text": LONG})
    assert text_of(output.blocks) == LONG
    assert len(server.calls) == 1


async def test_a_stream_that_always_breaks_is_given_up_within_the_budget(server: FaultServer, session: AsyncSession) -> None:
    server.decide = lambda request: Fault(cut=b"event: chunk") if request.endpoint == "call" else None
    with pytest.raises(errors.ResultLost, match="given up after 4 tries"):
        await session.call_tool("echo", {"text": LONG})
    assert len(server.calls) == 1
    assert len(server.received("call")) == 4


async def test_a_stream_that_ends_without_an_end_is_resumed(server: FaultServer, session: AsyncSession) -> None:
    half = b'event: task_id\r\ndata: %b\r\n\r\nevent: chunk\r\ndata: {"ok": tr\r\n\r\n'
    server.script("call", Fault(body=half % b"unknown", headers={"Content-Type": "text/event-stream"}))
    with pytest.raises(errors.ResultLost, match="does not know its task_id"):
        await session.call_tool("echo", {"text": "?"})
    assert server.received("call")[1].json()["task_id"] == "unknown"


async def test_a_server_that_forgot_the_task_id_means_a_lost_result(server: FaultServer, session: AsyncSession) -> None:
    def forget(request: object) -> None:
        if len(server.received("call")) == 2:
            server.forget_results()

    server.decide = forget  # type: ignore[assignment]
    server.script("call", Fault(cut=b"event: chunk"))
    with pytest.raises(errors.ResultLost, match="unknown task_id"):
        await session.call_tool("echo", {"text": LONG})
    assert len(server.calls) == 1


async def test_unknown_task_id_as_a_tools_own_words_is_no_lost_result(connect: Connect) -> None:
    def tool(input: dict[str, object]) -> object:
        raise ValueError("unknown task_id")

    with FaultServer(tools={"fail": tool}) as server:
        async with connect(server.base_url).environment("fault").session(split="train", index=0) as session:
            with pytest.raises(errors.ToolFailed, match="unknown task_id"):
                await session.call_tool("fail")


async def test_a_session_that_is_gone_at_the_resume_is_lost(server: FaultServer, session: AsyncSession) -> None:
    def forget(request: object) -> None:
        if len(server.received("call")) == 2:
            server.forget_sessions()

    server.decide = forget  # type: ignore[assignment]
    server.script("call", Fault(cut=b"event: chunk"))
    with pytest.raises(errors.SessionLost):
        await session.call_tool("echo", {"text": LONG})


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_that_lost_its_server_may_have_run_the_tool(
    server: FaultServer, session: AsyncSession, status: int
) -> None:
    server.script("call", Fault(status=status, body=b"upstream went away"))
    with pytest.raises(errors.ResultLost, match=f"HTTP {status}: upstream went away"):
        await session.call_tool("echo", {"text": "?"})
    assert len(server.received("call")) == 1


async def test_a_call_that_was_refused_for_now_waits_and_runs_once(server: FaultServer, session: AsyncSession) -> None:
    starting = Fault(status=503, headers={"X-Backend-State": "starting", "Retry-After": "0"})
    server.script("call", Fault(status=429, headers={"Retry-After": "0"}), starting)
    assert text_of((await session.call_tool("echo", {"text": "now"})).blocks) == "now"
    assert len(server.calls) == 1


async def test_a_500_is_not_sent_again(server: FaultServer, session: AsyncSession) -> None:
    server.script("call", Fault(status=500, body=b'{"detail": "KeyError"}'))
    with pytest.raises(errors.ServerError, match="KeyError"):
        await session.call_tool("echo", {"text": "?"})
    assert len(server.received("call")) == 1


async def test_a_refused_connection_is_tried_again(server: FaultServer, connect: Connect) -> None:
    refusals: list[str] = []

    def count(trace: RequestTrace) -> None:
        if "cannot connect" in trace.error:
            refusals.append(trace.error)
            if len(refusals) == 2:
                server.listen()

    client = connect(server.base_url, event_hooks={"response": [count]})
    async with client.environment("fault").session(split="train", index=0) as session:
        server.script("prompt", Fault(headers={"Connection": "close"}))
        await session.get_prompt()
        server.stop_listening()
        assert text_of((await session.call_tool("echo", {"text": "back"})).blocks) == "back"
    assert len(server.calls) == 1
    assert client.stats().retries == 2


async def test_a_silent_stream_is_resumed(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(silence=0.2))
    async with client.environment("fault").session(split="train", index=0) as session:
        server.script("call", Fault(stall=b"event: chunk"))
        assert text_of((await session.call_tool("echo", {"text": LONG})).blocks) == LONG
    assert len(server.calls) == 1
    assert client.stats().resumes == 1


async def test_a_slow_tool_whose_stream_is_kept_alive_is_waited_for(connect: Connect) -> None:
    with FaultServer(ping=0.05) as server:
        client = connect(server.base_url, timeout=Timeout(silence=0.4))
        async with client.environment("fault").session(split="train", index=0) as session:
            await session.call_tool("slow", {"seconds": 1.0})
    assert len(server.received("call")) == 1


async def test_silence_before_the_task_id_is_a_lost_result(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(silence=0.1))
    async with client.environment("fault").session(split="train", index=0) as session:
        server.script("call", Fault(stall=0))
        with pytest.raises(errors.ResultLost, match="went silent"):
            await session.call_tool("echo", {"text": "?"})
    assert len(server.received("call")) == 1


async def test_a_silent_first_call_waits_for_setup_before_it_is_sent(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(silence=0.1))
    async with client.environment("fault").session(split="train", index=0) as session:
        server.script("prompt", Fault(delay=0.5))
        assert text_of((await session.call_tool("echo", {"text": "ready"})).blocks) == "ready"
    assert [request.endpoint for request in server.requests] == ["create_session", "create", "prompt", "call", "delete"]


async def test_a_result_is_delivered_though_the_stream_does_not_end(server: FaultServer, session: AsyncSession) -> None:
    server.script("call", Fault(stall=b'"metadata": null}}\r\n\r\n'))
    assert text_of((await session.call_tool("echo", {"text": "here"})).blocks) == "here"


async def test_an_input_that_is_not_json_is_never_sent(server: FaultServer, session: AsyncSession) -> None:
    for input in ({"x": float("nan")}, {"x": {1, 2}}, {"x": object()}):
        with pytest.raises(errors.InvalidAction, match="is not JSON"):
            await session.call_tool("echo", input)
    assert server.received("call") == []


async def test_a_call_does_not_meet_a_connection_that_the_server_has_closed(server: FaultServer, session: AsyncSession) -> None:
    await asyncio.sleep(1.1)
    server.drop_connections()
    time.sleep(0.1)  # noqa: ASYNC251 - the loop has no time to notice
    assert (await session.call_tool("echo", {"text": "on another connection"})).reward == 0.0
    assert len(server.calls) == 1


async def test_a_tool_that_is_silent_for_long_is_asked_for_again_and_again(
    server: FaultServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server need not send pings. As long as it knows the `task_id`, nothing is lost."""
    monkeypatch.setattr(_tool_run, "_HELD", 0.05)
    client = connect(server.base_url, timeout=Timeout(silence=0.1), retry=Retry(attempts=2, backoff=0.01))
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
        server.script("call", *[Fault(stall=b"event: end")] * 10)
        assert (await session.call_tool("echo", {"text": "in the end"})).reward == 0.0
    assert len(server.calls) == 1
    assert client.stats().resumes == 10
