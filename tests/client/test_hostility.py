"""A server that is broken or hostile: a `ProtocolError` that says what was wrong, bounded memory, the other sessions untouched."""

import asyncio
import contextlib
import json
import tracemalloc
from typing import Any
from urllib.parse import unquote

import pytest

from ors_gym import errors
from ors_gym.client import AsyncEnvironment, AsyncORSClient, AsyncSession, Timeout
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect

SSE = {"Content-Type": "text/event-stream"}


def end(data: str | bytes, **options: Any) -> Fault:
    """A tool call's answer: a stream with this result."""
    payload = data.encode() if isinstance(data, str) else data
    return Fault(body=b"event: task_id\r\ndata: t1\r\n\r\nevent: end\r\ndata: " + payload + b"\r\n\r\n", headers=SSE, **options)


def result(**output: Any) -> str:
    return json.dumps({"ok": True, "output": {"blocks": [], **output}})


# ── size ──


@pytest.mark.parametrize(
    ("endpoint", "fault"),
    [
        ("tools", Fault(endless=b"[" * 1000)),
        ("call", Fault(endless=b"event: chunk\r\ndata: " + b"x" * 1000 + b"\r\n\r\n", headers=SSE)),
        ("call", Fault(endless=b": a comment\r\n", headers=SSE)),
        ("call", Fault(endless=b"x" * 1000, headers=SSE)),
        ("call", Fault(endless=b"data: x\n" * 50, headers=SSE)),
        ("call", Fault(endless=b"\r" * 100, headers=SSE)),
        ("call", Fault(endless=b"x" * 1000)),
        ("call", Fault(endless=b"x" * 1000, status=404)),
        ("prompt", Fault(endless=b"x" * 1000, status=500)),
        ("ping", Fault(endless=b" " * 500)),
    ],
    ids=["json", "chunks", "comments", "one line", "one event", "carriage returns", "no stream", "404", "500", "ping"],
)
async def test_an_endless_answer_is_cut_at_the_limit(server: FaultServer, connect: Connect, endpoint: str, fault: Fault) -> None:
    client = connect(server.base_url, max_response_bytes=200_000)
    environment = client.environment("fault")
    async with environment.session(split="train", index=0) as session, environment.session(split="train", index=1) as other:
        if endpoint != "prompt":
            await session.get_prompt()
        server.script(endpoint, fault)
        uses = {"tools": environment.list_tools, "prompt": session.get_prompt, "ping": session.ping}
        tracemalloc.start()
        with pytest.raises(errors.ProtocolError, match="longer than max_response_bytes=200000"):
            await (session.call_tool("echo", {"text": "?"}) if endpoint == "call" else uses[endpoint]())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8_000_000
        assert (await other.call_tool("echo", {"text": "untouched"})).reward == 0.0


async def test_the_limit_is_64_mib_by_default(connect: Connect) -> None:
    assert connect("http://localhost")._core.http.max_response_bytes == 64 * 2**20


async def test_a_result_below_the_limit_is_whole(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, max_response_bytes=200_000)
    async with client.environment("fault").session(split="train", index=0) as session:
        assert len((await session.call_tool("echo", {"text": "x" * 190_000})).blocks[0].text) == 190_000  # type: ignore[union-attr]


# ── what is no answer ──


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("hello", "not JSON"),
        ("null", "Unable to extract tag|valid dictionary"),
        ("[]", "Unable to extract tag"),
        ("{}", "Unable to extract tag"),
        ('{"ok": 1, "output": {}}', "Unable to extract tag"),
        ('{"ok": true}', "output: Field required"),
        ('{"ok": true, "output": []}', "output: Input should be"),
        (result(blocks="text"), "blocks: Input should be"),
        (result(blocks=[{"type": "text"}]), r"blocks.0.text.text: Field required"),
        (result(blocks=[{"type": "text", "text": 5}]), "should be a valid string"),
        (result(blocks=[5]), "blocks.0"),
        (result(reward="1.0"), "a reward is a number, not a string"),
        (result(reward=True), "a reward is a number, not a boolean"),
        (result(reward=[1]), "reward: Input should be a valid number"),
        (result().replace('"blocks"', '"reward": 1e400, "blocks"'), "reward: Input should be a finite number"),
        (result().replace('"blocks"', '"reward": NaN, "blocks"'), "not JSON: NaN is no JSON value"),
        (result().replace('"blocks"', '"reward": -Infinity, "blocks"'), "not JSON: -Infinity is no JSON value"),
        (result(metadata={"a": "X"}).replace('"X"', "NaN"), "NaN is no JSON value"),
        (result(metadata={"a": ["X"]}).replace('"X"', "-1e400"), "a number is too large"),
        (result(finished="yes"), "finished: Input should be a valid boolean"),
        (result(finished=1), "finished: Input should be a valid boolean"),
        (result(metadata=[1]), "metadata: Input should be a valid dictionary"),
        (DEEP, "nested too deep"),
        (result(metadata={"a": "X"}).replace('"X"', DEEP), "nested too deep"),
        (result(metadata={"a": "X", "b": "\ud800"}).replace('"X"', DEEP), "nested too deep"),
        (b"\xff\xfe", "not UTF-8"),
        (result(blocks=[{"type": "text", "text": "X"}]).encode().replace(b"X", b"\xc3\x28"), "not UTF-8"),
        (result(blocks=[{"type": "text", "text": "X"}]).encode().replace(b"X", b"\xed\xa0\x80"), "not UTF-8"),
        (result(blocks=[{"type": "text", "text": "é"}]).encode("latin-1", "replace").replace(b"\\u00e9", b"\xe9"), "not UTF-8"),
    ],
)
async def test_a_result_that_is_none(server: FaultServer, session: AsyncSession, payload: str | bytes, problem: str) -> None:
    server.script("call", end(payload))
    with pytest.raises(errors.ProtocolError, match=problem) as raised:
        await session.call_tool("echo", {"text": "?"})
    assert len(str(raised.value)) < 1000
    assert len(server.received("call")) == 1
    assert (await session.call_tool("echo", {"text": "the session goes on"})).reward == 0.0


