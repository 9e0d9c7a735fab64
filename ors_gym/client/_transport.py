"""httpx's configuration on aiohttp's connections: proxies, TLS and environment variables, and what a failure of them means."""

import asyncio
import errno
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Protocol, cast

import aiohttp
import httpx
import httpx_aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from multidict import MultiMapping

from ors_gym.client._limits import limited, time_exceeded
from ors_gym.client._messages import TRANSPORT_ERRORS, Broken, Call, shorten
from ors_gym.errors import ConnectionFailed, ORSError, ProtocolError

logger = logging.getLogger("ors_gym.client")

# Below the 5 s after which common servers close an idle connection: a tool call that meets the closing is lost for good.
_IDLE_CONNECTION = 4.0
_NO_DESCRIPTOR = "no file descriptor is left for another connection; raise the limit (`ulimit -n`) or lower max_sessions"


class Received(Protocol):
    """An answer whose body is still to be read."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> MultiMapping[str]:
        """Its headers, by names of any case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""

    def close(self) -> None:
        """Closes the connection at once: whoever reads gets an error."""

    async def aclose(self) -> None:
        """Gives the connection back, or closes it if the body was not read to its end."""


class _Received(aiohttp.ClientResponse):
    """`Received` as aiohttp makes it."""

    def chunks(self) -> AsyncIterator[bytes]:
        return self.content.iter_any()

    async def aclose(self) -> None:
        await self.__aexit__(None, None, None)


class Body(httpx.AsyncByteStream):
    """The body of an answer as httpx wants it.

    Args:
        received: The answer.
        max_bytes: The longest that is read.

    Attributes:
        pieces: What was read.
    """

    def __init__(self, received: Received, max_bytes: int) -> None:
        self._received, self._max_bytes = received, max_bytes
        self.pieces: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        async for chunk in self._received.chunks():
            left -= len(chunk)
            if left < 0:
                raise ProtocolError(f"an answer to be authenticated is longer than max_response_bytes={self._max_bytes}")
            self.pieces.append(chunk)
            yield chunk


@dataclass
class WasRead:
    """`Received` whose body, or its beginning, somebody has read already."""

    received: Received
    pieces: list[bytes]

    @property
    def status(self) -> int:
        return self.received.status

    @property
    def headers(self) -> MultiMapping[str]:
        return self.received.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        async for chunk in self.received.chunks():
            yield chunk

    def close(self) -> None:
        self.received.close()

    async def aclose(self) -> None:
        await self.received.aclose()


def as_sent(received: Received) -> list[tuple[bytes, bytes]]:
    """An answer's headers as their bytes came: aiohttp has decoded them, and keeps what is not UTF-8 as surrogates.

    A Content-Encoding, which was not asked for, is left out: nobody is to unpack what may be of any size.
    """
    headers = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in received.headers.items()]
    return [(name, value) for name, value in headers if name.lower() != b"content-encoding"]


