"""Actions that are values: a `ToolCall`, a dict, a chat message, or a list of those.

Everything that becomes a tool call goes through `tool_call`, which lets through only what can travel as JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from ors_gym.errors import InvalidAction
from ors_gym.protocol import ToolCall

RawCall = tuple[str, Any]
"""A tool's name and its arguments as they were written: an object, its JSON text, or None."""

MAX_ACTION_SIZE = 1_000_000
"""The largest action that is read: in characters of its text, or of its input, where each value counts as eight more."""

MAX_CALLS = 128
"""The most tool calls in one action."""

MAX_DEPTH = 100
"""The deepest nesting of an input."""

_MAX_BITS = 10_000  # Python writes no integer of more than 4,300 digits
_ARGUMENT_KEYS = ("input", "arguments", "parameters")
_BESIDE_ARGUMENTS = {"name", "type", "id", "call_id", "index", "status", "task_id", "caller", "cache_control"}


def is_call(value: Any) -> bool:
    """Whether a value is a mapping that names a tool: `{"name": ...}`, or OpenAI's `{"function": {"name": ...}}`."""
    if not isinstance(value, Mapping):
        return False
    function = value.get("function")
    named = function if isinstance(function, Mapping) else value
    return isinstance(named.get("name"), str) and "role" not in value


def read_value(action: Any) -> list[ToolCall] | str:
    """The tool calls of an action that is not a string; or its text, where it is a message without any.

    Args:
        action: A `ToolCall`; a mapping with `name` and `input`, `arguments` or `parameters` (an object, or its JSON); an
            OpenAI or Anthropic message, as a mapping or as the client library's object; or a list of those.

    Raises:
        InvalidAction: It is none of these.
    """
    if isinstance(action, ToolCall):
        return [tool_call(action.name, action.input)]
    if isinstance(action, BaseModel):
        action = action.model_dump()
    if isinstance(action, Mapping):
        return [tool_call(*named_call(action))] if is_call(action) or "role" not in action else _read_messages([action])
    if isinstance(action, Sequence) and not isinstance(action, (str, bytes, bytearray)) and len(action) > 0:
        items = [item.model_dump() if isinstance(item, BaseModel) and not isinstance(item, ToolCall) else item for item in action]
        if all(isinstance(item, Mapping) and "role" in item for item in items):
            return _read_messages(items)
        return limited([call for item in items for call in _calls_of_item(item)])
    raise InvalidAction(f"an action is text, a tool call, a chat message or a list of tool calls, not {shortened(action)}")


def named_call(value: Mapping[str, Any]) -> RawCall:
    """The name and the arguments of the call that a mapping describes.

    >>> named_call({"type": "function", "function": {"name": "submit", "arguments": '{"answer": "72"}'}})
    ('submit', '{"answer": "72"}')

    Raises:
        InvalidAction: It names no tool, or its parameters are not in one place.
    """
    function = value.get("function")
    if isinstance(function, Mapping):
        value = function
    name = value.get("name")
    if not isinstance(name, str):
        raise InvalidAction('a tool call is an object with "name" and "input"; there is no name that is a string')
    given = [key for key in _ARGUMENT_KEYS if key in value]
    if len(given) > 1:
        raise InvalidAction(f"the call of {shortened(name)} has {' and '.join(given)}; give one of them")
    if not given and (strays := [key for key in value if key not in _BESIDE_ARGUMENTS]):
        raise InvalidAction(
            f'the call of {shortened(name)} has no "input", but {", ".join(shortened(key) for key in strays[:5])}; '
            'parameters belong inside "input"'
        )
    return name, value[given[0]] if given else None


