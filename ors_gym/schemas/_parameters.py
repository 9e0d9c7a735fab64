"""A tool's parameters one by one: what to ask a person for, and how to read what was typed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ors_gym.schemas._validation import SafeValidator, Schema, SchemaError

_WORDS = {"true": True, "false": False, "null": None, "none": None, "yes": True, "no": False}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool, as a form shows it.

    Attributes:
        name: The parameter's name.
        required: Whether a call must have it.
        kind: What it takes, in a word or two: "string", "integer", "one of: red, blue", "JSON array".
        description: The server's description, or "".
        choices: The values that it is limited to, by `enum`, `const`, `boolean` or `null`; empty if it is not.
        default: The value that the schema gives as default, with `has_default`.
        has_default: Whether there is a default.
        validator: The schema that it is a part of.
        schema: Its own part of that schema.
    """

    name: str
    required: bool
    kind: str
    description: str
    choices: tuple[Any, ...]
    default: Any
    has_default: bool
    validator: SafeValidator
    schema: Schema

    def read(self, text: str) -> Any:
        """The value that a typed text stands for.

        Raises:
            ValueError: The text is no valid value; the message says why.
        """
        value = read_text(self.validator, self.schema, text)
        errors = self.validator.errors(value, self.schema)
        if errors:
            raise ValueError(f"{self.name}: {'; '.join(errors)}")
        return value


def parameters(schema: Schema | None) -> list[Parameter]:
    """The parameters of a tool, the required ones first, each group in the schema's order.

    Args:
        schema: The tool's `input_schema`; None gives none.

    Raises:
        SchemaError: The schema is broken, or is not that of an object.

    >>> [p.name for p in parameters({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]})]
    ['b', 'a']
    """
    if schema is None:
        return []
    validator = SafeValidator(schema)
    root = _resolved(validator, validator.schema)
    if not isinstance(root, dict):
        return []
    if not validator.is_valid({}) and root.get("type", "object") not in ("object", ["object"]):
        raise SchemaError("the schema of a tool's input describes an object")
    required = root.get("required", [])
    found = [_parameter(validator, name, part, name in required) for name, part in root.get("properties", {}).items()]
    return sorted(found, key=lambda parameter: not parameter.required)


def read_text(validator: SafeValidator, schema: Schema, text: str) -> Any:
    """The value that a text stands for, where a schema says what is wanted: `"72"` is a string or a number.

    A schema of strings takes the text as it is. Any other takes what the text says as JSON, where it allows that, else the text.
    What it allows in neither way is returned all the same, for a validator to say what is wrong.

    >>> integer = SafeValidator({"type": "integer"})
    >>> read_text(integer, integer.schema, "72")
    72
    """
    candidates = _readings(text)
    if not _wants_text(validator, schema):
        candidates.reverse()
    return next((value for value in candidates if validator.is_valid(value, schema)), candidates[0])


def _readings(text: str) -> list[Any]:
    """The string itself, then what it says as JSON or as a word, if anything."""
    try:
        return [text, json.loads(text)]
    except (ValueError, RecursionError):
        word = text.strip().lower()
        return [text, _WORDS[word]] if word in _WORDS else [text]


def _wants_text(validator: SafeValidator, schema: Schema) -> bool:
    """Whether the schema asks for a string by its type alone."""
    part = _resolved(validator, schema)
    if not isinstance(part, dict):
        return False
    return part.get("type") == "string" or ("enum" in part and all(isinstance(value, str) for value in part["enum"]))


def _parameter(validator: SafeValidator, name: str, schema: Schema, required: bool) -> Parameter:
    resolved = _resolved(validator, schema)
    part: Mapping[str, Any] = resolved if isinstance(resolved, dict) else {}
    beside: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    description = beside.get("description", part.get("description", ""))
    choices = _choices(part)
    return Parameter(
        name=name,
        required=required,
        kind=_kind(part, choices),
        description=description if isinstance(description, str) else "",
        choices=choices,
        default=beside.get("default", part.get("default")),
        has_default="default" in beside or "default" in part,
        validator=validator,
        schema=schema,
    )


def _choices(part: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in part:
        return (part["const"],)
    if "enum" in part:
        return tuple(part["enum"])
    kinds = {"boolean": (True, False), "null": (None,)}
    return kinds.get(part["type"], ()) if isinstance(part.get("type"), str) else ()


def _kind(part: Mapping[str, Any], choices: tuple[Any, ...]) -> str:
    if choices:
        return "one of: " + ", ".join(value if isinstance(value, str) else json.dumps(value) for value in choices)
    for keyword in ("anyOf", "oneOf"):
        if keyword in part:
            kinds = [_kind(branch, _choices(branch)) for branch in part[keyword] if isinstance(branch, dict)]
            return " or ".join(dict.fromkeys(kinds)) or "JSON"
    kind = part.get("type", "JSON")
    if isinstance(kind, list):
        return " or ".join(str(item) for item in kind)
    return f"JSON {kind}" if kind in ("object", "array") else str(kind)


def _resolved(validator: SafeValidator, schema: Schema) -> Schema:
    """The schema behind its `$ref`s, the followed ones at most a few: more is a circle."""
    for _ in range(32):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = validator.resolve(schema["$ref"])
    raise SchemaError("a schema that refers to itself without end")
