"""Requirements: what the standard asks, where it asks it, and the coroutine that looks whether a server does it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ors_gym.conformance.report import Row, Verdict

if TYPE_CHECKING:
    from ors_gym.conformance._probe import Answer, Probe


@dataclass(frozen=True)
class Finding:
    """What one check saw."""

    verdict: Verdict
    observed: str


Check = Callable[["Probe"], Awaitable[Finding]]


@dataclass(frozen=True)
class Requirement:
    """Something that the standard asks of a server."""

    id: str
    endpoint: str
    says: str
    page: str
    check: Check

    def row(self, finding: Finding) -> Row:
        return Row(self.id, self.endpoint, self.says, self.page, finding.observed, finding.verdict)


class NotTestable(Exception):
    """The requirement cannot be looked at; the message says why."""


class Malformed(Exception):
    """An answer that is not what the standard says it is, so that nothing can be read from it."""


def passes(observed: str) -> Finding:
    return Finding("pass", observed)


def deviates(observed: str) -> Finding:
    return Finding("deviation", observed)


def violates(observed: str) -> Finding:
    return Finding("violation", observed)


def not_testable(observed: str) -> Finding:
    return Finding("not testable", observed)


def holds(condition: bool, observed: str) -> Finding:
    """A requirement that a server keeps or breaks."""
    return Finding("pass" if condition else "violation", observed)


def refused(answer: "Answer", status: int, *, tolerated: tuple[int, ...] = ()) -> Finding:
    """A request that has to be refused with `status`; another refusal in `tolerated` is a deviation."""
    if answer.status == status:
        return passes(answer.summary)
    return deviates(answer.summary) if answer.status in tolerated else violates(answer.summary)


class Registry:
    """The requirements of one module, in the order in which they are written."""

    def __init__(self) -> None:
        self.requirements: list[Requirement] = []

    def requirement(self, endpoint: str, page: str, says: str) -> Callable[[Check], Check]:
        """Registers a check as the requirement of its name."""

        def register(check: Check) -> Check:
            name = check.__name__.replace("_", "-")
            self.requirements.append(Requirement(name, endpoint, says, page, check))
            return check

        return register
