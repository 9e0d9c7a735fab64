"""Two schemas at once: one flat schema whose values both allow, as far as keywords can say it."""

from collections.abc import Callable, Mapping
from typing import Any

from ors_gym.schemas._validation import canonical

_NUMBERS_TOO = {"number": {"number", "integer"}, "integer": {"integer"}}


def merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with the keywords of both; where both have one, what satisfies both.

    >>> merged({"type": "integer", "minimum": 1}, {"type": "number", "minimum": 3})
    {'type': ['integer'], 'minimum': 3}
    """
    result = dict(left)
    for keyword, value in right.items():
        combine = _COMBINE.get(keyword)
        result[keyword] = combine(left[keyword], value) if combine and keyword in left else value
    return result


def _types(left: Any, right: Any) -> list[str]:
    allowed = _expanded(left) & _expanded(right)
    return sorted(allowed - {"integer"} if "number" in allowed else allowed)


def _expanded(kinds: Any) -> set[str]:
    listed = [kinds] if isinstance(kinds, str) else kinds
    return {kind for given in listed for kind in _NUMBERS_TOO.get(given, {given})}


def _both(left: Any, right: Any) -> Any:
    """A schema that stands for two: the second where the first allows all, else `allOf` of both."""
    if left is True or left == right:
        return right
    return left if right is True else {"allOf": [left, right]}


def _properties(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _both(left.get(name, True), right.get(name, True)) for name in {**left, **right}}


def _values(left: list[Any], right: list[Any]) -> list[Any]:
    allowed = {canonical(value) for value in right}
    return [value for value in left if canonical(value) in allowed]


def _united(left: list[Any], right: list[Any]) -> list[Any]:
    return list(dict.fromkeys([*left, *right]))


def _multiple(left: float, right: float) -> float:
    """The coarser step; the validator sees whether it is also one of the other's."""
    return max(left, right)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": _values,
    "properties": _properties,
    "patternProperties": _properties,
    "required": _united,
    "additionalProperties": _both,
    "items": lambda left, right: right if isinstance(left, list) or isinstance(right, list) else _both(left, right),
    "contains": _both,
    "propertyNames": _both,
    "minimum": max,
    "exclusiveMinimum": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "multipleOf": _multiple,
    "minLength": max,
    "maxLength": min,
    "minItems": max,
    "maxItems": min,
    "minProperties": max,
    "maxProperties": min,
    "uniqueItems": lambda left, right: left or right,
}
