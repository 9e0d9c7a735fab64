"""`ORSSpec.mixture`: several environments in one training."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ors_gym.trl import ORSSpec
from tests.trl.tiny import LOOK, PRESSES, logged, make_trainer


def mixture(base_url: str, **options: Any) -> Any:
    specs = {"one": ORSSpec(base_url, "copy", num_tasks=8, reward="last"), "two": ORSSpec(base_url, "code", num_tasks=8)}
    return ORSSpec.mixture(specs, **options)


@pytest.mark.parametrize("mode", ["single_turn", "environment", "rollout"])
def test_rows_of_all_train_together_each_with_its_own_environment(mode: Any, base_url: str, tmp_path: Path) -> None:
    with mixture(base_url) as mixed:
        trainer = make_trainer(
            tmp_path, mixed.trainer_kwargs(mode), allowed=[LOOK, *PRESSES], max_steps=2, max_tool_calling_iterations=2
        )  # fmt: skip
        trainer.train()
        episodes = [episode for group in mixed.groups for episode in group.episodes]
    assert {episode.env_name: len(episode.tools) for episode in episodes} == {"copy": 1, "code": 2}
    assert len(logged(trainer, "ors/one/reward")) == len(logged(trainer, "ors/two/reward")) == 2


def test_each_environment_offers_its_own_tools(base_url: str) -> None:
    with mixture(base_url) as mixed:
        rows = mixed.train_dataset
        factories = mixed.environment_factory
    assert Counter(rows["ors_env"]) == {"one": 8, "two": 8}
    offered = {env: sorted(type(factories[key]()).__dict__) for env, key in zip(rows["ors_env"], rows["environment"], strict=True)}
    assert [name for name in offered["one"] if name.startswith("tool_")] == ["tool_0000"]
    assert [name for name in offered["two"] if name.startswith("tool_")] == ["tool_0000", "tool_0001"]


def test_weights_say_how_often_each_comes(base_url: str) -> None:
    with mixture(base_url, weights={"one": 9, "two": 1}, seed=1) as mixed:
        counts = Counter(mixed.train_dataset["ors_env"])
        again = ORSSpec.mixture({"one": mixed.specs["one"], "two": mixed.specs["two"]}, weights={"one": 9, "two": 1}, seed=1)
        assert again.train_dataset["ors_index"][:] == mixed.train_dataset["ors_index"][:]
    assert counts["one"] > 4 * counts["two"] > 0


def test_the_held_out_rows_are_those_of_all(base_url: str) -> None:
    specs = {"one": ORSSpec(base_url, "copy"), "two": ORSSpec(base_url, "arithmetic")}
    with ORSSpec.mixture(specs) as mixed:
        assert Counter(mixed.eval_dataset()["ors_env"]) == {"one": 8, "two": 5}


def test_streams_mix_too(base_url: str) -> None:
    specs = {"one": ORSSpec(base_url, "million", progress=False), "two": ORSSpec(base_url, "arithmetic")}
    with ORSSpec.mixture(specs) as mixed:
        assert {row["ors_env"] for row in mixed.train_dataset.take(20)} == {"one", "two"}


def test_weights_that_make_no_sense_are_refused(base_url: str) -> None:
    specs = {"one": ORSSpec(base_url, "copy")}
    for weights in ({"other": 1.0}, {"one": 0.0}):
        with pytest.raises(ValueError, match="weights are numbers above 0"):
            ORSSpec.mixture(specs, weights=weights)
    with pytest.raises(ValueError, match="needs specs"):
        ORSSpec.mixture({})
