"""Gymnasium's own spaces as JSON: as the JSON Schema of an action, actions to and from JSON, and whole spaces there and back."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from ors_gym.protocol import JSONObject, JSONValue
from ors_gym.spaces.exact import decode, encode

_MAX_ENUM = 64
"""Larger discrete spaces are bounds in their schema, not a list."""


class OutsideSpace(ValueError):
    """An action that is not in its space; the message tells where and what would be."""


def action_schema(space: Space[Any], meanings: Sequence[str] = ()) -> JSONObject:
    """The JSON Schema of an action, draft 2020-12.

    Arrays are nested lists. A `Dict` is an object, a `Tuple` a list, a `OneOf` an object with `choice` (which space) and `value`.

    Args:
        space: The action space, of any of Gymnasium's types but `Graph`.
        meanings: What each action of a `Discrete` space does.

    Raises:
        TypeError: A space of another type.

    >>> action_schema(spaces.Discrete(2), ["left", "right"])
    {'type': 'integer', 'enum': [0, 1], 'description': '0: left; 1: right'}
    """
    match space:
        case spaces.Discrete():
            return _discrete_schema(int(space.start), int(space.n), meanings)
        case spaces.MultiDiscrete():
            return _array_schema(space.nvec.shape, lambda at: _discrete_schema(int(space.start[at]), int(space.nvec[at])))
        case spaces.MultiBinary():
            return _array_schema(space.shape, lambda at: {"type": "integer", "enum": [0, 1]})
        case spaces.Box():
            return _array_schema(space.shape, lambda at: _number_schema(space, at))
        case spaces.Text():
            pattern = f"^[{''.join(re.escape(character) for character in space.characters)}]*$"
            return {"type": "string", "minLength": space.min_length, "maxLength": space.max_length, "pattern": pattern}
        case spaces.Dict():
            properties = {key: action_schema(part) for key, part in space.items()}
            return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
        case spaces.Tuple():
            return _list_schema([action_schema(part) for part in space])
        case spaces.OneOf():
            return {"anyOf": [_choice_schema(choice, part) for choice, part in enumerate(space.spaces)]}
        case spaces.Sequence():
            return {"type": "array", "items": action_schema(space.feature_space)}
    raise TypeError(f"actions of the space {space} cannot be written as a JSON Schema")


def _discrete_schema(start: int, n: int, meanings: Sequence[str] = ()) -> JSONObject:
    if n > _MAX_ENUM:
        return {"type": "integer", "minimum": start, "maximum": start + n - 1}
    schema: JSONObject = {"type": "integer", "enum": list(range(start, start + n))}
    if meanings:
        schema["description"] = "; ".join(f"{start + number}: {meaning}" for number, meaning in enumerate(meanings))
    return schema


def _number_schema(space: spaces.Box, at: tuple[int, ...]) -> JSONObject:
    low, high = space.low[at].item(), space.high[at].item()
    schema: JSONObject = {"type": "number" if np.issubdtype(space.dtype, np.floating) else "integer"}
    if np.isfinite(low):
        schema["minimum"] = low
    if np.isfinite(high):
        schema["maximum"] = high
    return schema


def _choice_schema(choice: int, space: Space[Any]) -> JSONObject:
    return {
        "type": "object",
        "properties": {"choice": {"const": choice}, "value": action_schema(space)},
        "required": ["choice", "value"],
        "additionalProperties": False,
    }


def _array_schema(shape: tuple[int, ...], leaf: Callable[[tuple[int, ...]], JSONObject], at: tuple[int, ...] = ()) -> JSONObject:
    if not shape:
        return leaf(at)
    return _list_schema([_array_schema(shape[1:], leaf, (*at, number)) for number in range(shape[0])])


def _list_schema(parts: list[JSONObject]) -> JSONObject:
    schema: JSONObject = {"type": "array", "minItems": len(parts), "maxItems": len(parts)}
    if parts and all(part == parts[0] for part in parts):
        return {**schema, "items": parts[0]}
    return {**schema, "prefixItems": parts}


def action_to_json(space: Space[Any], action: Any) -> JSONValue:
    """A native action as JSON, valid against `action_schema`.

    >>> action_to_json(spaces.Box(-1, 1, (2,)), np.array([0.5, -1], dtype=np.float32))
    [0.5, -1.0]
    """
    match space:
        case spaces.Discrete():
            return int(action)
        case spaces.MultiDiscrete() | spaces.MultiBinary() | spaces.Box():
            plain: JSONValue = np.asarray(action).tolist()
            return plain
        case spaces.Text():
            return str(action)
        case spaces.Dict():
            return {key: action_to_json(part, action[key]) for key, part in space.items()}
        case spaces.Tuple():
            return [action_to_json(part, value) for part, value in zip(space, action, strict=True)]
        case spaces.OneOf():
            choice, value = action
            return {"choice": int(choice), "value": action_to_json(space.spaces[choice], value)}
        case spaces.Sequence():
            values = iterate(space.stacked_feature_space, action) if space.stack else action
            return [action_to_json(space.feature_space, value) for value in values]
    raise TypeError(f"actions of the space {space} cannot be written as JSON")


def action_from_json(space: Space[Any], value: Any, name: str = "action") -> Any:
    """The native action that a policy's JSON stands for.

    Args:
        space: The action space.
        value: What the policy sent.
        name: What to call it in an error.

    Raises:
        OutsideSpace: It is not in the space; the message says where and what would be.

    >>> action_from_json(spaces.Discrete(3), 5)
    Traceback (most recent call last):
    ors_gym.spaces.native.OutsideSpace: action must be an integer from 0 to 2, not 5
    """
    action = _native(space, value, name)
    if not space.contains(action):
        raise OutsideSpace(f"{name} must be in {space}, not {value!r:.200}")
    return action


def _native(space: Space[Any], value: Any, name: str) -> Any:
    match space:
        case spaces.Discrete():
            return space.dtype.type(_integer(value, int(space.start), int(space.n), name))
        case spaces.MultiDiscrete():
            start, nvec = space.start, space.nvec
            return _native_array(space, value, name, lambda part, at, where: _integer(part, int(start[at]), int(nvec[at]), where))
        case spaces.MultiBinary():
            return _native_array(space, value, name, lambda part, at, where: _integer(part, 0, 2, where))
        case spaces.Box():
            return _native_array(space, value, name, lambda part, at, where: _number(space, part, at, where))
        case spaces.Text():
            if not isinstance(value, str) or not space.contains(value):
                length = f"{space.min_length} to {space.max_length} characters"
                raise OutsideSpace(f"{name} must be a text of {length} out of {space.characters!r:.200}, not {value!r:.200}")
            return value
        case spaces.Dict():
            if not isinstance(value, Mapping) or set(value) != set(space.keys()):
                raise OutsideSpace(f"{name} must be an object with the keys {sorted(space.keys())}, not {value!r:.200}")
            return {key: _native(part, value[key], f"{name}.{key}") for key, part in space.items()}
        case spaces.Tuple():
            parts = _list(value, len(space.spaces), name)
            return tuple(
                _native(part, item, f"{name}[{number}]") for number, (part, item) in enumerate(zip(space, parts, strict=True))
            )
        case spaces.OneOf():
            if not isinstance(value, Mapping) or set(value) != {"choice", "value"}:
                raise OutsideSpace(f"{name} must be an object with the keys 'choice' and 'value', not {value!r:.200}")
            choice = _integer(value["choice"], 0, len(space.spaces), f"{name}.choice")
            return np.int64(choice), _native(space.spaces[choice], value["value"], f"{name}.value")
        case spaces.Sequence():
            return _native_sequence(space, value, name)
    raise TypeError(f"actions of the space {space} cannot be read from JSON")


def _native_sequence(space: spaces.Sequence, value: Any, name: str) -> Any:
    items = tuple(_native(space.feature_space, item, f"{name}[{number}]") for number, item in enumerate(_list(value, None, name)))
    if not space.stack:
        return items
    stacked: Any = create_empty_array(space.feature_space, len(items))
    return concatenate(space.feature_space, items, stacked)


def _native_array(space: Space[Any], value: Any, name: str, leaf: Callable[[Any, tuple[int, ...], str], int | float]) -> Any:
    shape = space.shape or ()
    flat: list[int | float] = []

    def collect(part: Any, at: tuple[int, ...], where: str) -> None:
        if len(at) == len(shape):
            flat.append(leaf(part, at, where))
            return
        for number, item in enumerate(_list(part, shape[len(at)], where)):
            collect(item, (*at, number), f"{where}[{number}]")

    collect(value, (), name)
    return np.array(flat, dtype=space.dtype).reshape(shape)


def _list(value: Any, length: int | None, name: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or (length is not None and len(value) != length):
        raise OutsideSpace(f"{name} must be a list{'' if length is None else f' of {length}'}, not {value!r:.200}")
    return value


def _integer(value: Any, start: int, n: int, name: str) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, float) and value.is_integer():  # in JSON Schema 1.0 is an integer
        value, whole = int(value), True
    if not whole or not start <= value < start + n:
        raise OutsideSpace(f"{name} must be an integer from {start} to {start + n - 1}, not {value!r:.200}")
    return int(value)


def _number(space: spaces.Box, value: Any, at: tuple[int, ...], name: str) -> int | float:
    low, high = space.low[at].item(), space.high[at].item()
    if not np.issubdtype(space.dtype, np.floating):
        return _integer(value, low, high - low + 1, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= _rounded(value, space.dtype) <= high:
        raise OutsideSpace(f"{name} must be a number from {low} to {high}, not {value!r:.200}")
    return value


def _rounded(value: int | float, dtype: Any) -> float:
    """The number in the space's own precision, in which the space compares it; NaN if it is too large for that."""
    try:
        with np.errstate(over="ignore"):
            rounded: float = dtype.type(value).item()
    except OverflowError:
        return float("nan")
    return rounded if np.isfinite(rounded) else float("nan")


