"""A server for the doctests that use `base_url`: the bundled environment, in a process of its own, once a session."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ors_gym.serving import LocalServer

# A shell's background job ignores Ctrl-C and hands that down: the programs that the tests interrupt would never notice.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def largest_digit() -> Iterator[LocalServer]:
    """The bundled environment on a local server."""
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
        yield server


@pytest.fixture(autouse=True)
def _server_for_doctests(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if isinstance(request.node, pytest.DoctestItem) and "base_url" in (request.node.dtest.docstring or ""):
        doctest_namespace["base_url"] = request.getfixturevalue("largest_digit").base_url
