"""Plays episodes, and tells what that cost. A process of its own, so that no client pays for what another one imports.

`python -m tests.benchmarks._episodes CLIENT BASE_URL ENV_NAME TOOL COUNT IN_FLIGHT`
"""

import asyncio
import json
import statistics
import sys
import time

from tests.benchmarks._clients import ALL
from tests.benchmarks._measure import raise_descriptor_limit, workers


async def play(client: str, base_url: str, env_name: str, tool: str, count: int, in_flight: int) -> tuple[float, float, float]:
    """CPU seconds of this process for 1,000 episodes, episodes a second, and by how many ms the loop was late, as a median."""
    async with ALL[client](base_url, env_name, tool, {"answer": "4"}) as episode:
        await workers(episode, in_flight, in_flight)  # the connections are there, as in a long run
        late: list[float] = []
        watch = asyncio.create_task(_watch(late))
        cpu, clock = time.process_time(), time.perf_counter()
        await workers(episode, count, in_flight)
        cost, pace = (time.process_time() - cpu) / count * 1000, count / (time.perf_counter() - clock)
        watch.cancel()
        return cost, pace, statistics.median(late or [0.0]) * 1000


async def _watch(late: list[float]) -> None:
    """Notes, a hundred times a second at most, by how many seconds a timer comes too late."""
    while True:
        due = time.perf_counter() + 0.01
        await asyncio.sleep(0.01)
        late.append(time.perf_counter() - due)


if __name__ == "__main__":
    raise_descriptor_limit()
    client, base_url, env_name, tool, count, in_flight = sys.argv[1:]
    print(json.dumps(asyncio.run(play(client, base_url, env_name, tool, int(count), int(in_flight)))))
