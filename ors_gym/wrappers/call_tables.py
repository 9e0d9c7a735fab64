"""Finite tool sets as numbers: tables that turn an action of `Discrete` or `MultiDiscrete` into a tool call.

Their order is part of the interface, since a trained policy's outputs mean what the table says:

- Tools come in the server's order, parameters in the order of the schema's `properties`.
- A parameter's values come in the order in which `ors_gym.schemas.enumerate_values` lists them (an `enum` as written, ranges
  upwards, `anyOf` and `oneOf` branch by branch), candidates in the order given. An optional parameter is first left out.
- Of the calls of one tool, the last parameter changes fastest.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final, Protocol

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete, MultiDiscrete
from numpy.typing import NDArray

from ors_gym.protocol import JSONObject, ToolCall, ToolSpec
from ors_gym.schemas import SafeValidator, enumerate_values

Candidates = Mapping[str, Mapping[str, Sequence[Any]]]
"""Values by tool and parameter: `{"submit": {"answer": ["yes", "no"]}}`."""

MAX_VALUES = 10_000
"""How many values one parameter may have."""

_LEFT_OUT: Final = object()


class ToolCallTable(Protocol):
    """Actions of a space, and the tool calls that they stand for."""

    @property
    def space(self) -> Space[Any]:
        """The space of the actions."""
        ...

    def call(self, action: Any) -> ToolCall:
        """The tool call of an action."""
        ...

    def mask(self, tools: Sequence[JSONObject]) -> NDArray[np.int8]:
        """1 where a task that lists these tools allows the action, else 0; all 1 where it would allow none."""
        ...


class DiscreteCalls:
    """Every call of a finite tool set, numbered.

    Args:
        tools: The tools, in the server's order.
        candidates: Values by tool and parameter, for parameters that have no finite set or too large a one.
        max_actions: How many calls there may be.

    Raises:
        ValueError: A parameter has no finite set of values; there are too many calls, or none; a candidate is not among
            the tools, or not valid.

    >>> color = {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"]}
    >>> table = DiscreteCalls([ToolSpec(name="look"), ToolSpec(name="paint", input_schema=color)])
    >>> table.space
    Discrete(3)
    >>> table.call(2).input
    {'color': 'blue'}
    """

    def __init__(self, tools: Sequence[ToolSpec], candidates: Candidates | None = None, max_actions: int = 10_000) -> None:
        _check_names(tools, candidates)
        listings = [_Listing(tool, (candidates or {}).get(tool.name, {}), max_actions) for tool in tools]
        total = sum(listing.count for listing in listings)
        if total > max_actions:
            counts = ", ".join(f"{listing.tool.name}: {listing.count:,}" for listing in listings)
            raise ValueError(
                f"the tools have {total:,} calls ({counts}), more than max_actions={max_actions:,}; "
                "raise it, pass candidates for fewer values, or use MultiDiscreteToolCalls"
            )
        self.calls = tuple(call for listing in listings for call in listing.calls())
        if not self.calls:
            raise ValueError("the environment has no tool that could be called")
        self.space: Discrete = Discrete(len(self.calls))
        self._shared = _schemas_json([tool.model_dump(include={"name", "input_schema"}) for tool in tools])
        self._cached_mask = lru_cache(maxsize=64)(self._mask)

    def call(self, action: Any) -> ToolCall:
        """The tool call of an action: an integer from 0, below the space's `n`."""
        return self.calls[int(action)]

    def mask(self, tools: Sequence[JSONObject]) -> NDArray[np.int8]:
        """1 for the calls whose tool is listed and whose input its schema allows, else 0; all 1 where none is allowed.

        Args:
            tools: The task's tools, as in `info["tools"]`.
        """
        return self._cached_mask(_schemas_json(tools)).copy()

    def _mask(self, schemas_json: str) -> NDArray[np.int8]:
        if schemas_json == self._shared:
            return np.ones(len(self.calls), dtype=np.int8)
        validators = {name: SafeValidator(schema) for name, schema in json.loads(schemas_json).items()}
        allowed = [call.name in validators and validators[call.name].is_valid(call.input) for call in self.calls]
        return np.array(allowed if any(allowed) else [True] * len(allowed), dtype=np.int8)


class MultiDiscreteCalls:
    """A number for the tool, and one for each parameter of each tool; those of other tools are ignored.

    Args:
        tools: The tools, in the server's order.
        candidates: Values by tool and parameter, for parameters that have no finite set or too large a one.
        bins: How many values, evenly spaced, a number with a minimum and a maximum is given.

    Attributes:
        slots: For each number of an action after the first, its tool and parameter.

    Raises:
        ValueError: As for `DiscreteCalls`.

    >>> volume = {"type": "object", "properties": {"volume": {"type": "number", "minimum": 0, "maximum": 1}}}
    >>> table = MultiDiscreteCalls([ToolSpec(name="stop"), ToolSpec(name="play", input_schema=volume)], bins=3)
    >>> table.space, table.slots
    (MultiDiscrete([2 4]), (('play', 'volume'),))
    >>> table.call([1, 0]).input, table.call([1, 2]).input
    ({}, {'volume': 0.5})
    """

    def __init__(self, tools: Sequence[ToolSpec], candidates: Candidates | None = None, bins: int = 11) -> None:
        if bins < 2:
            raise ValueError(f"bins must be at least 2, not {bins}")
        if not tools:
            raise ValueError("the environment has no tool that could be called")
        _check_names(tools, candidates)
        self._parameters = {
            tool.name: _parameter_values(tool, (candidates or {}).get(tool.name, {}), MAX_VALUES, bins) for tool in tools
        }
        self._names = tuple(self._parameters)
        self.slots = tuple((tool, parameter) for tool, values in self._parameters.items() for parameter in values)
        self._sizes = [len(self._names), *(len(self._parameters[tool][parameter]) for tool, parameter in self.slots)]
        self.space = MultiDiscrete(self._sizes)

    def call(self, action: Any) -> ToolCall:
        """The tool call of an action: a number for the tool, then one for each of `slots`."""
        name = self._names[int(action[0])]
        chosen = {
            parameter: self._parameters[tool][parameter][int(value)]
            for (tool, parameter), value in zip(self.slots, action[1:], strict=True)
            if tool == name
        }
        return _call(name, chosen)

    def mask(self, tools: Sequence[JSONObject]) -> NDArray[np.int8]:
        """0 for tools that are not listed, else 1, all numbers' masks one after the other, of length `sum(space.nvec)`.

        Args:
            tools: The task's tools, as in `info["tools"]`.
        """
        mask = np.ones(sum(self._sizes), dtype=np.int8)
        listed = {tool["name"] for tool in tools} & set(self._names)
        if listed:
            mask[: len(self._names)] = [name in listed for name in self._names]
        return mask


class _Listing:
    """The calls of one tool: its parameters' values, or whole inputs where its schema does not name its parameters."""

    def __init__(self, tool: ToolSpec, candidates: Mapping[str, Sequence[Any]], limit: int) -> None:
        self.tool = tool
        self._inputs: list[JSONObject] | None = None
        self._parameters: dict[str, list[Any]] = {}
        if _names_parameters(tool):
            self._parameters = _parameter_values(tool, candidates, limit)
            self.count = prod(map(len, self._parameters.values()))
        else:
            self._inputs = _enumerated(tool.name, "", tool.input_schema, limit)
            self.count = len(self._inputs)

    def calls(self) -> Iterator[ToolCall]:
        """The calls, in their order, that the tool's whole schema allows."""
        if self._inputs is not None:
            yield from (ToolCall(name=self.tool.name, input=found) for found in self._inputs)
            return
        validator = SafeValidator(self.tool.input_schema)
        for chosen in product(*self._parameters.values()):
            call = _call(self.tool.name, dict(zip(self._parameters, chosen, strict=True)))
            if validator.is_valid(call.input):
                yield call


def _call(name: str, chosen: Mapping[str, Any]) -> ToolCall:
    return ToolCall(name=name, input={parameter: value for parameter, value in chosen.items() if value is not _LEFT_OUT})


def _check_names(tools: Sequence[ToolSpec], candidates: Candidates | None) -> None:
    known = [f"{tool.name}.{parameter}" for tool in tools for parameter in _object_schema(tool).get("properties", {})]
    named = [f"{tool}.{parameter}" for tool, values in (candidates or {}).items() for parameter in values]
    if unknown := [name for name in named if name not in known]:
        raise ValueError(
            f"candidates for parameters that there are not: {', '.join(unknown)}; there are: {', '.join(known) or 'none'}"
        )


def _parameter_values(
    tool: ToolSpec, candidates: Mapping[str, Sequence[Any]], limit: int, bins: int | None = None
) -> dict[str, list[Any]]:
    """The values of each parameter, `_LEFT_OUT` the first of an optional one."""
    if not _names_parameters(tool):
        raise ValueError(f"the schema of tool {tool.name!r} does not name its parameters one by one; use DiscreteToolCalls")
    schema = _object_schema(tool)
    shared = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    found: dict[str, list[Any]] = {}
    for parameter, part in schema.get("properties", {}).items():
        own = {**part, **shared} if isinstance(part, dict) else part
        if parameter in candidates:
            values = _checked(f"{tool.name}.{parameter}", candidates[parameter], own)
        else:
            values = _enumerated(tool.name, parameter, _binned(own, bins) if bins else own, limit)
        found[parameter] = values if parameter in schema.get("required", []) else [_LEFT_OUT, *values]
    return found


def _names_parameters(tool: ToolSpec) -> bool:
    schema = _object_schema(tool)
    return "properties" in schema or not any(keyword in schema for keyword in ("anyOf", "oneOf", "allOf"))


def _object_schema(tool: ToolSpec) -> JSONObject:
    schema = tool.input_schema or {}
    if isinstance(schema.get("$ref"), str):
        resolved = SafeValidator(schema).resolve(schema["$ref"])
        return {**schema, **resolved} if isinstance(resolved, dict) else schema
    return schema


def _checked(place: str, candidates: Sequence[Any], schema: Any) -> list[Any]:
    validator = SafeValidator(schema)
    wrong = [error for value in candidates for error in validator.errors(value)]
    if wrong or not candidates:
        raise ValueError(f"candidates for {place}: {wrong[0] if wrong else 'there is none'}")
    return list(candidates)


def _enumerated(tool: str, parameter: str, schema: Any, limit: int) -> list[Any]:
    try:
        return enumerate_values(schema, limit)
    except ValueError as error:
        if not parameter:
            raise ValueError(f"the inputs of tool {tool!r} cannot be listed: {error}") from error
        raise ValueError(
            f"tool {tool!r} takes a parameter {parameter!r} whose values cannot be listed: {error}. "
            f"Pass the values to choose from: candidates={{{tool!r}: {{{parameter!r}: [...]}}}}"
        ) from error


def _binned(schema: Any, bins: int) -> Any:
    """The schema, with `bins` evenly spaced values in the place of each number between two bounds."""
    if not isinstance(schema, dict):
        return schema
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return {**schema, keyword: [_binned(branch, bins) for branch in schema[keyword]]}
    first = schema.get("minimum", schema.get("exclusiveMinimum"))
    last = schema.get("maximum", schema.get("exclusiveMaximum"))
    if schema.get("type") != "number" or first is None or last is None:
        return schema
    open_below, open_above = "minimum" not in schema, "maximum" not in schema
    points = np.linspace(first, last, bins + open_below + open_above)
    inside = points[open_below : len(points) - open_above]
    return {**schema, "enum": [round(float(point), 12) for point in inside]}


def _schemas_json(tools: Sequence[JSONObject]) -> str:
    return json.dumps({tool["name"]: tool.get("input_schema") for tool in tools}, sort_keys=True)