async def test_utf_8_whatever_the_charset_says(server: FaultServer, session: AsyncSession) -> None:
    body = (
        b"event: end\r\ndata: "
        + result(blocks=[{"type": "text", "text": "X"}]).encode().replace(b"X", "é漢".encode())
        + b"\r\n\r\n"
    )
    server.script("call", Fault(body=body, headers={"Content-Type": "text/event-stream; charset=latin-1"}))
    output = await session.call_tool("echo", {"text": "?"})
    assert output.blocks[0].text == "é漢"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("tools", b"[]"),
        ("tools", b'{"tools": [{"description": "no name"}]}'),
        ("tools", b'{"tools": [{"name": "t", "input_schema": "x"}]}'),
        ("splits", b'{"train": 1}'),
        ("splits", b"[1]"),
        ("num_tasks", b'{"num_tasks": "10"}'),
        ("num_tasks", b'{"num_tasks": true}'),
        ("num_tasks", b'{"num_tasks": -1}'),
        ("num_tasks", b'{"num_tasks": 1.5}'),
        ("task", b'{"task": [1]}'),
        ("tasks", b'{"tasks": [1]}'),
        ("tasks", b"\xff"),
        ("task_range", b'{"tasks": {}}'),
        ("list_environments", b'{"a": 1}'),
        ("list_environments", b"[1]"),
        ("prompt", b'{"text": "x"}'),
        ("prompt", b'[{"type": "image", "data": 5, "mimeType": "image/png"}]'),
        ("task_tools", b"null"),
        ("create_session", b'{"sid": 5}'),
        ("create_session", b"<html>"),
    ],
)
async def test_wrong_types_everywhere(server: FaultServer, environment: AsyncEnvironment, endpoint: str, body: bytes) -> None:
    server.script(endpoint, Fault(body=body))
    session = environment.session(split="train", index=0)

    async def use() -> None:
        if endpoint in ("prompt", "task_tools", "create_session"):
            async with session:
                await (session.list_tools() if endpoint == "task_tools" else session.get_prompt())
        uses: dict[str, Any] = {
            "tools": environment.list_tools,
            "splits": environment.list_splits,
            "num_tasks": lambda: environment.num_tasks("train"),
            "task": lambda: environment.get_task("train", 0),
            "tasks": lambda: environment.list_tasks("train"),
            "task_range": lambda: environment.get_task_range("train"),
            "list_environments": environment.client.list_environments,
        }
        await uses[endpoint]()

    with pytest.raises(errors.ProtocolError):
        await use()
    assert server.sessions == set()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX\x00Y: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_what_is_no_http_is_an_error_of_ours(server: FaultServer, environment: AsyncEnvironment, raw: bytes) -> None:
    server.decide = lambda request: Fault(raw=raw) if request.endpoint == "splits" else None
    with pytest.raises(errors.InfrastructureError):
        await environment.list_splits()
    async with environment.session(split="train", index=0) as session:
        await session.get_prompt()
        server.script("call", Fault(raw=raw))
        with pytest.raises(errors.InfrastructureError):
            await session.call_tool("echo", {"text": "?"})
    assert len(server.received("call")) == 1
    assert server.sessions == set()


