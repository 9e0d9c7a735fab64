"""`ORSVectorEnv`: many sessions as one vector environment."""

import asyncio
import signal
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

from ors_gym.client import ORSClient, Retry
from ors_gym.env import AsyncioVectorEnv, InfoDict, ORSEnv, ORSVectorEnv
from ors_gym.errors import ConnectionFailed, SessionSetupFailed, ToolFailed
from ors_gym.tasks import TaskRef
from ors_gym.testing import FaultServer
from tests.env.conftest import ADD_5, RIGHT

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def test_episodes_run_side_by_side(open_envs: Any, real_server: Any) -> None:
    envs = open_envs(4, real_server, "counter")
    observations, infos = envs.reset(seed=0, options={"tasks": [TaskRef("train", index) for index in (0, 1, 4, 7)]})
    assert observations == ("Count to 3.", "Count to 4.", "Count to 7.", "Count to 10.")
    assert [task["index"] for task in infos["task"]] == [0, 1, 4, 7]

    actions = [{"name": "add", "input": {"amount": amount}} for amount in (3, 2, 5, 5)]
    observations, rewards, terminations, truncations, infos = envs.step(actions)
    assert observations == ("The total is 3 of 3.", "The total is 2 of 4.", "The total is 5 of 7.", "The total is 5 of 10.")
    assert rewards.tolist() == [0.3, 0.2, 0.5, 0.5]
    assert terminations.tolist() == [True, False, False, False]
    assert truncations.tolist() == [False] * 4
    assert [episode.num_steps for episode in envs.episodes] == [1, 1, 1, 1]
    assert len(real_server.live_sessions()) == 3
    envs.close()
    assert real_server.live_sessions() == []


def test_infos_are_typed_arrays_of_bools_and_floats_and_objects_for_the_rest(open_envs: Any, real_server: Any) -> None:
    envs = open_envs(3, real_server, "faulty", on_tool_error="observe")
    _, infos = envs.reset(seed=0)
    expected = dict.fromkeys(InfoDict.__annotations__, object)
    expected |= {"finished": np.bool_, "reward_missing": np.bool_, "unscored": np.bool_, "elapsed": np.float64}
    actions = ({"name": "counts", "input": {}}, {"name": "no_reward", "input": {}}, "boom {")
    for batch in (infos, envs.step(actions)[4]):
        assert {name: array.dtype.type for name, array in batch.items() if not name.startswith("_")} == {
            name: np.object_ if kind is object else kind for name, kind in expected.items()
        }
        assert all(batch[f"_{name}"].tolist() == [True] * 3 for name in expected)


