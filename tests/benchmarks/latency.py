"""How long a tool result of some size takes, and whether that is linear in its size."""

import asyncio
import statistics
import time

import aiohttp

from ors_gym.client import AsyncORSClient
from tests.benchmarks._stub import SIZES, StubServer
from tests.benchmarks.table import Table

NAME = "latency"
_NAMES = dict(zip(SIZES, ("4 kB", "64 kB", "1 MB", "16 MB"), strict=True))


def run(quick: bool) -> list[Table]:
    """The time of a tool call by the size of its result, beside reading the same bytes without looking at them."""
    sizes = SIZES[:3] if quick else SIZES
    with StubServer() as server:
        ours, bytes_only = asyncio.run(_measure(server.base_url, sizes, 2 if quick else 9))
    rows = [[_NAMES[size], 1e3 * ours[size], 1e3 * bytes_only[size], 1e3 * ours[size] / (size / 2**20)] for size in sizes]
    targets = {}
    if not quick:
        growth = ours[SIZES[3]] / ours[SIZES[2]]
        targets[f"16 MB take {growth:.1f} times 1 MB (linear: 16)"] = growth <= 24
    columns = ["result", "ms", "bytes only, ms", "ms / MB"]
    return [Table("A tool call by the size of its result", columns, rows, targets, "Medians of 9, in turn.")]


async def _measure(base_url: str, sizes: tuple[int, ...], repeats: int) -> tuple[dict[int, float], dict[int, float]]:
    ours: dict[int, list[float]] = {size: [] for size in sizes}
    bytes_only: dict[int, list[float]] = {size: [] for size in sizes}
    async with AsyncORSClient(base_url) as client, aiohttp.ClientSession(base_url) as raw:
        for _ in range(repeats):
            for size in sizes:
                async with client.environment(f"size{size}").session(split="train", index=0) as session:
                    await session.get_prompt()
                    start = time.perf_counter()
                    output = await session.call_tool("submit", {"answer": "4"})
                    ours[size].append(time.perf_counter() - start)
                    assert output.finished
                start = time.perf_counter()
                async with raw.post(f"/size{size}/call", json={"name": "submit", "input": {"answer": "4"}}) as response:
                    await response.read()
                bytes_only[size].append(time.perf_counter() - start)
    return tuple({size: statistics.median(values) for size, values in side.items()} for side in (ours, bytes_only))  # type: ignore[return-value]
