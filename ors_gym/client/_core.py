"""What all sessions of a client share: connections, servers, the sessions that are open, and how they are deleted."""

import asyncio
import logging
import os
import threading
import weakref
from concurrent.futures import CancelledError
from dataclasses import asdict, replace

import httpx
from multidict import CIMultiDict

from ors_gym.client._cleanup import DELETED, Cleanup, Cleanups, LastResort
from ors_gym.client._config import Retry, Timeout
from ors_gym.client._http import Http
from ors_gym.client._keepalive import Alive, Keepalive
from ors_gym.client._limits import Attempts
from ors_gym.client._live import Live
from ors_gym.client._messages import Answer, Broken, Call, Cookies
from ors_gym.client._servers import Server, Servers
from ors_gym.client._stats import Stats
from ors_gym.errors import ORSError, SessionClosed, SessionLost
from ors_gym.portal import at_exit
from ors_gym.secrets import Redactor

logger = logging.getLogger("ors_gym.client")

_PING_SECONDS = 10.0  # that a keepalive ping may take: others wait for their turn
_PING_AGAIN = 1.0  # seconds after which a keepalive ping that failed is tried again
_CLOSE_SECONDS = 30.0  # that deletions may take when the client is closed
_CREATE_GRACE = 5.0  # seconds that a `/create` of a cancelled caller may still take, until it is deleted unanswered
_EXIT_SECONDS = 10.0


