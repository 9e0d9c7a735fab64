"""Every exception of ors-gym, drawn as one tree.

Three kinds of trouble stay apart from where they arise to the trainer that reads them. A failure is classified once, by its class;
`ORSError.kind` says which kind it is.

    ORSError                      anything that ors-gym raises by itself
    ├── PolicyError               kind "policy": the policy said something wrong; the episode goes on
    │   ├── InvalidAction         an action that cannot be read as a tool call; nothing was sent
    │   └── ToolCallRejected      the environment refused the call: unknown tool, invalid input
    ├── EnvironmentFailure        kind "environment": the environment's own code failed; the episode is unscored
    │   ├── ToolFailed            a tool raised while it ran
    │   └── SessionSetupFailed    the environment could not be built for this task
    ├── InfrastructureError       kind "infrastructure": nobody in the episode is to blame; the episode is unscored
    │   ├── ConnectionFailed      the server could not be reached
    │   ├── TimeoutExceeded       a limit of `Timeout` ran out (also a `TimeoutError`)
    │   ├── ServerError           a 5xx or 429 that retries did not cure
    │   ├── SessionLost           the server no longer knows the session
    │   ├── ResultLost            a tool call ran, or may have run, and its result is gone; it is not sent again
    │   ├── ProtocolError         an answer that breaks the standard, or a limit on size
    │   └── ServerDown            nothing but lost episodes, for longer than a training may wait
    ├── RequestRejected           a 4xx about the caller's own request: unknown environment, split, index
    │   └── NotFound              a 404 of that kind
    ├── SessionClosed             a closed session, environment or client was used
    ├── RecordError               a file of records that cannot be read
    └── ServerStartFailed         a local server did not come up

Misuse of an argument is a plain `ValueError` or `TypeError`.
"""

from typing import Literal

ErrorKind = Literal["", "policy", "environment", "infrastructure"]


class ORSError(Exception):
    """The root of every exception that ors-gym raises by itself.

    Args:
        message: What was tried, what came back and what to do. Redacted: it holds no secret.
        url: The URL that was asked, if any.
        session_id: The session that it was about, if any.
        status: The HTTP status that came back, if any.
        detail: The server's own words, redacted, if any.
    """

    kind: ErrorKind = ""

    def __init__(
        self,
        message: str,
        *,
        url: str | None = None,
        session_id: str | None = None,
        status: int | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.url = url
        self.session_id = session_id
        self.status = status
        self.detail = detail


class PolicyError(ORSError):
    """The policy said something wrong. The reason goes back to it as an observation and the episode goes on."""

    kind: ErrorKind = "policy"


class InvalidAction(PolicyError):
    """An action that cannot be read as a tool call. Nothing was sent to the server."""


class ToolCallRejected(PolicyError):
    """The environment refused a tool call: an unknown tool, or an input that its schema does not allow."""


class EnvironmentFailure(ORSError):
    """The environment's own code failed. The episode ends unscored."""

    kind: ErrorKind = "environment"


class ToolFailed(EnvironmentFailure):
    """A tool raised an exception while it ran (an SSE `error` event)."""


class SessionSetupFailed(EnvironmentFailure):
    """The environment's constructor or `setup()` failed for this task; `detail` has the server's words."""


class InfrastructureError(ORSError):
    """A failure of network, server or limits. The episode ends unscored, never with a reward of zero."""

    kind: ErrorKind = "infrastructure"


class ConnectionFailed(InfrastructureError):
    """The server could not be reached, or the connection broke before an answer."""


class TimeoutExceeded(InfrastructureError, TimeoutError):
    """A limit of `Timeout` ran out; the message names the limit and its seconds."""


class ServerError(InfrastructureError):
    """A 5xx, or a 429, that stayed after the retries."""


class SessionLost(InfrastructureError):
    """The server no longer knows the session (404 or 410, or words to that effect in the stream)."""


class ResultLost(InfrastructureError):
    """A tool call ran, or may have run, and its result cannot be had. It is never sent again."""


class ProtocolError(InfrastructureError):
    """An answer that breaks the standard: not JSON, wrong types, a broken event stream, or one over a limit on size."""


class ServerDown(InfrastructureError):
    """Every episode of several training steps in a row was lost, and no session could be had for longer than may be waited."""


class RequestRejected(ORSError):
    """A 4xx about the caller's own request: an unknown split, an index out of range, a refused key."""


class NotFound(RequestRejected):
    """A 404 about the caller's own request: an unknown environment or path."""


class SessionClosed(ORSError):
    """A session, environment or client was used after it was closed."""


class RecordError(ORSError):
    """A file of records that cannot be read; the message names the file and the line."""


class ServerStartFailed(ORSError):
    """A local server did not come up; `detail` is what it wrote."""
