"""What the synchronous face adds to a call."""

import asyncio
import statistics
import time

from ors_gym.client import AsyncORSClient, ORSClient
from tests.benchmarks._measure import in_turn, medians
from tests.benchmarks._stub import StubServer
from tests.benchmarks.table import Table

NAME = "synchronous-face"
_INPUT = {"answer": "4"}


def run(quick: bool) -> list[Table]:
    """The time of a ping and of a tool call, asynchronous and synchronous."""
    calls = 20 if quick else 500
    with StubServer() as server:

        def asynchronous() -> tuple[float, float]:
            return asyncio.run(_asynchronous(server.base_url, calls))

        def synchronous() -> tuple[float, float]:
            return _synchronous(server.base_url, calls)

        sides = {"asynchronous": asynchronous, "synchronous": synchronous}
        measured = {side: medians(values) for side, values in in_turn(sides, 1 if quick else 15).items()}
    added = [1e3 * (slow - fast) for fast, slow in zip(measured["asynchronous"], measured["synchronous"], strict=True)]
    return [
        Table(
            "A call, one after another, in ms",
            ["", "ping", "tool call"],
            [*([side, *(1e3 * seconds for seconds in values)] for side, values in measured.items()), ["added", *added]],
            {f"the synchronous face adds {max(added):.3f} ms a call (at most 0.2)": max(added) <= 0.2},
            f"Medians of {calls} calls, and of 15 rounds in turn.",
        )
    ]


async def _asynchronous(base_url: str, calls: int) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    async with AsyncORSClient(base_url) as client, client.environment("stub").session(split="train", index=0) as session:
        await session.call_tool("submit", _INPUT)
        for _ in range(calls):
            start = time.perf_counter()
            await session.ping()
            middle = time.perf_counter()
            await session.call_tool("submit", _INPUT)
            times[0].append(middle - start)
            times[1].append(time.perf_counter() - middle)
    return statistics.median(times[0]), statistics.median(times[1])


def _synchronous(base_url: str, calls: int) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    with ORSClient(base_url) as client, client.environment("stub").session(split="train", index=0) as session:
        session.call_tool("submit", _INPUT)
        for _ in range(calls):
            start = time.perf_counter()
            session.ping()
            middle = time.perf_counter()
            session.call_tool("submit", _INPUT)
            times[0].append(middle - start)
            times[1].append(time.perf_counter() - middle)
    return statistics.median(times[0]), statistics.median(times[1])
