"""Many episodes at once: within bounds, retried where they failed, each on its own."""

import asyncio
import functools
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, Unpack

from ors_gym.episode import Episode
from ors_gym.groups import RolloutGroup
from ors_gym.rewards import RewardReduction, check_reduction, reduce
from ors_gym.rollout._tasks import Environments, Tasks
from ors_gym.rollout.agents import Agent, AgentLike, as_agent
from ors_gym.rollout.progress import ProgressCallback, ProgressLine, Tally
from ors_gym.rollout.running import EnvOptions, failed_episode, play
from ors_gym.tasks import TaskRef

logger = logging.getLogger("ors_gym.rollout")

OnEpisode = Callable[[Episode], Awaitable[None] | None]
"""Told of each episode when it ends, in the caller's event loop."""

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to be run.

    Attributes:
        task: Its task.
        group: The task's number in the collection.
        rollout: The episode's number in its group.
        metadata: What the episode shall note beside these two.
    """

    task: TaskRef
    group: int
    rollout: int
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def notes(self, attempt: int) -> dict[str, Any]:
        """What the episode of an attempt notes.

        >>> EpisodeJob(TaskRef("train", 17), group=2, rollout=0).notes(attempt=1)
        {'group': 2, 'rollout': 0, 'attempt': 1}
        """
        return {"group": self.group, "rollout": self.rollout, "attempt": attempt, **self.metadata}


class JobListener(Protocol):
    """Is told what becomes of each job. Both methods are called in the caller's event loop."""

    def began(self, job: EpisodeJob) -> None:
        """The job's first attempt begins. An executor that cannot tell need not say."""
        ...

    async def ended(self, job: EpisodeJob, episode: Episode) -> None:
        """The job's episode is final. An exception from here ends the collection."""
        ...


@dataclass(frozen=True)
class RolloutPlan:
    """How to run jobs: all that a worker needs, in this process or another. It pickles if its agent and secrets do.

    Args:
        agent: The agent.
        tasks: The server; only URLs can go to another process.
        max_concurrency: Episodes at once in this worker.
        retries: How often a failed episode is tried again.
        options: The environment's options.
    """

    agent: Agent
    tasks: Tasks
    max_concurrency: int
    retries: int
    options: EnvOptions = field(default_factory=EnvOptions)

    async def run(self, jobs: Sequence[EpisodeJob], listener: JobListener, environments: Environments | None = None) -> None:
        """Run jobs in this process and tell the listener of each. Cancelling it closes the sessions of those that run.

        Args:
            jobs: The jobs, begun in this order.
            listener: Told as each begins and ends.
            environments: Those that are open already; None opens and closes them here.
        """
        if environments is None:
            async with self.tasks.open() as environments:
                return await self.run(jobs, listener, environments)
        waiting = iter(jobs)

        async def work() -> None:
            for job in waiting:
                listener.began(job)
                await listener.ended(job, await self._episode(job, environments))

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self.max_concurrency, len(jobs))):
                workers.create_task(work())
        return None

    async def _episode(self, job: EpisodeJob, environments: Environments) -> Episode:
        """The first attempt that the environment and the infrastructure let through, or the last."""
        environment, discovery = await environments.get(job.task.env_name)
        attempt = 0
        while True:
            episode, failure = await play(self.agent, environment, discovery, job.task, job.notes(attempt), self.options)
            if failure is not None:
                logger.debug("the agent failed on %s", job.task.key, exc_info=failure)
            if not episode.unscored or attempt == self.retries:
                return episode
            logger.info("%s, rollout %d, attempt %d failed: %s", job.task.key, job.rollout, attempt, episode.error)
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.5))
            attempt += 1


class Executor(Protocol):
    """Where episodes run. The default runs them in the caller's event loop; another may use processes or machines.

    To write one: send the plan (it pickles) and a share of the jobs to each worker; a worker calls `await plan.run(share,
    listener)` with a listener of its own that sends each ended episode back (episodes pickle); and `execute` hands them to
    its own `listener` as they arrive. `max_concurrency` is the whole collection's: give each of W workers
    `dataclasses.replace(plan, max_concurrency=ceil(plan.max_concurrency / W))`.
    """

    async def execute(self, plan: RolloutPlan, jobs: Sequence[EpisodeJob], listener: JobListener) -> None:
        """Run every job once, and tell the listener of each.

        A job of a worker that died need not be told of: the collection records it as failed. Being cancelled stops the
        workers, sessions included, before it returns.

        Args:
            plan: How to run them.
            jobs: What to run.
            listener: Whom to tell, in this event loop.
        """
        ...


@dataclass
class _Listener:
    """Counts the jobs that begin and end, and tells the caller."""

    tally: Tally
    reward: RewardReduction
    on_episode: OnEpisode | None
    done: set[tuple[int, int]] = field(default_factory=set)

    def began(self, job: EpisodeJob) -> None:
        self.tally.begin()

    async def ended(self, job: EpisodeJob, episode: Episode) -> None:
        self.done.add((job.group, job.rollout))
        await tell(self.on_episode, episode)
        self.tally.end(reduce(episode, self.reward))


async def collect_episodes(
    agent: AgentLike,
    tasks: Tasks,
    *,
    max_concurrency: int = 64,
    retries: int = 1,
    reward: RewardReduction = "sum",
    on_episode: OnEpisode | None = None,
    progress: bool | ProgressCallback = False,
    executor: Executor | None = None,
    **options: Unpack[EnvOptions],
) -> list[Episode]:
    """One episode of each task. Arguments as in `collect_groups`.

    Returns:
        The episodes in the order of the tasks.

    >>> from ors_gym.rollout import RandomAgent
    >>> episodes = asyncio.run(collect_episodes(RandomAgent(), Tasks(base_url, "largest_digit", split="test", indices=[7, 3])))
    >>> [episode.task.key for episode in episodes]
    ['test/7', 'test/3']
    """
    groups = await collect_groups(
        agent,
        tasks,
        group_size=1,
        max_concurrency=max_concurrency,
        retries=retries,
        reward=reward,
        on_episode=on_episode,
        progress=progress,
        executor=executor,
        **options,
    )
    return [group.episodes[0] for group in groups]


