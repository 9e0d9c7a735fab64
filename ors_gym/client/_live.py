"""A session as it is on a server: its id, its headers, when it was last heard of."""

import time
from dataclasses import dataclass, field

from multidict import CIMultiDict

from ors_gym.client._cleanup import Cleanup
from ors_gym.client._config import Timeout
from ors_gym.client._messages import Answer, Call, Cookies
from ors_gym.client._servers import Server
from ors_gym.client._urls import quote_segment
from ors_gym.secrets import Redactor


@dataclass(slots=True, eq=False)
class Live:
    """A session that is, or may be, on a server.

    Attributes:
        sid: The server's id.
        server: The server that has it.
        env_name: The environment's name.
        headers: Of its requests.
        timeout: The limits of its requests.
        redactor: Knows its secrets.
        cookies: Those that its answers set.
        last_request: When a request with its id was last sent, by `time.monotonic`.
        idle: Seconds between that request and the one before.
        open: Whether it is still to be deleted.
        gone: Why it is not on the server any more, or "".
        creation: Its `/create`, from when it is sent: whoever deletes the session waits for it, so that nothing appears afterwards.
    """

    sid: str
    server: Server
    env_name: str
    headers: CIMultiDict[str]
    timeout: Timeout
    redactor: Redactor
    cookies: Cookies | None
    last_request: float = field(default_factory=time.monotonic)
    idle: float = 0.0
    open: bool = True
    gone: str = ""
    creation: Cleanup[Answer] | None = None

    @property
    def kept(self) -> bool:
        """Whether it is to be kept alive."""
        return self.open and not self.gone

    def call(self, method: str, endpoint: str, content: bytes = b"", headers: CIMultiDict[str] | None = None) -> Call:
        """A request of this session, which counts as traffic each time that it is sent.

        Args:
            method: The HTTP method.
            endpoint: One of the server's: "ping", "delete".
            content: The body.
            headers: If not those of the session.
        """
        return Call(
            method,
            self.server,
            endpoint,
            headers or self.headers,
            self.timeout,
            self.redactor,
            content,
            self.sid,
            self.cookies,
            self._sent,
        )

    def _sent(self) -> None:
        now = time.monotonic()
        self.idle, self.last_request = now - self.last_request, now

    def env_call(self, method: str, endpoint: str, content: bytes = b"") -> Call:
        """A request of this session to one of its environment's endpoints: "prompt", "call"."""
        return self.call(method, f"{quote_segment(self.env_name)}/{endpoint}", content)

    def describe(self) -> str:
        """The session in words, for a message."""
        return self.redactor.redact(f"session {self.sid} of {self.env_name} on {self.server.base_url}")
