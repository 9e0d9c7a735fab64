"""`ORSMixture`: several environments in one training, each row with its own environment, tools and reward."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ors_gym.trl._parts import TrainerParts
from ors_gym.trl._source import Sources

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from ors_gym.trl.spec import ORSSpec


class ORSMixture(TrainerParts):
    """Several environments on ORS servers, for TRL. Made by `ORSSpec.mixture`.

    Args:
        specs: Their specs, by the names that rows and logs use.
        weights: How often rows of each come, relative to the others; None takes every row once.
        seed: Of the order of the rows.

    Raises:
        ValueError: There is no spec, or a weight is not above 0, or is of no spec.
    """

    def __init__(self, specs: "Mapping[str, ORSSpec]", *, weights: Mapping[str, float] | None = None, seed: int = 0) -> None:
        if not specs or "" in specs:
            raise ValueError("a mixture needs specs, each with a name")
        if weights is not None and (set(weights) != set(specs) or not all(weight > 0 for weight in weights.values())):
            raise ValueError(f"weights are numbers above 0 for {', '.join(map(repr, specs))}, not {dict(weights)!r}")
        self.specs = dict(specs)
        self._weights = None if weights is None else [weights[name] / sum(weights.values()) for name in specs]
        self._seed = seed
        first = next(iter(self.specs.values()))
        super().__init__(Sources({name: spec.source for name, spec in self.specs.items()}), first.training_options)

    @cached_property
    def train_dataset(self) -> "Dataset | IterableDataset":
        """The rows of all environments, in a fixed random order; with weights, until the rows of each have come at least once."""
        return self._mixed([spec.dataset(name, self._tool_sets) for name, spec in self.specs.items()])

    def eval_dataset(self, split: str | None = None) -> "Dataset | IterableDataset":
        """The rows of a split of all environments.

        Args:
            split: The split, which every environment must have; None is each one's first of type test, or else validation.
        """
        return self._mixed([spec.held_out_dataset(name, self._tool_sets, split) for name, spec in self.specs.items()])

    def _mixed(self, datasets: "list[Dataset | IterableDataset]") -> "Dataset | IterableDataset":
        from datasets import Dataset, concatenate_datasets, interleave_datasets

        if self._weights is None and all(isinstance(dataset, Dataset) for dataset in datasets):
            return concatenate_datasets(datasets).shuffle(seed=self._seed)
        weights = self._weights or np.full(len(datasets), 1 / len(datasets)).tolist()
        streams = any(not isinstance(dataset, Dataset) for dataset in datasets)
        mixed = [dataset.to_iterable_dataset() if streams and isinstance(dataset, Dataset) else dataset for dataset in datasets]
        return interleave_datasets(mixed, probabilities=weights, seed=self._seed, stopping_strategy="all_exhausted")

    def close(self) -> None:
        """Closes sessions, connections and records of all."""
        super().close()
        for spec in self.specs.values():
            spec.close()
