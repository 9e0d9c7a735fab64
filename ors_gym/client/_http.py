"""HTTP as this client needs it: requests that are handed straight to httpx's aiohttp transport, and what came of them.

httpx builds the configuration once: proxies, TLS, environment variables, authentication flows. Its own `send` is left out: it
costs as much as all the rest, and an ORS episode is five small requests. What is kept of its duties is here: redirects on the
same origin, cookies, authentication, limits.
"""

import asyncio
import errno
import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import aiohttp
import httpx
import httpx_aiohttp
from pydantic import TypeAdapter

from ors_gym.client._config import Retry, Timeout
from ors_gym.client._json import BadPayload, decode, parse
from ors_gym.client._limits import Attempts, Limit, retry_after, time_exceeded
from ors_gym.client._servers import Server
from ors_gym.client._stats import Counters, Event, EventHook, RequestTrace, fire
from ors_gym.errors import (
    ConnectionFailed,
    NotFound,
    ORSError,
    ProtocolError,
    RequestRejected,
    ServerError,
    SessionClosed,
    SessionLost,
)
from ors_gym.secrets import Redactor

logger = logging.getLogger("ors_gym.client")
T = TypeVar("T")

# Below the 5 s after which common servers close an idle connection: a tool call that meets the closing is lost for good.
_IDLE_CONNECTION = 4.0
_MAX_REDIRECTS = 5
_MAX_COOKIES = 50
_MAX_WORDS = 2000
_RETRIED = frozenset({429, 502, 503, 504})


@dataclass(slots=True)
class Call:
    """A request to one server.

    Attributes:
        method: The HTTP method.
        server: Where it goes.
        path: Below the server's base URL, quoted.
        headers: Prepared headers, shared and never changed.
        content: The body.
        session_id: The session that it is about, if any.
        cookies: The cookies of its session, if any: sent, and set by the answer.
        redactor: Knows what must not appear in a message.
    """

    method: str
    server: Server
    path: str
    headers: httpx.Headers
    redactor: Redactor
    content: bytes = b""
    session_id: str | None = None
    cookies: httpx.Cookies | None = None

    def describe(self) -> str:
        """The request in words, for a message."""
        session = f" (session {self.session_id})" if self.session_id else ""
        return self.redactor.redact(f"{self.method} {self.server.url(self.path)}{session}")


class Broken(Exception):
    """An attempt that brought no whole answer.

    Attributes:
        sent: Whether a byte of the request may have reached the server.
        error: The error to raise if nobody tries again.
        retryable: Whether another attempt may end better.
    """

    def __init__(self, error: ORSError, *, sent: bool, retryable: bool = True) -> None:
        super().__init__(str(error))
        self.error, self.sent, self.retryable = error, sent, retryable


