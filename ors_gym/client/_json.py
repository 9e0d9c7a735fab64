"""Bytes from a server → validated values, or a `ProtocolError` that says what was wrong."""

import json
import math
from typing import Any, NoReturn, TypeVar

import pydantic_core
from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class BadPayload(ValueError):
    """What a server sent is not what the standard says; the message says how, without the payload."""


def decode(adapter: TypeAdapter[T], payload: bytes | str) -> T:
    """`payload` as JSON, validated.

    Raises:
        BadPayload: It is not UTF-8, not JSON, nested too deep, or of other types; or a number is too large, such as 1e400.
    """
    value = parse(payload)
    try:
        validated = adapter.validate_python(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the answer'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False, include_input=False)[:3]
        ]
        raise BadPayload("; ".join(problems)) from None
    except RecursionError:
        raise BadPayload("JSON is nested too deep") from None
    _refuse_infinite(value)
    return validated


def parse(payload: bytes | str) -> Any:
    """`payload` as JSON. pydantic-core reads it; what it refuses, lone surrogates among it, the standard library is asked about.

    Raises:
        BadPayload: It is not UTF-8, not JSON, or nested too deep.
    """
    try:
        return pydantic_core.from_json(payload, allow_inf_nan=False)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise BadPayload("JSON is nested too deep") from None
    try:
        text = payload if isinstance(payload, str) else payload.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadPayload(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise BadPayload("JSON is nested too deep") from None
    except ValueError as error:
        raise BadPayload(f"not JSON: {error}") from None


def dump(value: Any) -> bytes:
    """`value` as JSON in ASCII, so that lone surrogates and every line separator survive.

    Raises:
        ValueError: NaN or an infinity, or a reference to itself.
        TypeError: A value that JSON has not.
    """
    return _encoder.encode(value).encode("ascii")


def _refuse_infinite(value: Any) -> None:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, float) and math.isinf(one):
            raise BadPayload("a number is too large")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
