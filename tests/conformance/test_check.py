"""What a check does and does not do, whatever the server."""

import asyncio
import socket
from itertools import groupby
from typing import Any

import pytest

from ors_gym.conformance import Report, acheck_server, check_server
from ors_gym.conformance._sse import Event, parse_stream
from ors_gym.conformance.check import is_loopback
from ors_gym.conformance.checks import REQUIREMENTS
from ors_gym.errors import ConnectionFailed, NotFound
from tests.servers.standard import Mutant, Standard, standard_server


class Watched(Standard):
    """Notes every request, and which sessions live."""

    seen: list[str]
    live: dict[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        Watched.seen, Watched.live = [], self.sessions

    def respond(self, scope: Any, raw: bytes) -> tuple[int, str, bytes]:
        Watched.seen.append(f"{scope['method']} /{scope['path'].rpartition('/')[2]}")
        return super().respond(scope, raw)


WATCHED = Mutant("watched", "", server=Watched)


def test_without_leave_to_call_it_lists_and_reads_only() -> None:
    with standard_server(WATCHED) as base_url:
        report = check_server(base_url, call_tools=False)

    assert {request for request in Watched.seen if "GET" not in request} == {
        "POST /tasks",
        "POST /num_tasks",
        "POST /task",
        "POST /task_range",
    }
    assert report.worst == "pass"
    assert "--call-tools" in report["call-content-type"].observed
    assert report["create-by-index"].verdict == "not testable"
    assert report["range-negative-stop"].verdict == "pass"


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://localhost:8080/prefix", True),
        ("http://[::1]:8080", True),
        ("http://127.8.9.1", True),
        ("http://0.0.0.0:8080", False),
        ("http://10.0.0.1:8080", False),
        ("https://localhost.example.com", False),
        ("https://example.com", False),
    ],
)
def test_only_loopback_is_called_without_being_told_to(base_url: str, expected: bool) -> None:
    assert is_loopback(base_url) is expected


def test_a_server_elsewhere_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with standard_server(WATCHED) as base_url:
        elsewhere = base_url.replace("127.0.0.1", "elsewhere.test")
        resolve = socket.getaddrinfo
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *rest, **more: resolve("127.0.0.1" if "elsewhere" in str(host) else host, *rest, **more),
        )
        check_server(elsewhere)
        assert "POST /create" not in Watched.seen

        check_server(elsewhere, call_tools=True)
        assert "POST /create" in Watched.seen
        assert Watched.live == {}


def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    with pytest.raises(ConnectionFailed, match=r"cannot reach http://127\.0\.0\.1:9"):
        check_server("http://127.0.0.1:9")


def test_an_unknown_environment_is_named_with_those_that_are_there() -> None:
    with standard_server() as base_url, pytest.raises(NotFound, match="no environment 'third'; it has 'playground', 'second'"):
        check_server(base_url, "third")


def test_the_second_environment_can_be_checked() -> None:
    with standard_server() as base_url:
        report = check_server(base_url, "second")

    assert (report.env_name, report.worst) == ("second", "pass")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b"null", b"7", b'"text"', b'{"tools": 3}', b"[[[]]]", b"\xff\xfe", b"NaN"], ids=repr
)
def test_any_nonsense_gives_a_report(body: bytes) -> None:
    nonsense = Mutant("nonsense", "", answer=lambda route, status, _: (200, body))

    with standard_server(nonsense) as base_url:
        report = check_server(base_url, call_timeout=2.0)

    assert report.worst == "violation"
    assert report["environments-shape"].verdict == "violation"


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("tools", {"tools": None}),
        ("tools", {"tools": [{"name": "echo", "description": "", "input_schema": True}]}),
        ("tools", {"tools": [{"name": "echo", "description": "", "input_schema": {"properties": 3, "required": "text"}}]}),
        ("tools", {"tools": [7, {"name": ["a"]}, {}]}),
        ("splits", [{"name": "train", "type": {}}, {"name": 7}]),
        ("num_tasks", {"num_tasks": True}),
        ("task", {"task": [1]}),
        ("create_session", {"sid": {}}),
        ("prompt", [None, {"type": []}, {"type": "image", "data": 1}]),
        ("task_tools", {"tools": [{"name": "echo", "input_schema": 7}]}),
    ],
)
def test_nonsense_in_one_place_gives_a_report(route: str, body: Any) -> None:
    nonsense = Mutant("nonsense", "", answer=lambda name, status, old: (status, body if name == route and status == 200 else old))
    chosen = tuple(requirement for requirement in REQUIREMENTS if requirement.id != "session-outlives-idleness")

    with standard_server(nonsense) as base_url:
        report = asyncio.run(acheck_server(base_url, call_timeout=2.0, requirements=chosen))

    assert report.worst == "violation"
    assert report["health-status"].verdict == "pass"


def test_a_schema_that_points_elsewhere_is_not_fetched() -> None:
    elsewhere = {"$ref": "http://127.0.0.1:9/schema.json"}
    tool = {"name": "echo", "description": "", "input_schema": elsewhere}
    mutant = Mutant("elsewhere", "", answer=lambda name, status, old: (status, {"tools": [tool]} if name == "tools" else old))

    with standard_server(mutant) as base_url:
        report = check_server(base_url)

    assert "echo: its schema cannot be sampled" in report["call-content-type"].observed


def test_a_report_is_json_values_with_rows() -> None:
    with standard_server() as base_url:
        report = check_server(base_url, call_tools=False)
    written = report.to_dict()

    assert written["rows"][0] == {
        "id": "health-status",
        "endpoint": "GET /health",
        "says": "A running server answers 200.",
        "page": "HTTP API Reference",
        "observed": "200",
        "verdict": "pass",
    }
    assert sum(written["counts"].values()) == len(written["rows"]) == len(report)
    with pytest.raises(KeyError):
        report["nothing"]


def test_the_worst_verdict_counts() -> None:
    empty = Report("http://x", "env", ())

    assert empty.worst == "pass"
    assert repr(empty) == "Report('http://x', 'env': 0 pass, 0 not testable, 0 deviation, 0 violation)"


def test_rows_of_one_endpoint_stand_together() -> None:
    with standard_server() as base_url:
        endpoints = [row.endpoint for row in check_server(base_url, call_tools=False)]

    assert [name for name, _ in groupby(endpoints)] == list(dict.fromkeys(endpoints))


@pytest.mark.parametrize(
    ("content", "events", "faults"),
    [
        (b"event: a\ndata: 1\n\n", [Event("a", "1")], 0),
        (b"event: a\r\ndata: 1\r\ndata: 2\r\n\r\n", [Event("a", "1\n2")], 0),
        (b"event:a\rdata:  1\r\r", [Event("a", " 1")], 0),
        (b": ping\n\ndata: 1\n\n", [Event("message", "1")], 0),
        ("data: a\u2028b\x85\x0c\n\n".encode(), [Event("message", "a\u2028b\x85\x0c")], 0),
        (b"event: end\ndata\n\n", [Event("end", "")], 0),
        (b"event: end\n\n", [], 1),
        (b"event: a\ndata: 1\n", [], 1),
        (b"data: 1\n\nloose words\n\n", [Event("message", "1")], 1),
        (b"data: \xff\n\n", [Event("message", "\ufffd")], 1),
    ],
)
def test_event_streams_are_read_by_the_rules(content: bytes, events: list[Event], faults: int) -> None:
    stream = parse_stream(content)

    assert stream.events == events
    assert len(stream.faults) == faults
