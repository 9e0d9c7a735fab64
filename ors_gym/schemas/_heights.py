"""How deep a schema's smallest value is: what tells a recursion that ends from one that does not."""

import math
from collections.abc import Iterator
from typing import Any

from ors_gym.schemas._validation import SafeValidator, Schema, SchemaError

MAX_SUBSCHEMAS = 20_000
"""The most parts of a schema that are looked at."""

MAX_HEIGHT = 64
"""The deepest smallest value that is looked for; beyond, a schema counts as one without end."""


class Heights:
    """The height of each part of a schema: of its smallest value, 0 for a scalar, infinite where no value ends.

    Args:
        validator: The schema.

    Raises:
        SchemaError: It has too many parts, or a reference leads nowhere.
    """

    def __init__(self, validator: SafeValidator) -> None:
        self._validator = validator
        self._parts: dict[int, dict[str, Any]] = {}
        self._collect(validator.schema)
        self._heights: dict[int, float] = dict.fromkeys(self._parts, math.inf)
        for _ in range(MAX_HEIGHT):
            if not self._improve():
                break

    def of(self, schema: Schema) -> float:
        """The height of a part of the schema."""
        if schema is False:
            return math.inf
        if schema is True:
            return 0
        known = self._heights.get(id(schema))
        return self._measure(schema) if known is None else known

    def _improve(self) -> bool:
        changed = False
        for key, part in self._parts.items():
            height = self._measure(part)
            if height < self._heights[key]:
                self._heights[key] = height
                changed = True
        return changed

    def _measure(self, part: Schema) -> float:
        if isinstance(part, bool):
            return self.of(part)
        if "const" in part or "enum" in part:
            return 0
        needed: list[float] = [0]
        if isinstance(part.get("$ref"), str):
            needed.append(self.of(self._validator.resolve(part["$ref"])))
        needed.extend(self.of(branch) for branch in part.get("allOf", ()))
        needed.extend(min(map(self.of, part[word]), default=math.inf) for word in ("anyOf", "oneOf") if word in part)
        kinds = part.get("type")
        alternatives = [self._measure_kind(part, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds or [""])]
        needed.append(min(alternatives, default=math.inf))
        return max(needed)

    def _measure_kind(self, part: dict[str, Any], kind: str) -> float:
        """The height of the smallest value of one type; "" where the schema names no type."""
        inside: list[float] = []
        if kind in ("object", ""):
            properties = part.get("properties", {})
            inside.extend(1 + self.of(properties.get(name, True)) for name in part.get("required", ()))
        if kind in ("array", "") and part.get("minItems", 0) > 0:
            items = part.get("items", True)
            listed = items if isinstance(items, list) else part.get("prefixItems", [])
            inside.extend(1 + self.of(item) for item in listed[: int(part["minItems"])])
            if len(listed) < part["minItems"] and not isinstance(items, list):
                inside.append(1 + self.of(items))
        return max(inside, default=0)

    def _collect(self, schema: Schema) -> None:
        waiting: list[Schema] = [schema]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, dict) or id(part) in self._parts:
                continue
            if len(self._parts) >= MAX_SUBSCHEMAS:
                raise SchemaError(f"a schema of more than {MAX_SUBSCHEMAS:,} parts")
            self._parts[id(part)] = part
            waiting.extend(_children(part))
            if isinstance(part.get("$ref"), str):
                waiting.append(self._validator.resolve(part["$ref"]))


def _children(part: dict[str, Any]) -> Iterator[Schema]:
    """The schemas directly inside a schema that a value may have to meet."""
    for word in ("allOf", "anyOf", "oneOf", "prefixItems"):
        yield from part.get(word, ())
    for word in ("properties", "patternProperties", "dependentSchemas"):
        yield from part.get(word, {}).values()
    for word in ("additionalProperties", "unevaluatedProperties", "contains", "if", "then", "else"):
        if word in part:
            yield part[word]
    items = part.get("items", True)
    yield from items if isinstance(items, list) else [items]
