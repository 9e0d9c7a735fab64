"""An agent of random valid actions plays served Gymnasium environments without an error."""

from collections.abc import Iterator

import numpy as np
import pytest

from ors_gym.env import ORSEnv
from ors_gym.schemas import sample
from ors_gym.serving import LocalServer
from tests.servers.gym_ids import GYM_IDS


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer([f"gym:{gym_id}?render_mode=null" for gym_id in GYM_IDS]) as server:
        yield server


@pytest.mark.parametrize("gym_id", GYM_IDS)
def test_an_agent_of_random_valid_actions_plays_a_hundred_episodes(server: LocalServer, gym_id: str) -> None:
    env = ORSEnv(server.base_url, gym_id.lower(), max_steps=2)
    (tool,) = env.tools
    rng = np.random.default_rng(0)
    scored = 0
    for index in range(100):
        env.reset(options={"split": "train", "index": index})
        over = False
        while not over:
            _, reward, terminated, truncated, info = env.step({"name": "step", "input": sample(tool.input_schema, rng)})
            assert (info["error"], info["invalid_action"]) == ("", "")
            assert np.isfinite(reward)
            over = terminated or truncated
        scored += env.episode is not None and not env.episode.unscored
    env.close()

    assert scored == 100
