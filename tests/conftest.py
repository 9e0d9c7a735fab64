"""Real servers for every test that needs one: both SDKs, each in a process of its own, once a session."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.servers.sdk_server import SDKServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seconds", type=float, default=60.0, help="how long the soak test runs")
    parser.addoption("--full-episodes", action="store_true", help="play the served environments' long episodes to their end")


@pytest.fixture(scope="session")
def ors_server() -> Iterator[SDKServer]:
    """The tests' environments on the reference SDK."""
    with SDKServer("ors") as server, _shared(server):
        yield server


@pytest.fixture(scope="session")
def openreward_server() -> Iterator[SDKServer]:
    """The tests' environments on the openreward SDK."""
    with SDKServer("openreward.environments") as server, _shared(server):
        yield server


_servers: set[SDKServer] = set()


@contextmanager
def _shared(server: SDKServer) -> Iterator[None]:
    _servers.add(server)
    yield
    _servers.remove(server)


@pytest.fixture(autouse=True)
def _sessions_of_ones_own(request: pytest.FixtureRequest) -> None:
    """A test on a shared server sees its own sessions, and not one that a killed process of an earlier test may have left."""
    if not {"ors_server", "openreward_server", "real_server"}.isdisjoint(request.fixturenames):
        for server in _servers:
            server.overlook_sessions()


@pytest.fixture(params=["ors_server", "openreward_server"])
def real_server(request: pytest.FixtureRequest) -> SDKServer:
    """Each SDK's server in turn."""
    server: SDKServer = request.getfixturevalue(request.param)
    return server
