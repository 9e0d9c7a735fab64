"""What an evaluation found: numbers over tasks, as tables, as JSON, and beside another run's."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ors_gym import _html
from ors_gym.episode import Episode, FailureKind
from ors_gym.records import Record, read_records
from ors_gym.rollout._run_folder import read_config
from ors_gym.rollout.metrics import (
    Interval,
    PairedTest,
    bootstrap_interval,
    paired_test,
    pass_at_k,
    pass_hat_k,
)
from ors_gym.tasks import TaskRef

_SHORT_ERROR = 200


@dataclass(frozen=True)
class Outcome:
    """What evaluation needs to know of one episode.

    Attributes:
        task: The task's key, with the environment's name before it.
        split: The task's split, "" where it has none.
        value: The task's value of the metadata key that results are split by, "" where it has none.
        group, rollout: The number of the task in the run, and of the episode in its group.
        reward: None if it is unscored.
        error, error_kind: What failed, "" if nothing did.
        num_steps, num_invalid: Tool calls, invalid ones counted; and those.
        tool_calls: How often each tool was called.
        prompt_tokens, completion_tokens: As the agent reported them.
        seconds: From its start to its end; `environment_seconds` of that were spent in tool calls.
    """

    task: str
    split: str
    value: str
    group: int
    rollout: int
    reward: float | None
    error: str
    error_kind: FailureKind
    num_steps: int
    num_invalid: int
    tool_calls: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    environment_seconds: float

    @classmethod
    def of(cls, episode: Episode | Record, reward: float | None, by: str | None = None) -> "Outcome":
        """The outcome of an episode or of its record.

        Args:
            episode: The episode.
            reward: Its reduced reward.
            by: The metadata key: looked up in the task, then in the metadata of the last output.
        """
        task = episode.task if isinstance(episode.task, TaskRef) else TaskRef(**episode.task.model_dump())
        agent = episode.metadata.get("agent") or {}
        last: Mapping[str, Any] = (episode.steps[-1].metadata if episode.steps else None) or {}
        value = (episode.metadata.get("task") or {}).get(by, last.get(by)) if by is not None else None
        return cls(
            task=f"{episode.env_name}/{task.key}",
            split=task.split or "",
            value="" if value is None else str(value),
            group=episode.metadata.get("group", 0),
            rollout=episode.metadata.get("rollout", 0),
            reward=reward,
            error=episode.error[:_SHORT_ERROR],
            error_kind=episode.error_kind,
            num_steps=len(episode.steps),
            num_invalid=sum(bool(step.invalid_action) for step in episode.steps),
            tool_calls=Counter(step.call.name for step in episode.steps if step.call is not None),
            prompt_tokens=int(agent.get("prompt_tokens", 0)),
            completion_tokens=int(agent.get("completion_tokens", 0)),
            seconds=max(0.0, (episode.ended_at or episode.started_at) - episode.started_at),
            environment_seconds=sum(step.elapsed for step in episode.steps),
        )


@dataclass(frozen=True)
class Summary:
    """The numbers of a set of episodes. Unscored episodes are in the counts and the errors, and in no mean.

    Means over tasks give each task with a scored episode the same weight; None where there is none.

    Attributes:
        num_tasks, num_episodes: How many.
        num_scored: Episodes with a reward.
        num_unscored: Episodes that the environment, the infrastructure or the agent broke.
        mean_reward, reward_interval: The mean over tasks, and its 95% bootstrap interval over tasks.
        success_rate, success_interval: Likewise of the episodes whose reward is at least the success threshold.
        pass_at: k → the mean over tasks of the unbiased estimate that one of k episodes succeeds.
        pass_hat: k → the mean over tasks of the unbiased estimate that all of k episodes succeed (pass^k).
        mean_steps: Tool calls an episode, invalid ones counted, over scored episodes.
        invalid_action_rate: The share of invalid ones among all tool calls.
        tool_calls: How often each tool was called.
        error_rates: "environment" and "infrastructure": the share of all episodes.
        errors: The most frequent reasons and how often they came, at most ten.
        prompt_tokens, completion_tokens: As agents reported them, in the last attempt of every episode.
        seconds, environment_seconds: Mean of an episode; and of that in tool calls.
    """

    num_tasks: int
    num_episodes: int
    num_scored: int
    num_unscored: int
    mean_reward: float | None
    reward_interval: Interval | None
    success_rate: float | None
    success_interval: Interval | None
    pass_at: Mapping[int, float]
    pass_hat: Mapping[int, float]
    mean_steps: float | None
    invalid_action_rate: float | None
    tool_calls: Mapping[str, int]
    error_rates: Mapping[str, float]
    errors: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int
    seconds: float | None
    environment_seconds: float | None


def summarize(outcomes: Sequence[Outcome], *, success: float, k: int) -> Summary:
    """The numbers of some outcomes.

    Args:
        outcomes: The episodes.
        success: The reward from which an episode is a success.
        k: Episodes a task; pass@j and pass^j are estimated for the powers of two up to it, and for it, each on the tasks
            that have so many scored episodes.

    >>> outcomes = [Outcome.of(Episode(TaskRef("train", 0)), reward) for reward in (1.0, 0.0, None)]
    >>> summary = summarize(outcomes, success=1.0, k=2)
    >>> summary.num_unscored, summary.mean_reward, summary.pass_at
    (1, 0.5, {1: 0.5, 2: 1.0})
    """
    tasks: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.reward is not None:
            tasks[outcome.task].append(outcome.reward)
    scored = [outcome for outcome in outcomes if outcome.reward is not None]
    rewards = [_mean(of_task) for of_task in tasks.values()]
    successes = [sum(reward >= success for reward in of_task) for of_task in tasks.values()]
    counts = [len(of_task) for of_task in tasks.values()]
    shares = [c / n for c, n in zip(successes, counts, strict=True)]
    calls = sum(outcome.num_steps for outcome in outcomes)
    kinds = Counter(outcome.error_kind for outcome in outcomes)

    def estimates(estimate: Callable[[int, int, int], float]) -> dict[int, float]:
        of_k = {
            j: [estimate(n, c, j) for n, c in zip(counts, successes, strict=True) if n >= j]
            for j in sorted({k, *(2**power for power in range(k.bit_length()))})
        }
        return {j: _mean(of_tasks) for j, of_tasks in of_k.items() if of_tasks}

    return Summary(
        num_tasks=len({outcome.task for outcome in outcomes}),
        num_episodes=len(outcomes),
        num_scored=len(scored),
        num_unscored=len(outcomes) - len(scored),
        mean_reward=_mean(rewards) if rewards else None,
        reward_interval=bootstrap_interval(rewards),
        success_rate=_mean(shares) if shares else None,
        success_interval=bootstrap_interval(shares),
        pass_at=estimates(pass_at_k),
        pass_hat=estimates(pass_hat_k),
        mean_steps=_mean([outcome.num_steps for outcome in scored]) if scored else None,
        invalid_action_rate=sum(outcome.num_invalid for outcome in outcomes) / calls if calls else None,
        tool_calls=dict(sum((Counter(outcome.tool_calls) for outcome in outcomes), Counter()).most_common()),
        error_rates={kind: kinds[kind] / len(outcomes) if outcomes else 0.0 for kind in ("environment", "infrastructure")},
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error_kind).most_common(10)),
        prompt_tokens=sum(outcome.prompt_tokens for outcome in outcomes),
        completion_tokens=sum(outcome.completion_tokens for outcome in outcomes),
        seconds=_mean([outcome.seconds for outcome in scored]) if scored else None,
        environment_seconds=_mean([outcome.environment_seconds for outcome in scored]) if scored else None,
    )


@dataclass(frozen=True)
class Results:
    """What an evaluation found. It prints as a table, in a terminal by rich and in a notebook.

    Attributes:
        config: What was evaluated, and how.
        outcomes: The episodes, by group and rollout.
        seconds: How long the evaluation took, without what was there already when it was resumed; None if it was loaded.
        num_resumed: How many of the episodes were there already.
        name: What to call it: the run's folder, or the agent.
    """

    config: Mapping[str, Any]
    outcomes: Sequence[Outcome]
    seconds: float | None = None
    num_resumed: int = 0
    name: str = ""

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Results":
        """The results of a run's folder so far, also of one that was interrupted.

        Raises:
            FileNotFoundError: It is no run's folder.
            RecordError: Its configuration or its records cannot be read.

        >>> import asyncio, tempfile
        >>> from ors_gym.rollout import RandomAgent, Tasks, evaluate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = asyncio.run(evaluate(RandomAgent(), Tasks(base_url, split="test", num_tasks=2), out=folder))
        ...     Results.load(folder).rewards == results.rewards
        True
        """
        config = read_config(Path(folder))
        latest = {
            (outcome.group, outcome.rollout): outcome
            for outcome in (Outcome.of(record, record.reward, config["by"]) for record in read_records(folder))
        }
        return cls(config, [latest[key] for key in sorted(latest)], name=Path(folder).name)

    @cached_property
    def overall(self) -> Summary:
        """All episodes."""
        return self._summary(self.outcomes)

    @cached_property
    def by_split(self) -> dict[str, Summary]:
        """The episodes of each split."""
        return self._parts(lambda outcome: outcome.split)

    @cached_property
    def by_value(self) -> dict[str, Summary]:
        """The episodes by the value of the metadata key that was asked for; empty without one."""
        return self._parts(lambda outcome: outcome.value) if self.config["by"] is not None else {}

    @cached_property
    def rewards(self) -> dict[str, list[float | None]]:
        """Each task's rewards, None for an unscored episode."""
        rewards: dict[str, list[float | None]] = defaultdict(list)
        for outcome in self.outcomes:
            rewards[outcome.task].append(outcome.reward)
        return dict(rewards)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: what `results.json` holds.

        >>> config = {"agent": "random", "env_name": "sums", "success": 1.0, "k": 1, "by": None}
        >>> results = Results(config, [Outcome.of(Episode(TaskRef("test", 0), "sums"), 1.0)])
        >>> results.to_dict()["rewards"]
        {'sums/test/0': [1.0]}
        """
        return {
            "config": dict(self.config),
            "seconds": self.seconds,
            "num_resumed": self.num_resumed,
            "overall": asdict(self.overall),
            "by_split": {name: asdict(summary) for name, summary in self.by_split.items()},
            "by_value": {name: asdict(summary) for name, summary in self.by_value.items()},
            "rewards": self.rewards,
        }

    def _parts(self, key: Callable[[Outcome], str]) -> dict[str, Summary]:
        parts: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            parts[key(outcome)].append(outcome)
        return {name: self._summary(parts[name]) for name in sorted(parts)}

    def _summary(self, outcomes: Sequence[Outcome]) -> Summary:
        return summarize(outcomes, success=self.config["success"], k=self.config["k"])

    def _columns(self) -> dict[str, Summary]:
        columns = {"all": self.overall}
        if len(self.by_split) > 1:
            columns |= {f"split {name}": summary for name, summary in self.by_split.items()}
        by = self.config["by"]
        return columns | {f"{by} {name or '–'}": summary for name, summary in self.by_value.items()}

    def __rich__(self) -> RenderableType:
        tables: list[RenderableType] = [_rich_table(self._title(), self._columns())]
        if self.overall.errors:
            tables.append(_rich_errors(self.overall.errors))
        return Group(*tables)

    def _repr_html_(self) -> str:
        headings, rows = _rows(self._columns())
        errors = [(count, reason) for reason, count in self.overall.errors.items()]
        body = [_html.table(headings, rows)]
        if errors:
            body.append(_html.table(("times", "error"), errors))
        return _html.box(self._title(), {"tasks": self.overall.num_tasks, "episodes": self.overall.num_episodes}, *body)

    def __repr__(self) -> str:
        return f"Results({self._title()!r}, mean_reward={self.overall.mean_reward}, episodes={len(self.outcomes)})"

    def _title(self) -> str:
        return f"{self.config['agent']} on {self.config['env_name']}"


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, each tested against the first on the tasks that both have. It prints as tables.

    Attributes:
        runs: The runs.
        tests: One a run after the first; None where it has no task in common with the first.
    """

    runs: Sequence[Results]
    tests: Sequence[PairedTest | None]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values.

        >>> config = {"agent": "random", "env_name": "sums", "success": 1.0, "k": 1, "by": None}
        >>> before = Results(config, [Outcome.of(Episode(TaskRef("test", n)), 0.0) for n in range(4)], name="before")
        >>> list(compare(before, before).to_dict()["runs"])
        ['before (1)', 'before (2)']
        """
        return {
            "runs": {name: asdict(run.overall) for name, run in zip(self._names(), self.runs, strict=True)},
            "against": self._names()[0],
            "tests": {
                name: None if test is None else asdict(test) for name, test in zip(self._names()[1:], self.tests, strict=True)
            },
        }

    def _names(self) -> list[str]:
        """The runs' names, a number beside those that more than one has."""
        names = [run.name or run._title() for run in self.runs]
        return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]

    def _columns(self) -> dict[str, Summary]:
        return {name: run.overall for name, run in zip(self._names(), self.runs, strict=True)}

    def _tests(self) -> list[tuple[str, str, str, str, int]]:
        return [
            (f"{name} − {self._names()[0]}", "no task in common", "–", "–", 0)
            if test is None
            else (
                f"{name} − {self._names()[0]}",
                f"{test.difference:+.3f}",
                f"[{test.interval.low:+.3f}, {test.interval.high:+.3f}]",
                f"{test.p_value:.4f}",
                test.num_tasks,
            )
            for name, test in zip(self._names()[1:], self.tests, strict=True)
        ]

    def __rich__(self) -> RenderableType:
        table = Table(title="mean reward, paired over tasks", title_justify="left")
        for heading in _TEST_HEADINGS:
            table.add_column(heading)
        for row in self._tests():
            table.add_row(*(_plain(str(cell)) for cell in row))
        return Group(_rich_table("runs", self._columns()), table)

    def _repr_html_(self) -> str:
        headings, rows = _rows(self._columns())
        return _html.box("runs", {}, _html.table(headings, rows), _html.table(_TEST_HEADINGS, self._tests()))