@dataclass(slots=True)
class Reply:
    """An answer whose body is still to be read. `aclose` it."""

    call: Call
    status: int
    headers: httpx.Headers
    response: httpx.Response
    http: "Http"
    started_at: float
    received: int = 0
    error: str = ""

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes.

        Raises:
            ProtocolError: It is longer than `max_response_bytes`.
            Broken: The connection broke.
        """
        stream: Any = self.response.stream
        try:
            async for chunk in stream:
                self.received += len(chunk)
                self.http.counters.bytes_received += len(chunk)
                if self.received > self.http.max_response_bytes:
                    raise self.broken_standard(f"the response is longer than max_response_bytes={self.http.max_response_bytes}")
                yield chunk
        except (httpx.HTTPError, aiohttp.ClientError, OSError, RuntimeError) as error:
            broken = self.http.classify(self.call, error)
            self.error = str(broken)
            raise broken from error

    async def read(self) -> bytes:
        """The whole body. Raises what `chunks` raises."""
        return b"".join([chunk async for chunk in self.chunks()])

    def broken_standard(self, problem: str) -> ProtocolError:
        """The error of an answer that is not what the standard says."""
        error = _broken_standard(self, problem)
        self.error = str(error)
        return error

    async def aclose(self) -> None:
        """Gives the connection back, or closes it if the body was not read to its end."""
        http = self.http
        http.counters.in_flight -= 1
        if hooks := http.hooks.get("response"):
            http.fire(hooks, self.call, self.started_at, status=self.status, received=self.received, error=self.error)
        stream: Any = self.response.stream
        await stream.aclose()


@dataclass(slots=True)
class Answer:
    """An answer with its body."""

    call: Call
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def starting(self) -> bool:
        """Whether it says that the session is still being set up."""
        return self.status == 503 and self.headers.get("x-backend-state", "").lower() == "starting"

    def decode(self, adapter: TypeAdapter[T]) -> T:
        """The body, validated.

        Raises:
            ProtocolError: It is not what the standard says.
        """
        try:
            return decode(adapter, self.body)
        except BadPayload as problem:
            raise self.broken_standard(str(problem)) from None

    def words(self) -> str:
        """The server's own words about what went wrong, redacted and shortened."""
        try:
            body = parse(self.body)
        except BadPayload:
            body = self.body[: 4 * _MAX_WORDS].decode("utf-8", "replace")
        detail = body.get("detail", body.get("error", body)) if isinstance(body, dict) else body
        if isinstance(detail, list):
            detail = "; ".join(_problem(problem) for problem in detail)
        return shorten(self.call.redactor.redact(detail if isinstance(detail, str) else repr(detail)))

    def broken_standard(self, problem: str) -> ProtocolError:
        """The error of an answer that is not what the standard says."""
        return _broken_standard(self, problem)

    def refuses_field(self, name: str) -> bool:
        """Whether it is a refusal of a field in the body."""
        try:
            body = parse(self.body)
        except BadPayload:
            return False
        detail = body.get("detail") if isinstance(body, dict) else None
        problems = detail if isinstance(detail, list) else []
        return self.status in (400, 422) and any(
            isinstance(problem, dict) and problem.get("loc") == ["body", name] for problem in problems
        )

    def error(self, *, about_session: bool = True) -> ORSError:
        """The error of a status that is not 2xx and has no meaning of its own for the caller.

        Args:
            about_session: Whether a 404 or 410 means that the session is gone.
        """
        words = self.words()
        message = f"{self.call.describe()}: HTTP {self.status}" + (f": {words}" if words else "")
        kind: type[ORSError] = ServerError
        if about_session and self.call.session_id and self.status in (404, 410):
            kind = SessionLost
        elif self.status == 404:
            kind = NotFound
        elif self.status in (408, 425, 429) or self.status >= 500:
            kind = ServerError
        elif self.status >= 400:
            kind = RequestRejected
        else:
            kind = ProtocolError
        return kind(message, session_id=self.call.session_id, status=self.status, detail=words, url=str(self.call.server.base_url))


def _broken_standard(answer: Reply | Answer, problem: str) -> ProtocolError:
    call = answer.call
    message = f"{call.describe()}: {call.redactor.redact(problem)}"
    if encoding := answer.headers.get("content-encoding"):
        message += f" (it has content-encoding {shorten(encoding, 50)!r}, which was not asked for)"
    return ProtocolError(message, session_id=call.session_id, status=answer.status)


