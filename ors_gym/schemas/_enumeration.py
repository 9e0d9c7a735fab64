"""All values that a finite schema allows, in a stable order."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from ors_gym.schemas._merging import merged
from ors_gym.schemas._numbers import bounds, plain, step_of
from ors_gym.schemas._validation import SafeValidator, Schema, canonical

MAX_CANDIDATES = 200_000
"""The most values and forms of a schema that are looked at, those that it turns out not to allow counted."""

_DEEPEST = 32


def enumerate_values(schema: Schema | None, limit: int = 10_000) -> list[Any]:
    """All values that a finite schema allows, each once.

    The order is part of the interface: `enum` as written; false before true; integers, and multiples, upwards; the branches of
    `anyOf` and `oneOf` one after another; an optional property first left out, then with each of its values; of an object's
    properties and an array's items, the last changes fastest; shorter arrays before longer ones. Objects have the properties that
    the schema lists, and no others.

    Args:
        schema: A JSON Schema; None has one value, the empty object.
        limit: The most values.

    Raises:
        ValueError: The schema allows more than `limit` values, or endlessly many; the message names the part that does.
        SchemaError: The schema is broken.

    >>> enumerate_values({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 2}}})
    [{}, {'n': 1}, {'n': 2}]
    """
    return _Enumeration(SafeValidator(schema), limit).values()


class _Enumeration:
    """One listing, and what it may still look at."""

    def __init__(self, validator: SafeValidator, limit: int) -> None:
        self.validator = validator
        self.limit = limit
        self.left = MAX_CANDIDATES

    def values(self) -> list[Any]:
        return self._listed(self.validator.schema, "the schema", 0)

    def _listed(self, schema: Schema, path: str, depth: int) -> list[Any]:
        """The values of a part of the schema, each once, and valid."""
        if depth > _DEEPEST:
            raise ValueError(f"{path} has values that are nested without end")
        found: dict[str, Any] = {}
        for flat in self._forms(schema, path, 0):
            for value in self._of_form(flat, path, depth):
                self._spend(path)
                key = canonical(value)
                if key not in found and self.validator.is_valid(value, schema):
                    found[key] = value
                if len(found) > self.limit:
                    raise ValueError(f"{path} has more than {self.limit:,} values")
        return list(found.values())

    def _forms(self, schema: Schema, path: str, depth: int) -> Iterator[dict[str, Any]]:
        """The flat forms of a schema: references followed, `allOf` merged, each branch of `anyOf` and `oneOf` in its turn."""
        if depth > _DEEPEST:
            raise ValueError(f"{path} refers to itself without end")
        if isinstance(schema, bool):
            yield from [{}] if schema else []
            return
        needed: list[list[Schema]] = [[branch] for branch in schema.get("allOf", ())]
        needed.extend(schema[keyword] for keyword in ("anyOf", "oneOf") if keyword in schema)
        if isinstance(schema.get("$ref"), str):
            needed.append([self.validator.resolve(schema["$ref"])])
        for branches in product(*needed):
            for forms in product(*(list(self._forms(branch, path, depth + 1)) for branch in branches)):
                self._spend(path)
                flat: dict[str, Any] = {}
                for form in (*forms, schema):
                    flat = merged(flat, form)
                yield flat

    def _of_form(self, flat: Mapping[str, Any], path: str, depth: int) -> Iterator[Any]:
        if "const" in flat:
            yield flat["const"]
        elif "enum" in flat:
            yield from flat["enum"]
        elif "type" not in flat:
            if "properties" not in flat:
                raise ValueError(f"{path} allows any value")
            yield from self._objects(flat, path, depth)
        else:
            for kind in [flat["type"]] if isinstance(flat["type"], str) else flat["type"]:
                yield from self._of_kind(kind, flat, path, depth)

    def _of_kind(self, kind: str, flat: Mapping[str, Any], path: str, depth: int) -> Iterator[Any]:
        if kind == "null":
            yield None
        elif kind == "boolean":
            yield from (False, True)
        elif kind in ("integer", "number"):
            yield from self._numbers(flat, path, whole=kind == "integer")
        elif kind == "object":
            yield from self._objects(flat, path, depth)
        elif kind == "array":
            yield from self._arrays(flat, path, depth)
        elif flat.get("maxLength") == 0:
            yield ""
        else:
            raise ValueError(f"{path} is any string")

    def _numbers(self, flat: Mapping[str, Any], path: str, *, whole: bool) -> Iterator[Any]:
        low, high = bounds(flat)
        step = step_of(flat, whole=whole)
        if low is None or high is None or step is None:
            raise ValueError(f"{path} is any {'integer' if whole else 'number'} of an open range")
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first >= self.limit + 2:
            raise ValueError(f"{path} has more than {self.limit:,} values")
        yield from (plain(step * multiple) for multiple in range(first, last + 1))

    def _objects(self, flat: Mapping[str, Any], path: str, depth: int) -> Iterator[dict[str, Any]]:
        properties: Mapping[str, Schema] = flat.get("properties", {})
        required = flat.get("required", [])
        if not properties and depth > 0 and flat.get("additionalProperties") is not False and flat.get("maxProperties") != 0:
            raise ValueError(f"{path} is an object of any properties")
        if unlisted := [name for name in required if name not in properties]:
            raise ValueError(f"{path} requires the property {json.dumps(unlisted[0])[:80]}, of which it says nothing")
        choices = []
        for name, part in properties.items():
            given = [{name: value} for value in self._listed(part, f"the property {json.dumps(name)[:80]}", depth + 1)]
            choices.append(given if name in required else [{}, *given])
        for chosen in product(*choices):
            yield {name: value for pair in chosen for name, value in pair.items()}

    def _arrays(self, flat: Mapping[str, Any], path: str, depth: int) -> Iterator[list[Any]]:
        items = flat.get("items", True)
        listed, rest = (
            (items, flat.get("additionalItems", True)) if isinstance(items, list) else (flat.get("prefixItems", []), items)
        )
        most = len(listed) if rest is False else flat.get("maxItems", math.inf)
        if most == math.inf:
            raise ValueError(f"{path} is an array of any length")
        choices: list[list[Any]] = []
        for length in range(int(most) + 1):
            if length > 0:
                part = listed[length - 1] if length <= len(listed) else rest
                choices.append(self._listed(part, f"an item of {path}", depth + 1))
            self._spend(path, 1 + length)
            if choices and not choices[-1]:
                return
            if length >= flat.get("minItems", 0):
                yield from map(list, product(*choices))

    def _spend(self, path: str, cost: int = 1) -> None:
        self.left -= cost
        if self.left < 0:
            raise ValueError(f"{path} has too many forms and values to be listed")
