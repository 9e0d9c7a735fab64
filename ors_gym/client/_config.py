"""The options of a client: how long to wait (`Timeout`) and how often to try (`Retry`)."""

from dataclasses import dataclass, fields
from operator import index as as_int


@dataclass(frozen=True, kw_only=True)
class Timeout:
    """How long each thing may take, in seconds; None is without limit. Each has its own message in `TimeoutExceeded`.

    Attributes:
        connect: To open a connection.
        request: A request, from sending it to the end of its answer; tool calls and setup have their own limits.
        tool_call: A tool call, resumes included. Whatever it is, a connection that is silent for `silence` is resumed.
        setup: To start a session; and then again, until the environment's `setup()` has ended and it answers.
        episode: A session, from its start.
        silence: A tool call's connection without a byte or a ping comment, until it counts as broken.

    >>> Timeout(tool_call=120.0).connect
    10.0
    """

    connect: float | None = 10.0
    request: float | None = 60.0
    tool_call: float | None = None
    setup: float | None = 600.0
    episode: float | None = None
    silence: float | None = 60.0

    def __post_init__(self) -> None:
        for option in fields(self):
            seconds = getattr(self, option.name)
            if seconds is not None and not seconds > 0:
                raise ValueError(f"Timeout({option.name}=…) must be a number of seconds above 0, or None, not {seconds!r}")


@dataclass(frozen=True, kw_only=True)
class Retry:
    """An idempotent request is sent again after a connection failure, a 429, 502, 503 or 504, at most `attempts` times in all
    and `total` seconds, each time after the server's `Retry-After` or a random pause up to `backoff · 2ⁿ`, at most `max_backoff`.

    A tool call is sent again only where it cannot have run: its connection was refused, or the answer was a 429 or a 503 that
    says the session is starting. Once its `task_id` is known it is resumed by the same policy. A session's creation waits out
    429 and "starting" for as long as `Timeout.setup`. No other 4xx and no 500 is ever retried.

    Attributes:
        attempts: How often a request is sent in all, at least 1; 1 never retries.
        total: Seconds after which no further attempt is begun.
        backoff: The first pause's upper bound, in seconds.
        max_backoff: Every pause's upper bound, in seconds.

    >>> Retry(attempts=1)
    Retry(attempts=1, total=120.0, backoff=0.25, max_backoff=15.0)
    """

    attempts: int = 6
    total: float = 120.0
    backoff: float = 0.25
    max_backoff: float = 15.0

    def __post_init__(self) -> None:
        if as_int(self.attempts) < 1:
            raise ValueError(f"Retry(attempts=…) must be at least 1, not {self.attempts!r}")
        for name in ("total", "backoff", "max_backoff"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"Retry({name}=…) must be a number of seconds, at least 0, not {getattr(self, name)!r}")


def check_options(timeout: Timeout, retry: Retry) -> None:
    """Before anything is done with them: a number of seconds is soon passed in place of a `Timeout`.

    Raises:
        TypeError: They are something else.
    """
    for name, value, kind in (("timeout", timeout, Timeout), ("retry", retry, Retry)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is an ors_gym.{kind.__name__}(...), not {value!r}")
