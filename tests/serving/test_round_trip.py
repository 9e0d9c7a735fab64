"""A Gymnasium environment that was served and wrapped back is the native one, to the bit."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import data_equivalence

from ors_gym.env import ORSEnv
from ors_gym.serving import LocalServer
from ors_gym.wrappers.restore_native import RestoreNative

IDS = [
    "CartPole-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Acrobot-v1",
    "CliffWalking-v1",
]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer([f"gym:{gym_id}?render_mode=null" for gym_id in IDS]) as server:
        yield server


def same(ours: Any, native: Any) -> bool:
    return type(ours) is type(native) and data_equivalence(ours, native, exact=True)


@pytest.mark.parametrize("gym_id", IDS)
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
