"""Actions: what a policy said, read as tool calls."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from ors_gym.actions import syntaxes
from ors_gym.actions.cursor import Cursor
from ors_gym.actions.forms import (
    MAX_ACTION_SIZE,
    MAX_CALLS,
    MAX_DEPTH,
    RawCall,
    check_text,
    limited,
    read_value,
    shortened,
    tool_call,
)
from ors_gym.errors import InvalidAction
from ors_gym.protocol import ToolCall, ToolSpec
from ors_gym.tools import find_text_tool, find_tool, text_parameter

__all__ = ["MAX_ACTION_SIZE", "MAX_CALLS", "MAX_DEPTH", "ActionFormat", "parse"]

ActionFormat = Literal["tool_call", "json", "text"]

_LOOKS_LIKE_A_CALL = re.compile(r'\s*\[?\s*\{\s*"(?:name"|function"|type"\s*:\s*"function)')


def parse(
    action: Any,
    *,
    action_format: ActionFormat = "tool_call",
    tools: Sequence[ToolSpec] = (),
    text_tool: str | None = None,
) -> list[ToolCall]:
    """Read what a policy said as tool calls.

    Whatever the format, these are calls: a `ToolCall`; a mapping with `name` and `input`, `arguments` or `parameters`; a chat
    message with `tool_calls`; a list of those. The text of a message without calls is read as text.

    Args:
        action: What the policy said.
        action_format: How text is read. `"tool_call"` and `"json"`: JSON with a name, then such JSON in a code fence, then the tags
            of a model family (`ors_gym.actions.syntaxes`), then plain text to the text tool. `"text"`: verbatim to the text tool,
            even if it is JSON.
        tools: The tools of the task.
        text_tool: The tool that plain text goes to; None for the only one with one required string parameter.

    Returns:
        At least one call. Whether its tool exists and takes the input is the server's to say.

    Raises:
        InvalidAction: The action is not one of these, is too large or too deep, or holds what JSON cannot. No action raises
            anything else.
        ValueError: `action_format` is none of the three.

    >>> parse('<tool_call>{"name": "submit", "arguments": {"answer": "72"}}</tool_call>')
    [ToolCall(name='submit', input={'answer': '72'}, task_id=None)]
    """
    if action_format not in ("tool_call", "json", "text"):
        raise ValueError(f"action_format is 'tool_call', 'json' or 'text', not {action_format!r}")
    said = str(action) if isinstance(action, str) else read_value(action)
    if not isinstance(said, str):
        return said
    check_text(said)
    if action_format == "text":
        return [_to_text_tool(said, tools, text_tool)]
    text = syntaxes.spoken(said)
    calls = _written_calls(text, tools)
    if calls:
        return limited([tool_call(name, arguments) for name, arguments in calls])
    if not text:
        raise InvalidAction("an empty action; " + _how_to_call(tools))
    return [_to_text_tool(text, tools, text_tool)]


def _written_calls(text: str, tools: Sequence[ToolSpec]) -> list[RawCall]:
    """The calls in a text, by the first of the forms that it has; none if it is plain text."""
    calls = _json_calls(text)
    if calls:
        return calls
    tagged = syntaxes.find_syntax(text)
    fenced = _fenced_calls(text, len(text) if tagged is None else tagged[0])
    if fenced:
        return fenced
    if tagged is not None:
        return syntaxes.read_syntax(text, tagged[1], tools)
    return syntaxes.read_pythonic(text)


def _json_calls(text: str) -> list[RawCall]:
    """The calls of a text that begins with their JSON: one value, or several one after another."""
    cursor = Cursor(text)
    calls: list[RawCall] = []
    while len(calls) <= MAX_CALLS and cursor.at("{", "["):
        found = _calls_at(cursor)
        if not found:
            break
        calls.extend(found)
        _ = cursor.accept(";") or cursor.accept(",")
    return calls


def _fenced_calls(text: str, end: int) -> list[RawCall]:
    """The calls in the code fences that open before `end`, of the first `MAX_CALLS` fences."""
    cursor = Cursor(text)
    calls: list[RawCall] = []
    for _ in range(MAX_CALLS):
        if not cursor.seek("```") or cursor.position > end:
            break
        start = cursor.position
        cursor.until("\n")  # behind the language's name
        if not cursor.at("{", "["):
            cursor.position = start
        if cursor.at("{", "["):
            calls.extend(_calls_at(cursor))
        cursor.seek("```")
    return calls


def _calls_at(cursor: Cursor) -> list[RawCall]:
    """The calls of the JSON value that comes next; none if it is another value, or none, and is not meant as a call."""
    start = cursor.position
    try:
        value = cursor.json()
    except InvalidAction:
        if _LOOKS_LIKE_A_CALL.match(cursor.text, start):
            raise
        return []
    return syntaxes.calls_of_json(value)


def _to_text_tool(text: str, tools: Sequence[ToolSpec], text_tool: str | None) -> ToolCall:
    """The text as the one parameter of the text tool."""
    if text_tool is None:
        found = find_text_tool(tools)
        if found is None:
            raise InvalidAction("no tool call in the text; " + _how_to_call(tools))
        name, parameter = found
        return tool_call(name, {parameter: text})
    tool = find_tool(tools, text_tool)
    needed = text_parameter(tool) if tool else None
    if needed is None:
        raise InvalidAction(
            f"text goes to the tool {shortened(text_tool)}, which this task does not offer with one required string"
        )
    return tool_call(text_tool, {needed: text})


def _how_to_call(tools: Sequence[ToolSpec]) -> str:
    names = ", ".join(tool.name[:60] for tool in tools[:20])
    return 'call a tool as {"name": ..., "input": {...}}' + (f"; the tools are {names}" if names else "")
