"""The ways in which model families write tool calls in text.

Each family has an opening that no prose has by chance, and a reader that goes through the text once: time is linear whatever
the text. The forms are those of the families' chat templates, and what the models write where that differs.

    <tool_call>             {"name": ..., "arguments": ...}              Hermes, Qwen2.5, Qwen3
                            <function=name><parameter=key>value          Qwen3-Coder, Qwen3.5, Nemotron 3
                            name<arg_key>key</arg_key><arg_value>value   GLM-4
    <function=name>         {...}, or parameters as above                Llama 3.1, Qwen3-Coder
    <|tool_call>            call:name{key:<|"|>value<|"|>}               Gemma 4
    <|tool_call_start|>     [name(key='value')]                          LFM2
    <|python_tag|>          {"name": ..., "parameters": ...}, or name.call(key="value")    Llama 3.1, 3.2
    [name(key='value')]     the whole text                               Llama 3.2, Llama 4
    to=functions.name       <|message|>{...}<|call|>                     GPT-OSS
    [TOOL_CALLS]            [{"name": ..., "arguments": ...}], name{...}, or name[ARGS]{...}   Mistral
    <｜tool▁call▁begin｜>     function<｜tool▁sep｜>name and fenced JSON, or name<｜tool▁sep｜>{...}  DeepSeek R1, V3, V3.1
    <|tool_call_begin|>     functions.name:0<|tool_call_argument_begin|>{...}              Kimi K2
    <|tool_call|>           [{"name": ..., "arguments": ...}]            Granite, Phi-4
    <|START_ACTION|>        [{"tool_name": ..., "parameters": ...}]      Command R
    <invoke name="...">     <parameter name="key">value                  DeepSeek V3.2, MiniMax M2, with or without a prefix
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ors_gym.actions.cursor import Cursor
from ors_gym.actions.forms import MAX_CALLS, RawCall, is_call, named_call
from ors_gym.errors import InvalidAction
from ors_gym.protocol import ToolSpec
from ors_gym.schemas import SafeValidator, SchemaError, read_text, validator_for
from ors_gym.tools import find_tool

Read = Callable[[Cursor, "ParameterTypes"], list[RawCall]]

_TURN_ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<|call|>",
    "<|user|>",
    "<|observation|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)
_THOUGHT_END = "</think>"
_REASONING = (
    ("<think>", _THOUGHT_END),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
_HARMONY_FINAL = "<|channel|>final<|message|>"
_HARMONY_TOOL = "to=functions."


class ParameterTypes:
    """What the tools' schemas say about a bare value: the same `72` is a number for one parameter and a string for another."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._validators: dict[str, SafeValidator | None] = {}

    def read(self, text: str, name: str, key: str) -> Any:
        """The value of a tool's parameter; the text itself where the tool's schema is broken, which its server will judge."""
        validator = self._validator(name)
        if validator is None:
            return text
        root = validator.schema if isinstance(validator.schema, dict) else {}
        try:
            return read_text(validator, root.get("properties", {}).get(key, True), text)
        except SchemaError:
            return text

    def _validator(self, name: str) -> SafeValidator | None:
        if name not in self._validators:
            tool = find_tool(self._tools, name)
            try:
                self._validators[name] = validator_for(tool.input_schema if tool and tool.input_schema else {})
            except SchemaError:
                self._validators[name] = None
        return self._validators[name]


@dataclass(frozen=True)
class Syntax:
    """How one family writes its calls.

    Attributes:
        opening: What each of its calls begins with.
        read: Reads from behind an opening to the end of what it opens; returns the calls in it.
    """

    opening: str
    read: Read


def spoken(text: str) -> str:
    """A completion without its reasoning and its end-of-turn tokens.

    >>> spoken("<think>Seven, I guess.</think>\\n\\n7<|im_end|>")
    '7'

    Raises:
        InvalidAction: It is reasoning that never ends.
    """
    if not text.lstrip().startswith(_CALL_STARTS):
        text = _without_reasoning(text)
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    while ending := next((ending for ending in _TURN_ENDS if text.endswith(ending, start, end)), ""):
        end -= len(ending)
        while end > start and text[end - 1].isspace():
            end -= 1
    return text[start:end]


