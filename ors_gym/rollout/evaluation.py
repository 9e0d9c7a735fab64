"""`evaluate`: an agent on a split, k episodes a task, kept as they end and resumed where they stopped."""

import asyncio
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from ors_gym._version import __version__
from ors_gym.episode import Episode
from ors_gym.records import Record, RecordWriter
from ors_gym.rewards import RewardReduction, reduce
from ors_gym.rollout import _run_folder as run_folder
from ors_gym.rollout._tasks import Environments, Target, Tasks
from ors_gym.rollout.agents import AgentLike, as_agent
from ors_gym.rollout.collecting import EpisodeJob, Executor, OnEpisode, RolloutPlan, once, run_jobs, tell, with_secrets
from ors_gym.rollout.progress import ProgressCallback, Tally
from ors_gym.rollout.results import Outcome, Results
from ors_gym.rollout.running import EnvOptions
from ors_gym.secrets import Redactor, resolve_secrets
from ors_gym.tasks import TaskRef


async def evaluate(
    agent: AgentLike,
    target: Target | Tasks,
    split: str | Sequence[str] | None = None,
    *,
    env_name: str | None = None,
    k: int = 1,
    num_tasks: int | None = None,
    indices: Sequence[int] | None = None,
    by: str | None = None,
    success: float = 0.99,
    reward: RewardReduction = "sum",
    max_concurrency: int = 64,
    retries: int = 1,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    agent_name: str | None = None,
    on_episode: OnEpisode | None = None,
    progress: bool | ProgressCallback = False,
    executor: Executor | None = None,
    **options: Unpack[EnvOptions],
) -> Results:
    """Run an agent on tasks and count.

    With `out`, each episode is kept in that folder as it ends (`episodes.jsonl`, with `config.json` and, at the end,
    `results.json`). Called again with the same configuration, it skips the episodes that are scored there and runs the
    others; an interruption of any kind loses only the episodes that were running.

    Args:
        agent: The agent, or a function of the conversation.
        target: The server's base URL, several equal servers' URLs, a client, an environment, or `Tasks`.
        split: The split, or several; None is the first of type train. With `Tasks`, leave this, `env_name`, `num_tasks` and
            `indices` out.
        env_name: The environment; None is the server's first.
        k: Episodes a task.
        num_tasks: How many tasks of each split at most, from the first.
        indices: Which tasks of each split.
        by: A key of the tasks, or else of the last output's metadata, by whose values the results are shown too.
        success: The reward from which an episode is a success.
        reward: How an episode's rewards become one, as in `ors_gym.rewards.reduce`.
        max_concurrency: Episodes at once.
        retries: How often an episode that failed is tried again, in a fresh session.
        out: The run's folder; None keeps nothing.
        resume: Go on with the run that is in `out`; False refuses to.
        agent_name: What to call the agent; None takes its repr. It is part of the configuration.
        on_episode: Called with each episode as it ends.
        progress: True draws a line; a function is called with each `Progress`.
        executor: Where the episodes run; None is here.
        options: Of the environment: `max_steps`, `action_format`, `secrets` and the others of `AsyncORSEnv`.

    Returns:
        The results, those of the episodes that were there included.

    Raises:
        ORSError: The server cannot be reached at the start, or has no such environment.
        FileExistsError: `out` holds a run, and `resume` is False.
        ValueError: `out` holds a run with another configuration, which the message compares, or another evaluation is writing
            there; there is no task; or an argument is out of its range.
        RecordError: What `out` holds cannot be read.
        OSError: `out` cannot be written.

    >>> from ors_gym.rollout import RandomAgent
    >>> results = asyncio.run(evaluate(RandomAgent(), base_url, "test", env_name="largest_digit", num_tasks=5, k=2))
    >>> results.overall.num_tasks, results.overall.num_episodes, results.overall.num_unscored
    (5, 10, 0)
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if not math.isfinite(success):
        raise ValueError(f"success must be a finite number, not {success}")
    tasks = _tasks(target, env_name=env_name, split=split, num_tasks=num_tasks, indices=indices)
    plan = RolloutPlan(as_agent(agent), tasks, max_concurrency, retries, with_secrets(options, tasks))
    reward_once = once(reward)
    started = time.monotonic()
    async with tasks.open() as environments:
        refs = await tasks.resolve(environments)
        if not refs:
            raise ValueError(f"{tasks!r} has no task to evaluate on")
        _, discovery = await environments.get(None)
        config = {
            "agent": agent_name or name_of(plan.agent),
            "env_name": discovery.env_name,
            **_identity(refs, plan.options),
            "k": k,
            "by": by,
            "success": success,
            "reward": reward if isinstance(reward, str) else name_of(reward),
            "target": environments.client.base_url,
            "ors_gym": __version__,
        }
        with _kept(out, config, resume, reward_once, on_episode, _redactor(plan)) as kept:
            all_jobs = [EpisodeJob(ref, group, rollout) for group, ref in enumerate(refs) for rollout in range(k)]
            jobs = [job for job in all_jobs if (job.group, job.rollout) not in kept.outcomes]
            if by is not None:
                jobs = await _with_values(jobs, by, environments, max_concurrency)
            tally = Tally(len(all_jobs))
            for outcome in kept.outcomes.values():
                tally.add(outcome.reward)
            await run_jobs(
                plan, jobs, environments, tally, reward=reward_once, on_episode=kept.keep, progress=progress, executor=executor
            )
    results = Results(
        config,
        [kept.outcomes[key] for key in sorted(kept.outcomes)],
        seconds=time.monotonic() - started,
        num_resumed=len(all_jobs) - len(jobs),
        name="" if out is None else Path(out).name,
    )
    if out is not None:
        run_folder.replace(Path(out) / run_folder.RESULTS_FILE, json.dumps(results.to_dict(), indent=2) + "\n")
    return results


@dataclass
class _Kept:
    """The outcomes so far, by group and rollout, and where the episodes are written, if anywhere."""

    by: str | None
    reward: RewardReduction
    on_episode: OnEpisode | None
    writer: RecordWriter | None = None
    outcomes: dict[tuple[int, int], Outcome] = field(default_factory=dict)

    def add(self, episode: Episode | Record, reward: float | None) -> None:
        """Note the outcome of an episode."""
        outcome = Outcome.of(episode, reward, self.by)
        self.outcomes[outcome.group, outcome.rollout] = outcome

    async def keep(self, episode: Episode) -> None:
        """Note an episode that has ended, write it, and tell the caller."""
        self.add(episode, reduce(episode, self.reward))
        if self.writer is not None:
            self.writer.write(episode)
        await tell(self.on_episode, episode)


@contextmanager
def _kept(
    out: str | os.PathLike[str] | None,
    config: Mapping[str, Any],
    resume: bool,
    reward: RewardReduction,
    on_episode: OnEpisode | None,
    redactor: Redactor,
) -> Iterator[_Kept]:
    """What is kept of a run, begun or resumed in its folder."""
    kept = _Kept(config["by"], reward, on_episode)
    if out is None:
        yield kept
        return
    with run_folder.held(Path(out)):
        for record in run_folder.begin(Path(out), config, resume=resume):
            kept.add(record, record.reward)
        with RecordWriter(out, reward=reward, redactor=redactor) as kept.writer:
            yield kept


_SHAPING = (
    "max_steps",
    "action_format",
    "observation_format",
    "text_tool",
    "invalid_action_reward",
    "on_tool_error",
    "max_observation_length",
)
"""The options that change what an episode is, and so belong to a run's configuration."""


