"""What a check does and does not do, whatever the server."""

import asyncio
import socket
from typing import Any

import pytest

from ors_gym.conformance import check_server
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
