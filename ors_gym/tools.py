"""Tools, found and rewritten: by name, by what they take, and in the list forms that models and clients want.

Schemas go over verbatim: a parameter called `title`, a nested `anyOf` and `$defs` are in every list as the server sent them.
"""

from collections.abc import Sequence
from typing import Any

from ors_gym.protocol import JSONObject, ToolSpec

ToolList = list[dict[str, Any]]


def find_tool(tools: Sequence[ToolSpec], name: str) -> ToolSpec | None:
    """The tool of that name, or None.

    >>> find_tool([ToolSpec(name="submit"), ToolSpec(name="think")], "think").name
    'think'
    """
    return next((tool for tool in tools if tool.name == name), None)


def text_parameter(tool: ToolSpec) -> str | None:
    """The tool's one required parameter, where it is a string that any text can fill; else None.

    >>> text_parameter(ToolSpec(name="submit", input_schema={
    ...     "type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}))
    'answer'
    """
    schema = tool.input_schema or {}
    required = schema.get("required")
    properties = schema.get("properties")
    if not (isinstance(required, list) and len(required) == 1 and isinstance(properties, dict)):
        return None
    parameter = properties.get(required[0]) if isinstance(required[0], str) else None
    if (
        not isinstance(parameter, dict)
        or parameter.get("type") != "string"
        or {"enum", "const", "pattern", "format"} & set(parameter)
    ):
        return None
    return str(required[0])


def find_text_tool(tools: Sequence[ToolSpec]) -> tuple[str, str] | None:
    """The tool that plain text goes to, and its parameter: the only one with one required string parameter, else None.

    >>> answer = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    >>> find_text_tool([ToolSpec(name="submit", input_schema=answer), ToolSpec(name="look")])
    ('submit', 'answer')
    >>> find_text_tool([ToolSpec(name="submit", input_schema=answer), ToolSpec(name="guess", input_schema=answer)]) is None
    True
    """
    candidates = [(tool.name, parameter) for tool in tools if (parameter := text_parameter(tool)) is not None]
    return candidates[0] if len(candidates) == 1 else None


def to_openai_chat(tools: Sequence[ToolSpec]) -> ToolList:
    """The tools as OpenAI's chat completions and Hugging Face chat templates take them.

    >>> to_openai_chat([ToolSpec(name="look", description="Look around.")])
    [{'type': 'function', 'function': {'name': 'look', 'description': 'Look around.',
      'parameters': {'type': 'object', 'properties': {}}}}]
    """
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": _object_schema(tool)},
        }
        for tool in tools
    ]


def to_openai_responses(tools: Sequence[ToolSpec]) -> ToolList:
    """The tools as OpenAI's Responses API takes them. Not strict: its strict mode would refuse many a schema.

    >>> to_openai_responses([ToolSpec(name="look")])[0]["name"]
    'look'
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": _object_schema(tool),
            "strict": False,
        }
        for tool in tools
    ]


def to_anthropic(tools: Sequence[ToolSpec]) -> ToolList:
    """The tools as Anthropic's Messages API takes them.

    >>> to_anthropic([ToolSpec(name="look")])
    [{'name': 'look', 'description': '', 'input_schema': {'type': 'object', 'properties': {}}}]
    """
    return [{"name": tool.name, "description": tool.description, "input_schema": _object_schema(tool)} for tool in tools]


def to_mcp(tools: Sequence[ToolSpec]) -> ToolList:
    """The tools as the Model Context Protocol lists them.

    >>> to_mcp([ToolSpec(name="look")])
    [{'name': 'look', 'description': '', 'inputSchema': {'type': 'object', 'properties': {}}}]
    """
    return [{"name": tool.name, "description": tool.description, "inputSchema": _object_schema(tool)} for tool in tools]


def _object_schema(tool: ToolSpec) -> JSONObject:
    """The schema as the server sent it; the forms have no null, so a tool without parameters takes an empty object."""
    return tool.input_schema if tool.input_schema is not None else {"type": "object", "properties": {}}
