"""Opens sessions, holds them, and tells what that cost. A process of its own, so that its memory is its own.

`python -m tests.benchmarks._hold CLIENT BASE_URL SESSIONS SECONDS`
"""

import asyncio
import gc
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import psutil

from tests.benchmarks._clients import OURS
from tests.benchmarks._measure import raise_descriptor_limit


async def hold(client: str, base_url: str, sessions: int, seconds: float) -> dict[str, float]:
    """What holding cost: CPU and resident bytes a session."""
    process = psutil.Process()
    async with AsyncExitStack() as stack:
        make = await _maker(client, base_url, stack)
        await _open(stack, make, min(100, sessions))  # code paths and connections are there
        before = _resident(process)
        await _open(stack, make, sessions - min(100, sessions))
        after = _resident(process)
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - cpu
        return {"cpu": used, "bytes": (after - before) / max(sessions - 100, 1)}


async def _maker(name: str, base_url: str, stack: AsyncExitStack) -> Any:
    if name == OURS:
        from ors_gym.client import AsyncORSClient

        environment = (await stack.enter_async_context(AsyncORSClient(base_url))).environment("stub")
        return lambda: environment.session(split="train", index=0)
    from ors.client import AsyncORS
    from ors.client._types import Task

    client = AsyncORS(base_url=base_url)  # it closes what it has when it is collected
    environment = client.environment("stub")
    stack.callback(lambda: client)
    return lambda: environment.session(task=Task(environment_name="stub", task_spec={"question": "2 + 2"}))


async def _open(stack: AsyncExitStack, make: Any, count: int) -> None:
    for start in range(0, count, 100):
        sessions = [make() for _ in range(min(100, count - start))]
        await asyncio.gather(*(stack.enter_async_context(session) for session in sessions))


def _resident(process: psutil.Process) -> int:
    gc.collect()
    size: int = process.memory_info().rss
    return size


if __name__ == "__main__":
    raise_descriptor_limit()
    result = asyncio.run(hold(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
    print(json.dumps(result))