def shorten(text: str, length: int = _MAX_WORDS) -> str:
    """`text`, cut where it is too long for a message."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"


def _problem(problem: Any) -> str:
    if isinstance(problem, dict) and isinstance(problem.get("msg"), str):
        where = problem.get("loc")
        return f"{'.'.join(map(str, where))}: {problem['msg']}" if isinstance(where, list) else problem["msg"]
    return repr(problem)


class Http:
    """The connections of a client, and the rules of one request.

    Args:
        auth: An `httpx.Auth` whose flow is driven on every request.
        timeout: The client's limits.
        retry: The client's policy.
        max_response_bytes: The longest body that is read.
        hooks: Event hooks.
        counters: The client's counters.
        verify, cert, proxy, trust_env: As for `httpx.AsyncClient`.
    """

    def __init__(
        self,
        *,
        auth: httpx.Auth | None,
        timeout: Timeout,
        retry: Retry,
        max_response_bytes: int,
        hooks: Mapping[Event, tuple[EventHook, ...]],
        counters: Counters,
        verify: ssl.SSLContext | bool,
        cert: Any,
        proxy: Any,
        trust_env: bool,
    ) -> None:
        self._auth = auth
        self.timeout = timeout
        self.retry = retry
        self.max_response_bytes = max_response_bytes
        self.hooks = hooks
        self.counters = counters
        self.closed = False
        if verify is True and cert is None:
            verify = _default_tls(*(os.environ.get(name) if trust_env else None for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        self._configuration = _Configuration(verify=verify, cert=cert, proxy=proxy, trust_env=trust_env)

    async def aclose(self) -> None:
        """Closes the connections."""
        self.closed = True
        await self._configuration.aclose()

    async def send(self, call: Call, *, silence: float | None) -> Reply:
        """Sends a request once, redirects on its own origin included.

        Args:
            call: The request.
            silence: Seconds without a byte after which the connection counts as broken.

        Raises:
            Broken: No answer came.
            ProtocolError: It was redirected to another origin, or endlessly.
        """
        if self.closed:
            raise SessionClosed(f"{call.describe()}: the client is closed")
        started_at = time.monotonic()
        if hooks := self.hooks.get("request"):
            self.fire(hooks, call, started_at)
        counters = self.counters
        counters.requests += 1
        counters.in_flight += 1
        counters.bytes_sent += len(call.content)
        error = ""
        try:
            response = await self._follow(call, silence)
            return Reply(call, response.status_code, response.headers, response, self, started_at)
        except ORSError as failure:
            error = str(failure)
            raise
        except (httpx.HTTPError, aiohttp.ClientError, OSError, RuntimeError) as failure:
            broken = self.classify(call, failure)
            error = str(broken)
            raise broken from failure
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            if error:
                counters.in_flight -= 1
                if hooks := self.hooks.get("response"):
                    self.fire(hooks, call, started_at, error=error)

    async def exchange(self, call: Call, *, name: str = "request", seconds: float | None) -> Answer:
        """Sends a request once and reads its answer.

        Args:
            call: The request.
            name, seconds: The limit that it is under.

        Raises:
            TimeoutExceeded: It took longer.
            Broken: The connection failed.
            ProtocolError: The answer breaks the rules of HTTP or the limit on size.
        """
        async with Limit(name, seconds, call):
            reply = await self.send(call, silence=None)
            try:
                return Answer(call, reply.status, reply.headers, await reply.read())
            finally:
                await reply.aclose()

    async def request(
        self, make: Callable[[], Call], *, name: str = "request", seconds: float | None, retry: Retry | None = None
    ) -> Answer:
        """Sends an idempotent request until it is answered, by the policy of `Retry`.

        Args:
            make: Builds the request, each time anew: another attempt may go to another server.
            name, seconds: The limit that each attempt is under.
            retry: The policy, if not the client's.

        Returns:
            The answer, of any status that is not retried.

        Raises:
            ORSError: What is left after the last attempt.
        """
        attempts = Attempts(retry or self.retry, self.timeout.setup)
        while True:
            answer = await self.attempt(make(), attempts, name=name, seconds=seconds)
            if answer is not None:
                return answer

    async def attempt(
        self, call: Call, attempts: Attempts, *, name: str = "request", seconds: float | None, patient: bool = False
    ) -> Answer | None:
        """One attempt of an idempotent request, and the pause after it if there is to be another.

        Args:
            call: The request.
            attempts: Where it is on its way through a `Retry`.
            name, seconds: The limit that it is under.
            patient: A 429 is waited out like a session that is starting.

        Returns:
            The answer, or None if another attempt is due now.

        Raises:
            ORSError: There is to be no further attempt.
        """
        try:
            answer = await self.exchange(call, name=name, seconds=seconds)
        except Broken as broken:
            call.server.went_down()
            if not broken.retryable:
                raise broken.error from broken.__cause__
            await attempts.pause(broken.error)
        else:
            if answer.status not in _RETRIED:
                call.server.is_back()
                return answer
            refused = answer.starting or answer.status == 429
            if not refused:
                call.server.went_down()
            asked_to_wait = answer.starting or (patient and refused)
            await attempts.pause(answer.error(), retry_after=retry_after(answer.headers), asked_to_wait=asked_to_wait)
        self.counters.retries += 1
        return None

    async def _follow(self, call: Call, silence: float | None) -> httpx.Response:
        url, cookies = call.server.url(call.path), call.cookies
        timeouts = {"connect": self.timeout.connect, "read": silence, "pool": None}
        for _ in range(_MAX_REDIRECTS):
            request = httpx.Request(
                call.method, url, headers=call.headers, stream=httpx.ByteStream(call.content), extensions={"timeout": timeouts}
            )
            request.headers.encoding = "ascii"  # or httpx finds it out, at a cost, for each request
            request.read()
            if cookies:
                cookies.set_cookie_header(request)
            response = await (self._transfer(request) if self._auth is None else self._authenticated(request, self._auth))
            if cookies is not None and "set-cookie" in response.headers and len(cookies.jar) < _MAX_COOKIES:
                cookies.extract_cookies(response)
            if not 300 <= response.status_code < 400 or "location" not in response.headers:
                return response
            await _drain(response)
            url = self._redirected(call, url, response)
        raise ProtocolError(f"{call.describe()}: redirected more than {_MAX_REDIRECTS} times", session_id=call.session_id)

    async def _transfer(self, request: httpx.Request) -> httpx.Response:
        response = await self._configuration.transport_for(request.url).handle_async_request(request)
        response.request = request
        response.headers.encoding = "latin-1"
        return response

    def _redirected(self, call: Call, url: httpx.URL, response: httpx.Response) -> httpx.URL:
        if response.status_code not in (307, 308) and call.method != "GET":
            problem = f"a {response.status_code} redirect, which would turn a POST into a GET"
        else:
            try:
                target = url.join(response.headers["location"]).copy_with(username=None, password=None, fragment=None)
                if _origin(target) == _origin(url):
                    return target
                problem = f"a redirect to another origin ({target.scheme}://{target.netloc.decode('ascii')}) is refused"
            except (httpx.InvalidURL, ValueError, TypeError):
                problem = "a redirect to something that is no URL"
        raise ProtocolError(
            f"{call.describe()}: {call.redactor.redact(problem)}; use the URL that the server itself wants as base_url",
            session_id=call.session_id,
            status=response.status_code,
        )

    async def _authenticated(self, request: httpx.Request, auth: httpx.Auth) -> httpx.Response:
        flow = auth.async_auth_flow(request)
        try:
            request = await anext(flow)
            while True:
                response = await self._transfer(request)
                if auth.requires_response_body:
                    response = await self._with_body(response)
                try:
                    request = await flow.asend(response)
                except StopAsyncIteration:
                    return response
                await _drain(response)
        finally:
            await flow.aclose()

    async def _with_body(self, response: httpx.Response) -> httpx.Response:
        stream: Any = response.stream
        body = bytearray()
        async for chunk in stream:
            body += chunk
            if len(body) > self.max_response_bytes:
                await stream.aclose()
                raise ProtocolError(
                    f"{response.request.url}: the response is longer than max_response_bytes={self.max_response_bytes}"
                )
        await stream.aclose()
        return httpx.Response(response.status_code, headers=response.headers, content=bytes(body), request=response.request)

    def fire(
        self,
        hooks: tuple[EventHook, ...],
        call: Call,
        started_at: float,
        *,
        status: int | None = None,
        received: int = 0,
        error: str = "",
    ) -> None:
        """Calls event hooks with the trace of a request."""
        url = call.redactor.redact(str(call.server.url(call.path)))
        elapsed = time.monotonic() - started_at
        fire(hooks, RequestTrace(call.method, url, call.session_id, len(call.content), status, received, elapsed, error))

    def classify(self, call: Call, failure: Exception) -> Broken:
        """What a failure of the transport means. The transport's own classes do not tell whether the request was sent."""
        cause = failure.__cause__ if isinstance(failure, httpx.HTTPError) and failure.__cause__ else failure
        what = call.describe()
        reason = shorten(call.redactor.redact(str(cause) or type(cause).__name__), 200)

        def broken(words: str, *, sent: bool, retryable: bool = True, kind: type[ORSError] = ConnectionFailed) -> Broken:
            return Broken(kind(f"{what}: {words}", session_id=call.session_id), sent=sent, retryable=retryable)

        if self.closed:
            return broken("the client was closed meanwhile", sent=True, retryable=False, kind=SessionClosed)
        if isinstance(cause, OSError) and _errno(cause) in (errno.EMFILE, errno.ENFILE):
            advice = "no file descriptor is left for another connection; raise the limit (`ulimit -n`) or lower max_sessions"
            return broken(advice, sent=False, retryable=False)
        match cause:
            case aiohttp.ConnectionTimeoutError():
                return Broken(time_exceeded("connect", self.timeout.connect, call), sent=False)
            case aiohttp.SocketTimeoutError():
                return broken("the connection went silent", sent=True)
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                return broken(f"no TLS connection: {reason}", sent=False, retryable=False)
            case aiohttp.ClientConnectorError():
                return broken(f"cannot connect: {reason}", sent=False)
            case aiohttp.ClientHttpProxyError():
                return broken(f"the proxy answered HTTP {cause.status}", sent=False, retryable=False)
            case aiohttp.ClientResponseError():
                return broken(f"not an HTTP answer: {reason}", sent=True, retryable=False, kind=ProtocolError)
            case aiohttp.InvalidURL():
                return broken("not a URL that can be asked", sent=False, retryable=False)
        return broken(f"the connection broke: {reason}", sent=True)


