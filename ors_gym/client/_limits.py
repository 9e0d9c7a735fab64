"""Time and tries: a limit whose error names it, and one request's way through a `Retry`."""

import asyncio
import email.utils
import logging
import math
import random
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Protocol

from ors_gym.client._cleanup import Cleanup
from ors_gym.client._config import Retry
from ors_gym.errors import ORSError, TimeoutExceeded

logger = logging.getLogger("ors_gym.client")


class Described(Protocol):
    """Something that a message can name."""

    @property
    def session_id(self) -> str | None:
        """The session that it is about, if any."""

    def describe(self) -> str:
        """What it is, for a message."""


def limited(name: str, seconds: float | None, what: Described, *, left: float | None = None) -> AbstractContextManager[None]:
    """`with limited("setup", 600.0, what):` ends what takes longer with a `TimeoutExceeded` that names the limit.

    It is `asyncio.timeout` at half its cost, since a session has a dozen of them, and it ends a `Cleanup` too.

    Args:
        name: The name of the limit, as `Timeout` has it.
        seconds: The limit; None is none.
        what: What is limited.
        left: The seconds that are left of it, if it began before.
    """
    return _NO_LIMIT if seconds is None else _Limit(name, seconds, what, seconds if left is None else max(left, 0.0))


_NO_LIMIT = nullcontext()


class _Limit(AbstractContextManager[None]):
    __slots__ = ("_cancelling", "_expired", "_left", "_name", "_seconds", "_task", "_timer", "_what")
    _task: asyncio.Task[Any]
    _timer: asyncio.TimerHandle
    _cancelling: int

    def __init__(self, name: str, seconds: float, what: Described, left: float) -> None:
        self._name, self._seconds, self._what, self._left = name, seconds, what, left
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._timer = task.get_loop().call_later(self._left, self._expire)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.cancel()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise time_exceeded(self._name, self._seconds, self._what) from None

    def _expire(self) -> None:
        self._expired = True
        if isinstance(self._task, Cleanup):
            self._task.give_up()
        else:
            self._task.cancel()


def time_exceeded(name: str, seconds: float | None, what: Described) -> TimeoutExceeded:
    """The error of a limit that ran out."""
    return TimeoutExceeded(f"{what.describe()}: took longer than Timeout({name}={seconds})", session_id=what.session_id)


class Attempts:
    """One request's way through a `Retry`.

    Args:
        retry: The policy.
        patience: Seconds for which a server that asks to wait is waited for; None is without limit.
    """

    __slots__ = ("_begun", "_made", "_patience", "_retry", "_waits")

    def __init__(self, retry: Retry, patience: float | None) -> None:
        self._retry, self._patience = retry, patience
        self._begun = time.monotonic()
        self._made = self._waits = 0

    async def pause(self, error: ORSError, *, retry_after: float | None = None, asked_to_wait: bool = False) -> None:
        """Waits until the next attempt is due.

        Args:
            error: What went wrong.
            retry_after: Seconds that the server named.
            asked_to_wait: The server refused for now (429, starting): it costs no attempt, only patience.

        Raises:
            ORSError: `error`, if no further attempt is allowed.
        """
        budget = self._patience if asked_to_wait else self._retry.total
        if asked_to_wait:
            self._waits += 1
        else:
            self._made += 1
        tries = self._waits + self._made
        seconds = random.uniform(0, min(self._retry.backoff * 2.0 ** min(tries - 1, 60), self._retry.max_backoff))
        # One that says 0 again and again is not to be asked without a pause.
        if retry_after is not None and (retry_after > 0 or tries == 1):
            seconds = retry_after * random.uniform(1.0, 1.05)
        elapsed = time.monotonic() - self._begun
        if (not asked_to_wait and self._made >= self._retry.attempts) or (budget is not None and elapsed + seconds > budget):
            if tries > 1:
                error.args = (f"{error} (given up after {tries} tries in {elapsed:.1f} s)",)
            raise error
        logger.info("%s; next try in %.2f s", error, seconds)
        await asyncio.sleep(seconds)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a `Retry-After` header, which has seconds or a date; None if there is none that can be read.

    >>> retry_after({"retry-after": "2"})
    2.0
    """
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