_TEST_HEADINGS = ("difference", "mean reward", "95% interval", "p", "tasks")


def compare(*runs: Results | str | os.PathLike[str]) -> Comparison:
    """Put runs side by side, each against the first by a paired test over the tasks that both have.

    Args:
        runs: Results, or runs' folders; at least two.

    Raises:
        ValueError: Fewer than two.
        FileNotFoundError: A folder is no run's.

    >>> config = {"agent": "random", "env_name": "sums", "success": 1.0, "k": 1, "by": None}
    >>> before = Results(config, [Outcome.of(Episode(TaskRef("test", n)), 0.0) for n in range(4)], name="before")
    >>> after = Results(config, [Outcome.of(Episode(TaskRef("test", n)), 1.0) for n in range(4)], name="after")
    >>> compare(before, after).tests[0].difference
    1.0
    """
    if len(runs) < 2:
        raise ValueError("compare takes at least two runs")
    loaded = [run if isinstance(run, Results) else Results.load(run) for run in runs]
    first = _task_means(loaded[0])
    tests = []
    for run in loaded[1:]:
        other = _task_means(run)
        common = sorted(first.keys() & other.keys())
        tests.append(paired_test([first[task] for task in common], [other[task] for task in common]))
    return Comparison(loaded, tests)


def _task_means(results: Results) -> dict[str, float]:
    """The mean reward of each task with a scored episode."""
    scored = {task: [r for r in rewards if r is not None] for task, rewards in results.rewards.items()}
    return {task: _mean(rewards) for task, rewards in scored.items() if rewards}


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _rows(columns: Mapping[str, Summary]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table with a column a summary; rows that say nothing anywhere are left out."""
    described = [_described(summary) for summary in columns.values()]
    labels = list(dict.fromkeys(label for column in described for label in column))
    rows = [[label, *(column.get(label, "–") for column in described)] for label in labels]
    return ["", *columns], rows


def _described(summary: Summary) -> dict[str, str]:
    """A summary's lines by label."""
    lines = {
        "tasks": f"{summary.num_tasks:,}",
        "episodes": f"{summary.num_episodes:,}",
        "unscored": f"{summary.num_unscored:,}",
        "mean reward": _with_interval(summary.mean_reward, summary.reward_interval),
        "success rate": _with_interval(summary.success_rate, summary.success_interval),
    }
    if max(summary.pass_at, default=1) > 1:
        lines |= {f"pass@{k}": _number(value) for k, value in summary.pass_at.items()}
        lines |= {f"pass^{k}": _number(value) for k, value in summary.pass_hat.items()}
    lines["steps"] = _number(summary.mean_steps)
    lines["invalid actions"] = _share(summary.invalid_action_rate)
    lines |= {f"{kind} errors": _share(rate) for kind, rate in summary.error_rates.items()}
    lines |= {f"calls of {name}": f"{count:,}" for name, count in list(summary.tool_calls.items())[:10]}
    if summary.prompt_tokens or summary.completion_tokens:
        lines["prompt tokens"] = f"{summary.prompt_tokens:,}"
        lines["completion tokens"] = f"{summary.completion_tokens:,}"
    lines["seconds an episode"] = _number(summary.seconds)
    lines["of that in tools"] = _number(summary.environment_seconds)
    return lines


def _with_interval(value: float | None, interval: Interval | None) -> str:
    return _number(value) if interval is None else f"{_number(value)} {interval}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _plain(text: str) -> Text:
    """Text that a server may have sent: no markup, and nothing that a terminal obeys."""
    return Text("".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text))


def _rich_table(title: str, columns: Mapping[str, Summary]) -> Table:
    headings, rows = _rows(columns)
    table = Table(title=_plain(title), title_justify="left")
    for position, heading in enumerate(headings):
        table.add_column(_plain(heading), justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(_plain, row))
    return table


def _rich_errors(errors: Mapping[str, int]) -> Table:
    table = Table(title="errors", title_justify="left")
    table.add_column("times", justify="right")
    table.add_column("error", overflow="fold")
    for reason, count in errors.items():
        table.add_row(f"{count:,}", _plain(reason))
    return table