def space_to_json(space: Space[Any]) -> JSONObject:
    """A space as JSON that `space_from_json` restores to an equal one.

    Raises:
        TypeError: It is not one of Gymnasium's fundamental or composite spaces.
    """
    match space:
        case spaces.Discrete():
            return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.str}
        case spaces.MultiDiscrete():
            return {
                "type": "MultiDiscrete",
                "nvec": encode(space.nvec),
                "start": encode(space.start),
                "dtype": space.dtype.str,
            }
        case spaces.MultiBinary():
            return {"type": "MultiBinary", "shape": list(space.shape)}
        case spaces.Box():
            return {"type": "Box", "low": encode(space.low), "high": encode(space.high), "dtype": space.dtype.str}
        case spaces.Text():
            return {"type": "Text", "min": space.min_length, "max": space.max_length, "characters": space.characters}
        case spaces.Dict():
            return {"type": "Dict", "spaces": {key: space_to_json(part) for key, part in space.items()}}
        case spaces.Tuple():
            return {"type": "Tuple", "spaces": [space_to_json(part) for part in space]}
        case spaces.OneOf():
            return {"type": "OneOf", "spaces": [space_to_json(part) for part in space.spaces]}
        case spaces.Sequence():
            return {"type": "Sequence", "space": space_to_json(space.feature_space), "stack": space.stack}
        case spaces.Graph():
            edge = None if space.edge_space is None else space_to_json(space.edge_space)
            return {"type": "Graph", "node": space_to_json(space.node_space), "edge": edge}
    raise TypeError(f"the space {space} is not one of Gymnasium's own")


