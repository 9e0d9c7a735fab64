"""A request, its answer, and what it means that there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import httpx
from multidict import CIMultiDict, MultiMapping
from pydantic import TypeAdapter

from ors_gym.client._config import Timeout
from ors_gym.client._json import BadPayload, decode, parse
from ors_gym.client._servers import Server
from ors_gym.errors import NotFound, ORSError, ProtocolError, RequestRejected, ServerError, SessionLost
from ors_gym.secrets import Redactor

if TYPE_CHECKING:
    from ors_gym.client._http import Http
    from ors_gym.client._transport import Received

T = TypeVar("T")
_MAX_WORDS = 2000
_MAX_BODY = 65536  # of an answer that is no result
TRANSPORT_ERRORS = (httpx.HTTPError, aiohttp.ClientError, OSError, RuntimeError)


class Cookies:
    """The cookies of a session: a balancer may know it by them."""

    __slots__ = ("_jar",)
    _most = 50

    def __init__(self) -> None:
        self._jar: httpx.Cookies | None = None

    def header(self, url: str) -> str | None:
        """The `Cookie` header of a request to `url`; None if it has none."""
        if self._jar is None:
            return None
        request = httpx.Request("GET", url)
        self._jar.set_cookie_header(request)
        cookie: str | None = request.headers.get("Cookie")
        return cookie

    def take_from(self, headers: MultiMapping[str], url: str) -> None:
        """Keeps the cookies that an answer from `url` sets, as long as they are not too many. They are ASCII (RFC 6265, 4.1.1)."""
        if "Set-Cookie" in headers:
            self._jar = self._jar or httpx.Cookies()
            cookies = [value for value in headers.getall("Set-Cookie") if value.isascii() and value.isprintable()]
            setting = [("Set-Cookie", cookie) for cookie in cookies]
            self._jar.extract_cookies(httpx.Response(200, headers=setting, request=httpx.Request("GET", url)))
            for cookie in list(self._jar.jar)[self._most :]:
                self._jar.delete(cookie.name, cookie.domain, cookie.path)


@dataclass(slots=True)
class Call:
    """A request to one server.

    Attributes:
        method: The HTTP method.
        server: Where it goes.
        path: Below the server's base URL, quoted.
        headers: Prepared headers, shared and never changed.
        timeout: The limits that it is under.
        redactor: Knows what must not appear in a message.
        content: The body, JSON.
        session_id: The session that it is about, if any.
        cookies: The cookies of its session, if any: sent, and set by the answer.
        on_send: Called each time that it is sent.
    """

    method: str
    server: Server
    path: str
    headers: CIMultiDict[str]
    timeout: Timeout
    redactor: Redactor
    content: bytes = b""
    session_id: str | None = None
    cookies: Cookies | None = None
    on_send: Callable[[], None] | None = None

    def headers_for(self, url: str) -> CIMultiDict[str]:
        """The headers with what the body and the URL, which may be one that it was redirected to, add to them."""
        cookie = self.cookies and self.cookies.header(url)
        if not self.content and not cookie:
            return self.headers
        headers = self.headers.copy()
        if self.content:
            headers["Content-Type"] = "application/json"
        if cookie:
            headers["Cookie"] = f"{own}; {cookie}" if (own := headers.get("Cookie")) else cookie
        return headers

    def describe(self) -> str:
        """The request in words, for a message."""
        session = f" (session {self.session_id})" if self.session_id else ""
        return self.redactor.redact(f"{self.method} {self.server.url(self.path)}{session}")


class Broken(Exception):
    """An attempt that brought no whole answer.

    Attributes:
        error: The error to raise if nobody tries again.
        sent: Whether a byte of the request may have reached the server.
        retryable: Whether another attempt may end better.
    """

    def __init__(self, error: ORSError, *, sent: bool, retryable: bool = True) -> None:
        super().__init__(str(error))
        self.error, self.sent, self.retryable = error, sent, retryable


@dataclass(slots=True)
class Reply:
    """An answer whose body is still to be read. `aclose` it.

    Attributes:
        call: The request.
        received: The answer.
        http: The connections that it came over.
        started_at: When the request was sent, by `time.monotonic`.
        length: The bytes of the body so far.
        error: What went wrong with it, or "".
    """

    call: Call
    received: "Received"
    http: "Http"
    started_at: float
    length: int = 0
    error: str = ""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.received.status

    @property
    def headers(self) -> MultiMapping[str]:
        """The answer's headers."""
        return self.received.headers

    async def read(self) -> "Answer":
        """The answer with its whole body.

        Raises:
            ProtocolError: It is longer than `max_response_bytes`.
            Broken: The connection broke.
        """
        chunks: list[bytes] = []
        try:
            async for chunk in self.received.chunks():
                self.count(chunk)
                chunks.append(chunk)
        except TRANSPORT_ERRORS as failure:
            raise self.broken(failure) from None
        return Answer(self.call, self.status, self.headers, b"".join(chunks))

    def count(self, chunk: bytes) -> None:
        """Notes a part of the body that has come.

        Raises:
            ProtocolError: The body is longer than `max_response_bytes`.
        """
        self.length += len(chunk)
        self.http.counters.bytes_received += len(chunk)
        if self.length > self.http.max_response_bytes:
            raise self.broken_standard(f"the response is longer than max_response_bytes={self.http.max_response_bytes}")

    def broken(self, failure: Exception) -> Broken:
        """What a failure of the connection in the middle of the body means."""
        broken = self.http.classify(self.call, failure)
        self.error = str(broken)
        return broken

    def broken_standard(self, problem: str) -> ProtocolError:
        """The error of an answer that is not what the standard says."""
        error = _broken_standard(self, problem)
        self.error = str(error)
        return error

    async def aclose(self) -> None:
        """Gives the connection back, or closes it if the body was not read to its end."""
        self.http.ended(self.call, self.started_at, status=self.status, length=self.length, error=self.error)
        await self.received.aclose()


