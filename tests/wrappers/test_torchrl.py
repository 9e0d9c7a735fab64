"""ORS environments in TorchRL: text stays text, one string an environment."""

from collections.abc import Iterator
from typing import Any

import pytest

torchrl_envs = pytest.importorskip("torchrl.envs")

from gymnasium.vector import AutoresetMode  # noqa: E402
from tensordict import NonTensorData, NonTensorStack  # noqa: E402
from torchrl.collectors import Collector  # noqa: E402
from torchrl.envs.utils import check_env_specs  # noqa: E402

import ors_gym.wrappers.torchrl  # noqa: E402, F401
from ors_gym.env import ORSEnv, ORSVectorEnv  # noqa: E402
from ors_gym.wrappers import DiscreteToolCalls  # noqa: E402
from tests.servers.sdk_server import SDKServer  # noqa: E402


@pytest.fixture
def env(ors_server: SDKServer) -> Iterator[Any]:
    env = torchrl_envs.GymWrapper(DiscreteToolCalls(ORSEnv(ors_server.base_url, "counter")), categorical_action_encoding=True)
    yield env
    env.close()


@pytest.fixture
def vector_env(ors_server: SDKServer) -> Iterator[Any]:
    envs = ORSVectorEnv(3, ors_server.base_url, "counter", autoreset_mode=AutoresetMode.DISABLED)
    env = torchrl_envs.GymWrapper(DiscreteToolCalls(envs), categorical_action_encoding=True)
    yield env
    env.close(raise_if_closed=False)


def test_an_environment_gives_a_string(env: Any) -> None:
    first = env.reset(seed=0)
    played = env.rand_step(first)

    assert first["observation"].startswith("Count to ")
    assert played["next", "observation"].startswith("The total is ")


def test_torchrls_own_check_passes(env: Any) -> None:
    check_env_specs(env)


def test_each_environment_of_a_vector_has_its_string(vector_env: Any) -> None:
    texts = vector_env.reset(seed=0)["observation"]

    assert len(texts) == len(set(texts)) == 3
    assert all(text.startswith("Count to ") for text in texts)


def test_a_rollout_goes_on_with_the_next_episodes(vector_env: Any) -> None:
    rollout = vector_env.rollout(30, break_when_any_done=False)
    texts, ended = rollout["observation"], rollout["next", "done"].squeeze(-1)

    assert rollout.batch_size == (3, 30)
    assert ended.any()
    for row, ends in zip(texts, ended, strict=True):
        begins = [True, *ends[:-1].tolist()]
        assert [text.startswith("Count to ") for text in row] == begins


def test_a_collector_keeps_text(vector_env: Any) -> None:
    collector = Collector(vector_env, frames_per_batch=12, total_frames=24, auto_register_policy_transforms=False)

    batches = list(collector)

    assert [batch.batch_size for batch in batches] == [(3, 4), (3, 4)]
    assert {type(text) for batch in batches for row in batch["observation"] for text in row} == {str}


def test_tool_calls_go_through_as_they_are(ors_server: SDKServer) -> None:
    env = torchrl_envs.GymWrapper(ORSEnv(ors_server.base_url, "counter"))
    envs = ORSVectorEnv(2, ors_server.base_url, "counter", autoreset_mode=AutoresetMode.DISABLED)
    vector_env = torchrl_envs.GymWrapper(envs)
    calls = [{"name": "add", "input": {"amount": amount}} for amount in (2, 3)]

    one = env.reset(seed=0).set("action", NonTensorData(calls[0]))
    two = vector_env.reset(seed=0).set("action", NonTensorStack(*calls))

    assert env.step(one)["next", "reward"].tolist() == pytest.approx([0.2])
    assert vector_env.step(two)["next", "reward"].squeeze(-1).tolist() == pytest.approx([0.2, 0.3])
    env.close()
    vector_env.close()
