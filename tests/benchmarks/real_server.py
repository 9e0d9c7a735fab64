"""The client's pace against the real reference server, beside the SDK's own client."""

from functools import partial

from tests.benchmarks._clients import OURS, RAW, SDK
from tests.benchmarks._measure import episodes, in_turn, medians, raise_descriptor_limit
from tests.benchmarks.table import Table
from tests.servers.sdk_server import SDKServer

NAME = "real-server"


def run(quick: bool) -> list[Table]:
    """Episodes a second at 64 and 256 in flight."""
    raise_descriptor_limit()
    rows, targets = [], {}
    for in_flight in (64, 256):
        sides = {client: partial(_played, client, 20 if quick else 1_000, 8 if quick else in_flight) for client in (OURS, SDK, RAW)}
        measured = {client: medians(values) for client, values in in_turn(sides, 1 if quick else 5).items()}
        rows += [[f"{in_flight} in flight", client, cpu, pace] for client, (cpu, pace, _) in measured.items()]
        ratio = measured[OURS][1] / measured[SDK][1]
        targets[f"{in_flight} in flight: {ratio:.2f} times {SDK}'s episodes a second (at least 1.4)"] = ratio >= 1.4
    return [
        Table(
            "Episodes against the real ors-sdk server, which takes one core",
            ["", "client", "CPU s / 1,000", "episodes / s"],
            rows,
            targets,
            "Medians of 5, in turn; each time a fresh server, since it becomes slower with every episode that it has served.",
        )
    ]


def _played(client: str, count: int, in_flight: int) -> tuple[float, float, float]:
    with SDKServer("ors") as server:
        return episodes(client, server.base_url, "arithmetic", "submit", count, in_flight)
