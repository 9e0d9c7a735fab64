"""How fast requests begin."""

import asyncio
from collections import deque

_AT_ONCE = 16
_PER_SECOND = 2_000  # a fifth of what a loop can do that does nothing else


class Pace:
    """At most 16 requests begin in one iteration of the event loop; the others wait for the next ones, in their order.

    Of a thousand that begin at once, none is answered until all are sent: whatever else runs on the loop stands still meanwhile,
    and Python's garbage collector looks again and again through what they are made of. Begun a few at a time, the first are
    answered and freed while the last begin, for a quarter less CPU in all. It is no limit on how many are in flight: an
    iteration takes a millisecond. After one that took long, because of what else runs on the loop, more may begin.
    """

    def __init__(self) -> None:
        self._left = 0
        self._since = 0.0
        self._armed = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Waits until one more request may begin."""
        loop = asyncio.get_running_loop()
        if not self._armed:
            self._arm(loop, _AT_ONCE)
        if self._left:
            self._left -= 1
        else:
            self._waiting.append(turn := loop.create_future())
            await turn

    def _arm(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        loop.call_soon(self._next_iteration, loop)
        self._armed, self._left, self._since = True, left, loop.time()

    def _next_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = False
        if not self._waiting:
            return
        self._arm(loop, max(_AT_ONCE, int(_PER_SECOND * (loop.time() - self._since))))
        while self._waiting and self._left:
            turn = self._waiting[0]
            if not turn.done():  # it is, if who waited was cancelled
                turn.set_result(None)
                self._left -= 1
            self._waiting.popleft()  # only now: Ctrl-C may come in between