_SENSITIVE_HEADER = re.compile(r"auth|cookie|key|secret|token", re.I)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def name_of(thing: object) -> str:
    """What to call an agent or a function, the same in every process.

    >>> name_of(name_of), name_of(object())
    ('ors_gym.rollout.evaluation:name_of', '<object object>')
    """
    if hasattr(thing, "__qualname__"):
        return f"{thing.__module__}:{thing.__qualname__}"
    return _ADDRESS.sub("", repr(thing))


def _tasks(target: Target | Tasks, **choice: Any) -> Tasks:
    if not isinstance(target, Tasks):
        return Tasks(target, **choice)
    given = [name for name, value in choice.items() if value is not None]
    if given:
        raise ValueError(f"Tasks say which tasks; leave out {', '.join(given)}")
    return target


def _identity(refs: Sequence[TaskRef], options: EnvOptions) -> dict[str, Any]:
    """What makes a run the same one, of its tasks and its environment's options."""
    keys = json.dumps([(ref.env_name, ref.key) for ref in refs])
    return {
        "splits": sorted({ref.split or "" for ref in refs}),
        "num_tasks": len(refs),
        "tasks": hashlib.sha256(keys.encode()).hexdigest(),
        "options": {name: value for name, value in options.items() if name in _SHAPING},
    }


def _redactor(plan: RolloutPlan) -> Redactor:
    """What knows every secret that a server may echo."""
    values = [secret.value for secret in resolve_secrets(plan.options.get("secrets")).values()]
    headers = [value for name, value in (plan.tasks.headers or {}).items() if _SENSITIVE_HEADER.search(name)]
    return Redactor([*values, *headers, plan.tasks.api_key or os.environ.get("ORS_API_KEY", "")])


async def _with_values(jobs: Sequence[EpisodeJob], by: str, environments: Environments, max_concurrency: int) -> list[EpisodeJob]:
    """The jobs, each noting its task's value of a metadata key, where the task has it."""
    at_once = asyncio.Semaphore(max_concurrency)

    async def value_of(ref: TaskRef) -> Any:
        if ref.task_spec is not None:
            return ref.task_spec.get(by)
        environment, _ = await environments.get(ref.env_name)
        async with at_once:
            return (await environment.get_task(str(ref.split), int(ref.index or 0))).get(by)

    refs = list({job.task: None for job in jobs})
    values = dict(zip(refs, await asyncio.gather(*map(value_of, refs)), strict=True))
    return [job if values[job.task] is None else replace(job, metadata={"task": {by: values[job.task]}}) for job in jobs]