def find_syntax(text: str) -> tuple[int, Syntax] | None:
    """The syntax that opens first in a text, and where; None if none does."""
    opened = [(start, order) for order, syntax in enumerate(SYNTAXES) if (start := text.find(syntax.opening)) >= 0]
    if not opened:
        return None
    start, order = min(opened)
    return start, SYNTAXES[order]


def read_syntax(text: str, syntax: Syntax, tools: Sequence[ToolSpec]) -> list[RawCall]:
    """All calls that a text has in a syntax.

    Args:
        text: A completion, without its reasoning.
        syntax: The one that opens first.
        tools: The tools, whose schemas say whether a bare `72` is a number or a string.

    Raises:
        InvalidAction: A call opens, and goes on as it must not.
    """
    cursor = Cursor(text)
    types = ParameterTypes(tools)
    calls: list[RawCall] = []
    while len(calls) <= MAX_CALLS and cursor.seek(syntax.opening):
        calls.extend(syntax.read(cursor, types))
    if not calls:
        raise InvalidAction(f"{syntax.opening} opens a tool call, and there is none")
    return calls


def read_pythonic(text: str) -> list[RawCall]:
    """The calls of a text that is a list of calls in Python's syntax and nothing else; none if it is another text.

    >>> read_pythonic("[look(), take(thing='lamp')]")
    [('look', {}), ('take', {'thing': 'lamp'})]

    Raises:
        InvalidAction: It begins as such a list, and goes on as it must not.
    """
    if not _PYTHONIC.match(text):
        return []
    cursor = Cursor(text)
    calls: list[RawCall] = [*cursor.calls()]
    if not cursor.done:
        raise InvalidAction("text behind a list of tool calls")
    return calls


def calls_of_json(value: Any) -> list[RawCall]:
    """The calls that a JSON value is: one object with a name, or a list of them; none if it is another value.

    >>> calls_of_json([{"name": "look", "parameters": {"at": "door"}}])
    [('look', {'at': 'door'})]
    """
    items = value if isinstance(value, list) else [value]
    return [named_call(item) for item in items] if all(is_call(item) for item in items) else []


_PYTHONIC = re.compile(r"\[\s*[^\W\d][\w.-]*\(\s*(?:\)|[^\W\d]\w*\s*=)")


def _without_reasoning(text: str) -> str:
    """What comes behind the reasoning, whose opening may have been in the prompt; of GPT-OSS's answers, the final channel."""
    opened = text.lstrip()
    for opening, closing in _REASONING:
        if opened.startswith(opening) and closing not in text:
            raise InvalidAction(f"reasoning that does not end: there is no {closing}")
        if opened.startswith(opening) or (closing == _THOUGHT_END and closing in text):
            text = text[text.find(closing) + len(closing) :]
    final = text.find(_HARMONY_FINAL)
    return text if final < 0 or _HARMONY_TOOL in text else text[final + len(_HARMONY_FINAL) :]