class Core:
    """The state of a client; it outlives the client object until its sessions are deleted.

    Args:
        http: The connections.
        servers: The servers.
        headers: Prepared headers of every request.
        redactor: Knows the client's keys.
        keepalive: Seconds without traffic until a session is pinged; None never.
        max_sessions: How many sessions may be open at once; None is without limit.
        last_resort: Deletes sessions without a loop.
    """

    def __init__(
        self,
        *,
        http: Http,
        servers: Servers,
        headers: CIMultiDict[str],
        redactor: Redactor,
        keepalive: float | None,
        max_sessions: int | None,
        last_resort: LastResort,
    ) -> None:
        self.http = http
        self.servers = servers
        self.headers = headers
        self.redactor = redactor
        self.keepalive = Keepalive(keepalive, self._keep)
        self.cleanups = Cleanups()
        self.sessions: set[Live] = set()
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(max_sessions) if max_sessions is not None else None
        self._undeleted: list[Live] = []
        self._probes: set[asyncio.Task[None]] = set()
        self._last_resort = last_resort
        self._pid = os.getpid()
        _cores.add(self)

    # ── use ──

    def enter(self, what: str) -> None:
        """Every use begins here.

        Raises:
            SessionClosed: The client is closed, or was made before a fork.
            RuntimeError: The client belongs to another event loop.
        """
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            if self._pid != os.getpid():
                raise SessionClosed(f"{what}: this AsyncORSClient was made before a fork; make one in the child")
            if self.loop is not None:
                raise RuntimeError(f"{what}: this AsyncORSClient belongs to another event loop; make one for each loop")
            self.loop = loop
        if self.closed:
            raise SessionClosed(f"{what}: the client is closed")

    @property
    def in_own_process(self) -> bool:
        """False in a forked child, to which no session belongs."""
        return self._pid == os.getpid()

    def stats(self) -> Stats:
        """The counters as they are now."""
        return Stats(sessions_open=len(self.sessions), **asdict(self.http.counters))

    async def ask(self, method: str, path: str, content: bytes = b"") -> Answer:
        """An idempotent request of no session, to whichever server is least busy, by the policy of `Retry`."""
        self.enter(f"{method} /{path}")
        call = Call(method, self.pick_server(), path, self.headers, self.http.timeout, self.redactor, content)
        return await self.http.request(call, elsewhere=self._elsewhere)

    def _elsewhere(self, call: Call) -> None:
        call.server = self.pick_server(avoid=call.server)

    def pick_server(self, avoid: Server | None = None) -> Server:
        """The server for the next request or session; servers that are down are asked, meanwhile, whether they are back.

        Args:
            avoid: The one that has just refused.
        """
        for server in self.servers.due_for_probe():
            task = asyncio.get_running_loop().create_task(self._probe(server))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)
        return self.servers.pick(avoid)

    async def _probe(self, server: Server) -> None:
        call = Call("GET", server, "health", self.headers, self.http.timeout, self.redactor)
        try:
            healthy = (await self.http.exchange(call)).status == 200
        except (Broken, ORSError) as error:
            logger.debug("still down: %s", error)
            healthy = False
        if healthy:
            server.is_back()
        else:
            server.went_down()

    # ── sessions ──

    async def take_slot(self) -> None:
        """Waits until one more session may be open."""
        if self._slots is not None:
            await self._slots.acquire()
            if self.closed:
                self._slots.release()
                raise SessionClosed("the client was closed while a session waited for its turn")

    def free_slot(self) -> None:
        """One session less is open."""
        if self._slots is not None:
            self._slots.release()

    def adopt(self, sid: str, server: Server, env_name: str, timeout: Timeout, redactor: Redactor, cookies: Cookies | None) -> Live:
        """From here on the session is kept alive, and deleted however this ends."""
        headers = self.headers.copy()
        headers["X-Session-ID"] = sid
        live = Live(sid, server, env_name, headers, timeout, redactor, cookies)
        self.sessions.add(live)
        self.keepalive.add(live)
        server.sessions += 1
        return live

    def release(self, live: Live) -> bool:
        """Takes a session out; who gets True has to delete it, and nobody else does."""
        if live not in self.sessions:
            return False
        self.sessions.discard(live)
        self.keepalive.remove(live)
        live.open = False
        live.server.sessions -= 1
        return True

    async def delete(self, live: Live) -> None:
        """Deletes a session, once, even if the caller is cancelled meanwhile."""
        if not self.in_own_process or not self.release(live):
            return
        if self.loop is not None and self.loop.is_closed():
            await asyncio.to_thread(self._last_resort.delete, [_plain_deletion(live)])
        else:
            await self.cleanups.start(self._delete(live)).ended()

    async def _delete(self, live: Live) -> None:
        creation = live.creation
        if creation is not None and not creation.done():
            creation.get_loop().call_later(_CREATE_GRACE, creation.give_up)
            await creation.ended()
            if not creation.cancelled():
                creation.exception()  # nobody else asks for it
        try:
            attempts = Attempts(self.http.retry, patience=self.http.retry.total)
            answer = await self.http.request(live.call("POST", "delete"), attempts=attempts)
        except ORSError as error:
            self._not_deleted(live, str(error))
        except asyncio.CancelledError:
            self._not_deleted(live, f"no answer within {_CLOSE_SECONDS} s")
            raise
        else:
            if answer.status not in DELETED:
                self._not_deleted(live, str(answer.error()))

    def _not_deleted(self, live: Live, reason: str) -> None:
        self._undeleted.append(live)
        del self._undeleted[:-1000]
        logger.warning("session %s may be left on its server until that times it out: %s", live.sid, reason)

    async def _keep(self, session: Alive) -> None:
        """Pings a session; a ping that fails is tried once more, and the next one comes at its time."""
        assert isinstance(session, Live)
        timeout = replace(session.timeout, request=min(_PING_SECONDS, session.timeout.request or _PING_SECONDS))
        for last in (False, True):
            try:
                answer = await self.ping(session, Attempts(Retry(attempts=1), patience=0.0), timeout)
                if answer.status in (404, 410):
                    self.lost(session, f"a ping was answered with HTTP {answer.status}: {answer.words()}")
                if answer.status in (200, 404, 410):
                    return
            except ORSError as error:
                logger.info("keepalive: %s", error)
            if not last:
                await asyncio.sleep(_PING_AGAIN)

    async def ping(self, live: Live, attempts: Attempts | None = None, timeout: Timeout | None = None) -> Answer:
        """Asks the server whether it has the session; 404 and 410 mean that it is gone."""
        call = live.call("POST", "ping")
        call.timeout = timeout or call.timeout
        return await self.http.request(call, attempts=attempts)

    async def is_alive(self, live: Live) -> bool:
        """Whether the server has the session."""
        idle = live.idle
        alive = (await self.ping(live)).status == 200
        live.idle = idle  # the ping asks about the request before it
        return alive

    def lost(self, live: Live, reason: str) -> SessionLost | SessionClosed:
        """The error of a session that is gone, which is noted on it and counted once. It is none if it was deleted meanwhile."""
        if not live.open:
            return SessionClosed(f"{live.describe()} was closed meanwhile: {reason}", session_id=live.sid)
        if not live.gone:
            self.http.counters.losses += 1
        live.gone = reason
        message = f"{live.describe()} is gone: {reason}; it had been idle for {live.idle:.0f} s"
        return SessionLost(message, session_id=live.sid, detail=reason)

    # ── the end ──

    async def aclose(self) -> None:
        """Deletes the sessions that are open and closes the connections: on its own loop, or without one if that is closed.

        Raises:
            RuntimeError: The client belongs to another event loop, which stands still and may run again.
        """
        if self.closed or not self.in_own_process:
            return
        if self.loop is None or self.loop is asyncio.get_running_loop():
            await self._begin_closing().ended()
        elif self.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.aclose(), self.loop))
        elif self.loop.is_closed():
            self.closed = True
            await asyncio.to_thread(self.delete_without_loop)
            await self.http.aclose()
        else:
            raise RuntimeError("aclose: this AsyncORSClient belongs to another event loop, which does not run now; close it there")

    def _begin_closing(self) -> Cleanup[None]:
        self.closed = True
        self.keepalive.close()
        self.free_slot()
        for probe in self._probes:
            probe.cancel()
        again, self._undeleted = self._undeleted, []
        for live in [*again, *(live for live in list(self.sessions) if self.release(live))]:
            self.cleanups.start(self._delete(live))
        return self.cleanups.start(self._close_connections())

    async def _close_connections(self) -> None:
        await self.cleanups.finish_others(_CLOSE_SECONDS)
        await self.http.aclose()

    def collected(self) -> int:
        """The client object is gone without having been closed. Returns the number of sessions that it left open."""
        if self.closed or not self.in_own_process:
            return 0
        left = len(self.sessions)
        if self.loop is not None and self.loop.is_running():
            self.loop.call_soon_threadsafe(self._begin_closing)
        elif left:
            threading.Thread(target=self.delete_without_loop, name="ors-gym-cleanup").start()
        return left

    def exit(self) -> None:
        """The interpreter exits: deletes what is open, on the client's loop if another thread runs it, then without one."""
        if not self.in_own_process:
            return
        if self.loop is not None and self.loop.is_running() and not self.closed:
            closing = asyncio.run_coroutine_threadsafe(self.aclose(), self.loop)
            try:
                closing.result(timeout=_EXIT_SECONDS)
            except (TimeoutError, CancelledError):
                logger.warning("closing an ORS client at exit took longer than %s s", _EXIT_SECONDS)
        self.delete_without_loop()

    def delete_without_loop(self) -> None:
        """Deletes what is left by plain blocking requests."""
        left = self._undeleted + [live for live in list(self.sessions) if self.release(live)]
        self._undeleted = []
        if left:
            self._last_resort.delete([_plain_deletion(live) for live in left])


def _plain_deletion(live: Live) -> httpx.Request:
    call = live.call("POST", "delete")
    url = live.server.url(call.path)
    return httpx.Request(call.method, url, headers=list(call.headers_for(url).items()))


_cores: "weakref.WeakSet[Core]" = weakref.WeakSet()
_inherited: list[Core] = []


def _at_exit() -> None:
    for core in list(_cores):
        core.exit()


def _after_fork_in_child() -> None:
    """The parent's connections are never closed here: a TLS farewell of the child would end them for the parent."""
    _inherited.extend(_cores)


at_exit(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