async def collect_groups(
    agent: AgentLike,
    tasks: Tasks,
    *,
    group_size: int,
    max_concurrency: int = 64,
    retries: int = 1,
    reward: RewardReduction = "sum",
    on_episode: OnEpisode | None = None,
    progress: bool | ProgressCallback = False,
    executor: Executor | None = None,
    **options: Unpack[EnvOptions],
) -> list[RolloutGroup]:
    """`group_size` episodes of each task, all at once within `max_concurrency`.

    An episode that the environment, the infrastructure or the agent broke is run again in a fresh session, after a growing
    pause, and after `retries` of that it is recorded as failed: unscored, with its error. It never affects another one.
    Each episode notes its `group`, `rollout` and `attempt` in its `metadata`.

    Args:
        agent: The agent, or a function of the conversation. One agent serves all episodes at once.
        tasks: Which tasks, on which server.
        group_size: Episodes a task.
        max_concurrency: Episodes, and so sessions, at once.
        retries: How often a failed episode is tried again.
        reward: How an episode's rewards become one, as in `ors_gym.rewards.reduce`.
        on_episode: Called, and awaited if it can be, with each episode as it ends, in this event loop. What it raises
            ends the collection.
        progress: True draws a line; a function is called with each `Progress`.
        executor: Where the episodes run; None is here.
        options: Of the environment: `max_steps`, `action_format`, `observation_format`, `secrets` and the others of
            `AsyncORSEnv`.

    Returns:
        The groups in the order of the tasks.

    Raises:
        ORSError: The server cannot be reached at the start, or has no such environment.
        ValueError: A split or an index that is not there, or a number out of its range.

    >>> from ors_gym.rollout import RandomAgent
    >>> tasks = Tasks(base_url, "largest_digit", split="train", num_tasks=2)
    >>> groups = asyncio.run(collect_groups(RandomAgent(), tasks, group_size=3))
    >>> [(group.task.key, len(group.episodes)) for group in groups]
    [('train/0', 3), ('train/1', 3)]
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, not {group_size}")
    reward = once(reward)
    episodes: dict[tuple[int, int], Episode] = {}

    async def keep(episode: Episode) -> None:
        episodes[episode.metadata["group"], episode.metadata["rollout"]] = episode
        await tell(on_episode, episode)

    async with tasks.open() as environments:
        refs = await tasks.resolve(environments)
        jobs = [EpisodeJob(ref, group, rollout) for group, ref in enumerate(refs) for rollout in range(group_size)]
        plan = RolloutPlan(as_agent(agent), tasks, max_concurrency, retries, with_secrets(options, tasks))
        await run_jobs(
            plan, jobs, environments, Tally(len(jobs)), reward=reward, on_episode=keep, progress=progress, executor=executor
        )
    return [
        RolloutGroup(ref, tuple(episodes[group, rollout] for rollout in range(group_size)), reward)
        for group, ref in enumerate(refs)
    ]


def with_secrets(options: EnvOptions, tasks: Tasks) -> EnvOptions:
    """The options with the secrets of the tasks, unless they have secrets of their own."""
    return options if tasks.secrets is None else {"secrets": tasks.secrets, **options}


def once(reward: RewardReduction) -> RewardReduction:
    """A reward function that asks the given one once an episode: it may be slow, or cost money. Names stay names."""
    check_reduction(reward)
    if not callable(reward):
        return reward
    known: dict[str, float | None] = {}

    @functools.wraps(reward)
    def remembered(episode: Episode) -> float | None:
        if episode.id not in known:
            known[episode.id] = reward(episode)
        return known[episode.id]

    return remembered


async def tell(on_episode: OnEpisode | None, episode: Episode) -> None:
    """Call it, if there is one, and await what it returns, if that can be."""
    if on_episode is not None:
        told = on_episode(episode)
        if inspect.isawaitable(told):
            await told


async def run_jobs(
    plan: RolloutPlan,
    jobs: Sequence[EpisodeJob],
    environments: Environments,
    tally: Tally,
    *,
    reward: RewardReduction,
    on_episode: OnEpisode | None,
    progress: bool | ProgressCallback,
    executor: Executor | None,
) -> None:
    """Run jobs here or by an executor, and tell of every one; of a failed episode where none came back."""
    if plan.max_concurrency < 1 or plan.retries < 0:
        raise ValueError(
            f"max_concurrency must be at least 1 and retries at least 0; got {plan.max_concurrency} and {plan.retries}"
        )
    listener = _Listener(tally, reward, on_episode)
    with ExitStack() as stack:
        if progress is True:
            tally.callback = stack.enter_context(ProgressLine())
        elif progress is not False:
            tally.callback = progress
        tally.tell()
        try:
            if executor is None:
                await plan.run(jobs, listener, environments)
            else:
                await executor.execute(plan, jobs, listener)
        except BaseExceptionGroup as group:
            raise _first(group) from None
        for job in jobs:
            if (job.group, job.rollout) not in listener.done:
                _, discovery = await environments.get(job.task.env_name)
                lost = failed_episode(job.task, discovery.env_name, "the executor gave back no episode", job.notes(attempt=0))
                await listener.ended(job, lost)


def _first(error: BaseException) -> BaseException:
    """The first exception inside groups of them: a worker's trouble, as if there were no workers."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
