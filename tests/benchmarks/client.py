"""The client's cost beside its peers', against a server that costs nothing."""

from functools import partial

from tests.benchmarks._clients import ALL, OPENREWARD, OURS, RAW, SDK
from tests.benchmarks._measure import episodes, in_turn, medians, raise_descriptor_limit
from tests.benchmarks._stub import StubServer
from tests.benchmarks.table import Cell, Table

NAME = "client"


def run(quick: bool) -> list[Table]:
    """CPU and pace at 1, 16, 64 and 256 episodes in flight, by client; and ours from 16 to 1,024."""
    raise_descriptor_limit()
    with StubServer() as server:
        return [_beside_peers(server.base_url, quick), _with_concurrency(server.base_url, quick)]


def _beside_peers(base_url: str, quick: bool) -> Table:
    counts = {1: 200, 16: 400, 64: 1000, 256: 1000}
    rows = []
    cpu: dict[tuple[int, str], float] = {}
    for in_flight, count in counts.items():
        count = 20 if quick else count
        sides = {client: partial(episodes, client, base_url, "stub", "submit", count, in_flight) for client in ALL}
        for client, measured in in_turn(sides, 1 if quick else 5).items():
            cpu[in_flight, client], pace, _ = medians(measured)
            rows.append([f"{in_flight} in flight", client, cpu[in_flight, client], pace, None])
        for row in rows[-len(ALL) :]:
            row[4] = cpu[in_flight, OURS] / float(row[2] or 1)
    targets = {}
    for in_flight in (64, 256):
        of_sdk = cpu[in_flight, OURS] / cpu[in_flight, SDK]
        of_raw = cpu[in_flight, OURS] / cpu[in_flight, RAW]
        targets[f"{in_flight} in flight: {of_sdk:.2f} of {SDK}'s CPU (at most 0.33)"] = of_sdk <= 1 / 3
        targets[f"{in_flight} in flight: {of_raw:.2f} times raw aiohttp's CPU (at most 2.5)"] = of_raw <= 2.5
    return Table(
        "An episode's cost to the client (create_session, create, prompt, one tool call, delete), stub server",
        ["", "client", "CPU s / 1,000", "episodes / s", "ours / its"],
        rows,
        targets,
        f"Medians of 5, in turn. {SDK} and {OPENREWARD} send 7 requests an episode, the others 5.",
    )


def _with_concurrency(base_url: str, quick: bool) -> Table:
    counts = {16: 3_000, 1024: 10_000}
    sides = [(client, in_flight) for client in (OURS, RAW) for in_flight in counts]
    plays = {
        (client, in_flight): partial(
            episodes, client, base_url, "stub", "submit", 50 if quick else counts[in_flight], 64 if quick else in_flight
        )
        for client, in_flight in sides
    }
    measured = {side: medians(rows) for side, rows in in_turn(plays, 1 if quick else 5).items()}
    of_16 = {(client, in_flight): figures[0] / measured[client, 16][0] for (client, in_flight), figures in measured.items()}
    rows: list[list[Cell]] = [[f"{side[1]:,} in flight", side[0], *measured[side], of_16[side]] for side in sides]
    ratio = of_16[OURS, 1024]
    return Table(
        f"The cost of concurrency, {counts[16]:,} and {counts[1024]:,} episodes",
        ["", "client", "CPU s / 1,000", "episodes / s", "loop late by, ms", "of 16's CPU"],
        rows,
        {f"1,024 in flight cost {ratio:.2f} times 16 (at most 1.5)": ratio <= 1.5},
        "A loop is late by as much as an iteration of it takes, with the garbage collections in it.",
    )
