"""Properties: a valid stream is read the same however it is cut; any bytes give a result or an error of ours, and no hang."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ors_gym import errors
from ors_gym.client import AsyncORSClient, ORSClient, Session, Timeout
from ors_gym.client._json import BadPayload, decode, dump, parse
from ors_gym.client._sse import Outcome, read_events
from ors_gym.protocol import (
    RunToolSuccess,
    blocks_adapter,
    list_tools_adapter,
    run_tool_output_adapter,
    splits_adapter,
    tasks_adapter,
)
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import QUICK, Pieces

text = st.text(st.characters(codec="utf-8"), max_size=60)
any_text = st.text(max_size=60)  # lone surrogates among it
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(any_text, children, max_size=4),
    max_leaves=12,
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, str]:
    """An event stream by the rules of WHATWG, and the result that it carries."""
    result = draw(text.map(lambda words: words.replace("\r", "").replace("\n", "")))
    line_end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    space = draw(st.sampled_from(["", " "]))
    borders = sorted(draw(st.lists(st.integers(0, len(result)), max_size=4)))
    parts = [result[start:stop] for start, stop in zip([0, *borders], [*borders, len(result)], strict=True)]
    noise = st.lists(
        st.sampled_from([":", ": ping", "id: 7", "retry: 5", "retry: x", "nonsense", "other: field", "event: chunk"]), max_size=2
    )
    lines: list[str] = []
    for number, part in enumerate(parts):
        lines += draw(noise)
        lines.append(f"event:{space}{'end' if number == len(parts) - 1 else 'chunk'}")
        lines.append(f"data: {part}" if space or part.startswith(" ") else f"data:{part}")
        lines += draw(st.lists(st.sampled_from([":", ": x"]), max_size=1))
        lines.append("")
        lines += draw(
            st.lists(st.sampled_from(["", ": comment", "event: other\ndata: ignored\n".replace("\n", line_end)]), max_size=2)
        )
    return (line_end.join([*lines, ""])).encode(), result


@given(stream=streams(), data=st.data())
def test_a_stream_is_read_the_same_however_it_is_cut(stream: tuple[bytes, str], data: st.DataObject) -> None:
    whole, result = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    async def read() -> Outcome:
        return await read_events(Pieces(AsyncORSClient("http://localhost")).reply(*pieces), lambda task_id: None)

    assert asyncio.run(read()).result == result


@given(json_values)
def test_json_comes_back_as_it_was_written(value: Any) -> None:
    assert parse(dump(value)) == value


@given(
    st.binary(max_size=200)
    | json_values.map(dump)
    | st.text(alphabet='{}[]":,0123456789eE+-.truefalsnl \\u', max_size=60).map(str.encode)
)
def test_any_bytes_are_a_value_or_a_bad_payload(payload: bytes) -> None:
    for adapter in (run_tool_output_adapter, blocks_adapter, list_tools_adapter, splits_adapter, tasks_adapter):
        with suppress(BadPayload):
            decode(adapter, payload)  # type: ignore[arg-type]


blocks = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("text"), "text": any_text},
        optional={"detail": st.none() | st.dictionaries(any_text, json_values, max_size=2)},
    )
    | st.fixed_dictionaries({"type": st.just("image"), "data": any_text, "mimeType": any_text})
    | st.fixed_dictionaries({"type": st.sampled_from(["audio", "video", ""]), "more": json_values}),
    max_size=3,
)
outputs = st.fixed_dictionaries(
    {"blocks": blocks},
    optional={
        "reward": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6),
        "finished": st.booleans(),
        "metadata": st.none() | st.dictionaries(any_text, json_values, max_size=3),
        "unknown": json_values,
    },
)


@given(outputs)
def test_every_valid_output_is_read_and_nothing_of_it_is_lost(output: dict[str, Any]) -> None:
    result = decode(run_tool_output_adapter, dump({"ok": True, "output": output}))
    assert isinstance(result, RunToolSuccess)
    assert result.output.model_dump(exclude_unset=True) == {**output, "blocks": tuple(output["blocks"])}


@pytest.fixture(scope="module")
def session() -> Iterator[tuple[FaultServer, Session]]:
    with FaultServer() as server, ORSClient(server.base_url, retry=QUICK, timeout=Timeout(silence=5.0, tool_call=20.0)) as client:
        with client.environment("fault").session(split="train", index=0) as session:
            session.get_prompt()
            yield server, session


sse_like = st.lists(
    st.sampled_from([b"event: ", b"data: ", b"task_id", b"chunk", b"end", b"error", b"\n", b"\r\n", b"\r", b": x", b"id: 1", b" "])
    | st.just(json.dumps({"ok": True, "output": {}}).encode())
    | st.binary(max_size=5),
    max_size=25,
).map(b"".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=sse_like | st.binary(max_size=100),
    content_type=st.sampled_from(["text/event-stream", "application/json", ""]),
    status=st.sampled_from([None, None, None, 200, 204, 302, 400, 404, 418, 500]),
    packet=st.sampled_from([None, 1, 3]),
)
def test_any_answer_to_a_call_is_a_result_or_an_error_of_ours(
    session: tuple[FaultServer, Session], body: bytes, content_type: str, status: int | None, packet: int | None
) -> None:
    server, live = session
    server.script("call", Fault(body=body, status=status, headers={"Content-Type": content_type}, packet=packet))
    with suppress(errors.ORSError):
        live.call_tool("echo", {"text": "?"})
    assert not live.asynchronous._live.gone  # type: ignore[union-attr]
    server._scripts["call"].clear()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: b"HTTP/1.1 200 OK\r\n" + rest))
def test_any_bytes_on_the_wire_are_a_result_or_an_error_of_ours(session: tuple[FaultServer, Session], raw: bytes) -> None:
    server, live = session
    server.script("call", Fault(raw=raw))
    with suppress(errors.ORSError):
        live.call_tool("echo", {"text": "?"})
    assert not live.asynchronous._live.gone  # type: ignore[union-attr]
    server._scripts["call"].clear()
