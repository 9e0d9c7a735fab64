"""Ordinary environments as asynchronous ones: each in a thread of its own."""

import asyncio
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import gymnasium as gym

logger = logging.getLogger("ors_gym.env")

_CLOSE_SECONDS = 10.0  # that a close waits for a call that is under way: a thread cannot be stopped

_Calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class AsyncEnv(Protocol):
    """What an asynchronous environment has."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Mapping[str, Any]]:
        """Begins an episode."""

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Takes an action."""

    async def close(self) -> None:
        """Closes it."""


def as_async(env: Any, number: int) -> AsyncEnv:
    """The environment itself if its methods are coroutines, else one that runs it in a thread."""
    return env if inspect.iscoroutinefunction(env.step) else Threaded(env, number)


class Threaded:
    """An ordinary environment, all its calls in one thread, which ends with it and never holds up the interpreter's exit."""

    def __init__(self, env: gym.Env[Any, Any], number: int) -> None:
        self._env = env
        self._name = f"ors-gym-env-{number}"
        self._calls: _Calls = SimpleQueue()
        self._begun = False
        self._last: Future[Any] | None = None
        weakref.finalize(self, self._calls.put, None).atexit = False

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Mapping[str, Any]]:
        """Begins an episode, once a call that was given up has ended."""
        return await self._run(partial(self._env.reset, seed=seed, options=options))  # type: ignore[no-any-return]

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Takes an action, once a call that was given up has ended."""
        return await self._run(partial(self._env.step, action))  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Closes it. A call that is under way is waited for, for 10 s; then the environment is left open."""
        if self._last is not None and not self._last.done():
            if hasattr(self._env.unwrapped, "failure_info"):  # one of ours: closing it ends the call
                await asyncio.to_thread(self._env.close)
                return
            await asyncio.wait((asyncio.wrap_future(self._last),), timeout=_CLOSE_SECONDS)
            if not self._last.done():
                logger.warning("%s is left open: its last call has not ended within %s s", self._env, _CLOSE_SECONDS)
                return
        await self._run(self._env.close)
        self._calls.put(None)

    async def _run(self, call: Callable[[], Any]) -> Any:
        if not self._begun:
            self._begun = True
            threading.Thread(target=_work, args=(self._calls,), name=self._name, daemon=True).start()
        self._last = Future()
        self._last.set_running_or_notify_cancel()  # whoever waits may be cancelled, the call cannot
        self._calls.put((self._last, call))
        return await asyncio.wrap_future(self._last)


def _work(calls: _Calls) -> None:
    while (item := calls.get()) is not None:
        future, call = item
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        del item, future, call  # or the environment lives as long as this thread waits
