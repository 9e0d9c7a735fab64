"""Observations and infos of any Gymnasium environment as JSON, and back again equal to the bit.

What JSON has by itself (text, booleans, null, Python's integers and finite floats) is written as it is. Everything else is an
object with one key that names the type: arrays and NumPy's numbers keep their dtype, shape and bytes.
"""

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from ors_gym.protocol import JSONValue


def encode(value: Any) -> JSONValue:
    """A value as JSON that `decode` restores, type and bits.

    Args:
        value: Built from None, bool, int, float, str, tuples, lists, mappings with string keys, NumPy arrays and numbers, and
            Gymnasium's `GraphInstance`.

    Raises:
        TypeError: A part of it has another type.

    >>> encode((1, 0.5))
    {'tuple': [1, 0.5]}
    """
    match value:
        case np.ndarray() | np.generic():  # before float and str, which NumPy's own derive from
            return _encode_array(value)
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case GraphInstance():
            return {"graph": [encode(part) for part in value]}
        case tuple():
            return {"tuple": [encode(part) for part in value]}
        case list():
            return [encode(part) for part in value]
        case Mapping() if all(isinstance(key, str) for key in value):
            return {"dict": {key: encode(part) for key, part in value.items()}}
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} cannot be written as JSON exactly: {value!r:.100}")


def encode_info(info: Mapping[str, Any]) -> JSONValue:
    """An environment's info as JSON: exact where it can be, and the text of what cannot (objects that only live there).

    >>> encode_info({"prob": 0.5, "engine": object})
    {'dict': {'prob': 0.5, 'engine': "<class 'object'>"}}
    """
    encoded: dict[str, JSONValue] = {}
    for key, value in info.items():
        try:
            encoded[str(key)] = encode(value)
        except TypeError:
            encoded[str(key)] = str(value)
    return {"dict": encoded}


def decode(encoded: Any) -> Any:
    """The value that `encode` wrote.

    Raises:
        ValueError: It is not something that `encode` writes.

    >>> decode({"tuple": [1, 0.5]})
    (1, 0.5)
    """
    match encoded:
        case None | bool() | str() | int() | float():
            return encoded
        case list():
            return [decode(part) for part in encoded]
        case dict() if len(encoded) != 1:
            pass
        case {"tuple": list(parts)}:
            return tuple(decode(part) for part in parts)
        case {"dict": dict(parts)}:
            return {key: decode(part) for key, part in parts.items()}
        case {"float": "nan" | "inf" | "-inf" as number}:
            return float(number)
        case {"graph": [nodes, edges, edge_links]}:
            return GraphInstance(decode(nodes), decode(edges), decode(edge_links))
        case {"array": {"dtype": str(dtype), "shape": list(shape), "data": str(data)}}:
            return _decode_array(dtype, shape, data)
        case {"number": {"dtype": str(dtype), "data": str(data)}}:
            return _decode_array(dtype, [], data)[()]
    raise ValueError(f"not an exactly encoded value: {encoded!r:.100}")


def _encode_array(value: np.ndarray[Any, Any] | np.generic) -> JSONValue:
    if value.dtype.hasobject:
        raise TypeError(f"an array of dtype {value.dtype} cannot be written as JSON exactly")
    portable = value.dtype.newbyteorder("<")
    data = base64.b64encode(np.asarray(value, dtype=portable).tobytes()).decode()
    if isinstance(value, np.generic):
        return {"number": {"dtype": portable.str, "data": data}}
    return {"array": {"dtype": portable.str, "shape": list(value.shape), "data": data}}


def _decode_array(dtype: str, shape: list[Any], data: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ValueError(f"an array of dtype {dtype} is not restored: it could hold anything")
    # Native byte order is the order that the environment's own arrays have.
    return np.frombuffer(base64.b64decode(data), dtype=kind).reshape(shape).astype(kind.newbyteorder("="), copy=True)
