"""A random model learns from a real server's rewards, in each of the three modes, by real sampling."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from trl import RLOOConfig, RLOOTrainer

from ors_gym.trl import ORSSpec
from tests.trl.tiny import LOOK, PRESSES, logged, make_trainer


@pytest.mark.parametrize("mode", ["single_turn", "environment", "rollout"])
def test_one_turn_is_learnt(mode: Any, base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "copy", record=tmp_path / "episodes.jsonl", progress=False) as spec:
        trainer = make_trainer(tmp_path, spec.trainer_kwargs(mode), allowed=PRESSES, max_steps=60, stop_at=0.95)
        trainer.train()
    rewards = logged(trainer, "reward")
    assert fmean(rewards[:2]) < 0.5
    assert fmean(rewards[-5:]) >= 0.9


@pytest.mark.parametrize("mode", ["environment", "rollout"])
def test_two_turns_are_learnt_where_the_second_needs_the_first(mode: Any, base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "code", progress=False) as spec:
        trainer = make_trainer(
            tmp_path,
            spec.trainer_kwargs(mode),
            allowed=[LOOK, *PRESSES],
            max_steps=100,
            stop_at=0.95,
            max_tool_calling_iterations=4,
        )
        trainer.train()
    rewards = logged(trainer, "reward")
    assert fmean(rewards[:2]) < 0.5
    assert fmean(rewards[-5:]) >= 0.9


def test_the_reward_function_teaches_rloo_too(base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "copy", progress=False) as spec:
        trainer = make_trainer(
            tmp_path,
            spec.trainer_kwargs("single_turn"),
            allowed=PRESSES,
            max_steps=60,
            stop_at=0.95,
            trainer_class=RLOOTrainer,
            config_class=RLOOConfig,
        )
        trainer.train()
    rewards = logged(trainer, "reward")
    assert fmean(rewards[:2]) < 0.5
    assert fmean(rewards[-5:]) >= 0.9
