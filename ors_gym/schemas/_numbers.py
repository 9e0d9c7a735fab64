"""The numbers that a flat schema allows: bounds and step, exactly."""

import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ors_gym.schemas._validation import exact, is_finite


def bounds(flat: Mapping[str, Any]) -> tuple[Fraction | None, Fraction | None]:
    """The least and the greatest number, None where there is no bound; a bound that is itself excluded counts as one."""
    lows = [flat[word] for word in ("minimum", "exclusiveMinimum") if _is_number(flat.get(word))]
    highs = [flat[word] for word in ("maximum", "exclusiveMaximum") if _is_number(flat.get(word))]
    return (exact(max(lows)) if lows else None), (exact(min(highs)) if highs else None)


def step_of(flat: Mapping[str, Any], *, whole: bool) -> Fraction | None:
    """What each allowed number is a multiple of; None for any number."""
    if not _is_number(flat.get("multipleOf")):
        return Fraction(1) if whole else None
    step = exact(flat["multipleOf"])
    return Fraction(step.numerator) if whole else step


def plain(number: Fraction) -> int | float:
    """The number as JSON has it: an int where it is whole, else the nearest float."""
    return int(number) if number.denominator == 1 else nearest(number)


def nearest(number: Fraction) -> int | float:
    """The nearest float; beyond all floats, the nearest int."""
    return float(number) if abs(number) <= sys.float_info.max else round(number)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number; in draft 4, `exclusiveMinimum` is a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
