"""One scheduler for all sessions of a client: who has had no traffic is pinged."""

import asyncio
import heapq
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

_AT_ONCE = 64  # pings of one server


class Alive(Protocol):
    """A session as the scheduler sees it."""

    last_request: float
    """When a request with its id was last sent, by `time.monotonic`."""

    @property
    def server(self) -> Hashable:
        """The server that has it."""

    @property
    def kept(self) -> bool:
        """Whether it is to be kept alive."""


class Keepalive:
    """Pings each session that has had no request for `seconds`, less a random tenth so that pings spread out.

    Args:
        seconds: The longest silence; None pings nobody.
        ping: Pings a session; it raises nothing.
    """

    def __init__(self, seconds: float | None, ping: Callable[[Alive], Awaitable[None]]) -> None:
        self._seconds = seconds
        self._ping = ping
        self._due: list[tuple[float, int, Alive]] = []
        self._order = itertools.count()
        self._open = 0
        self._pinging: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._slots: defaultdict[Hashable, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE))

    def add(self, session: Alive) -> None:
        """Keeps a session from now until it is not open any more."""
        if self._seconds is not None:
            self._open += 1
            if len(self._due) > 2 * self._open + 64:
                self._due = [entry for entry in self._due if entry[2].kept]
                heapq.heapify(self._due)
            self._push(session)
            self._arm()

    def remove(self, session: Alive) -> None:
        """Forgets a session, which is not open any more."""
        self._open -= 1

    def close(self) -> None:
        """Pings nobody any more."""
        self._seconds = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._pinging:
            task.cancel()
        self._due.clear()

    def _push(self, session: Alive) -> None:
        assert self._seconds is not None
        due = session.last_request + self._seconds * random.uniform(0.9, 1.0)
        heapq.heappush(self._due, (due, next(self._order), session))

    def _arm(self) -> None:
        """Sets the timer for the session that is due first; a timer that is set for earlier stays."""
        if not self._due:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + max(self._due[0][0] - time.monotonic(), 0.0)
        if self._timer is None or self._timer.cancelled() or self._timer.when() > at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            session = heapq.heappop(self._due)[2]
            if not session.kept or self._seconds is None:
                continue
            if session.last_request + 0.9 * self._seconds > now:
                self._push(session)
            else:
                task = asyncio.get_running_loop().create_task(self._keep(session))
                self._pinging.add(task)
                task.add_done_callback(self._pinging.discard)
        self._arm()

    async def _keep(self, session: Alive) -> None:
        async with self._slots[session.server]:  # one that hangs holds up nobody else's
            await self._ping(session)
        if session.kept and self._seconds is not None:
            self._push(session)
            self._arm()
