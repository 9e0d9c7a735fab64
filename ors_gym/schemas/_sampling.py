"""Values that a schema allows, drawn from a generator.

A schema is brought to a flat form (references followed, `allOf` merged, a branch of `anyOf` or `oneOf` chosen), a value of that
form is drawn, and the validator has the last word. What a flat form cannot say (`not`, overlapping branches) is met by drawing
again.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ors_gym.schemas._heights import Heights
from ors_gym.schemas._merging import merged
from ors_gym.schemas._numbers import bounds, nearest, plain, step_of
from ors_gym.schemas._strings import MAX_STRING, draw_format, draw_matching, draw_text, draw_word
from ors_gym.schemas._validation import SafeValidator, Schema, SchemaError, canonical, is_checkable, matches

MAX_ITEMS = 1_000
"""The most items of an array, or properties of an object, that are drawn."""

MAX_DRAWS = 5_000
"""The most values that are drawn for one sample, those thrown away counted."""

_ATTEMPTS = 20
_DEEP = 4
_SPREAD = 4
_USUAL = 100
_IMPLIED = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "patternProperties": "object",
    "minProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "contains": "array",
    "pattern": "string",
    "format": "string",
    "minLength": "string",
    "maxLength": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}
_SCALARS = ("string", "integer", "number", "boolean", "null")


class Sampler:
    """Draws values that a schema allows.

    Args:
        schema: A JSON Schema; None is that of a tool without parameters, whose one value is the empty object.

    Raises:
        SchemaError: The schema is broken, or refers to what is not there.

    >>> Sampler({"enum": ["red"]}).sample(np.random.default_rng(0))
    'red'
    """

    def __init__(self, schema: Schema | None) -> None:
        self.validator = SafeValidator(schema)
        self.heights = Heights(self.validator)

    def sample(self, rng: np.random.Generator) -> Any:
        """A value that is valid against the schema, decided by `rng` alone.

        Raises:
            SchemaError: No value could be found; the message says what the schema asks for that cannot be drawn.
        """
        if self.heights.of(self.validator.schema) == math.inf:
            raise SchemaError("the schema cannot be sampled: its smallest value has no end")
        try:
            return _Draw(self, rng).value(self.validator.schema, 0)
        except _DeadEndError as dead_end:
            raise SchemaError(f"the schema cannot be sampled: {dead_end}") from None


def sample(schema: Schema | None, rng: np.random.Generator) -> Any:
    """Draw a value that a schema allows; `Sampler` is faster for many.

    Raises:
        SchemaError: The schema is broken, or no value could be found.

    >>> sample({"type": "integer", "minimum": 7, "maximum": 7}, np.random.default_rng(0))
    7
    """
    return Sampler(schema).sample(rng)


class _DeadEndError(Exception):
    """This way of meeting a schema leads nowhere; another may."""


class _Draw:
    """The drawing of one sample, and what it may still cost."""

    def __init__(self, sampler: Sampler, rng: np.random.Generator) -> None:
        self.validator = sampler.validator
        self.heights = sampler.heights
        self.rng = rng
        self.left = MAX_DRAWS
        self.reason = "no value that it allows was found"

    def value(self, schema: Schema, depth: int) -> Any:
        """A value that the schema allows.

        Raises:
            _DeadEndError: None was found.
            SchemaError: Looking for one has cost too much.
        """
        for attempt in range(_ATTEMPTS):
            try:
                value = self._attempt(schema, depth, attempt)
            except _DeadEndError as dead_end:
                self.reason = str(dead_end)
                continue
            if self.validator.is_valid(value, schema):
                return value
        for value in _examples(schema):
            if self.validator.is_valid(value, schema):
                return value
        raise _DeadEndError(self.reason)

    def _attempt(self, schema: Schema, depth: int, attempt: int) -> Any:
        flat = self._flat(schema, depth)
        if "const" in flat:
            return flat["const"]
        if "enum" in flat:
            return self._choice(flat["enum"])
        kind = self._kind(flat)
        if kind == "object":
            return self._object(flat, depth)
        if kind == "array":
            return self._array(flat, depth)
        if kind == "string":
            return self._string(flat, attempt)
        if kind in ("integer", "number"):
            return self._number(flat, whole=kind == "integer")
        return bool(self.rng.integers(2)) if kind == "boolean" else None

    def _flat(self, schema: Schema, depth: int) -> dict[str, Any]:
        """The schema without references, `allOf`, `anyOf`, `oneOf` and `if`: one of the forms that it can take."""
        parts: list[Schema] = [schema]
        flat: dict[str, Any] = {}
        while parts:
            self._spend()
            part = parts.pop()
            if part is True:
                continue
            if not isinstance(part, dict):
                raise _DeadEndError("it allows nothing")
            if isinstance(part.get("$ref"), str):
                parts.append(self.validator.resolve(part["$ref"]))
            parts.extend(part.get("allOf", ()))
            parts.extend(self._branch(part[keyword], depth) for keyword in ("anyOf", "oneOf") if keyword in part)
            if "if" in part:
                parts.extend(self._condition(part))
            flat = merged(flat, part)
        return flat

    def _branch(self, branches: Sequence[Schema], depth: int) -> Schema:
        """One branch of those that end; deep down, of those that end soonest."""
        heights = [self.heights.of(branch) for branch in branches]
        limit = min(heights) if depth >= _DEEP else math.inf
        ending = [branch for branch, height in zip(branches, heights, strict=True) if height <= limit and height < math.inf]
        if not ending:
            raise _DeadEndError("none of its alternatives ends")
        return ending[int(self.rng.integers(len(ending)))]

    def _condition(self, part: Mapping[str, Any]) -> list[Schema]:
        """Either what `if` asks for and its `then`, or its `else`."""
        if self.rng.integers(2):
            return [part["if"], part.get("then", True)]
        return [part.get("else", True)]

    def _kind(self, flat: Mapping[str, Any]) -> str:
        given = flat.get("type")
        if given is None:
            return next((kind for keyword, kind in _IMPLIED.items() if keyword in flat), "") or str(self._choice(_SCALARS))
        return str(self._choice([given] if isinstance(given, str) else given))

    # Objects

    def _object(self, flat: Mapping[str, Any], depth: int) -> dict[str, Any]:
        names = self._property_names(flat, depth)
        return {name: self.value(_property_schema(name, flat), depth + 1) for name in names}

    def _property_names(self, flat: Mapping[str, Any], depth: int) -> list[str]:
        """The properties that the object will have: those it must, some that it may, and new ones where it has too few."""
        properties: Mapping[str, Schema] = flat.get("properties", {})
        names = dict.fromkeys(flat.get("required", ()))
        least = max(_count(flat, "minProperties", MAX_ITEMS), len(names))
        most = _limit(flat, "maxProperties", MAX_ITEMS)
        extra = flat.get("additionalProperties")
        if isinstance(extra, dict) and not properties and depth < _DEEP and self.heights.of(extra) < math.inf:
            least = max(least, min(int(self.rng.integers(3)), most))
        optional = [name for name in properties if name not in names and self.heights.of(properties[name]) < math.inf]
        for name in self._shuffled(optional):
            wanted = len(names) < most and depth < _DEEP and bool(self.rng.integers(2))
            if wanted or len(names) < least:
                names |= dict.fromkeys([name, *flat.get("dependentRequired", {}).get(name, ())])
        for _ in range(_ATTEMPTS * least):
            if len(names) >= least:
                break
            names[self._new_name(flat)] = None
        ordered = [name for name in properties if name in names]
        return ordered + [name for name in names if name not in properties]

    def _new_name(self, flat: Mapping[str, Any]) -> str:
        """The name of a property that the schema does not list."""
        self._spend()
        patterns = flat.get("patternProperties", {})
        if patterns and (self.rng.integers(2) or flat.get("additionalProperties") is False):
            return self._matching(self._choice(list(patterns)))
        if "propertyNames" in flat:
            return str(self.value({"allOf": [{"type": "string"}, flat["propertyNames"]]}, _DEEP))
        return draw_word(self.rng)

    # Arrays

    def _array(self, flat: Mapping[str, Any], depth: int) -> list[Any]:
        listed, rest = _item_schemas(flat)
        least = _count(flat, "minItems", MAX_ITEMS)
        most = _limit(flat, "maxItems", MAX_ITEMS)
        if rest is False or self._endless(rest):
            most = min(most, len(listed))
        contained = max(_count(flat, "minContains", MAX_ITEMS, 1), 0) if "contains" in flat else 0
        shortest = max(least, contained)
        usual = max(shortest, min(most, max(len(listed), shortest + (3 if depth < _DEEP else 0))))
        length = int(self.rng.integers(shortest, usual + 1))
        schemas = [listed[place] if place < len(listed) else rest for place in range(length)]
        for place in range(contained):
            schemas[-1 - place] = {"allOf": [schemas[-1 - place], flat["contains"]]}
        return self._items(schemas, depth, unique=flat.get("uniqueItems") is True)

    def _items(self, schemas: Sequence[Schema], depth: int, *, unique: bool) -> list[Any]:
        items: list[Any] = []
        seen: set[str] = set()
        for schema in schemas:
            for _ in range(_ATTEMPTS if unique else 1):
                item = self.value(schema, depth + 1)
                if not unique or canonical(item) not in seen:
                    break
            seen.add(canonical(item) if unique else "")
            items.append(item)
        return items

    def _endless(self, schema: Schema) -> bool:
        return self.heights.of(schema) == math.inf

    # Scalars

    def _string(self, flat: Mapping[str, Any], attempt: int) -> str:
        least = _count(flat, "minLength", MAX_STRING)
        most = _limit(flat, "maxLength", MAX_STRING)
        if least > most:
            raise _DeadEndError("it asks for a string that is longer than it may be")
        if "pattern" in flat:
            if not is_checkable(flat["pattern"]):
                raise _DeadEndError("its pattern uses look-around or back-references, and it gives no example")
            return self._matching(flat["pattern"], beyond=least // attempt if attempt else 0)
        formatted = draw_format(self.rng, flat["format"]) if "format" in flat else None
        if formatted is not None:
            return formatted
        low = max(least, min(1, most))
        return draw_text(self.rng, low, min(most, max(low, 12)))

    def _matching(self, pattern: str, *, beyond: int = 0) -> str:
        try:
            return draw_matching(self.rng, pattern, _SPREAD, beyond=beyond)
        except SchemaError as error:
            raise _DeadEndError(str(error)) from None

    def _number(self, flat: Mapping[str, Any], *, whole: bool) -> int | float:
        low, high = bounds(flat)
        if low is None and high is None:
            low, high = Fraction(-_USUAL), Fraction(_USUAL)
        step = step_of(flat, whole=whole)
        if step is not None:
            return self._multiple(low, high, step)
        low = high - _USUAL if low is None and high is not None else low
        high = low + _USUAL if high is None and low is not None else high
        assert low is not None
        assert high is not None
        exact = low + (high - low) * Fraction(int(self.rng.integers(2**53 + 1)), 2**53)
        rounded = Fraction(round(float(exact), 3)) if abs(exact) < 1e12 else exact
        return nearest(rounded if low < rounded < high else exact)

    def _multiple(self, low: Fraction | None, high: Fraction | None, step: Fraction) -> int | float:
        """A multiple of `step` between the bounds, or near the one bound that there is."""
        first = None if low is None else math.ceil(low / step)
        last = None if high is None else math.floor(high / step)
        first = last - _USUAL if first is None and last is not None else first
        last = first + _USUAL if last is None and first is not None else last
        assert first is not None
        assert last is not None
        if first > last:
            raise _DeadEndError("no number is in its bounds")
        return plain(step * self._integer(first, last))

    def _integer(self, low: int, high: int) -> int:
        span = high - low
        return low + (int(self.rng.integers(span + 1)) if span < 2**62 else span * int(self.rng.integers(2**53)) // 2**53)

    # What decides

    def _choice(self, options: Sequence[Any]) -> Any:
        if len(options) == 0:
            raise _DeadEndError("it asks for two things that exclude each other")
        return options[int(self.rng.integers(len(options)))]

    def _shuffled(self, options: Sequence[str]) -> Iterator[str]:
        yield from (options[int(place)] for place in self.rng.permutation(len(options)))

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise SchemaError(f"the schema cannot be sampled within {MAX_DRAWS:,} values: {self.reason}")


def _property_schema(name: str, flat: Mapping[str, Any]) -> Schema:
    """What an object's schema says of one property."""
    schemas = [schema for pattern, schema in flat.get("patternProperties", {}).items() if matches(pattern, name)]
    if name in flat.get("properties", {}):
        schemas.append(flat["properties"][name])
    if not schemas:
        return flat.get("additionalProperties", True)  # type: ignore[no-any-return]
    return schemas[0] if len(schemas) == 1 else {"allOf": schemas}


def _item_schemas(flat: Mapping[str, Any]) -> tuple[Sequence[Schema], Schema]:
    """The schemas of the first items, and that of all others; until draft 2019-09, `items` could be the list."""
    items = flat.get("items", True)
    if isinstance(items, list):
        return items, flat.get("additionalItems", True)
    return flat.get("prefixItems", []), items


def _count(flat: Mapping[str, Any], keyword: str, most: int, default: int = 0) -> int:
    """A least number of things, which must be in reach."""
    count = flat.get(keyword, default)
    if count > most:
        raise _DeadEndError(f"{keyword} is {count}, and samples go to {most:,}")
    return int(count)


def _limit(flat: Mapping[str, Any], keyword: str, most: int) -> int:
    return int(min(flat.get(keyword, most), most))


def _examples(schema: Schema) -> list[Any]:
    """The values that a schema itself gives as examples, for what cannot be drawn from its keywords."""
    if not isinstance(schema, dict):
        return []
    listed = schema.get("examples", [])
    return [*(listed if isinstance(listed, list) else []), *([schema["default"]] if "default" in schema else [])]
