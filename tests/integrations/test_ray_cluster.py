"""A Ray cluster that runs already: the script joins it by its address, and leaves it as it was."""

import re
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integrations.scripts import SMALL, run_script
from tests.servers.sdk_server import SDKServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Popen]:
    """The first process of a cluster of one node, with a token of its own that the script inherits.

    It ends with that process: `ray stop` would stop every Ray on the machine.
    """
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex())
    monkeypatch.setenv("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a path short enough for the sockets in it
        head = psutil.Popen(
            [
                Path(sys.executable).with_name("ray"),
                *("start", "--head", "--block", "--port=0", f"--ray-client-server-port={free_port}", f"--temp-dir={folder}"),
                *("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield head
        finally:
            children = head.children(recursive=True) if head.is_running() else []
            head.terminate()
            _, left = psutil.wait_procs([head, *children], timeout=20)
            for process in left:
                process.kill()
            head.stdout.close()


def address_of(cluster: psutil.Popen) -> str:
    """What `ray start` prints for others to join with."""
    printed = ""
    for line in cluster.stdout:
        printed += line
        if found := re.search(r"--address='([^']+)'", line):
            return found[1]
    raise AssertionError(f"ray start ended:\n{printed}")


def test_the_script_trains_the_same_policy_on_a_cluster_by_its_address_as_without(
    tmp_path: Path, ors_server: SDKServer, cluster: psutil.Popen
) -> None:
    arguments = ["--base-url", ors_server.base_url, *SMALL, "--tasks-per-round", "4", "--group-size", "4", "--eval-tasks", "4"]
    address = address_of(cluster)

    on_cluster = run_script("ray/train.py", tmp_path, *arguments, "--ray-address", address)
    without = run_script("ray/train.py", tmp_path, *arguments, "--num-workers", "0")

    assert f"Connecting to existing Ray cluster at address: {address}" in on_cluster.output
    assert (on_cluster.before, on_cluster.after) == (without.before, without.after)
    assert cluster.is_running()