async def test_a_compressed_answer_is_refused_rather_than_misread(server: FaultServer, environment: AsyncEnvironment) -> None:
    server.script("splits", Fault(body=b"\x1f\x8b\x08\x00", headers={"Content-Encoding": "gzip"}))
    with pytest.raises(errors.ProtocolError, match="content-encoding 'gzip', which was not asked for"):
        await environment.list_splits()
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_one_hostile_session_leaves_the_others_alone(server: FaultServer, environment: AsyncEnvironment) -> None:
    sessions = [environment.session(split="train", index=0) for _ in range(20)]
    await asyncio.gather(*(session.start() for session in sessions))
    bad = sessions[7]
    server.decide = lambda request: (
        Fault(endless=b"data: x\n", headers=SSE) if request.session_id == bad.session_id and request.endpoint == "call" else None
    )
    environment._core.http.max_response_bytes = 100_000
    outcomes = await asyncio.gather(*(session.call_tool("echo", {"text": "?"}) for session in sessions), return_exceptions=True)
    assert isinstance(outcomes[7], errors.ProtocolError)
    assert [outcome.reward for outcome in outcomes if not isinstance(outcome, BaseException)] == [0.0] * 19
    await asyncio.gather(*(session.aclose() for session in sessions))


# ── names ──


@pytest.mark.parametrize(
    "env_name", ["", ".", "..", "a/b", "/", "../health", "a\\b", "a\nb", "a\r\nX: y", "a\0", "a\x7f", "a\u2028b", "\ud800"]
)
def test_an_environments_name_that_is_a_path_is_refused(client: AsyncORSClient, env_name: str) -> None:
    with pytest.raises(ValueError, match="cannot be an environment's name"):
        client.environment(env_name)


@pytest.mark.parametrize("length", [1025, 100_000])
def test_an_environments_name_that_is_too_long_is_refused_in_a_short_message(client: AsyncORSClient, length: int) -> None:
    with pytest.raises(ValueError, match="a path of 1 to 1,024 characters") as refusal:
        client.environment("é" * length)
    assert len(str(refusal.value)) < 400


async def test_the_longest_name_of_an_environment_is_asked_for(server: FaultServer, client: AsyncORSClient) -> None:
    with pytest.raises(errors.NotFound):
        await client.environment("é" * 1024).list_tools()
    assert len(server.requests) == 1


@pytest.mark.parametrize("env_name", ["a b", "a%2Fb", "%2e%2e", "a?b=c", "a#b", "é漢🎲", "a;b", "a&b=c+d", "~x", "a:b@c", "..."])
async def test_an_environments_name_is_one_segment_of_the_path(server: FaultServer, client: AsyncORSClient, env_name: str) -> None:
    with pytest.raises(errors.NotFound):
        await client.environment(env_name).list_tools()
    (request,) = server.requests
    assert request.target == request.path
    assert [unquote(segment) for segment in request.path.split("/")] == ["", env_name, "tools"]


@pytest.mark.parametrize("env_name", [b"../admin", b"a" * 100_000], ids=["path", "long"])
async def test_an_environments_name_from_a_server_is_checked_too(
    server: FaultServer, client: AsyncORSClient, env_name: bytes
) -> None:
    server.script("list_environments", Fault(body=b'["%s"]' % env_name))
    with pytest.raises(errors.ProtocolError, match="cannot be an environment's name"):
        await client.environment().list_tools()
    assert len(server.requests) == 1


@pytest.mark.parametrize("split", ["a/b", "..", "a\r\nX: y", "\0", "", "é\u2028", "\ud800", "%2F?"])
async def test_a_splits_name_is_data_in_a_body(server: FaultServer, environment: AsyncEnvironment, split: str) -> None:
    with pytest.raises(errors.RequestRejected):
        await environment.num_tasks(split)
    assert server.requests[0].json() == {"split": split}
    assert server.requests[0].path == "/fault/num_tasks"


async def test_a_deep_task_of_ones_own_is_refused_before_it_leaves(server: FaultServer, environment: AsyncEnvironment) -> None:
    with pytest.raises((ValueError, TypeError)):
        await environment.session(task_spec={"x": float("nan")}).start()
    assert server.received("create") == []
    assert server.sessions == set()


async def test_a_long_error_body_is_not_parsed(server: FaultServer, client: AsyncORSClient) -> None:
    body = b"[" + b"[]," * 5_000_000 + b"[]]"
    server.script("splits", Fault(status=500, body=body))
    tracemalloc.start()
    try:
        with pytest.raises(errors.ServerError, match=r"\[\[\],\[\],") as raised:
            await client.environment("fault").list_splits()
        assert tracemalloc.get_traced_memory()[1] < 6 * len(body)  # the server's copies too
    finally:
        tracemalloc.stop()
    assert len(str(raised.value)) < 3_000


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n5;e=", b"a" * 5000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0" * 5000),
    ],
    ids=["interim answers", "a chunk's extension", "a chunk's size"],
)
async def test_an_answer_that_is_endless_outside_of_its_body(connect: Connect, begin: bytes, again: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            while True:
                writer.write(again)
                await writer.drain()

    async with asyncio.timeout(20), await asyncio.start_server(serve, "127.0.0.1", 0) as endless:
        port = endless.sockets[0].getsockname()[1]
        client = connect(f"http://127.0.0.1:{port}", max_response_bytes=10_000, timeout=Timeout(request=None))
        with pytest.raises(errors.ProtocolError, match="more than 1068576 bytes, most of them not of its body"):
            await client.health()
        endless.close()
