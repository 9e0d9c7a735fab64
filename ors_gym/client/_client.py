"""The door to one ORS server, or to several equal ones."""

import os
import re
import ssl
import warnings
import weakref
from collections.abc import Mapping, Sequence
from operator import index as as_int
from types import TracebackType
from typing import NoReturn

import httpx
from multidict import CIMultiDict

from ors_gym._version import __version__
from ors_gym.client._cleanup import LastResort
from ors_gym.client._config import Retry, Timeout, check_options
from ors_gym.client._core import Core
from ors_gym.client._environment import AsyncEnvironment
from ors_gym.client._http import Http
from ors_gym.client._servers import Servers
from ors_gym.client._stats import EventHooks, Stats, checked_hooks
from ors_gym.client._transport import Transport
from ors_gym.client._urls import is_this_machine
from ors_gym.protocol import names_adapter
from ors_gym.secrets import Redactor

CANNOT_PICKLE = (
    "a client cannot be pickled or copied, for connections stay in their process: pass its base_url on and make one there"
)
_SENSITIVE_HEADER = re.compile(r"auth|cookie|key|secret|token", re.I)


class AsyncORSClient:
    """An asynchronous client of an Open Reward Standard server, or of several equal ones, on one event loop.

    Args:
        base_url: `https://host[:port][/prefix]`, or a list of equal servers: a session is placed on the least busy one, and stays.
        api_key: Sent as `X-API-Key`; if None, `ORS_API_KEY` is, to https and loopback URLs only, and to these without a proxy.
        headers: Sent with every request.
        auth: A pair for HTTP Basic, or an `httpx.Auth`.
        timeout: Limits in seconds.
        retry: What is tried again, and how often.
        max_sessions: How many sessions may be open at once; more wait. None is without limit.
        keepalive: Seconds without traffic until a session is pinged; None never pings.
        max_response_bytes: The longest response body.
        event_hooks: Functions of a `RequestTrace`, by `"request"` (to be sent) and `"response"` (ended).
        verify, cert, proxy, trust_env: TLS and proxies, as for `httpx.AsyncClient`; environment variables are read unless
            `trust_env` is False.

    Raises:
        ValueError: `base_url` is not an http or https URL, or a number is out of its range.
        TypeError: An argument is of another type.

    Use it with `async with`, or `aclose` it: sessions that are still open are then deleted.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncORSClient(base_url) as client:
    ...         print(await client.health(), await client.list_environments())
    ...         async with client.environment("largest_digit").session(split="train", index=0) as session:
    ...             output = await session.call_tool("submit", {"answer": "no digit"})
    ...         print(output.reward, output.finished, client.stats().sessions_started)
    >>> asyncio.run(main())
    True ('largest_digit',)
    0.0 True 1
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | httpx.Auth | None = None,
        timeout: Timeout = Timeout(),
        retry: Retry = Retry(),
        max_sessions: int | None = None,
        keepalive: float | None = 60.0,
        max_response_bytes: int = 64 * 2**20,
        event_hooks: EventHooks | None = None,
        verify: ssl.SSLContext | bool = True,
        cert: str | tuple[str, str] | tuple[str, str, str] | None = None,
        proxy: str | httpx.URL | httpx.Proxy | None = None,
        trust_env: bool = True,
    ) -> None:
        check_options(timeout, retry)
        base_urls = [base_url] if isinstance(base_url, str) else base_url
        if not isinstance(base_urls, Sequence) or not all(isinstance(url, str) for url in base_urls):
            raise TypeError("base_url is a URL as a str, or a list of them")
        if auth is not None and not isinstance(auth, (tuple, httpx.Auth)):
            raise TypeError(f"auth is a pair for HTTP Basic, or an httpx.Auth, not a {type(auth).__name__}")
        if as_int(max_response_bytes) < 1:
            raise ValueError(f"max_response_bytes must be at least 1, not {max_response_bytes}")
        if max_sessions is not None and as_int(max_sessions) < 1:
            raise ValueError(f"max_sessions must be at least 1, or None, not {max_sessions}")
        if keepalive is not None and not keepalive > 0:
            raise ValueError(f"keepalive must be a number of seconds above 0, or None, not {keepalive}")
        servers = Servers(base_urls)
        transport = Transport(verify=verify, cert=cert, proxy=proxy, trust_env=trust_env, max_response_bytes=max_response_bytes)
        if api_key is None and all(_may_have_the_key(server.base_url, transport) for server in servers.all):
            api_key = os.environ.get("ORS_API_KEY") or None
        credentials = auth if isinstance(auth, tuple) else servers.credentials if auth is None else None
        prepared = _prepare_headers(api_key, headers, credentials)
        flow = auth if isinstance(auth, httpx.Auth) else None
        http = Http(
            transport,
            auth=flow,
            timeout=timeout,
            retry=retry,
            max_response_bytes=max_response_bytes,
            hooks=checked_hooks(event_hooks),
        )
        self._base_url = servers.all[0].base_url
        self._max_sessions = max_sessions
        self._core = Core(
            http=http,
            servers=servers,
            headers=prepared,
            redactor=Redactor(_keys_of(prepared, credentials, proxy)),
            keepalive=keepalive,
            max_sessions=max_sessions,
            last_resort=LastResort(verify, cert, proxy, trust_env, flow),
        )
        weakref.finalize(self, _collected, self._core, self._base_url).atexit = False

    def __repr__(self) -> str:
        return f"<AsyncORSClient {self._base_url} with {len(self._core.sessions)} open sessions>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(CANNOT_PICKLE)

    @property
    def base_url(self) -> str:
        """The server's URL, ending with a slash, without credentials; the first, if there are several."""
        return self._base_url

    @property
    def max_sessions(self) -> int | None:
        """How many sessions may be open at once; None is without limit."""
        return self._max_sessions

    async def __aenter__(self) -> "AsyncORSClient":
        self._core.enter("AsyncORSClient")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Deletes every session that is open and closes the connections. Further calls do nothing.

        It may be called from another event loop while the client's own runs in its thread, and after that is closed.

        Raises:
            RuntimeError: The client's own event loop stands still: close it there.
        """
        await self._core.aclose()

    def environment(self, env_name: str | None = None) -> AsyncEnvironment:
        """An environment, without I/O.

        Args:
            env_name: Its name; None is the server's first.

        Raises:
            ValueError: No environment can have that name.
        """
        return AsyncEnvironment(self, self._core, env_name)

    async def health(self) -> bool:
        """Whether the server says that it is well. Standard: HTTP API, GET /health.

        Raises:
            ConnectionFailed, TimeoutExceeded, ServerError: It does not answer.
        """
        return (await self._core.ask("GET", "health")).status == 200

    async def list_environments(self) -> tuple[str, ...]:
        """The names of the server's environments. Standard: HTTP API, GET /list_environments."""
        answer = await self._core.ask("GET", "list_environments")
        if answer.status != 200:
            raise answer.error()
        return answer.decode(names_adapter)

    def stats(self) -> Stats:
        """The client's counters as they are now."""
        return self._core.stats()


