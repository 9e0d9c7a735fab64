"""Episodes on a Ray cluster: the same as without one, also when a worker is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ors_gym.client import AsyncORSClient
from ors_gym.episode import Episode
from ors_gym.errors import ConnectionFailed
from ors_gym.rollout import Tasks, collect_episodes, collect_groups, evaluate
from ors_gym.rollout.ray import MAX_DEATHS, RayExecutor
from ors_gym.serving import LocalServer
from tests.integrations.scripts import SMALL, run_script
from tests.servers.sdk_server import SDKServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalServer]:
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"], workers=2) as server:
        yield server


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    with RayExecutor(2, init_options={"num_cpus": 2}) as executor:
        yield executor


def make_agent(kill_on: int | None = None, marker: Path | None = None) -> Any:
    """Right on every second number. On one task it kills the process it runs in: once where there is a marker file, else always."""

    def agent(conversation: Any) -> dict[str, Any]:
        if conversation.episode.task.index == kill_on and not (marker is not None and marker.exists()):
            if marker is not None:
                marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        digits = str(conversation.observation).strip("=")
        return {"name": "submit", "input": {"answer": max(digits) if int(digits) % 2 else "none"}}

    return agent


async def test_a_thousand_episodes_on_two_workers_are_those_on_none(servers: LocalServer, executor: RayExecutor) -> None:
    tasks = Tasks(list(servers.base_urls), "largest_digit", split="train", num_tasks=250)
    seen: list[Episode] = []

    groups = await collect_groups(make_agent(), tasks, group_size=4, executor=executor, on_episode=seen.append)
    expected = await collect_groups(make_agent(), tasks, group_size=4)

    assert [(group.task, group.rewards) for group in groups] == [(group.task, group.rewards) for group in expected]
    assert len(seen) == len({episode.id for episode in seen}) == 1000
    assert {reward for group in groups for reward in group.rewards} == {0.0, 1.0}


async def test_both_workers_play_each_on_its_server(executor: RayExecutor) -> None:
    async def played_by(conversation: Any) -> dict[str, Any]:
        await asyncio.sleep(0.05)  # long enough for both to have work
        return {"name": "submit", "input": {"answer": f"process {os.getpid()}"}}

    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"], workers=2) as servers:
        tasks = Tasks(list(servers.base_urls), split="train", num_tasks=40)
        episodes = await collect_episodes(played_by, tasks, executor=executor, max_concurrency=8)

    processes = {step.call.input["answer"] for episode in episodes for step in episode.steps if step.call}
    assert len(processes) == 2
    assert f"process {os.getpid()}" not in processes


async def test_evaluation_is_the_same(servers: LocalServer, executor: RayExecutor, tmp_path: Path) -> None:
    tasks = Tasks(list(servers.base_urls), "largest_digit", split="test", num_tasks=20)

    there = await evaluate(make_agent(), tasks, k=2, executor=executor, out=tmp_path / "there")
    here = await evaluate(make_agent(), tasks, k=2)

    assert there.rewards == here.rewards
    assert there.overall.mean_reward == here.overall.mean_reward


async def test_a_worker_that_is_killed_loses_and_doubles_nothing(
    servers: LocalServer, executor: RayExecutor, tmp_path: Path
) -> None:
    tasks = Tasks(list(servers.base_urls), "largest_digit", split="train", num_tasks=100)
    agent, marker = make_agent(kill_on=40, marker=tmp_path / "killed"), tmp_path / "killed"
    seen: list[Episode] = []

    groups = await collect_groups(agent, tasks, group_size=2, executor=executor, on_episode=seen.append)
    expected = await collect_groups(make_agent(), tasks, group_size=2)

    assert marker.exists()
    assert [(group.task, group.rewards) for group in groups] == [(group.task, group.rewards) for group in expected]
    assert len({(episode.task.index, episode.metadata["rollout"]) for episode in seen}) == len(seen) == 200
    assert len({episode.session_id for episode in seen}) == 200


async def test_a_job_that_kills_every_worker_is_given_up(servers: LocalServer, executor: RayExecutor) -> None:
    tasks = Tasks(servers.base_url, "largest_digit", split="train", indices=[7])

    [episode] = await collect_episodes(make_agent(kill_on=7), tasks, executor=executor)

    assert MAX_DEATHS == 3
    assert episode.unscored
    assert episode.error == "the executor gave back no episode"


async def test_a_collection_that_is_cancelled_leaves_no_session(ors_server: SDKServer, executor: RayExecutor) -> None:
    tasks = Tasks(ors_server.base_url, "faulty", split="train")
    sessions_before = set(ors_server.live_sessions())

    def slow(conversation: Any) -> dict[str, Any]:
        return {"name": "slow", "input": {"seconds": 60}}

    collection = asyncio.create_task(collect_episodes(slow, tasks, executor=executor))
    async for sessions in _polled(ors_server):
        if len(sessions - sessions_before) == 10:
            break
    collection.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collection

    assert set(ors_server.live_sessions()) == sessions_before


async def test_a_server_that_a_worker_cannot_reach_is_an_error(servers: LocalServer, executor: RayExecutor) -> None:
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
        gone = server.base_url
    tasks = Tasks([servers.base_urls[0], gone], "largest_digit", split="train", num_tasks=4)

    with pytest.raises(ConnectionFailed, match=gone):
        await collect_episodes(make_agent(), tasks, executor=executor)


async def test_a_client_cannot_go_to_another_process(servers: LocalServer, executor: RayExecutor) -> None:
    async with AsyncORSClient(servers.base_url) as client:
        with pytest.raises(TypeError, match="AsyncORSClient cannot go to Ray's workers"):
            await collect_episodes(make_agent(), Tasks(client, split="train", num_tasks=1), executor=executor)


def test_the_script_trains_the_same_policy_on_ray_as_without(tmp_path: Path, ors_server: SDKServer) -> None:
    arguments = ["--base-url", ors_server.base_url, *SMALL, "--tasks-per-round", "4", "--group-size", "4", "--eval-tasks", "4"]

    on_ray = run_script("ray/train.py", tmp_path, *arguments)
    without = run_script("ray/train.py", tmp_path, *arguments, "--num-workers", "0")

    assert "6 calls" in on_ray.output
    assert (on_ray.before, on_ray.after) == (without.before, without.after)


async def _polled(server: SDKServer) -> AsyncIterator[set[str]]:
    """The server's sessions again and again."""
    while True:
        yield set(await asyncio.to_thread(server.live_sessions))