def test_text_observations_really_change(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(3, ors_server, "faulty")
    first, _ = envs.reset(seed=0)
    texts = [tuple(f"{i} says {n}" for i in range(3)) for n in range(3)]
    seen = [envs.step([{"name": "echo", "input": {"text": text}} for text in said])[0] for said in texts]
    assert seen == texts
    assert first == ("Do as you like.\n[image: image/png, 4x3]",) * 3
    assert all(observation in envs.observation_space for observation in seen)


@pytest.mark.parametrize("mode", MODES)
def test_each_autoreset_mode_ends_and_begins_episodes(open_envs: Any, real_server: Any, mode: AutoresetMode) -> None:
    envs = open_envs(2, real_server, "counter", autoreset_mode=mode)
    envs.reset(options={"tasks": [{"split": "train", "index": 2}, {"split": "train", "index": 7}]})  # 5 and 10
    observations, rewards, terminations, _, infos = envs.step([ADD_5, ADD_5])
    assert rewards.tolist() == [0.5, 0.5]
    assert terminations.tolist() == [True, False]
    if mode is AutoresetMode.SAME_STEP:
        assert infos["final_obs"].tolist() == ["The total is 5 of 5.", None]
        assert infos["final_info"]["metadata"].tolist() == [{"total": 5}, None]
        assert infos["_final_info"].tolist() == [True, False]
        assert observations[0].startswith("Count to")
        return
    assert observations == ("The total is 5 of 5.", "The total is 5 of 10.")
    if mode is AutoresetMode.NEXT_STEP:
        observations, rewards, terminations, _, _ = envs.step(["ignored", ADD_5])
        assert observations[0].startswith("Count to")
        assert rewards.tolist() == [0.0, 0.5]
        assert terminations.tolist() == [False, True]
        return
    with pytest.raises(gym.error.ResetNeeded):
        envs.step([ADD_5, ADD_5])
    observations, infos = envs.reset(options={"reset_mask": terminations})
    assert observations[0].startswith("Count to")
    assert observations[1] == "The total is 5 of 10."
    assert infos["_task"].tolist() == [True, False]


# Tasks and groups


def _tasks(infos: dict[str, Any]) -> list[int]:
    return [task["index"] for task in infos["task"]]


def test_a_group_has_the_same_tasks_and_groups_share_an_epoch(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(8, ors_server, "arithmetic", group_size=2)
    rounds = [_tasks(envs.reset(seed=7)[1]), *(_tasks(envs.reset()[1]) for _ in range(4))]
    assert all(tasks[::2] == tasks[1::2] for tasks in rounds)
    assert sorted(index for tasks in rounds for index in tasks[::2]) == list(range(20))
    assert rounds[0] == _tasks(envs.reset(seed=7)[1])


def test_the_nth_episode_has_the_groups_nth_task_whenever_it_begins(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(2, ors_server, "arithmetic", group_size=2, autoreset_mode="Disabled")
    envs.reset(seed=3)
    first_alone = np.array([True, False])
    ahead = [_tasks({"task": envs.reset(options={"reset_mask": first_alone})[1]["task"][:1]}) for _ in range(3)]
    behind = [_tasks({"task": envs.reset(options={"reset_mask": ~first_alone})[1]["task"][1:]}) for _ in range(3)]
    assert ahead == behind


def test_a_group_without_a_seed_still_has_the_same_tasks(open_envs: Any, ors_server: Any) -> None:
    tasks = _tasks(open_envs(4, ors_server, "arithmetic", group_size=4).reset()[1])
    assert len(set(tasks)) == 1


def test_seeds_differ_between_groups_and_not_within(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(4, ors_server, "arithmetic", group_size=2)
    envs.reset(seed=[1, 1, 2, 2])
    assert envs.np_random_seed == (1, 1, 2, 2)
    with pytest.raises(ValueError, match="a group has one seed"):
        envs.reset(seed=[1, 2, 3, 3])
    with pytest.raises(ValueError, match="of 4"):
        envs.reset(seed=[1, 1])


@pytest.mark.parametrize("group_size", [0, 3, 5])
def test_a_group_size_that_does_not_divide_is_refused(ors_server: Any, group_size: int) -> None:
    with pytest.raises(ValueError, match="group_size must divide num_envs=4"):
        ORSVectorEnv(4, ors_server.base_url, "arithmetic", group_size=group_size)


def test_tasks_can_be_set_for_some(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(3, ors_server, "counter")
    options = {"tasks": [{"task_spec": {"target": 42}}, None, TaskRef("hard", 1)]}
    observations, _ = envs.reset(seed=1, options=options)
    assert observations[0] == "Count to 42."
    assert observations[2] == "Count to 21."
    assert list(options) == ["tasks"]
    with pytest.raises(ValueError, match="a list of 3"):
        envs.reset(options={"tasks": [None]})


def test_options_are_for_all(open_envs: Any, ors_server: Any) -> None:
    observations, _ = open_envs(2, ors_server, "counter").reset(options={"split": "hard", "index": 3})
    assert observations == ("Count to 23.", "Count to 23.")


def test_a_filter_reads_the_split_once(fault_server: FaultServer, open_envs: Any) -> None:
    envs = open_envs(8, fault_server, task_filter=lambda task: True)
    envs.reset(seed=0)
    envs.reset(seed=1)
    assert len(fault_server.received("tasks")) == 1


def test_discovery_happens_once(fault_server: FaultServer, open_envs: Any) -> None:
    open_envs(16, fault_server)
    assert [len(fault_server.received(endpoint)) for endpoint in ("tools", "splits", "num_tasks")] == [1, 1, 2]


# Failures


@pytest.mark.parametrize("mode", MODES)
def test_two_sessions_lost_of_eight_cost_the_others_nothing(fault_server: FaultServer, open_envs: Any, mode: AutoresetMode) -> None:
    envs = open_envs(8, fault_server, autoreset_mode=mode)
    envs.reset(seed=0)
    lost = {envs.episodes[i].session_id for i in (2, 5)}
    fault_server.sessions.difference_update(lost)
    echo = [{"name": "echo", "input": {"text": str(i)}} for i in range(8)]
    observations, _, terminations, truncations, infos = envs.step(echo)
    assert truncations.tolist() == [i in (2, 5) for i in range(8)]
    assert not terminations.any()
    assert [observations[i] for i in (0, 1, 3, 4, 6, 7)] == ["0", "1", "3", "4", "6", "7"]
    told = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
    assert told["error_kind"][[2, 5]].tolist() == ["infrastructure", "infrastructure"]
    assert told["unscored"].tolist() == [i in (2, 5) for i in range(8)]
    if mode is AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": truncations})
    elif mode is AutoresetMode.NEXT_STEP:
        observations, _, _, truncations, _ = envs.step(echo)
        assert observations[2] == observations[5] == "What is right?"
    assert envs.step(echo)[0] == tuple(str(i) for i in range(8))
    assert envs.step([RIGHT] * 8)[1].tolist() == [1.0] * 8


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_that_fails_is_empty_then_truncated_without_io_then_reset(
    open_envs: Any, real_server: Any, mode: AutoresetMode
) -> None:
    envs = open_envs(2, real_server, "brokensetup", autoreset_mode=mode)
    observations, infos = envs.reset(options={"tasks": [TaskRef("train", 0), TaskRef("train", 1)]})
    assert observations == ("It works.", "")
    assert infos["error_kind"].tolist() == ["", "environment"]
    assert infos["unscored"].tolist() == [False, True]
    assert infos["task"][1] == {"split": "train", "index": 1}
    assert envs.episodes[1].unscored
    _, rewards, terminations, truncations, infos = envs.step(["not read", {"name": "done", "input": {}}])
    assert (rewards.tolist(), terminations.tolist(), truncations.tolist()) == ([0.0, 0.0], [False, False], [False, True])
    told = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
    assert told["error_kind"][1] == "environment"


def test_failures_are_raised_on_demand(open_envs: Any, real_server: Any) -> None:
    envs = open_envs(2, real_server, "brokensetup", on_error="raise")
    with pytest.raises(SessionSetupFailed):
        envs.reset(options={"tasks": [TaskRef("train", 0), TaskRef("train", 1)]})
    assert len(real_server.live_sessions()) == 1


def test_a_failure_inside_an_episode_is_raised_on_demand_too(fault_server: FaultServer, open_envs: Any) -> None:
    envs = open_envs(2, fault_server, on_error="raise")
    envs.reset(seed=0)
    with pytest.raises(ToolFailed) as caught:
        envs.step([{"name": "fail", "input": {}}, RIGHT])
    assert caught.value.__notes__ == ["in sub-environment 0 of 2"]
    assert envs.episodes[1].rewards == [1.0]
    assert envs.last_step()[1].tolist() == [0.0, 1.0]


def test_a_mistaken_option_is_raised_and_not_contained(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(2, ors_server, "counter")
    with pytest.raises(ValueError, match="unknown options of reset: indx"):
        envs.reset(options={"indx": 3})
    with pytest.raises(ValueError, match="has no split 'easy'"):
        envs.reset(options={"split": "easy"})


def test_max_steps_truncates_by_itself(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(2, ors_server, "counter", split="hard", max_steps=2)
    envs.reset(seed=0)
    assert [envs.step([ADD_5, "garbage"])[3].tolist() for _ in range(4)] == [
        [False, False],
        [True, True],
        [False, False],
        [False, False],
    ]


def test_an_unreachable_server_is_clear_at_construction() -> None:
    with pytest.raises(ConnectionFailed):
        ORSVectorEnv(2, "http://127.0.0.1:9", retry=Retry(attempts=1))


# Sessions


def test_all_calls_are_in_flight_together() -> None:
    together = asyncio.Barrier(8)

    async def meet(given: dict[str, Any]) -> dict[str, Any]:
        await asyncio.wait_for(together.wait(), 60)
        return {"blocks": [], "reward": 1.0, "finished": False}

    with FaultServer(tools={"meet": meet}) as server:
        envs = ORSVectorEnv(8, server.base_url)
        envs.reset(seed=0)
        assert envs.step([{"name": "meet", "input": {}}] * 8)[1].tolist() == [1.0] * 8
        envs.close()


def test_with_prefetch_the_next_sessions_are_opened_ahead(fault_server: FaultServer, open_envs: Any) -> None:
    envs = open_envs(4, fault_server, prefetch=True, group_size=2)
    first = _tasks(envs.reset(seed=0)[1])
    fault_server.wait_for("prompt", 8)
    envs.step([RIGHT] * 4)
    second = _tasks(envs.step(["next"] * 4)[4])
    envs.close()
    assert fault_server.sessions == set()
    plain = open_envs(4, fault_server, group_size=2)
    assert [_tasks(plain.reset(seed=0)[1]), _tasks(plain.reset()[1])] == [first, second]


def test_a_client_with_too_few_sessions_is_refused(ors_server: Any) -> None:
    with ORSClient(ors_server.base_url, max_sessions=7) as client:
        with pytest.raises(ValueError, match="max_sessions=7, and 8 sub-environments need 8"):
            ORSVectorEnv(8, ors_server.base_url, "counter", client=client)
        with pytest.raises(ValueError, match="need 8 at once, one of each opened ahead"):
            ORSVectorEnv(4, ors_server.base_url, "counter", client=client, prefetch=True)
        envs = ORSVectorEnv(7, ors_server.base_url, "counter", client=client)
        envs.reset(seed=0)
        envs.close()
        assert client.health()


def test_an_interrupt_ends_a_step_and_leaves_no_session(fault_server: FaultServer, open_envs: Any) -> None:
    def interrupt() -> None:
        fault_server.wait_for("call", 3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    envs = open_envs(3, fault_server)
    envs.reset(seed=0)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        envs.step([{"name": "slow", "input": {"seconds": 60}}] * 3)
    interrupter.join()
    assert fault_server.sessions == set()
    assert envs.step(["next"] * 3)[0] == ("What is right?",) * 3


def test_a_reset_that_keeps_a_server_busy_holds_up_nobody_elses_result(fault_server: FaultServer, open_envs: Any) -> None:
    envs = open_envs(2, fault_server)
    envs.reset(seed=0)
    envs.step_async([{"name": "slow", "input": {"seconds": 0.3}}, RIGHT])
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0.01)
    assert envs.step_wait(timeout=60)[1].tolist()[1] == 1.0


async def test_an_event_loop_can_await_it(ors_server: Any) -> None:
    envs = ORSVectorEnv(2, ors_server.base_url, "counter")
    await envs.areset(options={"index": 5})
    assert (await envs.astep([ADD_5, ADD_5]))[1].tolist() == [0.5, 0.5]
    envs.close()


def test_rendering_gives_each_episode(open_envs: Any, ors_server: Any) -> None:
    envs = open_envs(2, ors_server, "counter", render_mode="ansi")
    envs.reset(options={"index": 5})
    assert [text.splitlines()[-1] for text in envs.render()] == ["Count to 8.", "Count to 8."]


def test_orsenvs_with_wrappers_of_their_own_run_in_an_asynciovectorenv(ors_server: Any) -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(ORSEnv(ors_server.base_url, "counter"), lambda reward: 10 * reward)

    envs = AsyncioVectorEnv([make] * 3)
    envs.reset(options={"index": 5})
    _, rewards, _, _, infos = envs.step([ADD_5, "garbage", ADD_5])
    assert rewards.tolist() == [5.0, 0.0, 5.0]
    assert infos["invalid_action"][0] == ""
    assert infos["invalid_action"][1]
    envs.close()
    assert ors_server.live_sessions() == []


def test_orsenvs_in_threads_are_closed_in_the_middle_of_a_step(fault_server: FaultServer) -> None:
    envs = AsyncioVectorEnv([lambda: ORSEnv(fault_server.base_url)] * 3)
    envs.reset()
    envs.step_async([{"name": "slow", "input": {"seconds": 60}}] * 3)
    fault_server.wait_for("call", 3)
    envs.close()
    assert fault_server.sessions == set()


def test_gymnasiums_vector_wrappers_work_over_it(open_envs: Any, ors_server: Any) -> None:
    envs = wrappers.RecordEpisodeStatistics(
        wrappers.TransformReward(open_envs(2, ors_server, "counter"), lambda rewards: 10 * rewards)
    )
    envs.reset(options={"index": 2})
    *_, infos = envs.step([ADD_5, ADD_5])
    assert infos["episode"]["r"].tolist() == [5.0, 5.0]
    assert infos["episode"]["l"].tolist() == [1, 1]
