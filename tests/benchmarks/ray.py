"""Episodes on Ray's workers, beside those in one event loop."""

import asyncio
import time
from contextlib import ExitStack
from typing import Any

from ors_gym.rollout import Executor, Tasks, collect_groups
from ors_gym.rollout.ray import RayExecutor
from ors_gym.serving import LocalServer
from tests.benchmarks.table import Table

NAME = "ray"


def run(quick: bool) -> list[Table]:
    num_tasks = 25 if quick else 250
    rows = []
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"], workers=2) as server, ExitStack() as stack:
        tasks = Tasks(list(server.base_urls), "largest_digit", split="train", num_tasks=num_tasks)
        executors: dict[str, Executor | None] = {"no Ray": None}
        for workers in (1, 2):
            executors[f"Ray, {workers} worker{'s' * (workers > 1)}"] = stack.enter_context(
                RayExecutor(workers, num_cpus=0.5, init_options={"num_cpus": 2})
            )
        for name, executor in executors.items():
            collect(_agent(0.0), tasks, executor)  # the workers are there, as in a long run
            rows.append([name, *(num_tasks * 4 / collect(_agent(seconds), tasks, executor) for seconds in (0.0, 0.005))])
    return [
        Table(
            f"{num_tasks * 4:,} episodes in groups of 4, two servers: episodes a second",
            ["", "an agent that costs nothing", "an agent that computes for 5 ms"],
            rows,
            note="servers, workers and the collecting process share this machine's cores",
        )
    ]


def collect(agent: Any, tasks: Tasks, executor: Executor | None) -> float:
    """Seconds for one collection."""
    began = time.perf_counter()
    groups = asyncio.run(collect_groups(agent, tasks, group_size=4, executor=executor))
    assert sum(group.num_unscored for group in groups) == 0
    return time.perf_counter() - began


def _agent(seconds: float) -> Any:
    def agent(conversation: Any) -> dict[str, Any]:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return {"name": "submit", "input": {"answer": max(conversation.observation)}}

    return agent
