"""Stable-Baselines3's PPO on sessions that are stepped all at once, beside one after another."""

import time
from collections.abc import Callable
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from ors_gym import ORSEnv, ORSVectorEnv
from ors_gym.protocol import ToolSpec
from ors_gym.serving import LocalServer
from ors_gym.wrappers import DiscreteToolCalls, HashedText
from ors_gym.wrappers.sb3 import ORSVecEnv
from tests.benchmarks.table import Table

NAME = "sb3"

_SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
_SLOW = ToolSpec(name="slow", input_schema=_SECONDS)
_CANDIDATES = {"slow": {"seconds": [0.02, 0.020001]}}


def run(quick: bool) -> list[Table]:
    torch.set_num_threads(1)
    num_envs, num_steps = (4, 4) if quick else (32, 16)
    with LocalServer(["tests.servers.environments:Faulty"]) as server:
        speeds = {
            "DummyVecEnv": _speed(lambda: _one_by_one(server.base_url, num_envs), num_steps, rollouts=1),
            "ORSVecEnv": _speed(lambda: _all_at_once(server.base_url, num_envs), num_steps, rollouts=1 if quick else 8),
        }
    times = speeds["ORSVecEnv"] / speeds["DummyVecEnv"]
    return [
        Table(
            f"SB3's PPO, {num_envs} environments, a tool that takes 20 ms: steps a second, learning included",
            ["", "steps/s", "times"],
            [["DummyVecEnv", speeds["DummyVecEnv"], 1.0], ["ORSVecEnv", speeds["ORSVecEnv"], times]],
            targets={} if quick else {"at least 10 times DummyVecEnv": times >= 10},
        )
    ]


def _speed(make: Callable[[], VecEnv], num_steps: int, rollouts: int) -> float:
    vec_env = make()
    try:
        total = vec_env.num_envs * num_steps * rollouts
        model = PPO(
            "MlpPolicy", vec_env, n_steps=num_steps, batch_size=128 if total >= 128 else 16, n_epochs=4, seed=0, device="cpu"
        )
        began = time.perf_counter()
        model.learn(total)
        return total / (time.perf_counter() - began)
    finally:
        vec_env.close()


def _one_by_one(base_url: str, num_envs: int) -> VecEnv:
    return DummyVecEnv([lambda: _wrapped(ORSEnv(base_url, "faulty", max_steps=16)) for _ in range(num_envs)])


def _all_at_once(base_url: str, num_envs: int) -> VecEnv:
    envs = ORSVectorEnv(num_envs, base_url, "faulty", max_steps=16, autoreset_mode=AutoresetMode.SAME_STEP)
    return ORSVecEnv(_wrapped(envs))


def _wrapped(env: Any) -> Any:
    return HashedText(DiscreteToolCalls(env, _CANDIDATES, tools=[_SLOW]))