@dataclass(slots=True)
class Answer:
    """An answer with its body."""

    call: Call
    status: int
    headers: MultiMapping[str]
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

    def parsed(self) -> Any:
        """The body as JSON, or None if it is none, or longer than any message should be."""
        if len(self.body) > _MAX_BODY:
            return None
        try:
            return parse(self.body)
        except BadPayload:
            return None

    def words(self) -> str:
        """The server's own words about what went wrong, redacted and shortened."""
        body = self.parsed()
        if body is None:
            return shorten(self._beginning())
        detail = body.get("detail", body.get("error", body)) if isinstance(body, dict) else body
        if isinstance(detail, list):
            detail = "; ".join(_problem(problem) for problem in detail)
        return shorten(self.call.redactor.redact(detail if isinstance(detail, str) else repr(detail)))

    def _beginning(self) -> str:
        """The beginning of the body, redacted, without what may be a part of a secret that was cut."""
        redactor = self.call.redactor
        text = redactor.redact(self.body[:_MAX_BODY].decode("utf-8", "replace"))
        return text if len(self.body) <= _MAX_BODY else text[: -redactor.longest]

    def refuses_field(self, name: str) -> bool:
        """Whether it is a refusal of a field in the body."""
        body = self.parsed()
        detail = body.get("detail") if isinstance(body, dict) else None
        problems = detail if isinstance(detail, list) else []
        return self.status in (400, 422) and any(isinstance(one, dict) and one.get("loc") == ["body", name] for one in problems)

    def broken_standard(self, problem: str) -> ProtocolError:
        """The error of an answer that is not what the standard says."""
        return _broken_standard(self, problem)

    def error(self, *, about_session: bool = True) -> ORSError:
        """The error of a status that is not 2xx and has no meaning of its own for the caller.

        Args:
            about_session: Whether a 404 or 410 means that the session is gone.
        """
        words = self.words()
        message = f"{self.call.describe()}: HTTP {self.status}" + (f": {words}" if words else "")
        kind: type[ORSError] = ProtocolError
        if about_session and self.call.session_id and self.status in (404, 410):
            kind = SessionLost
        elif self.status == 404:
            kind = NotFound
        elif self.status in (408, 425, 429) or self.status >= 500:
            kind = ServerError
        elif self.status >= 400:
            kind = RequestRejected
        return kind(message, session_id=self.call.session_id, status=self.status, detail=words, url=self.call.server.base_url)


def shorten(text: str, length: int = _MAX_WORDS) -> str:
    """`text`, cut where it is too long for a message."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"


def _broken_standard(answer: Reply | Answer, problem: str) -> ProtocolError:
    call = answer.call
    message = f"{call.describe()}: {call.redactor.redact(problem)}"
    if encoding := answer.headers.get("content-encoding"):
        message += f" (it has content-encoding {shorten(call.redactor.redact(encoding), 50)!r}, which was not asked for)"
    return ProtocolError(message, session_id=call.session_id, status=answer.status)


def _problem(problem: Any) -> str:
    if isinstance(problem, dict) and isinstance(problem.get("msg"), str):
        where = problem.get("loc")
        return f"{'.'.join(map(str, where))}: {problem['msg']}" if isinstance(where, list) else problem["msg"]
    return repr(problem)