class _Configuration(httpx_aiohttp.HttpxAiohttpClient):
    """httpx's configuration with aiohttp's connections: proxies by URL, TLS, environment variables."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for transport in (self._transport, *self._mounts.values()):
            if isinstance(transport, httpx_aiohttp.AiohttpTransport):
                transport.client = partial(_connections, transport.ssl_context)

    def transport_for(self, url: httpx.URL) -> httpx.AsyncBaseTransport:
        """The transport of a URL: the plain one, or that of a proxy."""
        return self._transport_for_url(url) if self._mounts else self._transport


def _connections(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    """aiohttp's connections without a limit, and without its cookies: those belong to a session here."""
    connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=_IDLE_CONNECTION)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


@cache
def _default_tls(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    """httpx's own context, which takes 20 ms to make, once for each pair of environment variables that it depends on."""
    return httpx.create_ssl_context(trust_env=bool(cert_file or cert_dir))


async def _drain(response: httpx.Response, limit: int = 65536) -> None:
    """Reads a short rest, so that the connection can be used again, and gives it back or closes it."""
    stream: Any = response.stream
    try:
        async with asyncio.timeout(1.0):
            async for chunk in stream:
                limit -= len(chunk)
                if limit < 0:
                    break
    except TimeoutError:
        logger.debug("an answer's rest did not come; its connection is closed")
    finally:
        await stream.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _errno(error: OSError) -> int | None:
    return error.errno if error.errno is not None else _errno(error.__cause__) if isinstance(error.__cause__, OSError) else None
