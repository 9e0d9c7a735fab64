"""A server for the doctests that use `base_url`: the bundled environment, in a process of its own, once a session."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ors_gym.serving import LocalServer

# A background job ignores Ctrl-C, and one under `nohup` SIGHUP, and both hand that down: the programs that the tests end by a
# signal would never notice. A handler, unlike what is ignored, is not handed down.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.fixture(scope="session")
def largest_digit() -> Iterator[LocalServer]:
    """The bundled environment on a local server."""
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
        yield server


@pytest.fixture(autouse=True)
def _server_for_doctests(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if isinstance(request.node, pytest.DoctestItem) and "base_url" in (request.node.dtest.docstring or ""):
        doctest_namespace["base_url"] = request.getfixturevalue("largest_digit").base_url
