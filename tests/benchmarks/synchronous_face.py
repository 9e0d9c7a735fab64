"""What the synchronous face adds to a call."""

import asyncio
import time

from ors_gym.client import AsyncORSClient, ORSClient
from tests.benchmarks._measure import in_turn, medians
from tests.benchmarks._stub import StubServer
from tests.benchmarks.table import Table

NAME = "synchronous-face"


def run(quick: bool) -> list[Table]:
    """The time of a ping and of a tool call, asynchronous and synchronous."""
    calls = 20 if quick else 1_000
    with StubServer() as server:

        def asynchronous() -> tuple[float, float]:
            async def measure() -> tuple[float, float]:
                async with AsyncORSClient(server.base_url) as client:
                    async with client.environment("stub").session(split="train", index=0) as session:
                        await session.call_tool("submit", {"answer": "4"})
                        start = time.perf_counter()
                        for _ in range(calls):
                            await session.ping()
                        middle = time.perf_counter()
                        for _ in range(calls):
                            await session.call_tool("submit", {"answer": "4"})
                        return (middle - start) / calls, (time.perf_counter() - middle) / calls

            return asyncio.run(measure())

        def synchronous() -> tuple[float, float]:
            with ORSClient(server.base_url) as client:
                with client.environment("stub").session(split="train", index=0) as session:
                    session.call_tool("submit", {"answer": "4"})
                    start = time.perf_counter()
                    for _ in range(calls):
                        session.ping()
                    middle = time.perf_counter()
                    for _ in range(calls):
                        session.call_tool("submit", {"answer": "4"})
                    return (middle - start) / calls, (time.perf_counter() - middle) / calls

        sides = {"asynchronous": asynchronous, "synchronous": synchronous}
        measured = {side: medians(values) for side, values in in_turn(sides, 1 if quick else 7).items()}
    added = [1e3 * (slow - fast) for fast, slow in zip(measured["asynchronous"], measured["synchronous"], strict=True)]
    return [
        Table(
            "A call, one after another, in ms",
            ["", "ping", "tool call"],
            [*([side, *(1e3 * seconds for seconds in values)] for side, values in measured.items()), ["added", *added]],
            {f"the synchronous face adds {max(added):.3f} ms a call (at most 0.2)": max(added) <= 0.2},
            "Medians of 7, in turn.",
        )
    ]
