"""What a benchmark returns, and how it is shown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import rich.table

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """A table of figures.

    Attributes:
        title: What was measured, with the units.
        columns: The columns' names.
        rows: One list of cells a row.
        targets: What was to be reached, and whether it was, by its wording.
        note: What a reader must know.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    targets: dict[str, bool] = field(default_factory=dict)
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The table as JSON values."""
        return asdict(self)

    def render(self) -> rich.table.Table:
        """The table for a terminal."""
        lines = [f"{'✓' if reached else '✗'} {target}" for target, reached in self.targets.items()]
        table = rich.table.Table(
            title=self.title, caption="\n".join([*lines, self.note] if self.note else lines) or None, title_justify="left"
        )
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*(_shown(cell) for cell in row))
        return table


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return str(cell)
