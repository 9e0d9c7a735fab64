"""Work that must come to its end: the deletion of sessions, on a loop that goes down, and without one."""

import asyncio
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import httpx

logger = logging.getLogger("ors_gym.client")
T = TypeVar("T")

DELETED = frozenset({200, 204, 404, 410})
"""The statuses after which a session is not on its server any more."""
_LAST_RESORT_SECONDS = 10.0
_AT_ONCE = 16


class Cleanup(asyncio.Task[T]):
    """A task that cancellation does not end: a loop that goes down cancels every task once, and then waits for it.

    `limited` ends it; `asyncio.timeout`, which cancels too, does not.
    """

    __slots__ = ("_others", "_waiting")

    def __init__(self, work: Coroutine[Any, Any, T], others: "set[Cleanup[Any]]") -> None:
        super().__init__(work, loop=asyncio.get_running_loop())
        self._others = others
        self._waiting: tuple[asyncio.Future[None], ...] = ()
        others.add(self)
        self.add_done_callback(_has_ended)

    def cancel(self, msg: Any | None = None) -> bool:
        return False

    def give_up(self) -> None:
        """Ends it after all."""
        super().cancel()

    def ended(self) -> "asyncio.Future[None]":
        """Its end, whatever that is, to be awaited. A caller that is cancelled leaves it running. (`asyncio.wait` costs more.)"""
        end = self.get_loop().create_future()
        if self.done():
            end.set_result(None)
        else:
            self._waiting += (end,)
        return end


def _has_ended(cleanup: Cleanup[Any]) -> None:
    cleanup._others.discard(cleanup)
    for end in cleanup._waiting:
        if not end.done():
            end.set_result(None)


class Cleanups:
    """The cleanup tasks of a client."""

    def __init__(self) -> None:
        self._tasks: set[Cleanup[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> Cleanup[T]:
        """Starts `work`, which goes on whatever happens to the caller."""
        return Cleanup(work, self._tasks)

    async def finish_others(self, seconds: float) -> None:
        """Waits, within a cleanup task, for all others, and ends those that take longer than `seconds`."""
        if others := [task for task in self._tasks if task is not asyncio.current_task()]:
            _, late = await asyncio.wait(others, timeout=seconds)
            for task in late:
                task.give_up()


@dataclass(frozen=True)
class LastResort:
    """Deletes sessions without an event loop: at interpreter exit, or when a client is collected after its loop has gone."""

    verify: ssl.SSLContext | bool
    cert: Any
    proxy: Any
    trust_env: bool
    auth: httpx.Auth | None

    def delete(self, requests: Iterable[httpx.Request]) -> None:
        """Sends the deletions, 16 at once, for at most 10 s in all."""
        left, skipped = deque(requests), deque[httpx.Request]()
        seconds = _LAST_RESORT_SECONDS / 4
        with httpx.Client(
            verify=self.verify, cert=self.cert, proxy=self.proxy, trust_env=self.trust_env, auth=self.auth, timeout=seconds
        ) as client:
            work = partial(_send_all, client, left, skipped, time.monotonic() + _LAST_RESORT_SECONDS)
            helpers = []
            for _ in range(min(_AT_ONCE, len(left)) - 1):
                with suppress(RuntimeError):  # the interpreter may be past the point where threads can begin
                    helper = threading.Thread(target=work, daemon=True)
                    helper.start()
                    helpers.append(helper)
            work()
            for helper in helpers:
                helper.join()
        if left or skipped:
            logger.warning("%d more sessions may be left on their servers until these time them out", len(left) + len(skipped))


def _send_all(client: httpx.Client, left: deque[httpx.Request], skipped: deque[httpx.Request], end: float) -> None:
    unreachable: set[bytes] = set()
    while time.monotonic() < end:
        try:
            request = left.popleft()
        except IndexError:
            return
        server = request.url.netloc
        if server in unreachable:
            skipped.append(request)
            continue
        try:
            status = client.send(request).status_code
        except Exception as error:  # of an authentication flow too: the next session is to be deleted all the same
            if isinstance(error, httpx.TransportError):
                unreachable.add(server)
            logger.warning("a session on %s could not be deleted: %s", server.decode("ascii"), type(error).__name__)
        else:
            if status not in DELETED:
                logger.warning("a session on %s was not deleted: HTTP %s", server.decode("ascii"), status)
