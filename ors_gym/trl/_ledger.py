"""What a training step did: its rollouts in groups, their metrics, and the records of them."""

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ors_gym.episode import Episode
from ors_gym.groups import RolloutGroup
from ors_gym.records import RecordWriter, records_file
from ors_gym.rewards import RewardReduction, reduce
from ors_gym.trl._source import Sources
from ors_gym.trl._trainer import TrainerFacts

logger = logging.getLogger("ors_gym.trl")

SUCCESS = 0.99
"""From this reward on an episode counts as a success."""

LogMetric = Callable[[str, float], None]


@dataclass(frozen=True)
class Rollout:
    """One row of a step.

    Attributes:
        environment: Which environment of a mixture it is; "" where there is one.
        episode: What happened.
        reward: What it was worth; None if it is unscored.
    """

    environment: str
    episode: Episode
    reward: float | None


def score(environment: str, episode: Episode, reward: RewardReduction, without_a_call: float) -> Rollout:
    """The rollout of an episode. A reward function that raises leaves it unscored, with the reason in the log.

    Args:
        environment: Which environment of a mixture it is.
        episode: What happened.
        reward: How its rewards become one.
        without_a_call: The reward of an episode in which nothing was tried, unless `reward` is a function.
    """
    if not (episode.steps or episode.unscored or callable(reward)):
        return Rollout(environment, episode, without_a_call)
    try:
        return Rollout(environment, episode, reduce(episode, reward))
    except Exception:
        logger.exception("the reward of an episode of task %s could not be computed; it is unscored", episode.task.key)
        return Rollout(environment, episode, None)


class Known:
    """A reward function that looks up rewards which were computed before."""

    def __init__(self, rollouts: Iterable[Rollout]) -> None:
        self._rewards = {rollout.episode.id: rollout.reward for rollout in rollouts}

    def __call__(self, episode: Episode) -> float | None:
        return self._rewards.get(episode.id)


def group(rollouts: Sequence[Rollout], group_size: int | None) -> list[RolloutGroup]:
    """Neighbours on the same task as groups, of at most `group_size` where it is known."""
    runs: list[list[Rollout]] = []
    for rollout in rollouts:
        run = runs[-1] if runs else []
        same = run and run[0].environment == rollout.environment and run[0].episode.task == rollout.episode.task
        if same and len(run) != group_size:
            run.append(rollout)
        else:
            runs.append([rollout])
    return [RolloutGroup(run[0].episode.task, [rollout.episode for rollout in run], Known(run)) for run in runs]


def metrics(rollouts: Sequence[Rollout], groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """The numbers of a step, by the names that they have in the trainer's logs.

    Times are seconds. Rates over scored episodes are left out where there is none.
    """
    episodes = [rollout.episode for rollout in rollouts]
    scored = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    turns = sum(episode.num_steps for episode in episodes)
    invalid = sum(episode.num_invalid_actions for episode in episodes)
    seconds = [episode.environment_seconds for episode in episodes]
    values = {
        "ors/unscored_rate": 1 - len(scored) / len(rollouts),
        "ors/errors": float(sum(bool(episode.error) for episode in episodes)),
        "ors/turns": turns / len(episodes),
        "ors/tool_calls": (turns - invalid) / len(episodes),
        "ors/invalid_actions": invalid / len(episodes),
        "ors/invalid_action_rate": invalid / turns if turns else 0.0,
        "ors/environment_seconds": fmean(seconds),
        "ors/environment_seconds_max": max(seconds),
    }
    if scored:
        values["ors/success_rate"] = fmean(reward >= SUCCESS for reward in scored)
        values |= _of_groups([[reward for reward in group.rewards if reward is not None] for group in groups])
    for name in sorted({rollout.environment for rollout in rollouts} - {""}):
        own = [rollout.reward for rollout in rollouts if rollout.environment == name and rollout.reward is not None]
        if own:
            values[f"ors/{name}/reward"] = fmean(own)
    return values


def _of_groups(rewards: list[list[float]]) -> dict[str, float]:
    compared = [group for group in rewards if len(group) > 1]
    values = {"ors/group_reward_mean": fmean(fmean(group) for group in rewards if group)}
    if compared:
        spreads = [stdev(group) for group in compared]
        values["ors/group_reward_std"] = fmean(spreads)
        values["ors/groups_without_signal"] = fmean(math.isclose(spread, 0.0, abs_tol=1e-9) for spread in spreads)
    return values


class Ledger:
    """Keeps the last step's groups, logs its numbers and writes its records.

    Args:
        record: Where the episodes are written, a file or a folder; None writes none. Each rank has a file of its own.
        sources: Know the secrets that no record may hold.
        trainer: Knows the size of a group.
    """

    def __init__(self, record: str | os.PathLike[str] | None, sources: Sources, trainer: TrainerFacts) -> None:
        self.groups: list[RolloutGroup] = []
        self._record = None if record is None else os.fspath(record)
        self._sources = sources
        self._trainer = trainer
        self._writer: RecordWriter | None = None
        self._num_groups = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Ledger"], tuple[Any, ...]]:
        return Ledger, (self._record, self._sources, self._trainer)

    def add(self, rollouts: Sequence[Rollout], step: int | None, log_metric: LogMetric | None) -> None:
        """Takes in the rollouts of a step, in the order of its rows."""
        with self._lock:
            self.groups = group(rollouts, self._trainer.group_size)
            if log_metric is not None:
                for name, value in metrics(rollouts, self.groups).items():
                    log_metric(name, value)
            if self._record is not None:
                self._write(self.groups, step)
            self._num_groups += len(self.groups)

    def close(self) -> None:
        """Has the disk keep the records. Further steps open the file again."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _write(self, groups: Sequence[RolloutGroup], step: int | None) -> None:
        for number, group in enumerate(groups, self._num_groups):
            advantages = group.advantages()
            for position, (episode, reward) in enumerate(zip(group.episodes, group.rewards, strict=True)):
                notes = {"step": step, "group": number, "rollout": position, "reward": reward, "advantage": advantages[position]}
                episode.metadata.update({name: value for name, value in notes.items() if name != "step" or step is not None})
        try:
            if self._writer is None:
                assert self._record is not None
                self._writer = RecordWriter(_own_file(self._record), reward=_noted_reward, redactor=self._sources.redactor())
            for group in groups:
                for episode in group.episodes:
                    self._writer.write(episode)
        except OSError:
            logger.exception("the episodes of this step could not be recorded in %s; training goes on", self._record)


def _noted_reward(episode: Episode) -> float | None:
    reward: float | None = episode.metadata["reward"]
    return reward


def _own_file(record: str) -> Path:
    """The file of this process: a file of records has one writer."""
    file, rank = records_file(record), int(os.environ.get("RANK", "0"))
    return file if rank == 0 else file.with_name(f"{file.stem}.rank{rank}{file.suffix}")
