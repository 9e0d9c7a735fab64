"""Tools found, and rewritten for models without losing a word of their schemas."""

import json

import pytest

from ors_gym.protocol import ToolSpec
from ors_gym.tools import find_text_tool, find_tool, text_parameter, to_anthropic, to_mcp, to_openai_chat, to_openai_responses

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Input",
    "type": "object",
    "properties": {
        "title": {"type": "string", "title": "Title"},
        "from": {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["a"]}, {"type": "null"}], "default": None},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
}
WRITE = ToolSpec(name="write-note", description="Write it down.", input_schema=SCHEMA)
LOOK = ToolSpec(name="look")


def text_tool(name, parameter="answer", **schema):
    properties = {parameter: {"type": "string", **schema}}
    return ToolSpec(name=name, input_schema={"type": "object", "properties": properties, "required": [parameter]})


@pytest.mark.parametrize(
    ("convert", "schema_of"),
    [
        (to_openai_chat, lambda tool: tool["function"]["parameters"]),
        (to_openai_responses, lambda tool: tool["parameters"]),
        (to_anthropic, lambda tool: tool["input_schema"]),
        (to_mcp, lambda tool: tool["inputSchema"]),
    ],
)
def test_every_list_has_the_schemas_verbatim(convert, schema_of):
    written, looked = convert([WRITE, LOOK])

    assert schema_of(written) == SCHEMA
    assert list(schema_of(written)["properties"]) == ["title", "from", "tree"]
    assert schema_of(looked) == {"type": "object", "properties": {}}
    json.dumps([written, looked])


def test_each_list_has_its_own_form():
    empty = {"type": "object", "properties": {}}

    assert to_openai_chat([LOOK]) == [{"type": "function", "function": {"name": "look", "description": "", "parameters": empty}}]
    assert to_openai_responses([LOOK]) == [
        {"type": "function", "name": "look", "description": "", "parameters": empty, "strict": False}
    ]
    assert to_anthropic([LOOK]) == [{"name": "look", "description": "", "input_schema": empty}]
    assert to_mcp([LOOK]) == [{"name": "look", "description": "", "inputSchema": empty}]


def test_a_tool_is_found_by_its_name():
    assert find_tool([WRITE, LOOK], "look") is LOOK
    assert find_tool([WRITE, LOOK], "write_note") is None


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ([text_tool("submit"), LOOK], ("submit", "answer")),
        ([text_tool("submit", description="Yours."), WRITE], None),
        ([text_tool("submit"), text_tool("guess")], None),
        ([LOOK], None),
        ([], None),
    ],
)
def test_text_goes_to_the_only_tool_with_one_required_string(tools, found):
    assert find_text_tool(tools) == found


@pytest.mark.parametrize("limit", [{"enum": ["a"]}, {"const": "a"}, {"pattern": "^a"}, {"format": "date"}])
def test_a_string_that_not_any_text_can_be_takes_none(limit):
    assert text_parameter(text_tool("submit", **limit)) is None


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]},
        {"properties": {"a": {"type": "string"}}},
        {"properties": [], "required": "a"},
        {"properties": {"a": True}, "required": ["a"]},
        {"required": [5], "properties": {}},
    ],
)
def test_other_schemas_have_no_text_parameter(schema):
    assert text_parameter(ToolSpec(name="t", input_schema=schema)) is None


def test_optional_parameters_do_not_count():
    properties = {"answer": {"type": "string"}, "confidence": {"type": "number"}}

    assert text_parameter(ToolSpec(name="t", input_schema={"properties": properties, "required": ["answer"]})) == "answer"
