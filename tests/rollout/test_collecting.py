"""Groups and episodes at once: bounds, retries, cancellation, and nobody's trouble another's."""

import asyncio
import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ors_gym.client import AsyncORSClient
from ors_gym.episode import Episode
from ors_gym.errors import ConnectionFailed
from ors_gym.protocol import ToolCall
from ors_gym.rollout import (
    Conversation,
    EpisodeJob,
    JobListener,
    Progress,
    RandomAgent,
    RolloutPlan,
    ScriptedAgent,
    Tasks,
    collect_episodes,
    collect_groups,
)
from ors_gym.tasks import TaskRef
from tests.servers.sdk_server import SDKServer

SUBMIT = ScriptedAgent({f"train/{n}": [{"name": "submit", "input": {"answer": str(2 * n + 1)}}] for n in range(20)})


async def test_groups_come_in_the_order_of_the_tasks_with_their_rewards(real_server: SDKServer) -> None:
    def agent(conversation: Conversation) -> ToolCall:
        rollout, index = conversation.episode.metadata["rollout"], conversation.task.index or 0
        return ToolCall(name="submit", input={"answer": str(2 * index + 1) if rollout == index else "no"})

    tasks = Tasks(real_server.base_url, "arithmetic", split="train", num_tasks=3)
    groups = await collect_groups(agent, tasks, group_size=3)
    assert [group.task for group in groups] == [TaskRef("train", 0), TaskRef("train", 1), TaskRef("train", 2)]
    assert [group.rewards for group in groups] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert groups[1].advantages("center") == pytest.approx([-1 / 3, 2 / 3, -1 / 3])
    assert [episode.metadata for episode in groups[2].episodes] == [{"group": 2, "rollout": n, "attempt": 0} for n in range(3)]
    assert real_server.live_sessions() == []


async def test_the_default_split_and_chosen_indices(real_server: SDKServer) -> None:
    episodes = await collect_episodes(SUBMIT, Tasks(real_server.base_url, "arithmetic", indices=[7, 3]))
    assert [episode.task for episode in episodes] == [TaskRef("train", 7), TaskRef("train", 3)]
    assert [episode.rewards for episode in episodes] == [[1.0], [1.0]]


async def test_several_splits_and_several_environments(real_server: SDKServer) -> None:
    both = await collect_episodes(
        ScriptedAgent([]), Tasks(real_server.base_url, "arithmetic", split=["train", "test"], num_tasks=2)
    )
    assert [episode.task.key for episode in both] == ["train/0", "train/1", "test/0", "test/1"]
    refs = [TaskRef("train", 0, env_name="counter"), TaskRef(task_spec={"question": "1 + 1", "answer": "2"}, env_name="arithmetic")]
    async with AsyncORSClient(real_server.base_url) as client:
        episodes = await collect_episodes(lambda conversation: None, Tasks(client, refs=refs))
    assert [(episode.env_name, episode.prompt[0].text) for episode in episodes] == [
        ("counter", "Count to 3."),
        ("arithmetic", "What is 1 + 1?"),
    ]


