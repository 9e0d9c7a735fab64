"""What sessions cost that do nothing: the requests and CPU that keep them alive, and their memory."""

import json
import subprocess
import sys

import httpx

from tests.benchmarks._clients import OURS, SDK
from tests.benchmarks._stub import StubServer
from tests.benchmarks.table import Table

NAME = "idle-sessions"


def run(quick: bool) -> list[Table]:
    """2,000 idle sessions for a minute, beside the SDK's; and the memory of 10,000."""
    held, seconds, many = (200, 2.0, 1_000) if quick else (2_000, 60.0, 10_000)
    with StubServer() as server:
        rows = []
        for client in (OURS, SDK):
            pings = _pings(server)
            cost = _hold(client, server, held, seconds)
            rows.append([client, (_pings(server) - pings) / seconds, cost["cpu"], cost["bytes"] / 1000])
        bytes_each = _hold(OURS, server, many, 0.0)["bytes"]
    return [
        Table(
            f"{held:,} idle sessions for {seconds:.0f} s",
            ["client", "pings / s", "CPU s", "kB / session"],
            rows,
            note="The server's idle time-out is 15 minutes; ors-gym pings after a minute of silence, the SDK every 10 s.",
        ),
        Table(
            f"{many:,} open sessions on one client",
            ["client", "kB / session"],
            [[OURS, bytes_each / 1000]],
            {f"{bytes_each / 1000:.1f} kB a session (at most 15)": bytes_each <= 15_000},
        ),
    ]


def _hold(client: str, server: StubServer, sessions: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks._hold", client, server.base_url, str(sessions), str(seconds)]
    result: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return result


def _pings(server: StubServer) -> int:
    return int(httpx.get(f"{server.base_url}/pings").text)
