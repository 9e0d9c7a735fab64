"""`ORSEnv`: a Gymnasium environment like any other."""

import copy
import multiprocessing
import os
import pickle
import threading
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import (
    DelayObservation,
    FlattenObservation,
    FrameStackObservation,
    NormalizeReward,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RecordVideo,
    RenderCollection,
    TimeLimit,
    TransformAction,
    TransformObservation,
    TransformReward,
)

import ors_gym.env
from ors_gym.client import ORSClient
from ors_gym.env import ORSEnv
from ors_gym.errors import ConnectionFailed, NotFound, SessionClosed
from ors_gym.secrets import EnvSecret
from ors_gym.testing import FaultServer
from tests.env.conftest import ADD_5, RIGHT

ors_gym.env.register()

EIGHT = {"split": "train", "index": 5}  # "Count to 8."


@pytest.mark.parametrize("action_format", ["tool_call", "json", "text"])
@pytest.mark.parametrize("observation_format", ["text", "blocks", "multimodal"])
def test_check_env_passes_in_every_mode(real_server: Any, action_format: str, observation_format: str) -> None:
    env = gym.make(
        "ors_gym/ORS-v0",
        base_url=real_server.base_url,
        env_name="arithmetic",
        action_format=action_format,
        observation_format=observation_format,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()
    assert real_server.live_sessions() == []


@pytest.mark.parametrize("env_name", ["counter", "faulty", "tasktools"])
def test_check_env_passes_on_environments_of_many_turns_and_tools(real_server: Any, env_name: str) -> None:
    env = gym.make("ors_gym/ORS-v0", base_url=real_server.base_url, env_name=env_name, on_tool_error="observe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_sb3_says_that_text_is_not_for_it_and_nothing_worse(open_env: Any, ors_server: Any) -> None:
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    with pytest.raises(AssertionError, match="must be a numpy array"):
        sb3_check_env(open_env(ors_server, "arithmetic"), skip_render_check=True)


def test_an_episode_runs_in_a_script(open_env: Any, real_server: Any) -> None:
    env = open_env(real_server, "counter")
    assert env.reset(options=EIGHT)[0] == "Count to 8."
    observation, reward, terminated, truncated, info = env.step(ADD_5)
    assert (observation, reward, terminated, truncated) == ("The total is 5 of 8.", 0.5, False, False)
    assert info["task"] == {"split": "train", "index": 5}
    assert env.step(ADD_5)[2] is True
    assert env.episode.rewards == [0.5, 0.5]
    with pytest.raises(ResetNeeded):
        env.step(ADD_5)
    env.close()
    env.close()
    with pytest.raises(SessionClosed):
        env.step(ADD_5)
    assert real_server.live_sessions() == []


def test_the_same_seed_gives_the_same_tasks(open_env: Any, ors_server: Any) -> None:
    one, other = open_env(ors_server, "arithmetic"), open_env(ors_server, "arithmetic")

    def prompts(env: ORSEnv) -> list[str]:
        return [env.reset(seed=5)[0], *(env.reset()[0] for _ in range(19))]

    assert prompts(one) == prompts(other)
    assert len(set(prompts(one))) == 20


def test_an_unseeded_sequence_is_drawn_from_the_environments_own_generator(open_env: Any, ors_server: Any) -> None:
    one, other = open_env(ors_server, "arithmetic"), open_env(ors_server, "arithmetic")
    one.np_random, other.np_random = np.random.default_rng(3), np.random.default_rng(3)
    assert [one.reset()[0] for _ in range(5)] == [other.reset()[0] for _ in range(5)]


def test_a_seed_that_is_no_int_is_refused(open_env: Any, ors_server: Any) -> None:
    with pytest.raises(gym.error.Error):
        open_env(ors_server, "arithmetic").reset(seed=-1)


def test_environments_run_in_several_threads_at_once(open_env: Any, ors_server: Any) -> None:
    rewards: list[float] = []

    def play() -> None:
        env = open_env(ors_server, "counter")
        env.reset(options=EIGHT)
        rewards.extend([env.step(ADD_5)[1], env.step(ADD_5)[1]])

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == [0.5] * 8


async def test_it_works_inside_a_running_event_loop(ors_server: Any) -> None:
    env = ORSEnv(ors_server.base_url, "counter")
    env.reset(options=EIGHT)
    assert env.step(ADD_5)[1] == 0.5
    env.close()


def test_it_works_in_a_notebook(ors_server: Any) -> None:
    import nbformat
    from nbclient import NotebookClient

    source = f"""
from ors_gym.env import ORSEnv
env = ORSEnv({ors_server.base_url!r}, "counter")
env.reset(options={EIGHT!r})
print(env.step({ADD_5!r})[1])
env
"""
    cells = [nbformat.v4.new_code_cell(source), nbformat.v4.new_code_cell("env.close()")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    printed, shown = notebook.cells[0].outputs
    assert printed["text"] == "0.5\n"
    assert "Count to 8." in shown["data"]["text/html"]
    assert ors_server.live_sessions() == []


def test_a_forked_child_leaves_the_parents_episode_alone_and_begins_its_own(fault_server: FaultServer, open_env: Any) -> None:
    env = open_env(fault_server)
    env.reset()
    parents = set(fault_server.sessions)

    def child(results: Any) -> None:
        try:
            env.step(RIGHT)
        except ResetNeeded as error:
            results.put(str(error))
        env.reset()
        results.put(env.step(RIGHT)[1])
        env.close()

    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=child, args=(results,))
    process.start()
    assert results.get(timeout=60) == "call reset() before step()"
    assert results.get(timeout=60) == 1.0
    process.join(timeout=60)
    assert fault_server.sessions == parents
    assert env.step(RIGHT)[1] == 1.0


def test_a_forked_child_that_only_exits_deletes_nothing(fault_server: FaultServer, open_env: Any) -> None:
    env = open_env(fault_server)
    env.reset()
    process_id = os.fork()
    if process_id == 0:
        env.close()
        os._exit(0)
    os.waitpid(process_id, 0)
    assert len(fault_server.sessions) == 1
    assert env.step(RIGHT)[1] == 1.0


def test_a_shared_client_stays_open(ors_server: Any) -> None:
    with ORSClient(ors_server.base_url) as client:
        env = ORSEnv(ors_server.base_url, "counter", client=client)
        env.reset()
        env.close()
        assert client.health()
        assert client.stats().sessions_open == 0


def test_an_unreachable_server_and_an_unknown_environment_are_clear_at_construction(ors_server: Any) -> None:
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:9"):
        ORSEnv("http://127.0.0.1:9", retry=ors_gym.client.Retry(attempts=1))
    with pytest.raises(NotFound):
        ORSEnv(ors_server.base_url, "no_such_environment")


# Copies


def test_a_pickled_environment_connects_anew_with_the_same_arguments(open_env: Any, ors_server: Any) -> None:
    env = open_env(ors_server, "counter", max_steps=1, secrets={"key": EnvSecret("A_VARIABLE")})
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        with pytest.raises(KeyError, match="A_VARIABLE"):
            other.reset(options=EIGHT)
        other.reset(options={**EIGHT, "secrets": {}})
        assert other.step(ADD_5)[3] is True
        other.close()


def test_an_environment_that_holds_a_secret_or_a_connection_is_not_copied(open_env: Any, ors_server: Any) -> None:
    env = open_env(ors_server, "counter", secrets={"key": "canary"}, api_key="canary")
    with pytest.raises(pickle.PicklingError, match=r"secrets\['key'\], api_key") as caught:
        pickle.dumps(env)
    assert "canary" not in str(caught.value)
    with ORSClient(ors_server.base_url) as client, pytest.raises(pickle.PicklingError, match="shared client"):
        copy.deepcopy(ORSEnv(ors_server.base_url, "counter", client=client))


# Wrappers


def _play(env: gym.Env[Any, Any], actions: int = 2) -> list[tuple[Any, ...]]:
    env.reset(options=EIGHT)
    return [env.step(ADD_5) for _ in range(actions)]


def test_time_limit_truncates_from_outside(open_env: Any, ors_server: Any) -> None:
    env = TimeLimit(open_env(ors_server, "counter"), 1)
    assert _play(env, 1)[0][3] is True
    assert len(ors_server.live_sessions()) == 1
    env.close()
    assert ors_server.live_sessions() == []


def test_rewards_can_be_transformed_normalized_and_recorded(open_env: Any, ors_server: Any) -> None:
    assert [step[1] for step in _play(TransformReward(open_env(ors_server, "counter"), lambda reward: 10 * reward))] == [5.0, 5.0]
    assert all(np.isfinite(step[1]) for step in _play(NormalizeReward(open_env(ors_server, "counter"))))
    *_, info = _play(RecordEpisodeStatistics(open_env(ors_server, "counter")))[-1]
    assert (info["episode"]["r"], info["episode"]["l"]) == (1.0, 2)


def test_missing_rewards_can_be_recorded(open_env: Any, ors_server: Any) -> None:
    env = RecordEpisodeStatistics(open_env(ors_server, "faulty"))
    env.reset()
    env.step({"name": "no_reward", "input": {}})
    *_, info = env.step({"name": "finish", "input": {}})
    assert info["episode"]["r"] == 1.0


@pytest.mark.parametrize("observation_format", ["text", "blocks", "multimodal"])
def test_observations_can_be_stacked_and_delayed(open_env: Any, ors_server: Any, observation_format: str) -> None:
    stacked = FrameStackObservation(open_env(ors_server, "counter", observation_format=observation_format), 3)
    assert all(step[0] in stacked.observation_space for step in _play(stacked))
    delayed = DelayObservation(open_env(ors_server, "counter", observation_format=observation_format), 1)
    assert all(step[0] in delayed.observation_space for step in _play(delayed))


def test_stacked_text_is_the_last_texts(open_env: Any, ors_server: Any) -> None:
    env = FrameStackObservation(open_env(ors_server, "counter"), 2)
    assert [step[0] for step in _play(env)] == [
        ("Count to 8.", "The total is 5 of 8."),
        ("The total is 5 of 8.", "The total is 10 of 8."),
    ]


def test_observations_and_actions_can_be_transformed(open_env: Any, ors_server: Any) -> None:
    env: gym.Env[Any, Any] = open_env(ors_server, "counter")
    env = TransformObservation(env, str.upper, env.observation_space)
    env = TransformAction(env, lambda amount: {"name": "add", "input": {"amount": amount}}, gym.spaces.Discrete(6))
    env = OrderEnforcing(PassiveEnvChecker(env))
    env.reset(options=EIGHT)
    assert env.step(3)[0] == "THE TOTAL IS 3 OF 8."


def test_flattening_fails_with_gymnasiums_own_words(open_env: Any, ors_server: Any) -> None:
    with pytest.raises(NotImplementedError, match="Unknown space"):
        FlattenObservation(open_env(ors_server, "counter"))


def test_videos_and_frames_can_be_recorded(open_env: Any, ors_server: Any, tmp_path: Any) -> None:
    recorded = open_env(ors_server, "counter", render_mode="rgb_array")
    env = RecordVideo(recorded, str(tmp_path / "videos"), episode_trigger=lambda n: True)
    _play(env)
    env.close()
    assert [path.suffix for path in (tmp_path / "videos").iterdir()] == [".mp4"]


def test_frames_can_be_collected(open_env: Any, ors_server: Any) -> None:
    env = RenderCollection(open_env(ors_server, "counter", render_mode="rgb_array"))
    _play(env)
    frames = env.render()
    assert len(frames) == 3
    assert {frame.shape for frame in frames} == {(600, 800, 3)}
