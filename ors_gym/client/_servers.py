"""One ORS server or several equal ones: where a session is placed, and which servers are down."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from ors_gym.client._urls import parse_base_url

_FIRST_PROBE = 1.0  # seconds until a server that went down is asked again
_LAST_PROBE = 30.0


@dataclass(eq=False)
class Server:
    """A server and what is known of it.

    Attributes:
        base_url: Its URL, ending with a slash, without credentials.
        sessions: Sessions on it now, those being started included.
        secrets_form: How it takes secrets: in the body of `/create`, or in an `X-Secrets` header; None until asked.
    """

    base_url: str
    sessions: int = 0
    secrets_form: Literal["body", "header"] | None = None
    _pause: float = field(default=0.0, repr=False)
    _probe_at: float = field(default=0.0, repr=False)

    def url(self, path: str) -> str:
        """`path`, without a leading slash and quoted already, below the base URL."""
        return self.base_url + path

    @property
    def down(self) -> bool:
        """Whether it takes no new sessions for now."""
        return self._pause > 0

    def went_down(self) -> None:
        """It could not be reached, or its gateway could not reach it."""
        self._pause = min(self._pause * 2 or _FIRST_PROBE, _LAST_PROBE)
        self._probe_at = time.monotonic() + self._pause

    def is_back(self) -> None:
        """It answered."""
        self._pause = 0.0

    def take_probe(self) -> bool:
        """Whether it is time to ask it again; then the caller has to, and nobody else does meanwhile."""
        now = time.monotonic()
        if not self.down or now < self._probe_at:
            return False
        self._probe_at = now + _LAST_PROBE
        return True


class Servers:
    """Equal servers, by the order of their URLs."""

    def __init__(self, base_urls: Iterable[str]) -> None:
        urls = [parse_base_url(base_url) for base_url in base_urls]
        if not urls:
            raise ValueError("base_url must be a URL, or a list of at least one")
        self.all = [Server(str(url.copy_with(username=None, password=None))) for url in urls]
        credentials = {(url.username, url.password) for url in urls if url.userinfo}
        if len(credentials) > 1:
            raise ValueError("equal servers have the same credentials: pass them as auth=(user, password), not in the URLs")
        self.credentials = credentials.pop() if credentials else None

    def due_for_probe(self) -> list[Server]:
        """Servers that are down and must be asked now whether they are back."""
        return [server for server in self.all if server.take_probe()] if len(self.all) > 1 else []

    def pick(self, avoid: Server | None = None) -> Server:
        """The least busy server that is up; if none is, the least busy of all, since trying is how to know.

        Args:
            avoid: The one that has just refused, which is taken only if no other is up.
        """
        if len(self.all) == 1:
            return self.all[0]
        return min(self.all, key=lambda server: (server.down, server is avoid, server.sessions))
