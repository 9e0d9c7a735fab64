"""`RayExecutor`: episodes on a Ray cluster, where one machine is outgrown. Needs the extra `ray`."""

import asyncio
import dataclasses
import logging
import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import RayActorError, RayTaskError

from ors_gym.episode import Episode
from ors_gym.rollout._tasks import Environments
from ors_gym.rollout.collecting import EpisodeJob, JobListener, RolloutPlan

logger = logging.getLogger("ors_gym.rollout")

MAX_DEATHS = 3
"""How many workers may die while they run a job before it is given up: it could be what kills them."""

MAX_JOBS_AT_ONCE = 10_000
"""In one worker."""

CANCEL_TIMEOUT = 30.0
"""Seconds that a cancelled job has to close its session."""


class RayExecutor:
    """Runs episodes in Ray actors: each has an event loop, a client and its share of the servers of its own.

    Every worker is handed one job after another as it gets free, `max_concurrency / num_workers` at a time, and sends each episode
    back as it ends. A worker that dies is replaced, and the episodes that ran in it are run again, in fresh sessions; those of
    the dead one are left to the server, which ends idle sessions. No episode is lost, and none is told of twice.

    Ray is used as it is if it was initialised, else started, on this machine or at `address`, until `close`. The workers stay
    for the next collection.

    Args:
        num_workers: How many actors.
        address: The cluster's address, as `ray.init` takes it; None is this machine. Where the cluster asks for a token, Ray reads
            it if `RAY_AUTH_MODE=token` is in the environment.
        num_cpus: CPUs that Ray sets aside for each worker. Workers mostly wait; an agent that computes needs more.
        start_timeout: Seconds to wait for the workers to come up.
        init_options: More arguments for `ray.init`, such as `runtime_env` or, on one machine, `num_cpus`.

    Raises:
        ValueError: `num_workers` is less than 1.

    On a cluster that runs:

        with RayExecutor(num_workers=8, address="auto") as executor:
            groups = await collect_groups(agent, tasks, group_size=8, max_concurrency=512, executor=executor)
    """

    def __init__(
        self,
        num_workers: int,
        *,
        address: str | None = None,
        num_cpus: float = 1.0,
        start_timeout: float = 120.0,
        init_options: Mapping[str, Any] | None = None,
    ) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        self.num_workers = num_workers
        self._address = address
        self._num_cpus = num_cpus
        self._start_timeout = start_timeout
        self._init_options = dict(init_options or {})
        self._keeper: threading.Event | None = None
        self._workers: list[_Handle] = []

    async def execute(self, plan: RolloutPlan, jobs: Sequence[EpisodeJob], listener: JobListener) -> None:
        """Run every job and tell the listener of each; see `ors_gym.rollout.Executor`.

        Raises:
            ORSError: A worker cannot reach its server.
            TypeError: The tasks have a client, which cannot go to another process, in place of URLs.
            TimeoutError: Ray did not start a worker in time.
        """
        shares = _shares(plan, self.num_workers)
        await self._connect()
        while len(self._workers) < self.num_workers:
            self._workers.append(_Handle(self._num_cpus, self._start_timeout))
        waiting = deque(jobs)

        async def lane(worker: "_Handle") -> None:
            while waiting:
                job = waiting.popleft()
                listener.began(job)
                episode = await worker.run(job)
                if episode is not None:
                    await listener.ended(job, episode)

        async with AsyncExitStack() as stack:
            for worker, share in zip(self._workers, shares, strict=True):
                stack.push_async_callback(worker.end)
                worker.begin(share)
            async with asyncio.TaskGroup() as lanes:
                for number in range(min(shares[0].max_concurrency * self.num_workers, len(jobs))):
                    lanes.create_task(lane(self._workers[number % self.num_workers]))

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here. Does nothing the second time."""
        for worker in self._workers:
            worker.kill()
        self._workers = []
        if self._keeper is not None:
            ray.shutdown()
            self._keeper.set()
            self._keeper = None

    async def _connect(self) -> None:
        if ray.is_initialized():
            return
        own = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
        options = {**(own if self._address is None else {}), **self._init_options}
        started: Future[None] = Future()
        keeper = threading.Event()

        def start() -> None:
            try:
                ray.init(self._address, **options)
            except BaseException as error:
                started.set_exception(error)
            else:
                started.set_result(None)
                keeper.wait()  # Linux ends the processes that Ray started when the thread ends that started them

        threading.Thread(target=start, name="ors-gym-ray", daemon=True).start()
        self._keeper = keeper
        await asyncio.shield(asyncio.wrap_future(started))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """What runs in the actor's process: the jobs of one plan at a time, all on the actor's event loop."""

    async def begin(self, plan: RolloutPlan) -> None:
        self._plan = plan
        self._stack = AsyncExitStack()
        self._environments: Environments = await self._stack.enter_async_context(plan.tasks.open())

    async def run(self, job: EpisodeJob) -> Episode:
        kept = _Kept()
        await self._plan.run([job], kept, self._environments)
        assert kept.episode is not None
        return kept.episode

    async def end(self) -> None:
        await self._stack.aclose()


class _Kept:
    """Keeps the one episode that it is told of."""

    episode: Episode | None = None

    def began(self, job: EpisodeJob) -> None:
        """The driver has told its own listener already."""

    async def ended(self, job: EpisodeJob, episode: Episode) -> None:
        self.episode = episode


class _Handle:
    """The driver's side of a worker: starts it, and starts another in its place when it died."""

    def __init__(self, num_cpus: float, start_timeout: float) -> None:
        self._actor_class = ray.remote(_Worker).options(
            num_cpus=num_cpus, scheduling_strategy="SPREAD", max_concurrency=MAX_JOBS_AT_ONCE
        )
        self._start_timeout = start_timeout
        self._actor: Any = None
        self._living: asyncio.Task[Any] | None = None

    def begin(self, plan: RolloutPlan) -> None:
        """Make the worker ready for a plan, in the background."""
        self._plan = plan
        self._living = asyncio.create_task(self._start())

    async def run(self, job: EpisodeJob) -> Episode | None:
        """The job's episode; None if too many workers died under it."""
        for _ in range(MAX_DEATHS):
            assert self._living is not None
            actor = await asyncio.shield(self._living)
            result = actor.run.remote(job)
            try:
                episode: Episode = await result
            except RayActorError:
                self._replace(actor)
            except RayTaskError as error:
                raise error.cause from None
            except asyncio.CancelledError:
                ray.cancel(result)
                ended, _ = await asyncio.wait([asyncio.ensure_future(result)], timeout=CANCEL_TIMEOUT)
                for task in ended:
                    task.exception()  # that it was cancelled
                raise
            else:
                return episode
        logger.warning("%s was given up: %d workers died while they ran it", job.task.key, MAX_DEATHS)
        return None

    async def end(self) -> None:
        """Close what the plan opened. The worker stays, unless it is in no state to."""
        assert self._living is not None
        if self._living.cancel() or self._living.exception() is not None:
            self.kill()
            return
        try:
            await self._living.result().end.remote()
        except RayActorError:
            self.kill()

    def kill(self) -> None:
        """End the worker's process."""
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None

    async def _start(self) -> Any:
        """The actor, ready for the plan; a new one where there is none, or where the last plan's died since."""
        for kept in (self._actor, None):
            self._actor = kept or self._actor_class.remote()
            try:
                await asyncio.wait_for(self._actor.begin.remote(self._plan), self._start_timeout)
            except RayTaskError as error:
                raise error.cause from None
            except TimeoutError:
                spare = ray.available_resources()  # type: ignore[no-untyped-call]
                raise TimeoutError(f"Ray started no worker in {self._start_timeout:g} s; it has {spare} to spare") from None
            except RayActorError:
                if kept is None:
                    raise
            else:
                break
        return self._actor

    def _replace(self, actor: Any) -> None:
        if self._actor is actor:  # else another job has done it
            logger.warning("a worker died; another takes its place, and its episodes are run again")
            self.kill()
            self.begin(self._plan)


def _shares(plan: RolloutPlan, num_workers: int) -> list[RolloutPlan]:
    """The plan for each worker: its part of the concurrency and of the servers."""
    target = plan.tasks.target
    if not isinstance(target, str) and not isinstance(target, Sequence):
        raise TypeError(f"a {type(target).__name__} cannot go to Ray's workers: give Tasks the server's URL, or several")
    urls = [target] if isinstance(target, str) else list(target)
    concurrency = math.ceil(plan.max_concurrency / num_workers)
    shares = [urls[worker::num_workers] or [urls[worker % len(urls)]] for worker in range(num_workers)]
    return [
        dataclasses.replace(plan, max_concurrency=concurrency, tasks=dataclasses.replace(plan.tasks, target=share))
        for share in shares
    ]