def _read_tool_call(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    if cursor.at("{", "[", "```"):
        return _read_json_calls(cursor, types)
    calls: list[RawCall] = []
    while cursor.accept("<function="):
        calls.extend(_read_function(cursor, types))
    return calls or [_read_glm(Cursor(cursor.until("</tool_call>")), types)]


def _read_json_calls(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    """One JSON value that is a call or a list of calls, or several after one another."""
    if cursor.accept("```"):
        cursor.accept("json")
    calls: list[RawCall] = []
    while not calls or cursor.at("{"):
        found = calls_of_json(cursor.json())
        if not found:
            raise InvalidAction('a tool call is a JSON object with "name" and "arguments"')
        calls.extend(found)
        cursor.accept(";")
    return calls


def _read_function(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    name = cursor.until(">").strip()
    if cursor.at("{"):
        arguments = cursor.json()
    else:
        arguments = {}
        while cursor.accept("<parameter="):
            key = cursor.until(">").strip()
            arguments[key] = types.read(_within_lines(cursor.until("</parameter>")), name, key)
    cursor.accept("</function>")
    return [(name, arguments)]


def _read_glm(cursor: Cursor, types: ParameterTypes) -> RawCall:
    name = (cursor.before("<arg_key>") if "<arg_key>" in cursor.text else cursor.until("\n")).strip()
    arguments = {}
    while cursor.accept("<arg_key>"):
        key = cursor.until("</arg_key>").strip()
        cursor.expect("<arg_value>")
        arguments[key] = types.read(cursor.until("</arg_value>"), name, key)
    if not cursor.done or not name or any(letter.isspace() for letter in name):
        raise InvalidAction("<tool_call> is followed by a JSON object, <function=...>, or a name and its <arg_key>s")
    return name, arguments


def _read_gemma(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    cursor.expect("call:")
    return [(cursor.before("{").strip(), cursor.value())]


def _read_lfm2(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    return _read_json_calls(cursor, types) if cursor.at("[{", "{") else [*cursor.calls()]


def _read_python_tag(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    if cursor.at("{"):
        return _read_json_calls(cursor, types)
    if cursor.at("["):
        return [*cursor.calls()]
    called, quoted = cursor.call()
    name = called.removesuffix(".call")
    return [(name, {key: types.read(value, name, key) if isinstance(value, str) else value for key, value in quoted.items()})]


def _read_harmony(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    """`name<|channel|>commentary json<|message|>{...}<|call|>`, also where decoding has left the special tokens out."""
    header = cursor.before("{")
    return [(re.split(r"[\s<]", header, maxsplit=1)[0], cursor.json())]


def _read_mistral(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    if cursor.at("[{", "{"):
        return _read_json_calls(cursor, types)
    header = cursor.before("{")
    return [(re.split(r"\[(?:CALL_ID|ARGS)\]", header, maxsplit=1)[0].strip(), cursor.json())]


def _read_deepseek(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    name = cursor.until("<｜tool▁sep｜>").strip()
    if not cursor.at("{"):
        name = cursor.until("\n").strip()
        cursor.expect("```json")
    return [(name, cursor.json())]


def _read_kimi(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    identifier = cursor.until("<|tool_call_argument_begin|>").strip()
    return [(re.sub(r":\d+$", "", identifier.removeprefix("functions.")), cursor.json())]


def _read_command_r(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
    actions = cursor.json()
    if not isinstance(actions, list) or not all(isinstance(action, dict) and "tool_name" in action for action in actions):
        raise InvalidAction('<|START_ACTION|> is followed by a list of objects with "tool_name" and "parameters"')
    return [named_call({"name": action["tool_name"], "parameters": action.get("parameters")}) for action in actions]


def _invoke(prefix: str) -> Syntax:
    """`<invoke name="..."><parameter name="...">...`, with a family's prefix on each tag."""

    def read(cursor: Cursor, types: ParameterTypes) -> list[RawCall]:
        name = cursor.until('"')
        cursor.until(">")
        arguments = {}
        while cursor.accept(f'<{prefix}parameter name="'):
            key = cursor.until('"')
            is_string = 'string="true"' in cursor.until(">")
            text = _within_lines(cursor.until(f"</{prefix}parameter>"))
            arguments[key] = text if is_string else types.read(text, name, key)
        return [(name, arguments)]

    return Syntax(f'<{prefix}invoke name="', read)


def _within_lines(text: str) -> str:
    """The text without the line break that templates put on either side of it."""
    return text.removeprefix("\n").removesuffix("\n")


SYNTAXES = (
    Syntax("<tool_call>", _read_tool_call),
    Syntax("<function=", _read_function),
    Syntax("<|tool_call>", _read_gemma),
    Syntax("<|tool_call_start|>", _read_lfm2),
    Syntax("<|python_tag|>", _read_python_tag),
    Syntax(_HARMONY_TOOL, _read_harmony),
    Syntax("[TOOL_CALLS]", _read_mistral),
    Syntax("<｜tool▁call▁begin｜>", _read_deepseek),
    Syntax("<|tool_call_begin|>", _read_kimi),
    Syntax("<|tool_call|>", _read_json_calls),
    Syntax("<|START_ACTION|>", _read_command_r),
    _invoke(""),
    _invoke("｜DSML｜"),
    _invoke("atem:"),
)

_CALL_STARTS = ("{", "[", *(syntax.opening for syntax in SYNTAXES))
