"""One sub-environment of many: when it is reset, and what becomes of its failures."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from ors_gym.env._info import failure_of
from ors_gym.env._threaded import as_async
from ors_gym.errors import EnvironmentFailure, InfrastructureError, ORSError, RequestRejected, SessionClosed, TimeoutExceeded

logger = logging.getLogger("ors_gym.env")

_MISUSE = (gym.error.Error, RequestRejected, SessionClosed)


@dataclass(frozen=True, slots=True)
class Transition:
    """What a sub-environment answered.

    Attributes:
        observation, reward, terminated, truncated, info: As Gymnasium has them.
        final: Where it was reset in the same step: the last observation and info of the episode that ended.
        error: What failed, if anything did.
        misuse: Whether that is the caller's mistake: it is then raised, whatever `on_error` says.
    """

    observation: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] | None = None
    final: tuple[Any, Mapping[str, Any] | None] | None = None
    error: BaseException | None = None
    misuse: bool = False


class Slot:
    """A sub-environment's place: resets it as the mode says, and turns its failures into transitions.

    Args:
        number: Its number, for the log.
        env: The environment, asynchronous or ordinary.
        autoreset_mode: When an episode that ended is followed by the next.
        empty: Makes the observation of a failure.
        limit: Bounds how many run at once.
        step_timeout: Seconds that a step may take.
    """

    def __init__(
        self,
        number: int,
        env: Any,
        autoreset_mode: AutoresetMode,
        *,
        empty: Callable[[], Any],
        limit: asyncio.Semaphore | None = None,
        step_timeout: float | None = None,
    ) -> None:
        self.number = number
        self.env = env
        self.done = False
        self._run = as_async(env, number)
        self._inner = getattr(env, "unwrapped", env)
        self._mode = autoreset_mode
        self._empty = empty
        self._limit = limit or nullcontext()
        self._step_timeout = step_timeout
        self._failed_reset: Transition | None = None

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Transition:
        """Resets it. A failure is an empty observation, and the next step is truncated without asking it."""
        self.done, self._failed_reset = False, None
        try:
            async with self._limit:
                observation, info = await self._run.reset(seed=seed, options=options)
        except Exception as error:
            failed = self._failure(error, "reset")
            self._failed_reset = None if failed.misuse else failed
            return failed
        return Transition(observation, info=info)

    async def step(self, action: Any) -> Transition:
        """Steps it, or resets it where its turn has come. A failure truncates the episode."""
        if self.done and self._mode is AutoresetMode.NEXT_STEP:
            return await self.reset()
        ended = await self._step(action)
        self.done = ended.terminated or ended.truncated
        if not (self.done and self._mode is AutoresetMode.SAME_STEP):
            return ended
        fresh = await self.reset()
        return Transition(
            fresh.observation,
            ended.reward,
            ended.terminated,
            ended.truncated,
            fresh.info,
            (ended.observation, ended.info),
            ended.error or fresh.error,
            ended.misuse or fresh.misuse,
        )

    async def close(self) -> None:
        """Closes the environment."""
        await self._run.close()

    async def _step(self, action: Any) -> Transition:
        if self._failed_reset is not None:
            failed, self._failed_reset = self._failed_reset, None
            return Transition(failed.observation, truncated=True, info=failed.info)
        try:
            async with self._limit:
                step = self._run.step if self._step_timeout is None else self._timed_step
                observation, reward, terminated, truncated, info = await step(action)
            failure = getattr(self._inner, "failure", None) if truncated else None
            return Transition(observation, reward, terminated, truncated, info, error=failure)
        except Exception as error:
            return self._failure(error, "step", truncated=True)
        except BaseException:
            self.done = True  # cancelled: what the environment did is not known
            raise

    async def _timed_step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        try:
            async with asyncio.timeout(self._step_timeout) as deadline:
                return await self._run.step(action)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            message = f"sub-environment {self.number} gave no result within step_timeout={self._step_timeout} s"
            raise TimeoutExceeded(message) from error

    def _failure(self, error: Exception, where: str, *, truncated: bool = False) -> Transition:
        what, kind = failure_of(error)
        info: Mapping[str, Any] = {"unscored": True, "error": what, "error_kind": kind}
        misuse = isinstance(error, _MISUSE)
        if hasattr(self._inner, "failure_info"):  # one of ours: whatever else it raises is about its arguments
            info = self._inner.failure_info(error)
            misuse = not isinstance(error, (EnvironmentFailure, InfrastructureError))
        if not misuse:
            unforeseen = None if isinstance(error, ORSError) else error  # a server that is down says so once, without a traceback
            logger.warning("sub-environment %d failed in %s: %s", self.number, where, what, exc_info=unforeseen)
        return Transition(self._empty(), truncated=truncated and not misuse, info=info, error=error, misuse=misuse)
