"""`AsyncioVectorEnv`: many environments stepped at once from one event loop, with the contract of `SyncVectorEnv`."""

import asyncio
import gc
import multiprocessing
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from ors_gym.env._batch import batch_infos, with_final
from ors_gym.env._slot import Slot, Transition
from ors_gym.env._vector_arguments import ObservationMode, action_spaces, each_action, observation_spaces, reset_mask
from ors_gym.portal import portal

_COLLECTION_HELD_BACK = 1.0  # seconds

OnError = Literal["truncate", "raise"]
Reset = tuple[Any, dict[str, Any]]
Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


@dataclass(frozen=True)
class _Pending:
    """A reset or a step that was begun: of which sub-environments, and their transitions to come."""

    name: str
    numbers: list[int]
    future: Future[list[Transition]]


_Outcome = tuple[list[int], list[Transition]]


class CallTimeout(multiprocessing.TimeoutError, TimeoutError):
    """`step_wait` or `reset_wait` ran out of time: a `TimeoutError`, and the one that `AsyncVectorEnv` raises."""


class SubEnvironmentEnded(ResetNeeded, AssertionError):
    """A step where an episode has ended and nobody resets it by itself: `ResetNeeded`, and what `SyncVectorEnv` raises."""


class AsyncioVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """Steps many environments at once from one event loop, with the whole contract of `gymnasium.vector.SyncVectorEnv`.

    Sub-environments whose `reset`, `step` and `close` are coroutines are awaited in the loop of `ors_gym.portal`. Ordinary
    environments run in threads, each in one of its own. One that fails costs the others nothing: its episode is truncated, with
    an observation of zeros and the reason in `info["error"]`, and it is reset at its turn; after a reset that failed, its next
    step is truncated without asking it.

    Args:
        env_fns: Functions that make the sub-environments.
        copy: Whether `reset` and `step` return copies of the observations.
        observation_mode: "same": the observation spaces are equal; "different": of equal shape and dtype; or a pair of spaces,
            batched and single.
        autoreset_mode: When an episode that ended is followed by the next: `NEXT_STEP`, `SAME_STEP` or `DISABLED`.
        max_concurrency: How many sub-environments may run at once; None is all.
        step_timeout: Seconds that the step of a sub-environment may take; one that takes longer has failed.
        on_error: "truncate", as above, or "raise": the first failure is raised when every sub-environment's result is in. Misuse,
            such as a step before the first reset, is raised in any case.

    Raises:
        RuntimeError: The spaces of the sub-environments do not fit together.
        ValueError, TypeError: An argument is out of its range.

    >>> import gymnasium as gym
    >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
    >>> observations, infos = envs.reset(seed=42)
    >>> observations, rewards, terminations, truncations, infos = envs.step([0, 1, 0])
    >>> rewards
    array([1., 1., 1.])
    >>> envs.close()
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        max_concurrency: int | None = None,
        step_timeout: float | None = None,
        on_error: OnError = "truncate",
    ) -> None:
        super().__init__()
        if max_concurrency is not None and (not isinstance(max_concurrency, (int, np.integer)) or max_concurrency < 1):
            raise ValueError(f"max_concurrency is an int of at least 1, or None, not {max_concurrency!r}")
        if step_timeout is not None and not step_timeout > 0:
            raise ValueError(f"step_timeout is a number of seconds above 0, or None, not {step_timeout!r}")
        if on_error not in get_args(OnError):
            raise ValueError(f"on_error is 'truncate' or 'raise', not {on_error!r}")
        self.env_fns = list(env_fns)
        if not self.env_fns:
            raise ValueError("a vector environment needs at least one sub-environment; env_fns is empty")
        self.copy = copy
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.on_error = on_error
        self.num_envs = len(self.env_fns)
        self.envs: list[Any] = []
        self._slots: list[Slot] = []
        self._owner = os.getpid()
        self._pending: _Pending | None = None
        self._last: list[Transition] = []
        limit = None if max_concurrency is None else asyncio.Semaphore(int(max_concurrency))
        try:
            for number, env_fn in enumerate(self.env_fns):
                env = env_fn()
                self.envs.append(env)
                self._slots.append(
                    Slot(number, env, self.autoreset_mode, empty=self._empty, limit=limit, step_timeout=step_timeout)
                )
            self.single_action_space, self.action_space = action_spaces(self.envs)
            self.single_observation_space, self.observation_space = observation_spaces(self.envs, observation_mode)
        except BaseException:
            self.close()
            raise
        self.metadata = {**getattr(self.envs[0], "metadata", {}), "autoreset_mode": self.autoreset_mode}
        self.render_mode = getattr(self.envs[0], "render_mode", None)
        self._env_obs: list[Any] = [None] * self.num_envs
        self._begun = np.zeros(self.num_envs, dtype=np.bool_)
        self._observations: Any = create_empty_array(self.single_observation_space, n=self.num_envs, fn=np.zeros)

    # Gymnasium's vector environment

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Resets all sub-environments at once, or those that `options["reset_mask"]` names.

        Args:
            seed: One for each; or an int, which gives `seed + i` to the i-th.
            options: Handed to each sub-environment, but for `reset_mask`: a bool array of shape (num_envs,). Read only.

        Returns:
            Observations and infos. Where the mask is False, the last observation again, and no info.

        Raises:
            ClosedEnvironmentError: It is closed.
            AlreadyPendingCallError: A call waits for its `…_wait`.
            TypeError, ValueError: A seed or a mask of the wrong form.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3, autoreset_mode="Disabled")
        >>> observations, infos = envs.reset(seed=[1, 2, 3])
        >>> observations, infos = envs.reset(options={"reset_mask": np.array([True, False, False])})  # the first only
        >>> observations.shape
        (3, 4)
        >>> envs.close()
        """
        self.reset_async(seed=seed, options=options)
        return self._reset_result(*self._finish())

    def step(self, actions: Any) -> Step:
        """Steps all sub-environments at once.

        Args:
            actions: One for each; an element of `action_space`, or any sequence of actions.

        Returns:
            Observations, rewards (float64), terminations, truncations (bool), each of shape (num_envs,), and infos.

        Raises:
            ClosedEnvironmentError: It is closed.
            AlreadyPendingCallError: A call waits for its `…_wait`.
            TypeError: The actions are a text or a mapping, not one action for each.
            ValueError: Another number of actions than of sub-environments.
            SubEnvironmentEnded: An episode has ended, and `autoreset_mode` is `DISABLED`.
        """
        self.step_async(actions)
        return self._step_result(*self._finish())

    def reset_async(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins a reset, with the arguments of `reset`. See `AsyncioVectorEnv.reset_wait`."""
        self._check_free("reset_async")
        seeds = self._seeds(seed)
        chosen = np.flatnonzero(reset_mask(options, self._begun)).tolist()
        each = self._options(options)
        self._begin("reset", {i: partial(self._slots[i].reset, seed=seeds[i], options=each[i]) for i in chosen})

    def reset_wait(self, timeout: float | None = None) -> Reset:
        """The result of `reset_async`.

        Args:
            timeout: Seconds to wait; None waits as long as it takes. A time-out loses nothing: wait again.

        Raises:
            TimeoutError: It takes longer.
            NoAsyncCallError: No reset was begun.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> envs.reset_async(seed=42)
        >>> observations, infos = envs.reset_wait(timeout=60.0)
        >>> envs.close()
        """
        return self._reset_result(*self._wait("reset", timeout))

    def step_async(self, actions: Any) -> None:
        """Begins a step, with the argument of `step`. See `AsyncioVectorEnv.step_wait`."""
        self._check_free("step_async")
        each = each_action(self.action_space, actions, self.num_envs)
        if self.autoreset_mode is AutoresetMode.DISABLED and (ended := [slot.number for slot in self._slots if slot.done]):
            raise SubEnvironmentEnded(
                f"the episodes of sub-environments {ended} have ended; reset them by "
                'reset(options={"reset_mask": terminations | truncations})'
            )
        self._begin("step", {slot.number: partial(slot.step, action) for slot, action in zip(self._slots, each, strict=True)})

    def step_wait(self, timeout: float | None = None) -> Step:
        """The result of `step_async`.

        Args:
            timeout: Seconds to wait; None waits as long as it takes. A time-out loses nothing: wait again.

        Raises:
            TimeoutError: It takes longer.
            NoAsyncCallError: No step was begun.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> envs.reset_async(seed=42)
        >>> observations, infos = envs.reset_wait(timeout=60.0)
        >>> envs.step_async([0, 1, 0])
        >>> observations, rewards, terminations, truncations, infos = envs.step_wait(timeout=60.0)
        >>> rewards
        array([1., 1., 1.])
        >>> envs.close()
        """
        return self._step_result(*self._wait("step", timeout))

    async def areset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Reset:
        """`reset` for a caller on an event loop, which is not blocked. Cancelling it cancels the resets.

        >>> import gymnasium as gym
        >>> async def main():
        ...     envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        ...     observations, infos = await envs.areset(seed=42)
        ...     envs.close()
        ...     return observations.shape
        >>> asyncio.run(main())
        (3, 4)
        """
        self.reset_async(seed=seed, options=options)
        return self._reset_result(*await self._afinish())

    async def astep(self, actions: Any) -> Step:
        """`step` for a caller on an event loop, which is not blocked. Cancelling it cancels the steps.

        >>> import gymnasium as gym
        >>> async def main():
        ...     envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        ...     await envs.areset(seed=42)
        ...     observations, rewards, terminations, truncations, infos = await envs.astep([0, 1, 0])
        ...     envs.close()
        ...     return rewards
        >>> asyncio.run(main())
        array([1., 1., 1.])
        """
        self.step_async(actions)
        return self._step_result(*await self._afinish())

    def last_step(self) -> Step:
        """The last step's batch again. After a failure that `on_error="raise"` raised it has everybody's results, the failed
        sub-environment's as "truncate" would give it.

        Raises:
            ResetNeeded: There was no step.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> _ = envs.reset(seed=42)
        >>> observations, *_ = envs.step([0, 1, 0])
        >>> bool((envs.last_step()[0] == observations).all())
        True
        >>> envs.close()
        """
        if not self._last:
            raise ResetNeeded("there was no step yet")
        return (
            self._concatenated(),
            np.array([transition.reward for transition in self._last], dtype=np.float64),
            np.array([transition.terminated for transition in self._last], dtype=np.bool_),
            np.array([transition.truncated for transition in self._last], dtype=np.bool_),
            self._batch_infos([with_final(transition) for transition in self._last]),
        )

    def render(self) -> tuple[Any, ...]:
        """What each sub-environment renders."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of each sub-environment, all coroutines at once, or reads an attribute of each.

        Args:
            name: The method's or the attribute's name, also of a wrapper around it.
            args, kwargs: The method's arguments.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> envs.call("has_wrapper_attr", "gravity")
        (True, True, True)
        >>> envs.close()
        """
        found = [_get(env, name) for env in self.envs]
        results = [value(*args, **kwargs) if callable(value) else value for value in found]
        if any(asyncio.iscoroutine(result) for result in results):
            return tuple(portal().call(_await_all, results))
        return tuple(results)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each sub-environment.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> envs.get_attr("gravity")
        (9.8, 9.8, 9.8)
        >>> envs.close()
        """
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of each sub-environment.

        Args:
            name: The attribute's name.
            values: A list or tuple with a value for each, or one value for all.

        Raises:
            ValueError: A list or tuple of another length.

        >>> import gymnasium as gym
        >>> envs = AsyncioVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> envs.set_attr("gravity", [9.8, 1.6, 3.7])
        >>> envs.get_attr("gravity")
        (9.8, 1.6, 3.7)
        >>> envs.close()
        """
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"values is a list or tuple of {self.num_envs}, one for each sub-environment, not of {len(values)}")
        for env, value in zip(self.envs, values, strict=True):
            if hasattr(env, "set_wrapper_attr"):
                env.set_wrapper_attr(name, value)
            else:
                setattr(env, name, value)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each sub-environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed of each sub-environment's generator."""
        return self.get_attr("np_random_seed")

    def close_extras(self, **kwargs: Any) -> None:
        """Ends a call that is under way and closes every sub-environment, all at once. A forked child closes nothing."""
        if os.getpid() != self._owner:
            return
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.future.cancel()
            pending.future.exception()
        portal().call(_close_all, self._slots)

    def __del__(self) -> None:
        """Nothing: what Gymnasium does here would wait for an event loop that may have gone. Clients look after their sessions."""

    # What a subclass may decide

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed is an int or a list of {self.num_envs}, one for each sub-environment, not of {len(seeds)}")
        return seeds

    def _options(self, options: Mapping[str, Any] | None) -> Sequence[dict[str, Any] | None]:
        given = None if options is None else {name: value for name, value in options.items() if name != "reset_mask"}
        return [given] * self.num_envs

    def _batch_infos(self, infos: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
        return batch_infos(infos)

    def _empty(self) -> Any:
        return create_zero_array(self.single_observation_space)

    # Calls

    def _check_free(self, name: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"`{name}` was called after `close`")
        if os.getpid() != self._owner:
            raise RuntimeError(f"this {type(self).__name__} was made in process {self._owner}; make another one in a forked child")
        if self._pending is not None:
            pending = self._pending.name
            message = f"Calling `{name}` while waiting for a pending call to `{pending}` to complete: `{pending}_wait` is due"
            raise AlreadyPendingCallError(message, pending)

    def _begin(self, name: str, calls: Mapping[int, Callable[[], Coroutine[Any, Any, Transition]]]) -> None:
        self._pending = _Pending(name, list(calls), portal().submit(_gather, list(calls.values())))

    def _wait(self, name: str, timeout: float | None) -> _Outcome:
        if self.closed:
            raise ClosedEnvironmentError(f"`{name}_wait` was called after `close`")
        pending = self._pending
        if pending is None or pending.name != name:
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)
        try:
            pending.future.exception(timeout)
        except TimeoutError:
            raise CallTimeout(f"`{name}_wait` timed out after {timeout} s; nothing is lost: call it again") from None
        self._pending = None
        return pending.numbers, pending.future.result()

    def _finish(self) -> _Outcome:
        """The pending call's outcome; an interrupt cancels it."""
        pending, self._pending = self._pending, None
        assert pending is not None
        try:
            return pending.numbers, pending.future.result()
        except BaseException:
            pending.future.cancel()
            pending.future.exception()
            raise

    async def _afinish(self) -> _Outcome:
        pending = self._pending
        assert pending is not None
        try:
            return pending.numbers, await asyncio.wrap_future(pending.future)
        except asyncio.CancelledError:
            await asyncio.wait((asyncio.wrap_future(pending.future),))
            raise
        finally:
            self._pending = None

    # Results

    def _reset_result(self, numbers: list[int], transitions: list[Transition]) -> Reset:
        infos: list[Mapping[str, Any] | None] = [None] * self.num_envs
        for number, transition in zip(numbers, transitions, strict=True):
            self._env_obs[number] = transition.observation
            infos[number] = transition.info
        self._begun[numbers] = True
        self._raise_failure(numbers, transitions)
        return self._concatenated(), self._batch_infos(infos)

    def _step_result(self, numbers: list[int], transitions: list[Transition]) -> Step:
        self._env_obs = [transition.observation for transition in transitions]
        self._last = transitions
        self._raise_failure(numbers, transitions)
        return self.last_step()

    def _raise_failure(self, numbers: list[int], transitions: list[Transition]) -> None:
        for number, transition in zip(numbers, transitions, strict=True):
            error = transition.error
            if error is not None and (transition.misuse or self.on_error == "raise"):
                error.add_note(f"in sub-environment {number} of {self.num_envs}")
                raise error

    def _concatenated(self) -> Any:
        self._observations = concatenate(self.single_observation_space, self._env_obs, self._observations)
        return deepcopy(self._observations) if self.copy else self._observations


def _get(env: Any, name: str) -> Any:
    return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)


async def _gather(calls: Sequence[Callable[[], Coroutine[Any, Any, Transition]]]) -> list[Transition]:
    with _no_collection():
        outcomes = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, Transition)]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Holds back the garbage collector, for a second at most: once a step is enough.

    What a call is made of stays alive until it is answered. To look for garbage among a thousand of them, again and again, takes
    longer than to send them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    timer = asyncio.get_running_loop().call_later(_COLLECTION_HELD_BACK, gc.enable)
    try:
        yield
    finally:
        timer.cancel()
        gc.enable()


async def _await_all(results: Sequence[Any]) -> list[Any]:
    async def settled(result: Any) -> Any:
        return await result if asyncio.iscoroutine(result) else result

    return await asyncio.gather(*map(settled, results))


async def _close_all(slots: Sequence[Slot]) -> None:
    outcomes = await asyncio.gather(*(slot.close() for slot in slots), return_exceptions=True)
    if errors := [outcome for outcome in outcomes if isinstance(outcome, BaseException)]:
        raise errors[0]