def space_from_json(written: Mapping[str, Any]) -> Space[Any]:
    """The space that `space_to_json` wrote.

    Raises:
        ValueError: It is not something that `space_to_json` writes.
    """
    match written:
        case {"type": "Discrete", "n": n, "start": start, "dtype": dtype}:
            return spaces.Discrete(n, start=start, dtype=np.dtype(dtype))
        case {"type": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": dtype}:
            return spaces.MultiDiscrete(decode(nvec), dtype=np.dtype(dtype), start=decode(start))
        case {"type": "MultiBinary", "shape": shape}:
            return spaces.MultiBinary(shape if len(shape) > 1 else shape[0])
        case {"type": "Box", "low": low, "high": high, "dtype": dtype}:
            return spaces.Box(decode(low), decode(high), dtype=np.dtype(dtype).type)
        case {"type": "Text", "min": minimum, "max": maximum, "characters": characters}:
            return spaces.Text(maximum, min_length=minimum, charset=characters)
        case {"type": "Dict", "spaces": dict(parts)}:
            return spaces.Dict([(key, space_from_json(part)) for key, part in parts.items()])  # pairs keep their order
        case {"type": "Tuple", "spaces": list(parts)}:
            return spaces.Tuple([space_from_json(part) for part in parts])
        case {"type": "OneOf", "spaces": list(parts)}:
            return spaces.OneOf([space_from_json(part) for part in parts])
        case {"type": "Sequence", "space": part, "stack": stack}:
            return spaces.Sequence(space_from_json(part), stack=stack)
        case {"type": "Graph", "node": node, "edge": edge}:
            return spaces.Graph(space_from_json(node), None if edge is None else space_from_json(edge))
    raise ValueError(f"not a space as JSON: {written!r:.200}")
