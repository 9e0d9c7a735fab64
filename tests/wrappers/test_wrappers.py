"""The wrappers on real servers, around one environment and around a vector environment."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import gymnasium.utils.env_checker
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode

from ors_gym.env import ORSEnv, ORSVectorEnv, register
from ors_gym.protocol import ToolSpec
from ors_gym.wrappers import (
    DiscreteToolCalls,
    EmbeddedText,
    HashedText,
    ImageObservation,
    MultiDiscreteToolCalls,
    TextBytes,
    vector,
)
from tests.servers.sdk_server import SDKServer

ANSWERS = {"submit": {"answer": [str(number) for number in range(60)]}}


@pytest.fixture
def make(ors_server: SDKServer) -> Iterator[Any]:
    """Makes an environment, or a vector environment of `num_envs`, and closes it at the end."""
    made: list[Any] = []

    def make(env_name: str, num_envs: int | None = None, **options: Any) -> Any:
        env = (
            ORSEnv(ors_server.base_url, env_name, **options)
            if num_envs is None
            else ORSVectorEnv(num_envs, ors_server.base_url, env_name, **options)
        )
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


def say(*words: str) -> ToolSpec:
    return ToolSpec(name="say", input_schema={"properties": {"text": {"enum": list(words)}}, "required": ["text"]})


def test_a_number_calls_its_tool(make: Any) -> None:
    env = DiscreteToolCalls(make("counter"))

    env.reset(options={"split": "train", "index": 0})
    results = [env.step(action) for action in (0, np.int64(2), 1)]

    assert env.action_space == Discrete(6)
    assert [result[0] for result in results] == [f"The total is {total} of 3." for total in (0, 2, 3)]
    assert [result[1] for result in results] == [0.0, 0.2, 0.1]
    assert [result[2] for result in results] == [False, False, True]
    assert env.tool_call(2).input == {"amount": 2}


def test_a_number_calls_its_tool_in_each_environment_of_a_vector(make: Any) -> None:
    envs = DiscreteToolCalls(make("counter", 3))

    envs.reset(options={"split": "train", "index": 2})
    observations, rewards, terminations, _, infos = envs.step(np.array([0, 3, 5]))

    assert isinstance(envs, vector.DiscreteToolCalls)
    assert envs.action_space == MultiDiscrete([6, 6, 6])
    assert observations == ("The total is 0 of 5.", "The total is 3 of 5.", "The total is 5 of 5.")
    assert rewards.tolist() == [0.0, 0.3, 0.5]
    assert terminations.tolist() == [False, False, True]
    assert infos["action_mask"].shape == (3, 6)


def test_strings_take_candidates(make: Any) -> None:
    env = DiscreteToolCalls(make("arithmetic"), candidates=ANSWERS)

    env.reset(options={"split": "train", "index": 4})
    _, reward, terminated, _, _ = env.step([call.input.get("answer") for call in env.table.calls].index("9"))

    assert (reward, terminated) == (1.0, True)


def test_the_mask_is_of_the_task(make: Any) -> None:
    env = DiscreteToolCalls(make("tasktools"), tools=[ToolSpec(name="hint"), say("please", "now")])

    _, with_hint = env.reset(options={"split": "train", "index": 1})
    assert env.action_masks().tolist() == [True, True, True]
    _, without_hint = env.reset(options={"split": "train", "index": 0})

    assert with_hint["action_mask"].tolist() == [1, 1, 1]
    assert without_hint["action_mask"].tolist() == [0, 1, 1]
    assert env.action_masks().tolist() == [False, True, True]
    assert env.action_space.sample(without_hint["action_mask"]) != 0


def test_each_environment_of_a_vector_has_its_tasks_mask(make: Any) -> None:
    envs = DiscreteToolCalls(make("tasktools", 3), tools=[ToolSpec(name="hint"), say("now")])

    _, infos = envs.reset(seed=0)

    has_hint = [task["index"] > 0 for task in infos["task"]]
    assert sorted(has_hint) == [False, True, True]
    assert infos["action_mask"][:, 0].tolist() == has_hint
    assert infos["_action_mask"].all()
    assert envs.action_masks()[:, 0].tolist() == has_hint


def test_multi_discrete_actions_call_tools(make: Any) -> None:
    env = MultiDiscreteToolCalls(make("arithmetic"), candidates=ANSWERS)
    envs = MultiDiscreteToolCalls(make("arithmetic", 2), candidates=ANSWERS)

    env.reset(options={"split": "train", "index": 4})
    envs.reset(options={"split": "train", "index": 4})
    submit = [spec.name for spec in env.unwrapped.tools].index("submit")
    _, reward, terminated, _, _ = env.step(np.array([submit, 9]))
    _, rewards, terminations, _, _ = envs.step(np.array([[submit, 9], [1 - submit, 9]]))

    assert env.action_space == MultiDiscrete([2, 60])
    assert envs.action_space.shape == (2, 2)
    assert (reward, terminated) == (1.0, True)
    assert (rewards.tolist(), terminations.tolist()) == ([1.0, 0.0], [True, False])


@pytest.mark.parametrize(
    ("wrap", "space"),
    [
        (lambda env: HashedText(env, 64), Box(-1, 1, (64,), np.float32)),
        (lambda env: TextBytes(env, 16), Box(0, 255, (16,), np.uint8)),
        (lambda env: EmbeddedText(env, lambda texts: [[float(len(text))] for text in texts]), Box(-np.inf, np.inf, (1,))),
    ],
)
@pytest.mark.parametrize("observation_format", ["text", "blocks", "multimodal"])
def test_text_becomes_an_array_alone_and_in_batches(make: Any, wrap: Any, space: Box, observation_format: str) -> None:
    task = {"options": {"split": "train", "index": 7}}
    env = wrap(make("arithmetic", observation_format=observation_format))
    envs = wrap(make("arithmetic", 2, observation_format=observation_format))

    observation, _ = env.reset(**task)
    observations, _ = envs.reset(**task)
    stepped, *_ = env.step({"name": "think", "input": {}})
    batch_stepped, *_ = envs.step([{"name": "think", "input": {}}] * 2)

    assert env.observation_space == envs.single_observation_space == space
    assert observation in space
    assert observations in envs.observation_space
    assert np.array_equal(observations, [observation, observation])
    assert np.array_equal(batch_stepped, [stepped, stepped])
    assert not np.array_equal(stepped, observation)


def test_images_become_arrays_alone_and_in_batches(make: Any) -> None:
    env = ImageObservation(make("faulty", observation_format="multimodal"), (6, 8))
    envs = ImageObservation(make("faulty", 2, observation_format="multimodal"), (6, 8))

    observation, _ = env.reset(seed=0)
    observations, _ = envs.reset(seed=0)
    black, *_ = env.step({"name": "no_reward", "input": {}})

    assert observation.tolist() == [[[255, 0, 0]] * 8] * 6
    assert np.array_equal(observations, [observation, observation])
    assert not black.any()


def test_final_observations_are_encoded_where_the_next_episode_begins_in_the_same_step(make: Any) -> None:
    envs = HashedText(DiscreteToolCalls(make("counter", 2, autoreset_mode=AutoresetMode.SAME_STEP)), 32)

    envs.reset(options={"split": "train", "index": 0})
    observations, _, terminations, _, infos = envs.step(np.array([5, 1]))

    assert terminations.tolist() == [True, False]
    assert infos["final_obs"][0].shape == (32,)
    assert infos["final_obs"][1] is None
    assert np.array_equal(infos["final_obs"][0], HashedText(make("counter"), 32).observation("The total is 5 of 3."))
    assert not np.array_equal(observations[0], infos["final_obs"][0])


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's, about wrapped environments
def test_gymnasiums_checker_passes(ors_server: SDKServer) -> None:
    register()
    env = HashedText(DiscreteToolCalls(gym.make("ors_gym/ORS-v0", base_url=ors_server.base_url, env_name="counter")))

    gym.utils.env_checker.check_env(env, skip_render_check=True)
    env.close()


def test_wrapped_environments_are_made_again_from_their_spec(ors_server: SDKServer) -> None:
    register()
    env = HashedText(
        DiscreteToolCalls(gym.make("ors_gym/ORS-v0", base_url=ors_server.base_url, env_name="counter"), max_actions=20), 32
    )
    again = gym.make(env.spec)

    assert again.action_space == Discrete(6)
    assert again.observation_space == Box(-1, 1, (32,))
    env.close()
    again.close()


def test_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="HashedText wraps an environment or a vector environment, not str"):
        HashedText("http://localhost:8080")  # type: ignore[arg-type]
