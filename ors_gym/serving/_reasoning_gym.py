"""The procedural datasets of `reasoning-gym` as ORS environments: `reasoning_gym_environment("basic_arithmetic")`."""

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from ors import Environment, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel, Field
from reasoning_gym.composite import DatasetSpec
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS, create_dataset

logger = logging.getLogger("ors_gym.serving")

TEST_SEED_OFFSET = 1_000_000_000
"""How much more the seed of `test` is than that of `train`: item `i` is drawn with the seed plus `i`, so the splits stay apart."""


def reasoning_gym_environment(
    dataset: str, *, seed: int = 0, size: int = 500, num_test: int = 100, env_name: str | None = None, **config: Any
) -> type[Environment]:
    """An ORS environment class whose tasks are a dataset of `reasoning-gym`.

    The prompt is the question. The tool `answer` ends the episode with the score of the dataset's own verifier, 0.0 to 1.0. An
    answer that the verifier cannot read scores 0.0.

    Args:
        dataset: The dataset's name in `reasoning-gym`'s registry. `"composite"` without `datasets` mixes all the others evenly.
        seed: The seed of `train`; `test` has `seed + 1_000_000_000`.
        size: The number of tasks in `train`.
        num_test: The number of tasks in `test`.
        env_name: The name to serve it under; by default the dataset's.
        **config: The dataset's own configuration. The items of `datasets` of `"composite"` may be mappings with `name`, `weight`
            and `config`.

    Raises:
        ValueError: There is no such dataset, or it refuses the configuration.

    >>> reasoning_gym_environment("basic_arithmetic", seed=1, max_terms=2).name()
    'basic_arithmetic'
    """
    if dataset not in DATASETS:
        raise ValueError(f"reasoning-gym has no dataset {dataset!r}; it has {', '.join(sorted(DATASETS))}")
    if size < 1 or num_test < 1:
        raise ValueError(f"size and num_test must be at least 1, not {size} and {num_test}")
    if dataset == "composite":
        config["datasets"] = _composite_parts(config.get("datasets"))
    attributes = {
        "dataset": dataset,
        "config": config,
        "seeds": {"train": seed, "test": seed + TEST_SEED_OFFSET},
        "sizes": {"train": size, "test": num_test},
        "env_name": (env_name or dataset).lower(),
        "__doc__": f"The dataset {dataset} of reasoning-gym.",
    }
    made = type(dataset, (ReasoningGymEnvironment,), attributes)
    try:
        _generator(made, "train")
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"reasoning-gym's dataset {dataset!r} refuses the configuration {config}: {error}") from error
    return made


class _Answer(BaseModel):
    answer: str = Field(description="The answer, in the form that the question asks for, and nothing else.")


class ReasoningGymEnvironment(Environment):
    """The base of what `reasoning_gym_environment` makes. A session is one question."""

    dataset: ClassVar[str]
    config: ClassVar[dict[str, Any]]
    seeds: ClassVar[dict[str, int]]
    sizes: ClassVar[dict[str, int]]
    env_name: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.env_name

    @classmethod
    def list_splits(cls) -> list[Split]:  # type: ignore[override]  # the SDK caches its own with functools
        return [Split(name="train", type="train"), Split(name="test", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"split": split, "index": index} for index in range(cls.sizes[split])]

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return cls.sizes[split]

    @classmethod
    async def get_task(cls, split: str, index: int) -> dict[str, Any]:
        if not 0 <= index < cls.sizes[split]:
            raise IndexError(f"{split} has the tasks 0 to {cls.sizes[split] - 1}, not {index}")
        return {"split": split, "index": index}

    async def setup(self) -> None:
        match dict(self.task_spec):
            case {"split": "train" | "test" as split, "index": int(index)} if 0 <= index < self.sizes[split]:
                self._generator, self._entry = await asyncio.to_thread(self._draw, split, index)
            case other:
                raise ValueError(f"a task of {self.env_name} is {{'split': 'train' or 'test', 'index': …}}, not {other!r:.200}")

    def _draw(self, split: str, index: int) -> tuple[ProceduralDataset, dict[str, Any]]:
        generator = _generator(type(self), split)
        return generator, generator[index]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self._entry["question"])]

    @tool
    async def answer(self, params: _Answer) -> ToolOutput:
        """Give the answer to the question. This ends the episode."""
        score = await asyncio.to_thread(self._score, params.answer)
        return ToolOutput(blocks=[TextBlock(text=f"Score: {score:g}")], reward=score, finished=True)

    def _score(self, answer: str) -> float:
        try:
            return float(self._generator.score_answer(answer, self._entry))
        except Exception as error:  # some verifiers stumble over what does not look like an answer
            logger.info("%s: the verifier cannot read the answer %.200r: %r", self.env_name, answer, error)
            return 0.0


@functools.cache
def _generator(environment: type[ReasoningGymEnvironment], split: str) -> ProceduralDataset:
    """The dataset that draws a split's items; made once in a process, since some take a while."""
    config = {**environment.config, "seed": environment.seeds[split], "size": environment.sizes[split]}
    return create_dataset(environment.dataset, **config)


def _composite_parts(datasets: list[DatasetSpec | Mapping[str, Any]] | None) -> list[DatasetSpec]:
    if datasets is None:
        return [DatasetSpec(name=name, weight=1.0, config={}) for name in sorted(DATASETS) if name != "composite"]
    return [part if isinstance(part, DatasetSpec) else DatasetSpec(**{"weight": 1.0, "config": {}, **part}) for part in datasets]
