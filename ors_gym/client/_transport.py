"""httpx's configuration on aiohttp's connections: proxies, TLS and environment variables, and what a failure of them means."""

import asyncio
import errno
import logging
import os
import ssl
from collections.abc import AsyncIterator
from functools import cache, partial
from typing import Any

import aiohttp
import httpx
import httpx_aiohttp

from ors_gym.client._limits import time_exceeded
from ors_gym.client._messages import Broken, Call, shorten
from ors_gym.errors import ConnectionFailed, ORSError, ProtocolError

logger = logging.getLogger("ors_gym.client")

# Below the 5 s after which common servers close an idle connection: a tool call that meets the closing is lost for good.
_IDLE_CONNECTION = 4.0
_NO_DESCRIPTOR = "no file descriptor is left for another connection; raise the limit (`ulimit -n`) or lower max_sessions"


class Transport(httpx_aiohttp.HttpxAiohttpClient):
    """The configuration, built once. Requests go straight to the transport that it has for their origin.

    Args:
        verify, cert, proxy, trust_env: As for `httpx.AsyncClient`.
    """

    def __init__(self, *, verify: ssl.SSLContext | bool, cert: Any, proxy: Any, trust_env: bool) -> None:
        if verify is True and cert is None:
            verify = _default_tls(*(os.environ.get(name) if trust_env else None for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        super().__init__(verify=verify, cert=cert, proxy=proxy, trust_env=trust_env)
        self._by_origin: dict[tuple[str, bytes], httpx.AsyncBaseTransport] = {}
        for transport in (self._transport, *self._mounts.values()):
            if isinstance(transport, httpx_aiohttp.AiohttpTransport):
                transport.client = partial(_connections, transport.ssl_context)

    async def transfer(self, request: httpx.Request) -> httpx.Response:
        """Sends a request; its answer's body is still to be read, and its stream to be closed.

        What needs no proxy goes straight to aiohttp: a thousand requests in flight are as many objects fewer for each step in
        between, and Python's garbage collector pays for every one of them.
        """
        transport = self._transport if not self._mounts else self._for_origin(request.url)
        if isinstance(transport, httpx_aiohttp.AiohttpTransport) and transport.proxy is None:
            response = await _sent(transport, request)
        else:
            response = await transport.handle_async_request(request)
            response.request = request
        response.headers.encoding = "latin-1"
        return response

    def _for_origin(self, url: httpx.URL) -> httpx.AsyncBaseTransport:
        origin = url.scheme, url.netloc
        if origin not in self._by_origin:
            self._by_origin[origin] = self._transport_for_url(url)
        return self._by_origin[origin]


class _Body(httpx.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.content.iter_any()

    async def aclose(self) -> None:
        await self._answer.__aexit__(None, None, None)


async def _sent(transport: httpx_aiohttp.AiohttpTransport, request: httpx.Request) -> httpx.Response:
    """Sends a request over a transport's connections. Its errors are aiohttp's own."""
    if not isinstance(transport.client, aiohttp.ClientSession):
        transport.client = transport.get_client()
    timeout = request.extensions["timeout"]
    answer = await transport.client.request(
        request.method,
        str(request.url),
        headers=request.headers,
        data=request.content or None,
        allow_redirects=False,
        auto_decompress=False,
        compress=False,
        timeout=_timeouts(timeout["connect"], timeout["read"]),
    )
    return httpx.Response(answer.status, headers=answer.raw_headers, stream=_Body(answer), request=request)


@cache
def _timeouts(connect: float | None, silence: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=connect, sock_read=silence)


def _connections(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    """aiohttp's connections without a limit, and without its cookies: those belong to a session here."""
    connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=_IDLE_CONNECTION)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


@cache
def _default_tls(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    """httpx's own context, which takes 20 ms to make, once for each pair of environment variables that it depends on."""
    return httpx.create_ssl_context(trust_env=bool(cert_file or cert_dir))


async def drain(response: httpx.Response, limit: int = 65536) -> None:
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


def classify(call: Call, failure: Exception) -> Broken:
    """What a failure of the transport means. Its own classes do not tell: a refused connection and one that broke are the same."""
    cause = failure.__cause__ if isinstance(failure, httpx.HTTPError) and failure.__cause__ else failure
    what = call.describe()
    reason = shorten(call.redactor.redact(str(cause) or type(cause).__name__), 200)

    def broken(words: str, *, sent: bool, retryable: bool = True, kind: type[ORSError] = ConnectionFailed) -> Broken:
        return Broken(kind(f"{what}: {words}", session_id=call.session_id), sent=sent, retryable=retryable)

    if isinstance(cause, OSError) and _errno(cause) in (errno.EMFILE, errno.ENFILE):
        return broken(_NO_DESCRIPTOR, sent=False, retryable=False)
    match cause:
        case aiohttp.ConnectionTimeoutError():
            return Broken(time_exceeded("connect", call.timeout.connect, call), sent=False)
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


def _errno(error: OSError) -> int | None:
    """The number of an error, or of the one that it was raised for."""
    if error.errno is None and isinstance(error.__cause__, OSError):
        return _errno(error.__cause__)
    return error.errno