class Transport(httpx_aiohttp.HttpxAiohttpClient):
    """The configuration, built once. Requests go straight to aiohttp, as the transport for their origin is configured.

    httpx's own requests and answers are left out: a thousand requests in flight are as many objects fewer for each object in
    between, and Python's garbage collector pays for every one of them.

    Args:
        verify, cert, proxy, trust_env: As for `httpx.AsyncClient`.
        max_response_bytes: The longest body that is read.
    """

    def __init__(self, *, verify: ssl.SSLContext | bool, cert: Any, proxy: Any, trust_env: bool, max_response_bytes: int) -> None:
        if verify is True and cert is None:
            verify = _default_tls(*(os.environ.get(name) if trust_env else None for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        super().__init__(verify=verify, cert=cert, proxy=proxy, trust_env=trust_env)
        self._max_response_bytes = max_response_bytes
        self._routes: dict[str, tuple[aiohttp.ClientSession, dict[str, Any]]] = {}

    def transfer(
        self, origin: str, method: str, url: str, headers: MultiMapping[str], content: bytes, limits: aiohttp.ClientTimeout
    ) -> Awaitable[Received]:
        """Sends a request. Its errors are aiohttp's own.

        Args:
            origin: A URL of the origin, always the same one, by which the way there is remembered.
            method, url, headers, content: The request.
            limits: Those that aiohttp keeps, from `timeouts`.
        """
        route = self._routes.get(origin)
        if route is None:
            route = self._routes[origin] = self._route(origin)
        connections, proxy = route
        answer = connections.request(
            method, url, headers=headers, data=content or None, allow_redirects=False, timeout=limits, **proxy
        )
        return cast(Awaitable[_Received], answer)

    def is_direct(self, url: str) -> bool:
        """Whether requests to `url` go through no proxy."""
        return cast(httpx_aiohttp.AiohttpTransport, self._transport_for_url(httpx.URL(url))).proxy is None

    def _route(self, origin: str) -> tuple[aiohttp.ClientSession, dict[str, Any]]:
        """The connections for an origin, and the proxy that they go through, as arguments of a request."""
        transport = self._transport_for_url(httpx.URL(origin))
        assert isinstance(transport, httpx_aiohttp.AiohttpTransport)
        if not isinstance(transport.client, aiohttp.ClientSession):
            transport.client = _connections(transport.ssl_context, self._max_response_bytes)
        proxy = transport.proxy
        if proxy is None:
            return transport.client, {}
        credentials = aiohttp.BasicAuth(*proxy.auth) if proxy.auth else None
        return transport.client, {"proxy": str(proxy.url), "proxy_auth": credentials, "proxy_headers": proxy.headers}


@lru_cache
def timeouts(connect: float | None, silence: float | None) -> aiohttp.ClientTimeout:
    """The limits that aiohttp keeps: seconds to connect, and without a byte until the connection counts as broken."""
    return aiohttp.ClientTimeout(sock_connect=connect, sock_read=silence)


@dataclass(frozen=True)
class _Connecting:
    """What is limited while a connection is opened."""

    origin: str
    session_id = None

    def describe(self) -> str:
        return f"connecting to {self.origin}"


class _Endless(aiohttp.ClientPayloadError):
    """An answer that goes on and on."""


class _Protocol(ResponseHandler):
    """Ends an answer that goes on and on outside of what is counted as its body: interim answers, chunk extensions.

    Whoever reads an answer when its connection is closed gets an error; aiohttp's own forgets the reader before it is told.

    Args:
        loop: The event loop.
        max_response_bytes: The longest body. What it is wrapped in may be as long again, and a MiB more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_response_bytes: int) -> None:
        super().__init__(loop)
        self._most = self._left = 2 * max_response_bytes + 2**20

    def set_response_params(self, **options: Any) -> None:
        self._left = self._most
        super().set_response_params(**options)

    def close(self) -> None:
        self._tell_the_reader(aiohttp.ClientConnectionError("it was closed"))
        super().close()

    def abort(self) -> None:
        self._tell_the_reader(aiohttp.ClientConnectionError("it was closed"))
        super().abort()

    def _tell_the_reader(self, error: aiohttp.ClientError) -> None:
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(error)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left >= 0:
            super().data_received(data)
        elif self.transport is not None:
            endless = _Endless(f"it has more than {self._most} bytes, most of them not of its body")
            self.set_exception(endless)
            self._tell_the_reader(endless)
            self.transport.abort()


class _Connector(aiohttp.TCPConnector):
    """Keeps the limit on connecting, from the look-up of the name to the end of the TLS handshake, in a `Cleanup` too.

    aiohttp's own begins anew for each address of a host, and is an `asyncio.timeout`.
    """

    def __init__(self, max_response_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_Protocol, self._loop, max_response_bytes)  # type: ignore[assignment]  # partial is invariant

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        with limited("connect", timeout.sock_connect, _Connecting(str(req.url.origin()))):
            return await super()._create_connection(req, traces, aiohttp.ClientTimeout())


def _connections(tls: ssl.SSLContext, max_response_bytes: int) -> aiohttp.ClientSession:
    """aiohttp's connections without a limit, and without its cookies: those belong to a session here."""
    connector = _Connector(max_response_bytes, limit=0, ssl=tls, keepalive_timeout=_IDLE_CONNECTION)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), response_class=_Received, auto_decompress=False
    )


@cache
def _default_tls(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    """httpx's own context, which takes 20 ms to make, once for each pair of environment variables that it depends on."""
    return httpx.create_ssl_context(trust_env=bool(cert_file or cert_dir))


async def drain(received: Received, limit: int = 65536) -> None:
    """Reads a short rest, so that the connection can be used again, and gives it back or closes it.

    It takes a second at most, by a timer rather than `asyncio.timeout`, which cannot end a `Cleanup`.
    """
    timer = asyncio.get_running_loop().call_later(1.0, received.close)
    try:
        async for chunk in received.chunks():
            limit -= len(chunk)
            if limit < 0:
                break
    except TRANSPORT_ERRORS as error:
        logger.debug("an answer's rest did not come; its connection is closed: %r", error)
    finally:
        timer.cancel()
        await received.aclose()


def classify(call: Call, failure: Exception) -> Broken:
    """What a failure of the transport means."""
    what = call.describe()
    reason = shorten(call.redactor.redact(str(failure) or type(failure).__name__), 200)

    def broken(words: str, *, sent: bool, retryable: bool = True, kind: type[ORSError] = ConnectionFailed) -> Broken:
        return Broken(kind(f"{what}: {words}", session_id=call.session_id), sent=sent, retryable=retryable)

    if isinstance(failure, OSError) and _errno(failure) in (errno.EMFILE, errno.ENFILE):
        return broken(_NO_DESCRIPTOR, sent=False, retryable=False)
    match failure:
        case aiohttp.ConnectionTimeoutError():
            return Broken(time_exceeded("connect", call.timeout.connect, call), sent=False)
        case aiohttp.SocketTimeoutError():
            return broken("the connection went silent", sent=True)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return broken(f"no TLS connection: {reason}", sent=False, retryable=False)
        case aiohttp.ClientConnectorError():
            return broken(f"cannot connect: {reason}", sent=False)
        case aiohttp.ServerDisconnectedError():
            return broken("the connection broke: the server closed it", sent=True)
        case aiohttp.ClientHttpProxyError():
            return broken(f"the proxy answered HTTP {failure.status}", sent=False, retryable=False)
        case _Endless() | aiohttp.ClientResponseError():
            return broken(f"not an HTTP answer: {reason}", sent=True, retryable=False, kind=ProtocolError)
        case aiohttp.InvalidURL():
            return broken("not a URL that can be asked", sent=False, retryable=False)
    return broken(f"the connection broke: {reason}", sent=True)


def _errno(error: OSError) -> int | None:
    """The number of an error, or of the one that it was raised for."""
    if error.errno is None and isinstance(error.__cause__, OSError):
        return _errno(error.__cause__)
    return error.errno
