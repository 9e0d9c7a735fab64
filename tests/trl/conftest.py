"""A server with the environments of these tests."""

import os
from collections.abc import Iterator

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import pytest

from ors_gym.serving import LocalServer

_MODULES = {
    "tests.trl.environments": ["Copy", "Code", "Million", "Odd", "Together", "MixedSpecs"],
    "tests.servers.environments": ["Arithmetic", "Counter", "Faulty", "TaskTools", "BrokenSetup"],
}


@pytest.fixture(scope="session")
def trl_server() -> Iterator[LocalServer]:
    """The environments of these tests on the reference SDK."""
    with LocalServer([f"{module}:{name}" for module, names in _MODULES.items() for name in names]) as server:
        yield server


@pytest.fixture(scope="session")
def base_url(trl_server: LocalServer) -> str:
    """Its URL."""
    return trl_server.base_url
