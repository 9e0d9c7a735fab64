"""What a check found: one row a requirement of the standard, and the report that they make."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["pass", "deviation", "violation", "not testable"]
"""What a server did with a requirement.

"deviation": not as the standard says, in a way that a careful client copes with. "violation": a client that follows the standard
is misled. "not testable": it could not be seen from outside, or not without what the check was not allowed to do.
"""

SEVERITY: Mapping[Verdict, int] = {"pass": 0, "not testable": 0, "deviation": 1, "violation": 2}


@dataclass(frozen=True)
class Row:
    """One requirement and what the server did.

    Attributes:
        id: The requirement's name, the same in every report.
        endpoint: The endpoint that it is about, for instance `POST /create`.
        says: What the standard asks for.
        page: The page of the standard that asks.
        observed: What the server did, or why that could not be seen.
        verdict: How that compares.
    """

    id: str
    endpoint: str
    says: str
    page: str
    observed: str
    verdict: Verdict


@dataclass(frozen=True)
class Report:
    """What `check_server` found.

    Attributes:
        base_url: The server.
        env_name: The environment that was used.
        rows: One a requirement, in the order of the endpoints in an episode.
    """

    base_url: str
    env_name: str
    rows: tuple[Row, ...]

    def __getitem__(self, row_id: str) -> Row:
        """The row of a requirement.

        Raises:
            KeyError: There is no requirement of that name.
        """
        for row in self.rows:
            if row.id == row_id:
                return row
        raise KeyError(row_id)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many rows have each verdict."""
        counted = Counter(row.verdict for row in self.rows)
        return {verdict: counted[verdict] for verdict in SEVERITY}

    @property
    def worst(self) -> Verdict:
        """The worst verdict: "violation", "deviation" or "pass"."""
        return max((row.verdict for row in self.rows if SEVERITY[row.verdict]), key=SEVERITY.__getitem__, default="pass")

    def with_verdict(self, verdict: Verdict) -> tuple[Row, ...]:
        """The rows with a verdict.

        >>> row = Row("health", "GET /health", "answers 200", "HTTP API", "answered 503", "violation")
        >>> [row.id for row in Report("http://localhost:8080", "gsm8k", (row,)).with_verdict("violation")]
        ['health']
        """
        return tuple(row for row in self.rows if row.verdict == verdict)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values.

        >>> row = Row("health", "GET /health", "answers 200", "HTTP API", "answered 503", "violation")
        >>> Report("http://localhost:8080", "gsm8k", (row,)).to_dict()["worst"]
        'violation'
        """
        return {
            "base_url": self.base_url,
            "env_name": self.env_name,
            "worst": self.worst,
            "counts": self.counts,
            "rows": [asdict(row) for row in self.rows],
        }

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {verdict}" for verdict, number in self.counts.items())
        return f"Report({self.base_url!r}, {self.env_name!r}: {counts})"
