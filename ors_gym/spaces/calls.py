"""Tool calls that a list of tools allows, as dicts and as JSON text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ors_gym.actions import MAX_ACTION_SIZE
from ors_gym.protocol import JSONObject, ToolSpec
from ors_gym.schemas import Sampler, SchemaError
from ors_gym.spaces._base import ValueSpace

Call = dict[str, Any]
"""A tool call: `{"name": ..., "input": {...}}`."""


class _Tools:
    """Tools by name, each with a sampler that is made when it is first needed."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tuple(tools)
        self._samplers: dict[str, Sampler | None] = {}

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.tools]

    def allows(self, name: Any, arguments: Any) -> bool:
        """Whether there is such a tool, and its schema allows the input. A broken schema, which only its server can judge, allows
        any object."""
        if not isinstance(name, str) or not isinstance(arguments, dict) or name not in self.names:
            return False
        sampler = self._sampler(name)
        try:
            return sampler is None or sampler.validator.is_valid(arguments)
        except SchemaError:
            return True

    def sample(self, name: str, rng: np.random.Generator) -> JSONObject:
        """An input that the tool's schema allows.

        Raises:
            SchemaError: The schema is broken, or no input could be found.
        """
        tool = self.tools[self.names.index(name)]
        try:
            sampler = self._sampler(name) or Sampler(tool.input_schema)
            value = sampler.sample(rng)
        except SchemaError as error:
            raise SchemaError(f"no call of the tool {name!r} can be sampled: {error}") from None
        if not isinstance(value, dict):
            raise SchemaError(f"no call of the tool {name!r} can be sampled: its schema is not that of an object")
        return value

    def _sampler(self, name: str) -> Sampler | None:
        """The tool's sampler; None for a broken schema."""
        if name not in self._samplers:
            try:
                self._samplers[name] = Sampler(self.tools[self.names.index(name)].input_schema)
            except SchemaError:
                self._samplers[name] = None
        return self._samplers[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Tools, (self.tools,)

    def __repr__(self) -> str:
        shown = ", ".join("".join(letter for letter in name[:30] if letter.isprintable()) for name in self.names[:5])
        return shown + (f", … {len(self.tools)} tools" if len(self.tools) > 5 else "")


class ToolCallSpace(ValueSpace[Call]):
    """Dicts `{"name", "input"}` whose tool is one of the given, and whose input its JSON Schema allows.

    Args:
        tools: The tools.
        seed: A seed for `sample`, or a generator.

    >>> space = ToolCallSpace([ToolSpec(name="guess", input_schema={
    ...     "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]})])
    >>> space.contains({"name": "guess", "input": {"n": 2}}), space.contains({"name": "guess", "input": {"n": 3}})
    (True, False)
    """

    def __init__(self, tools: Sequence[ToolSpec], *, seed: int | np.random.Generator | None = None) -> None:
        self._tools = _Tools(tools)
        super().__init__(seed)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools."""
        return self._tools.tools

    def contains(self, x: Any) -> bool:
        """Whether it is a call that its tool's schema allows."""
        return isinstance(x, Mapping) and set(x) == {"name", "input"} and self._tools.allows(x["name"], x["input"])

    def sample(self, mask: NDArray[np.int8] | None = None, probability: NDArray[np.float64] | None = None) -> Call:
        """A call that its tool's schema allows, decided by `np_random`.

        Args:
            mask: Shape (number of tools,), int8: 1 for the tools to choose from, 0 for the others.
            probability: Shape (number of tools,), float64, with the sum 1: each tool's probability.

        Raises:
            ValueError: There is no tool to choose, or mask or probability do not fit.
            SchemaError: The chosen tool's schema cannot be sampled; the message says why.
        """
        name = self._tools.names[_choose(self.np_random, len(self.tools), mask, probability)]
        return {"name": name, "input": self._tools.sample(name, self.np_random)}

    def zero(self) -> Call:
        """A call of the first tool, always the same one."""
        if not self.tools:
            raise ValueError("there is no tool to call")
        return {"name": self._tools.names[0], "input": self._tools.sample(self._tools.names[0], np.random.default_rng(0))}

    def __repr__(self) -> str:
        return f"ToolCallSpace({self._tools!r})"

    def _key(self) -> tuple[ToolSpec, ...]:
        return self.tools


class JSONText(ValueSpace[str]):
    """Tool calls as JSON text: `ToolCallSpace`, written by `json.dumps`.

    Args:
        tools: The tools.
        seed: A seed for `sample`, or a generator.

    >>> JSONText([ToolSpec(name="look")]).contains('{"name": "look", "input": {}}')
    True
    """

    def __init__(self, tools: Sequence[ToolSpec], *, seed: int | np.random.Generator | None = None) -> None:
        self._calls = ToolCallSpace(tools)
        super().__init__(seed)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools."""
        return self._calls.tools

    def contains(self, x: Any) -> bool:
        """Whether it is the JSON of a call that its tool's schema allows."""
        if not isinstance(x, str) or len(x) > MAX_ACTION_SIZE:
            return False
        try:
            return self._calls.contains(json.loads(x))
        except (ValueError, RecursionError):
            return False

    def sample(self, mask: NDArray[np.int8] | None = None, probability: NDArray[np.float64] | None = None) -> str:
        """The JSON of a call; arguments and errors are those of `ToolCallSpace.sample`."""
        name = self._calls._tools.names[_choose(self.np_random, len(self.tools), mask, probability)]
        return json.dumps({"name": name, "input": self._calls._tools.sample(name, self.np_random)})

    def zero(self) -> str:
        """The JSON of a call of the first tool, always the same one."""
        return json.dumps(self._calls.zero())

    def __repr__(self) -> str:
        return f"JSONText({self._calls._tools!r})"

    def _key(self) -> tuple[ToolSpec, ...]:
        return self.tools


def _choose(rng: np.random.Generator, count: int, mask: NDArray[np.int8] | None, probability: NDArray[np.float64] | None) -> int:
    """The position of one of `count` tools."""
    if mask is not None and probability is not None:
        raise ValueError("give a mask or probabilities, not both")
    given = mask if mask is not None else probability
    if given is not None and (not isinstance(given, np.ndarray) or given.shape != (count,)):
        raise ValueError(f"a mask or probabilities of the tools are an array of shape ({count},)")
    if probability is not None:
        return int(rng.choice(count, p=probability))
    allowed = np.arange(count) if mask is None else np.flatnonzero(mask)
    if len(allowed) == 0:
        raise ValueError("there is no tool to call" if mask is None else "the mask leaves no tool")
    return int(allowed[rng.integers(len(allowed))])
