"""ORS environments in Gymnasium's registry: made by id, rebuilt from specs, and never with a secret in them."""

import json
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ors_gym.client import Retry, Timeout
from ors_gym.env import ENV_ID, ORSEnv, ORSVectorEnv, register, register_server
from ors_gym.secrets import EnvSecret
from tests.env.conftest import ADD_5

register()

EIGHT = {"split": "train", "index": 5}


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Leaves Gymnasium's registry as it was."""
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


def test_make_gives_an_orsenv_and_make_vec_an_orsvectorenv(ors_server: Any) -> None:
    env = gym.make(ENV_ID, base_url=ors_server.base_url, env_name="counter")
    assert isinstance(env.unwrapped, ORSEnv)
    assert env.reset(options=EIGHT)[0] == "Count to 8."
    env.close()
    envs = gym.make_vec(ENV_ID, num_envs=2, base_url=ors_server.base_url, env_name="counter", group_size=2)
    assert isinstance(envs, ORSVectorEnv)
    assert repr(envs) == "ORSVectorEnv(ors_gym/ORS-v0, num_envs=2)"
    observations, _ = envs.reset(seed=0)
    assert observations[0] == observations[1]
    envs.close()


@pytest.mark.parametrize("env_id", ["ors_gym/ORS-v0", "ors_gym:ors_gym/ORS-v0"])
def test_an_episode_by_either_form_of_the_id_warns_of_nothing(real_server: Any, env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id, base_url=real_server.base_url, env_name="faulty")
        env.reset(seed=0)
        for action in ("echo", {"name": "no_reward", "input": {}}, {"name": "image", "input": {}}, {"name": "boom", "input": {}}):
            env.step(action)
        env.close()


def test_under_make_vec_max_episode_steps_is_max_steps(ors_server: Any) -> None:
    envs = gym.make_vec(ENV_ID, num_envs=2, base_url=ors_server.base_url, env_name="counter", split="hard", max_episode_steps=1)
    envs.reset(seed=0)
    assert envs.step([ADD_5, ADD_5])[3].tolist() == [True, True]
    assert ors_server.live_sessions() == []
    envs.close()


def test_make_vec_takes_the_autoreset_mode_and_other_modes_of_vectorization(ors_server: Any) -> None:
    arguments = {"base_url": ors_server.base_url, "env_name": "counter"}
    envs = gym.make_vec(ENV_ID, num_envs=2, autoreset_mode="SameStep", **arguments)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.close()
    envs = gym.make_vec(ENV_ID, num_envs=2, vectorization_mode="sync", **arguments)
    assert isinstance(envs, SyncVectorEnv)
    envs.reset(seed=0)
    envs.close()


def test_max_episode_steps_and_render_modes_are_gymnasiums(ors_server: Any) -> None:
    env = gym.make(ENV_ID, base_url=ors_server.base_url, env_name="counter", max_episode_steps=1, render_mode="rgb_array_list")
    env.reset(options=EIGHT)
    assert env.step(ADD_5)[3] is True
    assert len(env.render()) == 2
    env.close()


def test_a_spec_goes_through_json_and_pickle(ors_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORS_GYM_TEST_KEY", "canary")
    env = gym.make(
        ENV_ID,
        base_url=ors_server.base_url,
        env_name="faulty",
        max_steps=3,
        api_key=EnvSecret("ORS_GYM_TEST_KEY"),
        headers={"Authorization": EnvSecret("ORS_GYM_TEST_KEY"), "X-Team": "us"},
        secrets={"key": EnvSecret("ORS_GYM_TEST_KEY")},
        timeout=Timeout(request=30.0),
        retry=Retry(attempts=2),
    )
    env.close()
    written = env.spec.to_json()
    assert "canary" not in written + repr(env.spec) + str(pickle.dumps(env.spec))
    assert json.loads(written)["kwargs"]["secrets"]["key"]["env"] == "ORS_GYM_TEST_KEY"
    for spec in (EnvSpec.from_json(written), pickle.loads(pickle.dumps(env.spec))):
        again = gym.make(spec)
        again.reset(options={"index": 0})
        *_, info = again.step({"name": "whoami", "input": {}})
        assert info["metadata"] == {"secrets": {"key": "canary"}, "task": {"number": 0}}
        assert again.unwrapped._engine.max_steps == 3
        again.close()


def test_a_vector_spec_makes_the_vector_environment_again(ors_server: Any) -> None:
    envs = gym.make_vec(ENV_ID, num_envs=3, base_url=ors_server.base_url, env_name="counter")
    envs.close()
    again = gym.make_vec(pickle.loads(pickle.dumps(envs.spec)))
    assert again.num_envs == 3
    again.close()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"secrets": {"key": "canary"}}, r"secrets\['key'\]"),
        ({"secrets": {"key": ("canary", ["example.com"])}}, r"secrets\['key'\]"),
        ({"api_key": "canary"}, "api_key"),
        ({"headers": {"Authorization": "canary"}}, r"headers\['Authorization'\]"),
        ({"base_url": "http://user:canary@127.0.0.1:9"}, "base_url"),
        ({"api_key": "canary", "no_such_argument": 1}, "api_key"),
    ],
)
def test_a_plain_secret_is_refused_without_being_shown(arguments: dict[str, Any], named: str) -> None:
    arguments = {"base_url": "http://127.0.0.1:9", **arguments}
    for make in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match=f"{named}.*EnvSecret") as caught:
            make(ENV_ID, **arguments)
        assert "canary" not in str(caught.value)
    with pytest.raises(ValueError, match=f"{named}.*EnvSecret"):
        register_server(**arguments)


def test_a_live_object_is_refused() -> None:
    with pytest.raises(ValueError, match="client cannot stand in an environment's spec"):
        gym.make(ENV_ID, base_url="http://127.0.0.1:9", client="a client")


def test_an_unknown_argument_is_named(ors_server: Any) -> None:
    with pytest.raises(TypeError, match="no_such_argument"):
        gym.make(ENV_ID, base_url=ors_server.base_url, no_such_argument=1)


def test_a_server_is_registered_with_one_id_for_each_environment(real_server: Any) -> None:
    ids = register_server(real_server.base_url, max_steps=4)
    assert ids == (
        "ors/arithmetic-v0",
        "ors/counter-v0",
        "ors/faulty-v0",
        "ors/tasktools-v0",
        "ors/brokensetup-v0",
    )
    env = gym.make("ors/counter-v0", split="hard")
    assert env.reset(options={"index": 0})[0] == "Count to 20."
    env.close()
    assert register_server(real_server.base_url, namespace="mine")[1] == "mine/counter-v0"
    assert gym.spec("ors/counter-v0").nondeterministic


def test_registering_again_replaces_the_address(ors_server: Any, recwarn: pytest.WarningsRecorder) -> None:
    register_server(ors_server.base_url)
    register_server(ors_server.base_url, split="hard")
    assert gym.spec("ors/counter-v0").kwargs["split"] == "hard"
    assert len(recwarn) == 0


def test_a_namespace_that_no_id_may_have_is_refused() -> None:
    with pytest.raises(ValueError, match="namespace"):
        register_server("http://127.0.0.1:9", namespace="a/b")
