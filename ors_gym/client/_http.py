"""HTTP as this client needs it: one attempt of a request, and the policy of `Retry`.

httpx's own `send` is left out: it costs as much as all the rest, and an ORS episode is five small requests. What is kept of its
duties is here: redirects on the same origin, authentication, limits.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import httpx
from multidict import CIMultiDict

from ors_gym.client._config import Retry, Timeout
from ors_gym.client._limits import Attempts, limited, retry_after
from ors_gym.client._messages import TRANSPORT_ERRORS, Answer, Broken, Call, Reply
from ors_gym.client._pace import Pace
from ors_gym.client._stats import Counters, Event, EventHook, RequestTrace, fire
from ors_gym.client._transport import Body, Received, Transport, WasRead, as_sent, classify, drain, timeouts
from ors_gym.errors import ORSError, ProtocolError, SessionClosed, TimeoutExceeded

_MAX_REDIRECTS = 5
_RETRIED = frozenset({429, 502, 503, 504})


class Http:
    """The connections of a client, and the rules of one request.

    Args:
        transport: The connections.
        auth: An `httpx.Auth` whose flow is driven on every request.
        timeout: The client's limits.
        retry: The client's policy.
        max_response_bytes: The longest body that is read.
        hooks: Event hooks.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        auth: httpx.Auth | None,
        timeout: Timeout,
        retry: Retry,
        max_response_bytes: int,
        hooks: Mapping[Event, tuple[EventHook, ...]],
    ) -> None:
        self._transport = transport
        self._auth = auth
        self._hooks = hooks
        self._pace = Pace()
        self.timeout = timeout
        self.retry = retry
        self.max_response_bytes = max_response_bytes
        self.counters = Counters()
        self.closed = False

    async def aclose(self) -> None:
        """Closes the connections."""
        self.closed = True
        await self._transport.aclose()

    # ── one attempt ──

    async def send(self, call: Call, *, silence: float | None) -> Reply:
        """Sends a request once, redirects on its own origin included.

        Args:
            call: The request.
            silence: Seconds without a byte after which the connection counts as broken.

        Raises:
            Broken: No answer came.
            ProtocolError: It was redirected to another origin, or endlessly.
        """
        await self._pace.turn()
        if self.closed:
            raise SessionClosed(f"{call.describe()}: the client is closed")
        started_at = self._begun(call)
        url = call.server.url(call.path)
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                received = await self._transfer(call, url, silence)
                if call.cookies is not None:
                    call.cookies.take_from(received.headers, url)
                if not 300 <= received.status < 400 or "Location" not in received.headers:
                    return Reply(call, received, self, started_at)
                await drain(received)
                url = _redirected(call, url, received)
            raise ProtocolError(f"{call.describe()}: redirected more than {_MAX_REDIRECTS} times", session_id=call.session_id)
        except TRANSPORT_ERRORS as failure:
            broken = self.classify(call, failure)
            self.ended(call, started_at, error=str(broken))
            raise broken from None  # the failure itself may show the request's headers, or what the server sent
        except BaseException as failure:
            self.ended(call, started_at, error=str(failure) or type(failure).__name__)
            raise

    async def exchange(self, call: Call, *, limit: str = "request") -> Answer:
        """Sends a request once and reads its answer.

        Args:
            call: The request.
            limit: The name of the limit that it is under: "request", "setup", or "" for none.

        Raises:
            TimeoutExceeded: It took longer.
            Broken: The connection failed.
            ProtocolError: The answer breaks the rules of HTTP or the limit on size.
        """
        with limited(limit, getattr(call.timeout, limit) if limit else None, call):
            reply = await self.send(call, silence=None)
            try:
                return await reply.read()
            finally:
                await reply.aclose()

    def classify(self, call: Call, failure: Exception) -> Broken:
        """What a failure of the transport means."""
        if self.closed:
            error = SessionClosed(f"{call.describe()}: the client was closed meanwhile", session_id=call.session_id)
            return Broken(error, sent=True, retryable=False)
        return classify(call, failure)

    # ── as many as are needed ──

    async def request(
        self,
        call: Call,
        *,
        limit: str = "request",
        attempts: Attempts | None = None,
        patient: bool = False,
        elsewhere: Callable[[Call], None] | None = None,
    ) -> Answer:
        """Sends an idempotent request until it is answered, by the policy of `Retry`.

        Args:
            call: The request.
            limit: The name of the limit that each attempt is under.
            attempts: Where it is on its way through a `Retry`, if not at the beginning of the client's.
            patient: A 429 is waited out like a session that is starting.
            elsewhere: Sends the request to another server, if that is better now; called before each further attempt.

        Returns:
            The answer, of any status that is not retried.

        Raises:
            ORSError: What is left after the last attempt.
        """
        attempts = attempts or Attempts(self.retry, call.timeout.setup)
        while True:
            try:
                answer = await self.exchange(call, limit=limit)
            except TimeoutExceeded:
                call.server.went_down()
                raise
            except Broken as broken:
                if not broken.retryable:
                    raise broken.error from None
                call.server.went_down()
                await attempts.pause(broken.error)
            else:
                if answer.status not in _RETRIED:
                    call.server.is_back()
                    return answer
                refused_for_now = answer.starting or answer.status == 429
                if not refused_for_now:
                    call.server.went_down()
                asked_to_wait = answer.starting or (patient and refused_for_now)
                await attempts.pause(answer.error(), retry_after=retry_after(answer.headers), asked_to_wait=asked_to_wait)
            self.counters.retries += 1
            if elsewhere is not None:
                elsewhere(call)

    def _transfer(self, call: Call, url: str, silence: float | None) -> Awaitable[Received]:
        headers, limits = call.headers_for(url), timeouts(call.timeout.connect, silence)
        if self._auth is None:
            return self._transport.transfer(call.server.base_url, call.method, url, headers, call.content, limits)
        request = httpx.Request(call.method, url, headers=list(headers.items()), content=call.content)
        return self._authenticated(self._auth, request, limits)

    async def _authenticated(self, auth: httpx.Auth, request: httpx.Request, limits: aiohttp.ClientTimeout) -> Received:
        """Drives the flow of an `httpx.Auth`: it may look at an answer and ask for another request."""
        flow = auth.async_auth_flow(request)
        try:
            try:
                request = await anext(flow)
            except Exception as error:  # nothing was sent
                raise ProtocolError(f"{request.method} {request.url}: its authentication raised {type(error).__name__}") from error
            while True:
                if self.closed:
                    raise SessionClosed(f"{request.method} {request.url}: the client was closed meanwhile")
                url = request.url
                if "Authorization" in request.headers:
                    url = url.copy_with(userinfo=b"")  # aiohttp takes one or the other
                origin = str(url.copy_with(raw_path=b"/"))
                headers, content = CIMultiDict(request.headers.multi_items()), await request.aread()
                received = await self._transport.transfer(origin, request.method, str(url), headers, content, limits)
                body = Body(received, self.max_response_bytes)
                answer = httpx.Response(received.status, headers=as_sent(received), stream=body, request=request)
                try:
                    request = await flow.asend(answer)
                except StopAsyncIteration:
                    return WasRead(received, body.pieces)
                except BaseException as error:
                    await received.aclose()
                    if isinstance(error, Exception) and not isinstance(error, (*TRANSPORT_ERRORS, ORSError)):
                        raise RuntimeError(f"its authentication raised {type(error).__name__}") from error
                    raise
                await drain(received)
        finally:
            await flow.aclose()

    # ── counters and hooks ──

    def _begun(self, call: Call) -> float:
        counters = self.counters
        counters.requests += 1
        counters.in_flight += 1
        counters.bytes_sent += len(call.content)
        if call.on_send is not None:
            call.on_send()
        started_at = time.monotonic()
        if hooks := self._hooks.get("request"):
            fire(hooks, _trace(call, started_at))
        return started_at

    def ended(self, call: Call, started_at: float, *, status: int | None = None, length: int = 0, error: str = "") -> None:
        """A request has ended, with an answer or without."""
        self.counters.in_flight -= 1
        if hooks := self._hooks.get("response"):
            fire(hooks, _trace(call, started_at, status, length, error))


def _trace(call: Call, started_at: float, status: int | None = None, length: int = 0, error: str = "") -> RequestTrace:
    url = call.redactor.redact(call.server.url(call.path))
    elapsed = time.monotonic() - started_at
    return RequestTrace(call.method, url, call.session_id, len(call.content), status, length, elapsed, error)


def _redirected(call: Call, url: str, received: Received) -> str:
    """Where a redirect leads.

    Raises:
        ProtocolError: To another origin, to no URL, or to a GET of what was a POST.
    """
    if received.status not in (307, 308) and call.method != "GET":
        problem = f"a {received.status} redirect, which would turn a POST into a GET"
    else:
        try:
            origin = httpx.URL(url)
            target = origin.join(received.headers["Location"]).copy_with(username=None, password=None, fragment=None)
            if _origin(target) == _origin(origin):
                return str(target)
            problem = f"a redirect to another origin ({target.scheme}://{target.netloc.decode('ascii')}) is refused"
        except (httpx.InvalidURL, ValueError, TypeError):
            problem = "a redirect to something that is no URL"
    raise ProtocolError(
        f"{call.describe()}: {call.redactor.redact(problem)}; use the URL that the server itself wants as base_url",
        session_id=call.session_id,
        status=received.status,
    )


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)
