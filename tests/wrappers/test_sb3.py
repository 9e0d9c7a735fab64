"""Stable-Baselines3's vector environment on a real server."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor

from ors_gym.env import ORSEnv, ORSVectorEnv
from ors_gym.protocol import ToolSpec
from ors_gym.wrappers import DiscreteToolCalls, HashedText, MultiDiscreteToolCalls, TextBytes
from ors_gym.wrappers.sb3 import ORSVecEnv
from tests.servers.sdk_server import SDKServer


@pytest.fixture
def make(ors_server: SDKServer) -> Iterator[Any]:
    made: list[ORSVecEnv] = []

    def make(env_name: str = "counter", num_envs: int = 3, tools: list[ToolSpec] | None = None, **options: Any) -> ORSVecEnv:
        envs = ORSVectorEnv(num_envs, ors_server.base_url, env_name, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        made.append(ORSVecEnv(HashedText(DiscreteToolCalls(envs, tools=tools), 32)))
        return made[-1]

    yield make
    for vec_env in made:
        vec_env.close()


def test_all_environments_step_at_once(make: Any) -> None:
    vec_env = make()
    vec_env.set_options({"split": "train", "index": 2})

    first = vec_env.reset()
    observations, rewards, dones, infos = vec_env.step(np.array([0, 3, 5]))

    assert first.shape == observations.shape == (3, 32)
    assert rewards.dtype == np.float32
    assert rewards.tolist() == pytest.approx([0.0, 0.3, 0.5])
    assert dones.tolist() == [False, False, True]
    assert [info["metadata"]["total"] for info in infos] == [0, 3, 5]


def test_an_episode_that_ended_is_followed_by_the_next_in_the_same_step(make: Any) -> None:
    vec_env = make()
    vec_env.set_options({"split": "train", "index": 2})
    vec_env.reset()

    observations, _, _, infos = vec_env.step(np.array([0, 3, 5]))

    assert "terminal_observation" not in infos[0]
    assert infos[2]["terminal_observation"].shape == (32,)
    assert infos[2]["finished"] is np.True_ or infos[2]["finished"] is True
    assert not np.array_equal(infos[2]["terminal_observation"], observations[2])
    assert not vec_env.reset_infos[2]["finished"]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, False, False]


def test_an_episode_that_was_cut_says_so(make: Any) -> None:
    vec_env = make(max_steps=1)
    vec_env.set_options({"split": "hard", "index": 0})
    vec_env.reset()

    _, _, dones, infos = vec_env.step(np.array([1, 1, 1]))

    assert dones.tolist() == [True, True, True]
    assert [info["TimeLimit.truncated"] for info in infos] == [True, True, True]


def test_an_episode_that_the_environment_broke_is_marked_unscored(make: Any) -> None:
    vec_env = make("faulty", tools=[ToolSpec(name="boom"), ToolSpec(name="no_reward")])
    vec_env.reset()

    _, _, dones, infos = vec_env.step(np.array([0, 1, 1]))

    assert dones.tolist() == [True, False, False]
    assert [bool(info["unscored"]) for info in infos] == [True, False, False]
    assert infos[0]["error_kind"] == "environment"


def test_a_seed_gives_the_same_tasks_and_each_environment_another(make: Any) -> None:
    def tasks(seed: int) -> list[int]:
        vec_env = make()
        vec_env.seed(seed)
        vec_env.reset()
        return [info["task"]["index"] for info in vec_env.reset_infos]

    assert tasks(5) == tasks(5)
    assert len(set(tasks(5))) == 3


def test_seed_and_options_are_used_once(make: Any) -> None:
    vec_env = make(num_envs=2)
    vec_env.set_options({"split": "hard", "index": 3})
    vec_env.reset()
    first = [info["task"] for info in vec_env.reset_infos]
    vec_env.reset()

    assert first == [{"split": "hard", "index": 3}] * 2
    assert {info["task"]["split"] for info in vec_env.reset_infos} == {"train"}


def test_options_that_differ_are_refused(make: Any) -> None:
    vec_env = make(num_envs=2)
    vec_env.set_options([{"split": "hard"}, {"split": "train"}])

    with pytest.raises(ValueError, match="one dict for all"):
        vec_env.reset()


def test_maskable_ppo_gets_the_masks(make: Any) -> None:
    vec_env = VecMonitor(make("tasktools", tools=[ToolSpec(name="hint"), ToolSpec(name="say")]))
    vec_env.seed(0)
    vec_env.reset()

    assert is_masking_supported(vec_env)
    assert get_action_masks(vec_env).shape == (3, 2)


def test_masks_are_not_there_without_numbered_calls(ors_server: SDKServer) -> None:
    envs = ORSVectorEnv(2, ors_server.base_url, "counter", autoreset_mode=AutoresetMode.SAME_STEP)
    vec_env = ORSVecEnv(TextBytes(envs, 8))

    assert not is_masking_supported(vec_env)
    vec_env.close()


def test_attributes_and_methods_of_single_environments_can_be_had(make: Any) -> None:
    vec_env = make()
    vec_env.reset()

    vec_env.set_attr("nickname", "bob", indices=[0, 2])

    assert vec_env.get_attr("max_steps") == [None, None, None]
    assert [episode.ended for episode in vec_env.get_attr("episode")] == [False, False, False]
    assert vec_env.get_attr("nickname", indices=2) == ["bob"]
    assert not vec_env.has_attr("surname")
    [(observation, _)] = vec_env.env_method("reset", indices=1, options={"split": "hard", "index": 0})
    assert observation == "Count to 20."


def test_wrappers_are_found_under_either_name(make: Any) -> None:
    vec_env = make(num_envs=2)

    assert vec_env.env_is_wrapped(HashedText) == [True, True]
    assert vec_env.env_is_wrapped(TextBytes, indices=0) == [False]


def test_pictures_are_those_of_the_environments(make: Any) -> None:
    vec_env = make(num_envs=2, render_mode="rgb_array")
    vec_env.reset()

    image = vec_env.render()

    assert image is not None
    assert image.ndim == 3


@pytest.mark.parametrize("wrap_actions", [DiscreteToolCalls, MultiDiscreteToolCalls])
@pytest.mark.parametrize("wrap_text", [HashedText, TextBytes])
def test_stable_baselines_checker_passes(ors_server: SDKServer, wrap_actions: Any, wrap_text: Any) -> None:
    env = wrap_text(wrap_actions(ORSEnv(ors_server.base_url, "counter")))

    check_env(env, warn=True)
    env.close()


def test_another_autoreset_mode_is_refused(ors_server: SDKServer) -> None:
    envs = ORSVectorEnv(2, ors_server.base_url, "counter")

    with pytest.raises(ValueError, match="SAME_STEP"):
        ORSVecEnv(envs)
    envs.close()


def test_no_session_is_left(ors_server: SDKServer, make: Any) -> None:
    before = set(ors_server.live_sessions())
    vec_env = make()
    vec_env.reset()
    during = set(ors_server.live_sessions()) - before

    vec_env.close()

    assert len(during) == 3
    assert set(ors_server.live_sessions()) == before
