"""How to measure: sides in turn, medians, this process's CPU."""

import asyncio
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.benchmarks._clients import Episode


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


def episodes(client: str, base_url: str, env_name: str, tool: str, count: int, in_flight: int) -> tuple[float, float, float]:
    """Plays episodes in a process of their own.

    Args:
        client: One of the clients that are compared.
        base_url, env_name, tool: What is played.
        count: How many episodes.
        in_flight: How many at once.

    Returns:
        CPU seconds of the client for 1,000 episodes, episodes a second, and by how many ms its event loop was late, as a median.
    """
    command = [sys.executable, "-m", "tests.benchmarks._episodes", client, base_url, env_name, tool, str(count), str(in_flight)]
    cpu, pace, late = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return cpu, pace, late


async def workers(episode: Episode | Callable[[], Awaitable[Any]], count: int, in_flight: int) -> None:
    """Plays `count` episodes, `in_flight` at a time."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await episode()

    await asyncio.gather(*(work() for _ in range(min(in_flight, count))))
