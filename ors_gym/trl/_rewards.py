"""The reward function that every trainer takes: completions → episodes → rewards, a tool never run twice."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ors_gym.episode import Episode
from ors_gym.errors import InfrastructureError
from ors_gym.portal import portal
from ors_gym.protocol import ToolSpec
from ors_gym.trl._environment import RolloutEnvironment, episode_of_messages, finish
from ors_gym.trl._episodes import ActionParser, failed_episode, replay, without_session
from ors_gym.trl._ledger import Ledger, LogMetric, Rollout, score
from ors_gym.trl._outage import Outage
from ors_gym.trl._rows import EPISODE, RowTask, read_columns
from ors_gym.trl._source import Source, Sources
from ors_gym.trl._tool_sets import ToolSets


class Scorer:
    """Turns the rows of a step into rollouts, once, however many reward functions ask.

    Args:
        sources: The environments.
        tool_sets: The tools of tasks that have tools of their own.
        ledger: What keeps the step.
        outage: What to do when every rollout of a step is lost.
        action_parser: Reads completions, instead of `ors_gym.actions.parse`.
    """

    def __init__(
        self,
        sources: Sources,
        tool_sets: ToolSets,
        ledger: Ledger,
        outage: Outage,
        action_parser: ActionParser | None,
    ) -> None:
        self._sources = sources
        self._tool_sets = tool_sets
        self._ledger = ledger
        self._outage = outage
        self._action_parser = action_parser
        self._scoring = threading.Lock()
        self._scored: deque[tuple[Any, list[Rollout]]] = deque(maxlen=8)

    def __reduce__(self) -> tuple[type["Scorer"], tuple[Any, ...]]:
        return Scorer, (self._sources, self._tool_sets, self._ledger, self._outage, self._action_parser)

    def score(
        self,
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        environments: Sequence[Any] | None,
        step: int | None,
        log_metric: LogMetric | None,
    ) -> list[Rollout]:
        """The rollouts of a step's rows, in their order. The same list of completions gives the same rollouts.

        Raises:
            ValueError: The rows name no task, or an environment that is not known.
            ServerDown: Every rollout was lost for longer than `on_server_down` allows.
        """
        with self._scoring:
            for known, rollouts in self._scored:
                if known is completions:
                    return rollouts
            started = time.perf_counter()
            rows = read_columns(columns, len(completions))
            episodes = self._episodes(rows, completions, columns, environments)
            rollouts = [self._rollout(row, episode) for row, episode in zip(rows, episodes, strict=True)]
            self._scored.append((completions, rollouts))
            if rollouts:
                self._ledger.add(rollouts, step, log_metric)
            if log_metric is not None:
                log_metric("ors/scoring_seconds", time.perf_counter() - started)
        self._outage.after(rollouts, [self._source(row) for row in rows])
        return rollouts

    def _source(self, row: RowTask) -> Source:
        return self._sources.of(row.environment)

    def _rollout(self, row: RowTask, episode: Episode) -> Rollout:
        options = self._source(row).options
        return score(row.environment if len(self._sources) > 1 else "", episode, options.reward, options.invalid_action_reward)

    def _episodes(
        self,
        rows: Sequence[RowTask],
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        environments: Sequence[Any] | None,
    ) -> Sequence[Episode]:
        """The episodes that have been, where a loop has run them; else those of the completions, run now."""
        if EPISODE in columns:
            return list(columns[EPISODE])
        if environments is not None and all(isinstance(environment, RolloutEnvironment) for environment in environments):
            return finish(environments)
        carried = [episode_of_messages(completion) for completion in completions]
        if any(carried):
            return [
                episode or without_session(self._source(row), row.task, completion, "no tool call in the completion")
                for row, completion, episode in zip(rows, completions, carried, strict=True)
            ]
        unreachable = {name: error for name in {row.environment for row in rows} if (error := self._connect(name))}
        return portal().call(self._replay_all, rows, completions, unreachable)

    def _connect(self, name: str) -> str | None:
        """Why an environment cannot be had; None if it can."""
        try:
            self._sources.of(name).connect()
        except InfrastructureError as error:
            return str(error)
        return None

    async def _replay_all(
        self, rows: Sequence[RowTask], completions: Sequence[Any], unreachable: Mapping[str, str]
    ) -> list[Episode]:
        async def episode(row: RowTask, completion: Any) -> Episode:
            if row.environment in unreachable:
                return failed_episode(row.task, row.environment, unreachable[row.environment])
            return await replay(self._source(row), row.task, completion, self._tools(row), self._action_parser)

        return await asyncio.gather(*map(episode, rows, completions))

    def _tools(self, row: RowTask) -> Sequence[ToolSpec]:
        return self._tool_sets.tools(row.tool_set) or self._source(row).discovery.tools


class RewardFunction:
    """What `reward_funcs` is: called by a trainer with a step's completions, it gives their rewards.

    Where TRL's loop has run environments of ours, or our rollout function has run, it reads the episodes that there are;
    else it runs the tool calls of each completion in a session of its own, all at once. A rollout that the environment or
    the infrastructure lost is None, which trainers leave out. It raises for a dataset that is not the spec's and, as
    `on_server_down` says, for a server that stays away; for nothing else.

    Args:
        scorer: Makes the rollouts.
        name: The name in the trainer's logs.
        value: What of a rollout is the reward.
    """

    def __init__(self, scorer: Scorer, name: str, value: "Callable[[Rollout], float | None]") -> None:
        self._scorer = scorer
        self._value = value
        self.__name__ = name

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Any] | None = None,
        *,
        environments: Sequence[Any] | None = None,
        trainer_state: Any = None,
        log_metric: LogMetric | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The reward of each completion, in their order, None for a rollout that was lost.

        Args:
            prompts: The prompts; the rows' columns say which tasks they are.
            completions: Text, or lists of chat messages.
            completion_ids: Their tokens; not read.
            environments: The environments of TRL's loop.
            trainer_state: The trainer's state, for the number of the step.
            log_metric: Takes the numbers of the step.
            **columns: The dataset's columns.
        """
        step = getattr(trainer_state, "global_step", None)
        rollouts = self._scorer.score(completions, columns, environments, step, log_metric)
        return [self._value(rollout) for rollout in rollouts]

    def __repr__(self) -> str:
        return f"<reward function {self.__name__!r}>"


def total(rollout: Rollout) -> float | None:
    """The whole reward of a rollout."""
    return rollout.reward


class Component:
    """One component of a rollout's reward: the sum over its steps of what the environment reported in `metadata`.

    Args:
        key: The key in the metadata; dots go into nested objects.
    """

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, rollout: Rollout) -> float | None:
        """The component; None if the rollout is unscored, 0.0 if no step reported it."""
        if rollout.reward is None:
            return None
        return sum((_number_at(step.metadata, self._key) for step in rollout.episode.steps), 0.0)


def _number_at(metadata: Any, key: str) -> float:
    value = metadata
    for part in [key] if isinstance(metadata, Mapping) and key in metadata else key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    is_number = isinstance(value, (int, float)) and value == value and abs(value) != float("inf")
    return float(value) if is_number else 0.0
