"""Text of every kind survives both ways, wherever it is cut."""

import json

import pytest

from ors_gym.client import AsyncORSClient, AsyncSession
from ors_gym.client._json import dump, parse
from ors_gym.client._sse import read_events
from ors_gym.errors import ToolFailed
from ors_gym.protocol import text_of
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Pieces

TEXTS = {
    "line separators": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1eh",
    "line ends": "a\nb\r\nc\rd\n\n",
    "spaces": "   three, and   more   ",
    "tabs": "\t\ta\t",
    "emoji": "🎲👩‍👩‍👧‍👦🏳️‍🌈",
    "scripts": "é漢字ひらがな한글العربيةעברית",
    "nul": "a\0b",
    "byte order mark": "\ufeffa\ufeff",
    "event stream": "event: end\ndata: x\n\n: comment\nid: 1\n",
    "quotes": "\"'\\/\b\f",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "empty": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_comes_back_as_it_was_sent(session: AsyncSession, text: str) -> None:
    assert text_of((await session.call_tool("echo", {"text": text})).blocks) == text


async def test_lone_surrogates_survive_in_json_escapes_both_ways(server: FaultServer, session: AsyncSession) -> None:
    result = b'{"ok": true, "output": {"blocks": [{"type": "text", "text": "a\\ud800b"}], "metadata": {"k": "\\udfff"}}}'
    server.script("call", Fault(body=b"event: end\r\ndata: " + result + b"\r\n\r\n", headers={"Content-Type": "text/event-stream"}))
    output = await session.call_tool("echo", {"text": "x\udcffy", "k\ud800": 1})
    assert text_of(output.blocks) == "a\ud800b"
    assert output.metadata == {"k": "\udfff"}
    assert server.received("call")[0].json()["input"] == {"text": "x\udcffy", "k\ud800": 1}
    assert parse(dump({"a": "\ud800"})) == {"a": "\ud800"}


async def test_ten_megabytes(session: AsyncSession) -> None:
    text = "0123456789é漢🎲 \u2028" * 700_000
    assert len(text.encode()) > 10_000_000
    assert text_of((await session.call_tool("echo", {"text": text})).blocks) == text


@pytest.mark.parametrize("packet", [1, 2, 3, 7, 4096])
async def test_packets_of_every_size(server: FaultServer, session: AsyncSession, packet: int) -> None:
    text = "  é漢🎲\u2028\r\n  " * 40
    server.script("call", Fault(packet=packet))
    assert text_of((await session.call_tool("echo", {"text": text})).blocks) == text


async def test_a_stream_cut_at_every_position(client: AsyncORSClient) -> None:
    text = " é漢🎲\u2028 x"
    result = json.dumps({"ok": True, "output": {"blocks": [{"type": "text", "text": text}]}}, ensure_ascii=False)
    halves = [result[:50], result[50:]]
    whole = (
        f"\ufeff: hello\r\nevent: task_id\r\ndata: t1\r\n\r\nevent:chunk\rdata:{' ' if halves[0][0] == ' ' else ''}{halves[0]}\r\r"
        f"event: end\ndata: {halves[1]}\nid\nretry: 5\n\n"
    ).encode()
    pieces = Pieces(client)
    for cut in range(len(whole) + 1):
        ids: list[str] = []
        outcome = await read_events(pieces.reply(whole[:cut], whole[cut:]), ids.append)
        assert outcome.result == result, cut
        assert ids == ["t1"]


async def test_chunks_keep_spaces_at_every_border(server: FaultServer, session: AsyncSession) -> None:
    text = " " * 9000
    assert text_of((await session.call_tool("echo", {"text": text})).blocks) == text
    words = "word  " * 5000
    assert text_of((await session.call_tool("echo", {"text": words})).blocks) == words


@pytest.mark.parametrize("chunk", range(1, 12))
async def test_a_result_in_chunks_of_any_length(server: FaultServer, session: AsyncSession, chunk: int) -> None:
    result = json.dumps(
        {"ok": True, "output": {"blocks": [{"type": "text", "text": "  é  🎲  "}], "reward": 0.5}}, ensure_ascii=False
    )
    parts = [result[start : start + chunk] for start in range(0, len(result), chunk)]
    events = [
        f"event: {'end' if number == len(parts) - 1 else 'chunk'}\r\ndata: {part}\r\n\r\n" for number, part in enumerate(parts)
    ]
    server.script("call", Fault(body="".join(events).encode(), headers={"Content-Type": "text/event-stream"}))
    assert text_of((await session.call_tool("echo", {"text": "?"})).blocks) == "  é  🎲  "


@pytest.mark.parametrize(
    "stream",
    [
        "event: end\rdata: {R}\r\r",
        "event: end\ndata: {R}\n\n",
        "event:end\r\ndata:{R}\r\n\r\n",
        ":\r\n: x\r\n\r\nevent: end\r\ndata: {R}\r\n\r\n",
        "\n\n\nevent: end\ndata: {R}\n\n",
        "event: unknown\ndata: x\n\nevent: end\ndata: {R}\n\n",
        "data: a message\n\nevent: end\ndata: {R}\n\n",
        "id: 1\nretry: 10\nevent: end\nnonsense\nnon:sense\ndata: {R}\n\n",
        "id: 1\n\n\n\nevent: end\ndata: {R}\n\n",
        "event: chunk\ndata: {R}\n\nevent: end\ndata\n\n",
        "event: chunk\ndata: {R}\n\nevent: end\ndata: \n\n",
        "event: task_id\ndata: 1\n\nevent: task_id\ndata: 2\n\nevent: end\ndata: {R}\n\n",
        "event: wrong\nevent: end\ndata: {R}\n\n",
        "event: end\ndata: {R}\n\nevent: end\ndata: again\n\n",
        "event: end\ndata: {R1}\ndata: {R2}\n\n",
    ],
)
async def test_every_form_of_event_stream(server: FaultServer, session: AsyncSession, stream: str) -> None:
    parts = ['{"ok": true, "output":', '{"blocks": [], "reward": 0.25}}']
    body = stream.replace("{R}", "".join(parts)).replace("{R1}", parts[0]).replace("{R2}", parts[1])
    server.script("call", Fault(body=body.encode(), headers={"Content-Type": "Text/Event-Stream"}))
    assert (await session.call_tool("echo", {"text": "?"})).reward == 0.25


async def test_a_result_without_a_stream_is_read_too(server: FaultServer, session: AsyncSession) -> None:
    server.script("call", Fault(body=b'{"ok": true, "output": {"blocks": [], "reward": 0.25}}'))
    assert (await session.call_tool("echo", {"text": "?"})).reward == 0.25


@pytest.mark.parametrize("error", ["one line", "two\nlines", "", "  spaces  ", "é漢"])
async def test_an_error_of_several_lines_or_none(server: FaultServer, session: AsyncSession, error: str) -> None:
    data = "".join(f"data: {line}\r\n" for line in error.split("\n")) if error else ""
    server.script("call", Fault(body=f"event: error\r\n{data}\r\n".encode(), headers={"Content-Type": "text/event-stream"}))
    with pytest.raises(ToolFailed) as failed:
        await session.call_tool("echo", {"text": "?"})
    assert failed.value.detail == error
