"""A Gymnasium environment that was served and wrapped back is the native one, to the bit."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import httpx
import pytest
from gymnasium.utils.env_checker import data_equivalence

from ors_gym.env import ORSEnv
from ors_gym.serving import LocalServer
from ors_gym.wrappers import RestoreNative
from tests.servers.gym_ids import GYM_IDS


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer([f"gym:{gym_id}?render_mode=null" for gym_id in GYM_IDS]) as server:
        yield server


def same(ours: Any, native: Any) -> bool:
    return type(ours) is type(native) and data_equivalence(ours, native, exact=True)


@pytest.mark.parametrize("gym_id", GYM_IDS)
def test_a_thousand_steps_are_equal_to_the_bit(server: LocalServer, gym_id: str) -> None:
    native = gym.make(gym_id)
    served = RestoreNative(ORSEnv(server.base_url, gym_id.lower()))
    assert served.action_space == native.action_space
    assert served.observation_space == native.observation_space
    native.action_space.seed(0)

    steps = index = 0
    over = True
    while steps < 1000:
        if over:
            expected, expected_info = native.reset(seed=index)
            observation, info = served.reset(options={"split": "train", "index": index})
            assert info["seed"] == index
            assert same(observation, expected)
            assert same(info["native"], expected_info)
            index += 1
        action = native.action_space.sample()
        *expected, expected_info = native.step(action)
        *outcome, info = served.step(action)
        assert all(map(same, outcome, expected)), (outcome, expected)
        assert same(info["native"], expected_info)
        over = expected[2] or expected[3]
        steps += 1
    native.close()
    served.close()


def test_an_action_outside_the_space_changes_nothing_and_says_why(server: LocalServer) -> None:
    served = RestoreNative(ORSEnv(server.base_url, "frozenlake-v1"))
    observation, _ = served.reset(options={"index": 0})

    again, reward, terminated, truncated, info = served.step(17)

    assert (again, reward, terminated, truncated, info["native"]) == (observation, 0.0, False, False, {})
    assert "action must be an integer from 0 to 3, not 17" in info["invalid_action"]
    served.close()


def test_a_lost_session_is_truncated_with_the_last_observation(server: LocalServer) -> None:
    env = ORSEnv(server.base_url, "cliffwalking-v1")
    served = RestoreNative(env)
    observation, _ = served.reset(options={"index": 0})
    assert env.episode is not None
    httpx.post(f"{server.base_url}/delete", headers={"X-Session-ID": env.episode.session_id})

    again, _, terminated, truncated, info = served.step(0)

    assert (again, terminated, truncated, info["error_kind"]) == (observation, False, True, "infrastructure")
    served.close()


def test_it_works_over_gym_make_with_seeds(server: LocalServer) -> None:
    served = RestoreNative(gym.make("ors_gym/ORS-v0", base_url=server.base_url, env_name="cartpole-v1"))
    observation, info = served.reset(seed=7)
    expected, _ = gym.make("CartPole-v1").reset(seed=info["seed"])

    assert same(observation, expected)
    assert same(served.reset(seed=7)[0], observation)
    served.close()


def test_only_a_served_gymnasium_environment_can_be_restored() -> None:
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as other:
        env = ORSEnv(other.base_url)
        with pytest.raises(TypeError, match=r"is not a Gymnasium environment served by ors_gym\.serving"):
            RestoreNative(env)
        env.close()