def tool_call(name: str, arguments: Any) -> ToolCall:
    """A tool call whose input is plain JSON, within the limits on size and depth.

    Args:
        name: The tool's name.
        arguments: An object, its JSON text, or None for an empty object.

    Raises:
        InvalidAction: The name is empty, or the arguments are not one JSON object that can be sent.
    """
    if not name.strip():
        raise InvalidAction("a tool call without a name")
    check_text(name)
    if isinstance(arguments, str):
        arguments = read_json(arguments) if arguments.strip() else None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise InvalidAction(f"the input of {shortened(name)} is an object of parameters, not {shortened(arguments)}")
    return ToolCall(name=str(name), input=_plain(arguments, _Budget(), 0))


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidAction: It is not JSON, is too large, or is nested too deeply.
    """
    check_text(text)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidAction("JSON that is nested too deeply") from None
    except ValueError as error:
        raise InvalidAction(f"not valid JSON: {error}") from None


def check_text(text: str) -> None:
    """See that a text can be sent.

    Raises:
        InvalidAction: It is too long, or holds a lone surrogate, which no UTF-8 has.
    """
    if len(text) > MAX_ACTION_SIZE:
        raise InvalidAction(f"an action of {len(text):,} characters; the limit is {MAX_ACTION_SIZE:,}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidAction(f"a lone surrogate at character {error.start}: it cannot be sent as UTF-8") from None


def limited(calls: list[ToolCall]) -> list[ToolCall]:
    """The same calls, if they are not too many.

    Raises:
        InvalidAction: More than `MAX_CALLS` calls.
    """
    if len(calls) > MAX_CALLS:
        raise InvalidAction(f"{len(calls):,} tool calls in one action; the limit is {MAX_CALLS}")
    return calls


def shortened(value: object, limit: int = 60) -> str:
    """A value as a reason can show it: a string's quoted beginning, a small scalar, or its type.

    >>> shortened("a" * 100, limit=8), shortened(7), shortened([])
    ("'aaaaaaaa…'", '7', 'a value of type list')
    """
    if isinstance(value, str):
        return repr(str(value[:limit]) + ("…" if len(value) > limit else ""))
    small = value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and value.bit_length() < 64)
    return repr(value) if small else f"a value of type {type(value).__name__}"


def _read_messages(messages: Sequence[Mapping[str, Any]]) -> list[ToolCall] | str:
    """The calls of the assistant's messages, or the last one's text."""
    spoken = [message for message in messages if message.get("role") == "assistant"]
    if not spoken:
        raise InvalidAction('a chat message that acts has the role "assistant"')
    calls = [call for message in spoken for call in _message_calls(message)]
    return limited(calls) if calls else _message_text(spoken[-1])


def _message_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    listed = message.get("tool_calls") or []
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise InvalidAction(f"tool_calls is a list, not {shortened(listed)}")
    content = message.get("content")
    parts = content if isinstance(content, Sequence) and not isinstance(content, str) else []
    used = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "tool_use"]
    return [call for item in (*listed, *used) for call in _calls_of_item(item)]


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        raise InvalidAction("a message with neither tool calls nor text")
    if not isinstance(content, Sequence):
        raise InvalidAction(f"a message's content is text or a list of parts, not {shortened(content)}")
    texts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") in ("text", "output_text")]
    return "\n".join(text for text in texts if isinstance(text, str))


def _calls_of_item(item: Any) -> list[ToolCall]:
    if isinstance(item, ToolCall):
        return [tool_call(item.name, item.input)]
    if isinstance(item, BaseModel):
        item = item.model_dump()
    if isinstance(item, Mapping):
        return [tool_call(*named_call(item))]
    raise InvalidAction(f"a list of tool calls holds {shortened(item)}")


class _Budget:
    """What is left of the size of one input."""

    def __init__(self) -> None:
        self.left = MAX_ACTION_SIZE

    def take(self, characters: int = 0) -> None:
        """Account for one value of so many characters."""
        self.left -= 8 + characters
        if self.left < 0:
            raise InvalidAction(f"an input of more than {MAX_ACTION_SIZE:,} characters")


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    """The value in JSON's own types; NumPy's scalars and arrays become numbers and lists."""
    if depth > MAX_DEPTH:
        raise InvalidAction(f"an input nested more than {MAX_DEPTH} deep")
    if isinstance(value, (np.generic, np.ndarray)) and not isinstance(value, (str, float)):
        budget.take(value.size)
        value = value.tolist()
    if value is None or isinstance(value, bool):
        budget.take()
        return value
    if isinstance(value, str):
        budget.take(len(value))
        check_text(value)
        return str(value)
    if isinstance(value, int):
        budget.take()
        if value.bit_length() > _MAX_BITS:
            raise InvalidAction(f"an integer of more than {_MAX_BITS:,} bits")
        return int(value)
    if isinstance(value, float):
        budget.take()
        if not math.isfinite(value):
            raise InvalidAction(f"{value} is no JSON number")
        return float(value)
    if isinstance(value, Mapping):
        budget.take()
        return {_plain_key(key, budget): _plain(item, budget, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        budget.take()
        return [_plain(item, budget, depth + 1) for item in value]
    raise InvalidAction(f"an input holds {shortened(value)}, which is no JSON value")


def _plain_key(key: Any, budget: _Budget) -> str:
    if not isinstance(key, str):
        raise InvalidAction(f"the key {shortened(key)} of an input is no string")
    budget.take(len(key))
    check_text(key)
    return str(key)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
