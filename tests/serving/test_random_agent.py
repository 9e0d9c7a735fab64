"""An agent of random valid actions plays served Gymnasium environments without an error.

Long episodes are cut, to 10 steps; `pytest tests/serving/test_random_agent.py --full-episodes --junit-xml FILE` plays each to its
end, which takes minutes.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ors_gym.client import ORSClient
from ors_gym.env import ORSEnv
from ors_gym.schemas import sample
from ors_gym.serving import LocalServer
from tests.servers.gym_ids import GYM_IDS

SHORT = ("CartPole-v1", "FrozenLake-v1", "Blackjack-v1")
"""Those whose random episodes end after a few steps."""

LIMITS = {"CliffWalking-v1": 1000}
"""It has no limit of its own, and a random walk takes 6,000 steps to its goal, if it gets there."""

PLAYERS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    limits = {gym_id: f"&max_episode_steps={limit}" for gym_id, limit in LIMITS.items()}
    targets = [f"gym:{gym_id}?render_mode=null{limits.get(gym_id, '')}" for gym_id in GYM_IDS]
    with LocalServer(targets, workers=2) as server:
        yield server


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("gym_id", GYM_IDS)
def test_an_agent_of_random_valid_actions_plays_a_hundred_episodes(
    server: LocalServer, gym_id: str, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    whole = gym_id in SHORT or pytestconfig.getoption("--full-episodes")

    def play(client: ORSClient, player: int) -> dict[int, int]:
        """The steps of each of this player's episodes."""
        env = ORSEnv(server.base_urls, gym_id.lower(), client=client, max_steps=None if whole else 10)
        (tool,) = env.tools
        rng = np.random.default_rng(player)
        lengths = {}
        for index in range(player, 100, PLAYERS):
            env.reset(options={"split": "train", "index": index})
            over = False
            while not over:
                _, reward, terminated, truncated, info = env.step({"name": "step", "input": sample(tool.input_schema, rng)})
                assert (info["error"], info["invalid_action"]) == ("", "")
                assert np.isfinite(reward)
                over = terminated or truncated
            assert env.episode is not None
            assert not env.episode.unscored
            assert terminated or not whole
            lengths[index] = len(env.episode.steps)
        env.close()
        return lengths

    with ORSClient(server.base_urls) as client, ThreadPoolExecutor(PLAYERS) as threads:
        lengths: dict[int, int] = {}
        for part in threads.map(play, [client] * PLAYERS, range(PLAYERS)):
            lengths |= part

    record_property("steps", sum(lengths.values()))
    record_property("longest", max(lengths.values()))
    assert sorted(lengths) == list(range(100))
