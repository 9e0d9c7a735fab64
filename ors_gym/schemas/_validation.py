"""Validation against a server's schema, which is not trusted: nothing is fetched, and no schema takes for ever."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema
import re2
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from ors_gym.protocol import JSONObject

Schema = JSONObject | bool

MAX_REFERENCES = 20_000
"""How many `$ref`s one validation follows; a few schemas that refer to each other can otherwise branch without end."""

MAX_ERRORS = 20
"""How many errors of one value are told."""

_NO_FORMATS = jsonschema.FormatChecker(formats=())
_references_left: ContextVar[int] = ContextVar("references_left", default=MAX_REFERENCES)


class SchemaError(ValueError):
    """A schema that is broken, or that asks for what cannot be done; the message says where and why."""


class SafeValidator:
    """A schema, compiled: valid by its own draft (2020-12 where none is declared).

    Patterns run on RE2, in linear time; a pattern that RE2 does not know (look-around, back-references) allows every string.

    Args:
        schema: The schema; None is that of a tool without parameters, which takes an empty object.

    Raises:
        SchemaError: It is no JSON Schema.
    """

    def __init__(self, schema: Schema | None) -> None:
        self.schema: Schema = {"type": "object", "maxProperties": 0} if schema is None else schema
        try:
            draft: Any = jsonschema.validators.validator_for(self.schema, default=jsonschema.Draft202012Validator)
            draft.check_schema(self.schema, format_checker=_NO_FORMATS)
            has_patterns = "patternProperties" in json.dumps(self.schema)
        except jsonschema.SchemaError as error:
            raise SchemaError(f"not a valid JSON Schema, at {error.json_path}: {_shortened(error.message)}") from None
        except RecursionError:
            raise SchemaError("a schema that is nested too deeply") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"not a valid JSON Schema: {_shortened(str(error))}") from None
        self._validator = _safe(draft, has_patterns=has_patterns)(self.schema, registry=Registry())
        specification = specification_with(draft.META_SCHEMA.get("$schema", ""), default=DRAFT202012)
        self._resolver = Registry().resolver_with_root(specification.create_resource(self.schema))

    def errors(self, value: Any, schema: Schema | None = None) -> list[str]:
        """What is wrong with a value, in a reader's words; nothing if it is valid.

        Args:
            value: A JSON value.
            schema: A part of the schema to hold it against instead of the whole.

        Raises:
            SchemaError: The schema refers to itself without end, or to what is not there.
        """
        return [_readable(error) for error in self._found(value, schema, MAX_ERRORS)]

    def is_valid(self, value: Any, schema: Schema | None = None) -> bool:
        """Whether a value is valid; see `errors`."""
        return not self._found(value, schema, 1)

    def resolve(self, reference: str) -> Schema:
        """The part of the schema that a `$ref` from its root names.

        Raises:
            SchemaError: There is none; a reference out of the schema is never followed.
        """
        try:
            found = self._resolver.lookup(reference).contents
        except Unresolvable:
            raise SchemaError(f"the reference {_shortened(reference)!r} leads nowhere; none is fetched") from None
        if not isinstance(found, (dict, bool)):
            raise SchemaError(f"the reference {_shortened(reference)!r} leads to no schema")
        return found

    def _found(self, value: Any, schema: Schema | None, limit: int) -> list[ValidationError]:
        validator = self._validator if schema is None else self._validator.evolve(schema=schema)
        token = _references_left.set(MAX_REFERENCES)
        try:
            return list(islice(validator.iter_errors(value), limit))
        except RecursionError:
            raise SchemaError("a schema, or a value, that is nested without end") from None
        except Unresolvable as error:
            raise SchemaError(f"the reference {_shortened(str(error.ref))!r} leads nowhere; none is fetched") from None
        except SchemaError:
            raise
        except ValueError as error:  # a lone surrogate, or an integer of thousands of digits, which no JSON has
            raise SchemaError(f"a value that cannot be judged: {_shortened(str(error))}") from None
        finally:
            _references_left.reset(token)


def validator_for(schema: Schema) -> SafeValidator:
    """A `SafeValidator`, kept for the next time: compiling takes a millisecond.

    Raises:
        SchemaError: The schema is broken.
    """
    try:
        return _kept(json.dumps(schema))
    except SchemaError:
        raise
    except (RecursionError, TypeError, ValueError) as error:
        raise SchemaError(f"a schema that is no JSON: {error}") from None


@lru_cache(maxsize=128)
def _kept(schema: str) -> SafeValidator:
    return SafeValidator(json.loads(schema))


def validate(schema: Schema | None, value: Any) -> list[str]:
    """What is wrong with a value, in a reader's words; an empty list if it is valid.

    Args:
        schema: A JSON Schema, or None for a tool without parameters.
        value: A JSON value.

    Raises:
        SchemaError: The schema is broken.

    >>> validate({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": "two"})
    ["n: 'two' is not of type 'integer'"]
    """
    return SafeValidator(schema).errors(value)


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text; True for one that RE2 does not know."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(text) is not None


def is_checkable(pattern: str) -> bool:
    """Whether RE2 knows the pattern."""
    return _compiled(pattern) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 22
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, ValueError):
        return None


@lru_cache(maxsize=16)
def _safe(draft: Any, *, has_patterns: bool) -> Any:
    """The draft's validator, with keywords in the place of those that would let a schema run away.

    jsonschema finds unevaluated properties by running the patterns of `patternProperties` on `re`: with any of those, it does not.
    """
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "multipleOf": _multiple_of,
        "uniqueItems": _unique_items,
    }
    if has_patterns:
        keywords["unevaluatedProperties"] = _unchecked
    references = ("$ref", "$dynamicRef", "$recursiveRef")
    counted = {name: _counted(draft.VALIDATORS[name]) for name in references if name in draft.VALIDATORS}
    return jsonschema.validators.extend(draft, keywords | counted)  # type: ignore[no-untyped-call]


def _counted(follow: Any) -> Any:
    def counted(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        left = _references_left.get()
        if left <= 0:
            raise SchemaError(f"a schema that follows more than {MAX_REFERENCES:,} references for one value")
        _references_left.set(left - 1)
        yield from follow(validator, reference, instance, schema) or ()

    return counted


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield ValidationError(f"{_shortened(instance)!r} does not match {_shortened(pattern)!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, subschema: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for key, value in instance.items():
        if key in schema.get("properties", {}) or any(matches(pattern, key) for pattern in schema.get("patternProperties", {})):
            continue
        if subschema is False:
            yield ValidationError(f"{_shortened(key)!r} is not among the properties that are allowed")
        else:
            yield from validator.descend(value, subschema, path=key)


def _unchecked(validator: Any, subschema: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from ()


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """By the digits as JSON writes them: 0.3 is a multiple of 0.1, which it is not in floating point."""
    comparable = validator.is_type(instance, "number") and is_finite(instance) and is_finite(step)
    if comparable and (exact(instance) / exact(step)).denominator != 1:
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and validator.is_type(instance, "array") and len({canonical(item) for item in instance}) < len(instance):
        yield ValidationError("the items are not all different")


def is_finite(number: float) -> bool:
    """Whether it is neither infinite nor NaN; an int is finite whatever its size."""
    return isinstance(number, int) or math.isfinite(number)


def exact(number: float) -> Fraction:
    """A finite number by the digits that JSON writes for it."""
    return Fraction(number) if isinstance(number, int) else Fraction(str(number))


def canonical(value: Any) -> str:
    """A text that is equal for values that JSON Schema holds to be equal: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_with_whole_numbers(item) for item in value]
    return value


def _readable(error: ValidationError) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path}: {_shortened(error.message)}" if path else _shortened(error.message)


def _shortened(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
