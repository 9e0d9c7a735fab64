"""Steps a second of CartPole: native, and served as ORS to `ORSVectorEnv` by one worker and by two."""

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from ors_gym.env import ORSVectorEnv
from ors_gym.serving import LocalServer
from tests.benchmarks._measure import in_turn, medians, raise_descriptor_limit
from tests.benchmarks.table import Table

NAME = "served CartPole"

_TARGET = "gym:CartPole-v1?render_mode=null"


def run(quick: bool) -> list[Table]:
    num_envs, steps, repeats = (8, 3, 1) if quick else (64, 100, 3)
    raise_descriptor_limit()
    with LocalServer([_TARGET]) as one, LocalServer([_TARGET], workers=2) as two:
        sides: dict[str, Callable[[], tuple[float, ...]]] = {
            "native, SyncVectorEnv": lambda: _native(num_envs, steps),
            "served, 1 worker": lambda: _served(one.base_urls, num_envs, steps),
            "served, 2 workers": lambda: _served(two.base_urls, num_envs, steps),
        }
        measured = {name: medians(rows) for name, rows in in_turn(sides, repeats).items()}
    native = measured["native, SyncVectorEnv"][0]
    rows = [[name, rate, 1000 * num_envs / rate, native / rate] for name, (rate,) in measured.items()]
    return [
        Table(
            f"CartPole, {num_envs} at once, random actions, text only",
            ["", "steps/s", "ms a batch", "times native"],
            rows,
            note="a step of CartPole takes microseconds: what is left is the cost of a tool call over HTTP, resets included",
        )
    ]


def _native(num_envs: int, steps: int) -> tuple[float, ...]:
    envs = gym.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="sync")
    return _rate(envs, num_envs, steps, lambda actions: actions)


def _served(base_urls: tuple[str, ...], num_envs: int, steps: int) -> tuple[float, ...]:
    envs = ORSVectorEnv(num_envs, base_urls)
    return _rate(envs, num_envs, steps, lambda actions: [{"name": "step", "input": {"action": int(a)}} for a in actions])


def _rate(envs: Any, num_envs: int, steps: int, as_actions: Callable[[Any], Any]) -> tuple[float, ...]:
    actions = np.random.default_rng(0).integers(2, size=(steps, num_envs))
    try:
        envs.reset(seed=0)
        started = time.perf_counter()
        for row in actions:
            envs.step(as_actions(row))
        return (steps * num_envs / (time.perf_counter() - started),)
    finally:
        envs.close()
