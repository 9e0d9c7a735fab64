"""`ORSEnvPool`: environments of uneven latency, received in the order in which they are ready."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
from gymnasium import Space
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from ors_gym.client import AsyncORSClient, ORSClient, Retry, Timeout
from ors_gym.env._batch import batch_infos, with_final
from ors_gym.env._connection import EngineOptions, client_options
from ors_gym.env._fleet import Fleet, Seeds
from ors_gym.env._slot import Slot, Transition
from ors_gym.env.vector import SubEnvironmentEnded
from ors_gym.episode import Episode
from ors_gym.portal import portal
from ors_gym.protocol import ToolSpec


class PoolBatch(NamedTuple):
    """Results of the k environments that were ready.

    Attributes:
        observations: As a vector environment of k would give them.
        rewards: float64, of shape (k,).
        terminations, truncations: bool, of shape (k,).
        infos: Arrays of length k, with Gymnasium's `_key` masks.
        env_ids: Whose they are: int64, of shape (k,).

    >>> pool = ORSEnvPool(2, base_url, "largest_digit")
    >>> pool.async_reset(options={"split": "train", "index": 0})
    >>> observations, rewards, terminations, truncations, infos, env_ids = pool.recv(min_size=2)
    >>> rewards
    array([0., 0.])
    >>> pool.close()
    """

    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: NDArray[np.int64]


class ORSEnvPool:
    """Many sessions of one ORS environment by EnvPool's interface: send actions to some, receive from those that are ready.

    A slow or dead environment blocks no other. Results come in the order in which they are ready, each exactly once. Tasks, groups,
    failures and infos are as in `ORSVectorEnv`. Several threads may use one pool.

    Args:
        num_envs: How many sessions.
        base_url: The server, or several equal ones.
        env_name: The environment; None is the server's first.
        split: The split to draw tasks from; None is the first of type train.
        group_size: How many neighbours have the same tasks; it divides `num_envs`.
        client: A client to share, instead of one of this pool's own; whoever made it closes it.
        api_key, headers, timeout, retry: The options of the client that is made here. `timeout` also bounds the sessions.
        autoreset_mode: What an action that is sent to an ended environment does: begins the next episode, with the action left
            aside (`NEXT_STEP`), or is an error (`DISABLED`); with `SAME_STEP` the end comes together with the next beginning.
        max_concurrency: How many environments may run at once; None is all.
        step_timeout: Seconds that a step may take; one that takes longer has failed.
        options: Those of `AsyncORSEnv`.

    Raises:
        ORSError: The server, or the environment on it, cannot be had.
        ValueError: An argument is out of its range, or the client has fewer sessions than are needed.

    >>> pool = ORSEnvPool(8, base_url, "largest_digit")
    >>> pool.async_reset(seed=0)
    >>> batch = pool.recv(min_size=4, timeout=30.0)
    >>> len(batch.env_ids) >= 4
    True
    >>> pool.send([{"name": "submit", "input": {"answer": max(digits[:3])}} for digits in batch.observations], batch.env_ids)
    >>> pool.close()
    """

    def __init__(
        self,
        num_envs: int,
        base_url: str | Sequence[str],
        env_name: str | None = None,
        *,
        split: str | None = None,
        group_size: int = 1,
        client: AsyncORSClient | ORSClient | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Timeout | None = None,
        retry: Retry | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        step_timeout: float | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"max_concurrency is an int of at least 1, or None, not {max_concurrency!r}")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        connecting = client_options(api_key=api_key, headers=headers, timeout=timeout, retry=retry)
        self._fleet = Fleet(num_envs, group_size, base_url, env_name, client, connecting, split, None, options)
        try:
            self.envs = [make() for make in self._fleet.makers]
        except BaseException:
            self._fleet.connection.close()
            raise
        self.num_envs = num_envs
        self.single_observation_space: Space[Any] = self.envs[0].observation_space
        self.single_action_space: Space[Any] = self.envs[0].action_space
        limit = None if max_concurrency is None else asyncio.Semaphore(max_concurrency)
        empty = partial(create_zero_array, self.single_observation_space)
        self._slots = [
            Slot(number, env, self.autoreset_mode, empty=empty, limit=limit, step_timeout=step_timeout)
            for number, env in enumerate(self.envs)
        ]
        self.closed = False
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._begun: set[int] = set()
        self._in_flight: set[int] = set()  # sent and not received, those that are ready included
        self._ready: deque[tuple[int, Transition]] = deque()
        self._waiters: dict[Future[None], int] = {}
        self._tasks: set[asyncio.Task[Transition]] = set()

    @property
    def group_size(self) -> int:
        """How many neighbours have the same tasks."""
        return self._fleet.group_size

    @property
    def episodes(self) -> tuple[Episode | None, ...]:
        """The ledger of each environment's current or last episode."""
        return tuple(env.episode for env in self.envs)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that every task has; those of each task are in `infos["tools"]`."""
        return self._fleet.connection.discovery.tools

    @property
    def num_in_flight(self) -> int:
        """How many environments have a result that was not received yet."""
        return len(self._in_flight)

    def async_reset(
        self,
        *,
        seed: Seeds = None,
        options: Mapping[str, Any] | None = None,
        env_ids: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Begins an episode in each environment; `recv` gives the first observations.

        Args:
            seed: One for all, or a list with one for each of the pool, equal in a group.
            options: Those of `AsyncORSEnv.reset`, and `tasks`: a list with a task for each of the pool, or None.
            env_ids: Which environments; None is all.

        Raises:
            RuntimeError: One of them has a result that was not received.
            ValueError: No such environment, or a list of the wrong length.
        """
        chosen = self._checked(range(self.num_envs) if env_ids is None else env_ids)
        seeds, each = self._fleet.seeds(seed), self._fleet.options(options)
        self._start({i: partial(self._slots[i].reset, seed=seeds[i], options=each[i]) for i in chosen})

    def send(self, actions: Sequence[Any], env_ids: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        """Sends an action to each of some environments, and returns at once.

        Args:
            actions: The actions.
            env_ids: The environment of each.

        Raises:
            RuntimeError: One of them has a result that was not received.
            ResetNeeded: One of them was never reset, or has ended and nobody resets it by itself.
            ValueError: No such environment, one of them twice, or another number of actions.
            TypeError: One action, not a sequence of them.

        >>> pool = ORSEnvPool(4, base_url, "largest_digit")
        >>> pool.async_reset(seed=0)
        >>> batch = pool.recv(min_size=2)
        >>> pool.send([{"name": "submit", "input": {"answer": "no digit"}}] * len(batch.env_ids), batch.env_ids)
        >>> pool.close()
        """
        if isinstance(actions, (str, bytes, Mapping)):
            raise TypeError(f"actions is a sequence, one for each of env_ids, not one {type(actions).__name__}")
        chosen = self._checked(env_ids)
        if len(actions) != len(chosen):
            raise ValueError(f"there are {len(chosen)} env_ids, and {len(actions)} actions")
        if new := [i for i in chosen if i not in self._begun]:
            raise ResetNeeded(f"environments {new} were never reset; call async_reset first")
        if self.autoreset_mode is AutoresetMode.DISABLED and (ended := [i for i in chosen if self._slots[i].done]):
            raise SubEnvironmentEnded(f"the episodes of environments {ended} have ended; call async_reset(env_ids={ended})")
        self._start({i: partial(self._slots[i].step, action) for i, action in zip(chosen, actions, strict=True)})

    def recv(self, min_size: int = 1, max_size: int | None = None, timeout: float | None = None) -> PoolBatch:
        """The results that are ready, once there are enough.

        Args:
            min_size: How many to wait for; no more than are in flight.
            max_size: How many to take at most; None is all that are ready.
            timeout: Seconds to wait; None waits as long as it takes. A time-out loses nothing.

        Raises:
            TimeoutError: Too few are ready in time.
            RuntimeError: Nothing is in flight, so nothing would come.
            ValueError: A size is below 1, or `max_size` below `min_size`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            taken = self._take(min_size, max_size)
            if not isinstance(taken, Future):
                return self._batch(taken)
            try:
                taken.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._timed_out(min_size, timeout) from None
            finally:
                self._forget(taken)

    async def arecv(self, min_size: int = 1, max_size: int | None = None, timeout: float | None = None) -> PoolBatch:
        """`recv` for a caller on an event loop, which is not blocked. Cancelling it loses nothing.

        >>> import asyncio
        >>> async def main():
        ...     pool = ORSEnvPool(4, base_url, "largest_digit")
        ...     pool.async_reset(seed=0)
        ...     batch = await pool.arecv(min_size=4, timeout=60.0)
        ...     pool.close()
        ...     return sorted(batch.env_ids.tolist())
        >>> asyncio.run(main())
        [0, 1, 2, 3]
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            taken = self._take(min_size, max_size)
            if not isinstance(taken, Future):
                return self._batch(taken)
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.wrap_future(taken)
            except TimeoutError:
                raise self._timed_out(min_size, timeout) from None
            finally:
                self._forget(taken)

    def __aiter__(self) -> Self:
        """Batches as they come, until nothing is in flight."""
        return self

    async def __anext__(self) -> PoolBatch:
        if not self._in_flight:
            raise StopAsyncIteration
        return await self.arecv()

    def close(self) -> None:
        """Ends what is in flight, closes every session, and the client unless it is shared. Closing again does nothing.

        A forked child closes nothing.
        """
        if self.closed:
            return
        self.closed = True
        if os.getpid() != self._owner:
            return
        try:
            portal().call(self._aclose)
        finally:
            self._fleet.connection.close()
            with self._lock:
                self._wake(everyone=True)

    async def _aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(slot.close() for slot in self._slots))

    def __repr__(self) -> str:
        return f"ORSEnvPool({self._fleet.connection.discovery.env_name!r}, num_envs={self.num_envs})"

    # Sending

    def _checked(self, env_ids: Sequence[int] | NDArray[np.integer[Any]]) -> list[int]:
        self._check_open()
        chosen = np.asarray(env_ids)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise ValueError(f"env_ids is a sequence of ints, not {env_ids!r}")
        ids: list[int] = chosen.tolist()
        if wrong := [i for i in ids if not 0 <= i < self.num_envs]:
            raise ValueError(f"the pool has environments 0 to {self.num_envs - 1}, not {wrong}")
        if len(set(ids)) < len(ids):
            raise ValueError(f"env_ids names an environment twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}")
        return ids

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the pool is closed")
        if os.getpid() != self._owner:
            raise RuntimeError(f"this ORSEnvPool was made in process {self._owner}; make another one in a forked child")

    def _start(self, calls: Mapping[int, Callable[[], Coroutine[Any, Any, Transition]]]) -> None:
        with self._lock:
            if busy := sorted(self._in_flight.intersection(calls)):
                raise RuntimeError(f"the last results of environments {busy} were not received; call recv before sending again")
            self._in_flight.update(calls)
            self._begun.update(calls)
        portal().loop.call_soon_threadsafe(self._start_tasks, calls)

    def _start_tasks(self, calls: Mapping[int, Callable[[], Coroutine[Any, Any, Transition]]]) -> None:
        for env_id, call in calls.items():
            task = asyncio.get_running_loop().create_task(call())
            self._tasks.add(task)
            task.add_done_callback(partial(self._arrived, env_id))

    def _arrived(self, env_id: int, task: asyncio.Task[Transition]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # by close
            return
        with self._lock:
            self._ready.append((env_id, task.result()))
            self._wake()

    # Receiving

    def _take(self, min_size: int, max_size: int | None) -> list[tuple[int, Transition]] | Future[None]:
        """Results, or what to wait for until it is worth another try."""
        if min_size < 1 or (max_size is not None and max_size < min_size):
            raise ValueError(f"min_size must be at least 1, and max_size at least min_size: got {min_size!r} and {max_size!r}")
        self._check_open()
        with self._lock:
            if not self._in_flight:
                raise RuntimeError("nothing is in flight: call async_reset or send before recv")
            needed = min(min_size, len(self._in_flight))
            if len(self._ready) < needed:
                waiter: Future[None] = Future()
                waiter.set_running_or_notify_cancel()  # from here on only a result ends it
                self._waiters[waiter] = needed
                return waiter
            count = len(self._ready) if max_size is None else min(max_size, len(self._ready))
            for n in range(count):  # misuse is raised by itself, and costs no other result
                if self._ready[n][1].misuse:
                    count = max(n, 1)
                    break
            taken = [self._ready.popleft() for _ in range(count)]
            self._in_flight.difference_update(env_id for env_id, _ in taken)
            self._wake(everyone=True)
            return taken

    def _wake(self, *, everyone: bool = False) -> None:
        for waiter, needed in self._waiters.items():
            if (everyone or len(self._ready) >= needed) and not waiter.done():
                waiter.set_result(None)

    def _forget(self, waiter: Future[None]) -> None:
        with self._lock:
            self._waiters.pop(waiter, None)

    def _timed_out(self, min_size: int, timeout: float | None) -> TimeoutError:
        return TimeoutError(
            f"{len(self._ready)} of {min_size} results were ready after {timeout} s; nothing is lost: call recv again"
        )

    def _batch(self, taken: list[tuple[int, Transition]]) -> PoolBatch:
        transitions = [transition for _, transition in taken]
        if transitions[0].misuse and (error := transitions[0].error) is not None:
            error.add_note(f"in environment {taken[0][0]} of {self.num_envs}")
            raise error
        space = self.single_observation_space
        observations = concatenate(
            space,
            [transition.observation for transition in transitions],
            create_empty_array(space, n=len(taken), fn=np.zeros),  # type: ignore[arg-type]
        )
        return PoolBatch(
            observations,
            np.array([transition.reward for transition in transitions], dtype=np.float64),
            np.array([transition.terminated for transition in transitions], dtype=np.bool_),
            np.array([transition.truncated for transition in transitions], dtype=np.bool_),
            batch_infos([with_final(transition) for transition in transitions], nested=False),
            np.array([env_id for env_id, _ in taken], dtype=np.int64),
        )
