"""What a collection costs beside bare sessions, and what records and statistics cost."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ors_gym.client import AsyncORSClient
from ors_gym.episode import Episode, Step
from ors_gym.protocol import TextBlock, ToolCall, ToolSpec
from ors_gym.records import load_records, read_records, write_records
from ors_gym.rollout import ScriptedAgent, Tasks, bootstrap_interval, evaluate
from ors_gym.serving import LocalServer
from ors_gym.tasks import TaskRef
from tests.benchmarks.table import Table

NAME = "rollouts"

_CALL = ToolCall(name="submit", input={"answer": "7"})
_REQUESTS = {"bare sessions": 5, "evaluate": 6}


def run(quick: bool) -> list[Table]:
    return [_collections(quick), _files(quick)]


def _collections(quick: bool) -> Table:
    episodes, rounds = (64, 1) if quick else (2_000, 3)
    rows = []
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
        for at_once in (8,) if quick else (16, 64, 256):
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in _REQUESTS}
            for _ in range(rounds):
                seconds["bare sessions"].append(_timed(lambda at_once=at_once: _bare(server.base_url, episodes, at_once)))
                seconds["evaluate"].append(_timed(lambda at_once=at_once: _evaluated(server.base_url, episodes, at_once)))
            for name, measured in seconds.items():
                wall = statistics.median(wall for wall, _ in measured)
                cpu = statistics.median(cpu for _, cpu in measured)
                rows.append([at_once, name, _REQUESTS[name], episodes / wall, cpu / episodes * 1000])
    return Table(
        "Episodes of one call, on the reference server on this machine",
        ["at once", "", "requests an episode", "episodes/s", "client CPU s per 1,000"],
        rows,
        note="evaluate also asks for the task's tools, keeps the ledger, scores it and writes its record",
    )


async def _bare(base_url: str, episodes: int, at_once: int) -> None:
    async with AsyncORSClient(base_url) as client:
        environment = client.environment("largest_digit")
        waiting = iter(range(episodes))

        async def work() -> None:
            for number in waiting:
                async with environment.session(split="train", index=number % 900) as session:
                    await session.get_prompt()
                    await session.call_tool(_CALL.name, _CALL.input)

        await asyncio.gather(*(work() for _ in range(at_once)))


async def _evaluated(base_url: str, episodes: int, at_once: int) -> None:
    tasks = Tasks(base_url, "largest_digit", refs=[TaskRef("train", number % 900) for number in range(episodes)])
    with tempfile.TemporaryDirectory() as folder:
        results = await evaluate(ScriptedAgent([_CALL]), tasks, max_concurrency=at_once, out=folder)
    assert results.overall.num_scored == episodes


def _timed(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Seconds on the clock, and of this process's CPU."""

    async def main() -> None:
        await work()

    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(main())
    return time.perf_counter() - wall, time.process_time() - cpu


def _files(quick: bool) -> Table:
    count = 100 if quick else 10_000
    text = "The total is 4 of 12. " * 10
    episodes = [
        Episode(
            TaskRef("train", number),
            "bench",
            "s",
            (TextBlock(text=text),),
            (ToolSpec(name="submit", description="Submit.", input_schema={"type": "object"}),),
            [Step(_CALL, _CALL, (TextBlock(text=text),), 0.5) for _ in range(5)],
        )
        for number in range(count)
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, work in {
            "write records": lambda: write_records(folder, episodes),
            "read records": lambda: sum(1 for _ in read_records(folder)),
            "load episodes": lambda: load_records(folder),
            "bootstrap interval of as many tasks": lambda: bootstrap_interval([number % 7 for number in range(count)]),
        }.items():
            started = time.perf_counter()
            work()
            rows.append([name, time.perf_counter() - started])
        size = (Path(folder) / "episodes.jsonl").stat().st_size / 2**20
    return Table(f"{count:,} episodes of 5 steps, {size:.0f} MiB", ["", "seconds"], rows)
