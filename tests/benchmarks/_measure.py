"""How to measure: sides in turn, medians, this process's CPU."""

import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.benchmarks._clients import ALL, Episode


def raise_descriptor_limit() -> int:
    """Lets this process open as many files as the system allows; a connection is one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def in_turn(sides: Mapping[Any, Callable[[], float | tuple[float, ...]]], repeats: int) -> dict[Any, list[Any]]:
    """Each side's measurements, the sides taking turns, so that what else the machine does hits all of them."""
    results: dict[Any, list[Any]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, measure in sides.items():
            results[side].append(measure())
    return results


def medians(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    """The median of each column."""
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def episodes(client: str, base_url: str, env_name: str, tool: str, count: int, in_flight: int) -> tuple[float, float]:
    """Plays episodes.

    Returns:
        CPU seconds of this process for 1,000 episodes, and episodes a second.
    """

    async def run() -> tuple[float, float]:
        async with ALL[client](base_url, env_name, tool, {"answer": "4"}) as episode:
            await workers(episode, in_flight, in_flight)  # the connections are there, as in a long run
            cpu, clock = time.process_time(), time.perf_counter()
            await workers(episode, count, in_flight)
            return (time.process_time() - cpu) / count * 1000, count / (time.perf_counter() - clock)

    return asyncio.run(run())


async def workers(episode: Episode | Callable[[], Awaitable[Any]], count: int, in_flight: int) -> None:
    """Plays `count` episodes, `in_flight` at a time."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await episode()

    await asyncio.gather(*(work() for _ in range(min(in_flight, count))))