async def test_a_client_or_environment_of_the_callers_stays_open(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment("arithmetic")
        await collect_episodes(SUBMIT, Tasks(environment, num_tasks=1))
        await collect_episodes(SUBMIT, Tasks(client, "arithmetic", num_tasks=1))
        assert await client.health()


async def test_no_more_episodes_than_max_concurrency_run_at_once(real_server: SDKServer) -> None:
    running, peak, three = 0, 0, asyncio.Barrier(3)

    async def agent(conversation: Conversation) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await three.wait()
        running -= 1

    await collect_groups(agent, Tasks(real_server.base_url, "arithmetic", num_tasks=6), group_size=2, max_concurrency=3)
    assert peak == 3


async def test_all_of_them_run_at_once_where_they_may(real_server: SDKServer) -> None:
    together = asyncio.Barrier(12)

    async def agent(conversation: Conversation) -> None:
        await together.wait()

    tasks = Tasks(real_server.base_url, "arithmetic", num_tasks=6)
    groups = await asyncio.wait_for(collect_groups(agent, tasks, group_size=2, max_concurrency=12), 30)
    assert [len(group) for group in groups] == [2] * 6


async def test_a_failed_episode_is_retried_in_a_fresh_session(real_server: SDKServer) -> None:
    sessions: list[str] = []

    def agent(conversation: Conversation) -> dict[str, Any]:
        sessions.append(conversation.episode.session_id)
        return {"name": "boom" if conversation.episode.metadata["attempt"] < 2 else "finish", "input": {}}

    [episode] = await collect_episodes(agent, Tasks(real_server.base_url, "faulty", num_tasks=1), retries=2)
    assert (episode.unscored, episode.rewards, episode.metadata["attempt"]) == (False, [1.0], 2)
    assert len(set(sessions)) == 3


async def test_after_its_retries_a_failed_episode_is_recorded_as_failed(real_server: SDKServer) -> None:
    told: list[Episode] = []
    agent = ScriptedAgent([{"name": "boom", "input": {}}])
    [group] = await collect_groups(
        agent, Tasks(real_server.base_url, "faulty", num_tasks=1), group_size=2, retries=1, on_episode=told.append
    )
    assert group.rewards == [None, None]
    assert [episode.metadata["attempt"] for episode in told] == [1, 1]
    assert [episode.error_kind for episode in told] == ["environment", "environment"]


async def test_what_one_episodes_agent_raises_is_never_anothers(real_server: SDKServer) -> None:
    def agent(conversation: Conversation) -> ToolCall:
        if conversation.task.index == 1:
            raise ValueError("only here")
        return ToolCall(name="submit", input={"answer": "1"})

    episodes = await collect_episodes(agent, Tasks(real_server.base_url, "arithmetic", num_tasks=3), retries=0)
    assert [episode.error for episode in episodes] == ["", "the agent raised ValueError: only here", ""]
    assert [episode.error_kind for episode in episodes] == ["", "infrastructure", ""]
    assert [episode.terminated for episode in episodes] == [True, False, True]
    assert real_server.live_sessions() == []


async def test_tasks_that_cannot_be_set_up_fail_alone(real_server: SDKServer) -> None:
    tasks = Tasks(real_server.base_url, "brokensetup")
    episodes = await collect_episodes(ScriptedAgent([{"name": "done", "input": {}}]), tasks, retries=0, reset_retries=0)
    assert [episode.unscored for episode in episodes] == [False, True, False, True, False, True]
    assert all("cannot be set up" in episode.error or "setup" in episode.error.lower() for episode in episodes[1::2])
    assert real_server.live_sessions() == []


async def test_each_episode_is_told_of_as_it_ends(real_server: SDKServer) -> None:
    first_is_told = asyncio.Event()
    order: list[int | None] = []

    async def agent(conversation: Conversation) -> None:
        if conversation.task.index == 0:
            await first_is_told.wait()

    async def on_episode(episode: Episode) -> None:
        order.append(episode.task.index)
        if len(order) == 2:
            first_is_told.set()

    tasks = Tasks(real_server.base_url, "arithmetic", num_tasks=3)
    episodes = await asyncio.wait_for(collect_episodes(agent, tasks, on_episode=on_episode), 30)
    assert order[-1] == 0
    assert sorted(order[:2]) == [1, 2]
    assert [episode.task.index for episode in episodes] == [0, 1, 2]


async def test_what_the_listener_raises_ends_the_collection_and_closes_its_sessions(real_server: SDKServer) -> None:
    async def agent(conversation: Conversation) -> None:
        if conversation.task.index != 0:
            await asyncio.Event().wait()

    def on_episode(episode: Episode) -> None:
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        await collect_episodes(agent, Tasks(real_server.base_url, "arithmetic", num_tasks=4), on_episode=on_episode)
    assert real_server.live_sessions() == []


async def test_cancelling_closes_every_session(real_server: SDKServer) -> None:
    started = asyncio.Barrier(9)

    async def agent(conversation: Conversation) -> None:
        await started.wait()
        await asyncio.Event().wait()

    tasks = Tasks(real_server.base_url, "arithmetic", num_tasks=8)
    collecting = asyncio.create_task(collect_episodes(agent, tasks))
    await asyncio.wait_for(started.wait(), 30)
    assert len(real_server.live_sessions()) == 8
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert real_server.live_sessions() == []


async def test_progress_counts_every_episode(real_server: SDKServer) -> None:
    seen: list[Progress] = []

    def agent(conversation: Conversation) -> ToolCall:
        return ToolCall(name="boom" if conversation.task.index == 0 else "finish")

    await collect_episodes(agent, Tasks(real_server.base_url, "faulty", num_tasks=4), retries=0, progress=seen.append)
    assert (seen[0].total, seen[0].done, seen[0].running, seen[0].mean_reward) == (4, 0, 0, None)
    assert (seen[-1].done, seen[-1].failed, seen[-1].running, seen[-1].mean_reward) == (4, 1, 0, 1.0)
    assert seen[-1].seconds_left == 0.0
    assert max(progress.running for progress in seen) == 4


async def test_progress_true_draws_a_line(real_server: SDKServer, capsys: pytest.CaptureFixture[str]) -> None:
    await collect_episodes(SUBMIT, Tasks(real_server.base_url, "arithmetic", num_tasks=3), progress=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "mean reward 1.000" in shown
    assert "0 failed" in shown


async def test_a_reward_function_scores_and_is_asked_once(real_server: SDKServer) -> None:
    asked: Counter[str] = Counter()

    def judge(episode: Episode) -> float:
        asked[episode.id] += 1
        return 0.25

    [group] = await collect_groups(SUBMIT, Tasks(real_server.base_url, "arithmetic", num_tasks=1), group_size=2, reward=judge)
    assert group.rewards == [0.25, 0.25]
    assert list(asked.values()) == [1, 1]


async def test_secrets_reach_the_environment(real_server: SDKServer) -> None:
    tasks = Tasks(real_server.base_url, "faulty", num_tasks=1, secrets={"token": "s3cret"})
    [episode] = await collect_episodes(ScriptedAgent([{"name": "whoami", "input": {}}]), tasks)
    assert episode.steps[0].metadata is not None
    assert episode.steps[0].metadata["secrets"] == {"token": "s3cret"}
    assert "s3cret" not in repr(tasks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"refs": [TaskRef("train", 0)], "split": "train"}, "leave out split"),
        ({"env_name": "arithmetic", "split": "nowhere"}, "nowhere"),
        ({"env_name": "arithmetic", "split": "test", "indices": [5]}, "there is no 5"),
    ],
)
async def test_tasks_that_are_not_there_are_named(ors_server: SDKServer, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await collect_episodes(SUBMIT, Tasks(ors_server.base_url, **arguments))


@pytest.mark.parametrize("numbers", [{"group_size": 0}, {"max_concurrency": 0}, {"retries": -1}])
async def test_numbers_out_of_range_are_refused(ors_server: SDKServer, numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        await collect_groups(SUBMIT, Tasks(ors_server.base_url, "arithmetic"), **{"group_size": 1, **numbers})


async def test_options_of_a_client_that_is_made_already_are_refused(ors_server: SDKServer) -> None:
    async with AsyncORSClient(ors_server.base_url) as client:
        with pytest.raises(ValueError, match="api_key belong"):
            Tasks(client, api_key="k")
        with pytest.raises(ValueError, match="env_name"):
            Tasks(client.environment("arithmetic"), "counter")


async def test_a_server_that_is_not_there_is_raised_at_the_start() -> None:
    with pytest.raises(ConnectionFailed):
        await collect_episodes(SUBMIT, Tasks("http://127.0.0.1:9", "arithmetic", retry=_once()))


def _once() -> Any:
    from ors_gym.client import Retry

    return Retry(attempts=1)


class _TwoWorkers:
    """An executor as its protocol describes it, with two workers that get their plan through a pickle, and lose a job."""

    def __init__(self, loses: int | None = None) -> None:
        self.loses = loses

    async def execute(self, plan: RolloutPlan, jobs: Sequence[EpisodeJob], listener: JobListener) -> None:
        async def work(share: Sequence[EpisodeJob]) -> None:
            await pickle.loads(pickle.dumps(plan)).run(share, self._without_lost(listener))

        await asyncio.gather(work(jobs[::2]), work(jobs[1::2]))

    def _without_lost(self, listener: JobListener) -> JobListener:
        executor = self

        class Passing:
            def began(self, job: EpisodeJob) -> None:
                listener.began(job)

            async def ended(self, job: EpisodeJob, episode: Episode) -> None:
                if job.group != executor.loses:
                    await listener.ended(job, pickle.loads(pickle.dumps(episode)))

        return Passing()


async def test_an_executor_runs_the_jobs_wherever_it_likes(ors_server: SDKServer) -> None:
    tasks = Tasks(ors_server.base_url, "arithmetic", num_tasks=5)
    groups = await collect_groups(SUBMIT, tasks, group_size=2, executor=_TwoWorkers())
    assert [group.rewards for group in groups] == [[1.0, 1.0]] * 5


async def test_a_job_that_an_executor_lost_is_recorded_as_failed(ors_server: SDKServer) -> None:
    tasks = Tasks(ors_server.base_url, "arithmetic", num_tasks=3)
    groups = await collect_groups(SUBMIT, tasks, group_size=1, executor=_TwoWorkers(loses=1))
    assert [group.rewards for group in groups] == [[1.0], [None], [1.0]]
    assert groups[1].episodes[0].error == "the executor gave back no episode"


async def test_the_random_agent_does_the_same_at_any_concurrency(ors_server: SDKServer) -> None:
    def inputs(episodes: list[Episode]) -> list[Any]:
        return [[step.call.input for step in episode.steps if step.call] for episode in episodes]

    tasks = Tasks(ors_server.base_url, "counter", split="train")
    one = await collect_episodes(RandomAgent(5), tasks, max_concurrency=1, max_steps=4)
    many = await collect_episodes(RandomAgent(5), tasks, max_concurrency=8, max_steps=4)
    assert inputs(one) == inputs(many)
    assert {episode.num_steps for episode in one} <= {1, 2, 3, 4}