def _prepare_headers(
    api_key: str | None, headers: Mapping[str, str] | None, credentials: tuple[str, str] | None
) -> CIMultiDict[str]:
    prepared = CIMultiDict(
        {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "User-Agent": f"ors-gym/{__version__}",
        }
    )
    if api_key is not None:
        prepared["X-API-Key"] = api_key
    if credentials is not None:
        request = next(httpx.BasicAuth(*credentials).auth_flow(httpx.Request("GET", "http://host")))
        prepared["Authorization"] = request.headers["Authorization"]
    prepared.update(httpx.Headers(headers).multi_items())
    for name, value in prepared.items():
        if not name or any(ord(character) < 32 or ord(character) == 127 for character in name + value):
            raise ValueError(f"the header {name!r} has a control character, or no name")
    return prepared


def _keys_of(
    headers: CIMultiDict[str], credentials: tuple[str, str] | None, proxy: str | httpx.URL | httpx.Proxy | None
) -> list[str]:
    """Everything in a client's configuration that must not be printed."""
    keys = [value for name, value in headers.items() if _SENSITIVE_HEADER.search(name)]
    keys += [value.partition(" ")[2] for value in keys]
    if credentials is not None:
        keys.append(credentials[1])
    if isinstance(proxy, httpx.Proxy):
        keys.append(proxy.auth[1] if proxy.auth else proxy.url.password)
    elif proxy is not None:
        keys.append(httpx.URL(proxy).password)
    return keys


def _collected(core: Core, base_url: str) -> None:
    if left := core.collected():
        warnings.warn(
            f"an AsyncORSClient of {base_url} was collected with {left} open sessions, which are deleted now; "
            "use `async with`, or aclose it",
            ResourceWarning,
            stacklevel=2,
        )


def _may_have_the_key(base_url: str, transport: Transport) -> bool:
    """Whether `ORS_API_KEY` may go there: by https, or to this machine itself and not in clear to a proxy."""
    return base_url.startswith("https:") or (is_this_machine(base_url) and transport.is_direct(base_url))
