"""The one background event loop of a process: where the synchronous faces run their coroutines.

The loop lives in a daemon thread that is made on first use, and again in a forked child. It keeps sessions alive while the
caller computes, and serves callers in scripts, threads, Jupyter and inside a running loop. When the interpreter exits, the thread
ends; what is called even later, by a finalizer for instance, runs the loop by itself.
"""

import asyncio
import atexit
import multiprocessing.util
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_EXIT_SECONDS = 5.0


class Portal:
    """A daemon thread with an event loop. Use `portal()`: one a process is enough."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop(_OwnSelector())
        self._thread = threading.Thread(target=self._loop.run_forever, name="ors-gym-portal", daemon=True)
        self._thread.start()
        self._ended = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything submitted runs on."""
        return self._loop

    def submit(self, async_fn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Starts a coroutine on the loop, in the caller's context variables; returns at once.

        Cancelling the future cancels the coroutine; the future ends when the coroutine, with its cleanup, has ended.
        """
        work = _Work(self._loop, async_fn(*args, **kwargs))
        self._loop.call_soon_threadsafe(work.start)
        return work

    def call(self, async_fn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a coroutine on the loop and waits for its result.

        Ctrl-C, or any other exception in the waiting thread, cancels the coroutine, waits for its cleanup and is then
        raised; a second one is raised at once.

        Raises:
            RuntimeError: It is called on the portal's own thread, where waiting would never end; or at the interpreter's
                exit, while something holds up the loop.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a synchronous ors-gym call was made on the portal's own thread; await its Async… counterpart there")
        if self._ended:
            return self._call_after_end(async_fn(*args, **kwargs))
        work = _Work(self._loop, async_fn(*args, **kwargs))
        try:
            self._loop.call_soon_threadsafe(work.start)
            return work.result()
        except BaseException:
            if work.cancel():
                work.exception()
            raise

    def end(self) -> None:
        """Cancels what still runs and ends the thread, within some seconds. For the interpreter's exit."""
        if self._ended:
            return
        self._ended = True
        done, _ = wait([self.submit(_cancel_others)], _EXIT_SECONDS)
        if done:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_EXIT_SECONDS)

    def _call_after_end(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """A daemon thread is frozen at some time during the exit: to wait for it would never end."""
        if self._loop.is_running():
            coroutine.close()
            raise RuntimeError("the interpreter exits, and the portal's event loop is held up")
        return self._loop.run_until_complete(coroutine)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Work(Future[T]):
    """A coroutine's future whose `cancel` reaches the coroutine and leaves the last word to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self.set_running_or_notify_cancel()
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> bool:
        if self.done():
            return False
        self._loop.call_soon_threadsafe(self._cancel_task)
        return True

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.done():  # Ctrl-C came before it was started
            self._coroutine.close()
            self.set_exception(asyncio.CancelledError())

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


class _OwnSelector(selectors.DefaultSelector):
    """Touches the kernel's table in its own process only.

    A forked child inherits its parent's epoll table, not a copy: a connection that is closed in the child would be
    struck off in the parent, which would then wait for its data for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid()

    def unregister(self, fileobj: Any) -> Any:
        return super().unregister(fileobj) if os.getpid() == self._owner else self.get_key(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> Any:
        return super().modify(fileobj, events, data) if os.getpid() == self._owner else self.get_key(fileobj)


_lock = threading.Lock()
_portal: Portal | None = None
_inherited: list[Portal] = []


def portal() -> Portal:
    """The portal of this process, made on first use."""
    global _portal
    with _lock:
        if _portal is None:
            _portal = Portal()
        return _portal


def at_exit(function: Callable[[], None]) -> None:
    """Has a function called when the interpreter exits, while the portal's loop still runs: the last to be registered first.

    Also in a process of `multiprocessing`, which, where it was forked, ends without `atexit`. It may be called twice.
    """
    atexit.register(function)
    multiprocessing.util.register_after_fork(function, _at_process_end)
    if multiprocessing.parent_process() is not None:
        _at_process_end(function)


def _at_process_end(function: Callable[[], None]) -> None:
    multiprocessing.util.Finalize(None, function, exitpriority=0)


def _end() -> None:
    if _portal is not None:
        _portal.end()


def _after_fork_in_child() -> None:
    """The thread did not come along: the child makes its own portal, and leaves the parent's as it is."""
    global _lock, _portal
    _lock = threading.Lock()
    if _portal is not None:
        _inherited.append(_portal)
        _portal = None


at_exit(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
