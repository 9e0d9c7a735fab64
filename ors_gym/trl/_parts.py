"""`TrainerParts`: what `ORSSpec` and a mixture have in common: everything that a trainer takes but the dataset."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ors_gym.groups import RolloutGroup
from ors_gym.trl._environment import EnvironmentFactory
from ors_gym.trl._episodes import ActionParser
from ors_gym.trl._ledger import Ledger
from ors_gym.trl._outage import OnServerDown, Outage
from ors_gym.trl._rewards import Component, RewardFunction, Scorer, total
from ors_gym.trl._rollout import RolloutFunction
from ors_gym.trl._source import Sources
from ors_gym.trl._tool_sets import ToolSets
from ors_gym.trl._trainer import TrainerFacts

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from transformers import TrainerCallback

Mode = Literal["single_turn", "environment", "rollout"]

_PATIENCE = 3
"""Steps in a row without one scored rollout, until `on_server_down` applies."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What a spec or a mixture is told about the training; each field is the argument of that name."""

    action_parser: ActionParser | None = None
    reward_components: Sequence[str] = ()
    record: str | os.PathLike[str] | None = None
    on_server_down: OnServerDown = "wait"
    server_down_timeout: float = 600.0
    nudge: str | None = None
    pipeline: bool = False

    def __post_init__(self) -> None:
        if self.on_server_down not in ("wait", "raise", "continue"):
            raise ValueError(f"on_server_down is 'wait', 'raise' or 'continue', not {self.on_server_down!r}")


class TrainerParts(ABC):
    """An environment, or several, in the parts that a trainer takes, each named after the trainer's argument.

    Use it with `with`, or `close` it: sessions, connections and records are then closed.
    """

    def __init__(self, sources: Sources, options: TrainingOptions) -> None:
        self._sources = sources
        self._options = options
        self._tool_sets = ToolSets()
        self._facts = TrainerFacts()
        self._ledger = Ledger(options.record, sources, self._facts)
        self._factories: dict[str, EnvironmentFactory] = {}

    @property
    @abstractmethod
    def train_dataset(self) -> "Dataset | IterableDataset":
        """The tasks to train on, with their prompts."""

    @abstractmethod
    def eval_dataset(self, split: str | None = None) -> "Dataset | IterableDataset":
        """The tasks of another split, with their prompts."""

    @cached_property
    def reward_funcs(self) -> "RewardFunction | list[RewardFunction]":
        """The reward function, for every mode and for every trainer that has `reward_funcs`; with `reward_components` a list."""
        options = self._options
        outage = Outage(options.on_server_down, options.server_down_timeout, _PATIENCE)
        scorer = Scorer(self._sources, self._tool_sets, self._ledger, outage, options.action_parser)
        if not options.reward_components:
            return RewardFunction(scorer, "ors_reward", total)
        return [RewardFunction(scorer, key, Component(key)) for key in options.reward_components]

    @property
    def environment_factory(self) -> "EnvironmentFactory | dict[str, EnvironmentFactory]":
        """For TRL's own loop: what makes an environment a rollout; one by tool set, where the tasks' tools differ.

        The tool sets are those of the datasets that have been made: make an `eval_dataset` first, if its tasks have others.
        """
        _ = self.train_dataset
        for key, environment, tools in self._tool_sets.items():
            if key not in self._factories:
                self._factories[key] = EnvironmentFactory(self._sources.of(environment), tools, self._facts)
        return next(iter(self._factories.values())) if len(self._factories) == 1 else dict(self._factories)

    @cached_property
    def rollout_func(self) -> RolloutFunction:
        """Our loop of many turns, on the trainer's generation: tools run at once, and rollouts stop at `finished`."""
        return RolloutFunction(self._sources, self._tool_sets, self._options.nudge, self._options.pipeline)

    @cached_property
    def callbacks(self) -> "list[TrainerCallback]":
        """What tells the spec of the trainer, and closes sessions and records at the end of training."""
        from ors_gym.trl._callbacks import ORSCallback

        return [ORSCallback(self._facts, self._on_train_end)]

    @property
    def groups(self) -> list[RolloutGroup]:
        """The groups of the last step: the rollouts of a task, of this process, with rewards and advantages."""
        return self._ledger.groups

    def trainer_kwargs(self, mode: Mode = "single_turn") -> dict[str, Any]:
        """The arguments of a `GRPOTrainer`, but for the model and its configuration.

        Args:
            mode: "single_turn": completions are run in sessions. "environment": TRL's own loop. "rollout": our loop.

        Raises:
            ValueError: Another mode.
        """
        common = {"train_dataset": self.train_dataset, "reward_funcs": self.reward_funcs, "callbacks": self.callbacks}
        match mode:
            case "single_turn":
                return common
            case "environment":
                return {**common, "environment_factory": self.environment_factory}
            case "rollout":
                return {**common, "rollout_func": self.rollout_func}
        raise ValueError(f"mode is 'single_turn', 'environment' or 'rollout', not {mode!r}")

    def close(self) -> None:
        """Closes sessions, connections and records. What is used again opens again."""
        self._on_train_end()
        self._sources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _on_train_end(self) -> None:
        for factory in self._factories.values():
            factory.end_episodes()
        self._ledger.close()
