"""Time and tries: a limit whose error names it, and one request's way through a `Retry`."""

import asyncio
import email.utils
import logging
import math
import random
import time
from types import TracebackType
from typing import Protocol

import httpx

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


class Limit:
    """`async with Limit("setup", 600.0, what)`: ends what takes longer with a `TimeoutExceeded` that names the limit."""

    __slots__ = ("_name", "_scope", "_seconds", "_what")

    def __init__(self, name: str, seconds: float | None, what: Described, *, left: float | None = None) -> None:
        self._name, self._seconds, self._what = name, seconds, what
        if left is None:
            left = seconds
        self._scope = None if left is None else asyncio.timeout(max(left, 0.0))

    async def __aenter__(self) -> None:
        if self._scope is not None:
            await self._scope.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._scope is None:
            return
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise time_exceeded(self._name, self._seconds, self._what) from None


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
        if retry_after is not None:
            seconds = retry_after * random.uniform(1.0, 1.05)
        elapsed = time.monotonic() - self._begun
        if (not asked_to_wait and self._made >= self._retry.attempts) or (budget is not None and elapsed + seconds > budget):
            if tries > 1:
                error.args = (f"{error} (given up after {tries} tries in {elapsed:.1f} s)",)
            raise error
        logger.info("%s; next try in %.2f s", error, seconds)
        await asyncio.sleep(seconds)


def retry_after(headers: httpx.Headers) -> float | None:
    """The seconds of a `Retry-After` header, which has seconds or a date; None if there is none that can be read.

    >>> retry_after(httpx.Headers({"Retry-After": "2"}))
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
