"""`parse`: what a policy says becomes tool calls, or an `InvalidAction` that says why not."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ors_gym.actions import MAX_ACTION_SIZE, MAX_CALLS, MAX_DEPTH, parse
from ors_gym.errors import InvalidAction
from ors_gym.protocol import ToolCall, ToolSpec

SUBMIT = ToolSpec(
    name="submit", input_schema={"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
)
ADD = ToolSpec(
    name="add",
    input_schema={"type": "object", "properties": {"n": {"type": "integer"}, "tags": {"type": "array"}}, "required": ["n"]},
)
LOOK = ToolSpec(name="look")
TOOLS = [SUBMIT, ADD, LOOK]
GUESS = SUBMIT.model_copy(update={"name": "guess"})


def calls(action, tools=TOOLS, **options):
    return [(call.name, call.input) for call in parse(action, tools=tools, **options)]


@pytest.mark.parametrize(
    "action",
    [
        ToolCall(name="submit", input={"answer": "72"}),
        {"name": "submit", "input": {"answer": "72"}},
        {"name": "submit", "arguments": {"answer": "72"}},
        {"name": "submit", "arguments": '{"answer": "72"}'},
        {"name": "submit", "parameters": {"answer": "72"}},
        {"type": "function", "function": {"name": "submit", "arguments": '{"answer": "72"}'}},
        {"type": "function_call", "call_id": "c1", "name": "submit", "arguments": '{"answer": "72"}'},
        [{"name": "submit", "input": {"answer": "72"}}],
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "submit", "arguments": '{"answer": "72"}'}}],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "submit", "input": {"answer": "72"}}]},
        [{"role": "assistant", "content": '{"name": "submit", "input": {"answer": "72"}}'}],
        {"role": "assistant", "content": [{"type": "text", "text": "72"}]},
        '{"name": "submit", "input": {"answer": "72"}}',
        '  [{"name": "submit", "arguments": {"answer": "72"}}]\n',
        'Let me think.\n```json\n{"name": "submit", "input": {"answer": "72"}}\n```\nDone.',
        '```\n{"name": "submit", "input": {"answer": "72"}}\n```',
        'I call <tool_call>{"name": "submit", "arguments": {"answer": "72"}}</tool_call>',
        "72",
        np.str_("72"),
        "<think>6 times 12\n</think>\n\n72<|im_end|>",
        "6 times 12\n</think>\n72",
    ],
    ids=lambda action: str(action)[:40],
)
@pytest.mark.parametrize("action_format", ["tool_call", "json"])
def test_every_form_of_one_call(action, action_format):
    assert calls(action, action_format=action_format) == [("submit", {"answer": "72"})]


@pytest.mark.parametrize(
    "action",
    [
        [{"name": "add", "input": {"n": 1}}, ToolCall(name="look")],
        '[{"name": "add", "input": {"n": 1}}, {"name": "look"}]',
        '{"name": "add", "input": {"n": 1}}\n{"name": "look", "input": {}}',
        '{"name": "add", "parameters": {"n": 1}}; {"name": "look", "parameters": {}}',
        '{"name": "add", "input": {"n": 1}} {"name": "look"}\nThat should do.',
        '```json\n{"name": "add", "input": {"n": 1}}\n```\nand\n```json\n{"name": "look"}\n```',
        {"role": "assistant", "tool_calls": [{"name": "add", "arguments": '{"n": 1}'}, {"name": "look", "arguments": ""}]},
    ],
    ids=str,
)
def test_several_calls_keep_their_order(action):
    assert calls(action) == [("add", {"n": 1}), ("look", {})]


def test_openai_and_pydantic_objects_are_read():
    from openai.types.chat import ChatCompletionMessage

    message = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"n": 1}'}}],
        }
    )

    assert calls(message) == [("add", {"n": 1})]


def test_a_call_of_an_unknown_tool_is_a_call():
    assert calls({"name": "unlisted", "input": {"x": 1}}) == [("unlisted", {"x": 1})]


def test_a_task_id_of_the_policys_own_is_left_out():
    assert parse(ToolCall(name="look", task_id="mine"))[0].task_id is None


def test_numpy_numbers_and_arrays_become_json():
    action = {"name": "add", "input": {"n": np.int64(3), "tags": np.array([[1, 2]]), "x": np.float32(0.5), "on": np.bool_(True)}}

    assert calls(action) == [("add", {"n": 3, "tags": [[1, 2]], "x": 0.5, "on": True})]
    json.dumps(parse(action)[0].input)


class TestText:
    def test_goes_to_the_one_tool_with_one_required_string(self):
        assert calls("the lamp", tools=[SUBMIT, ADD]) == [("submit", {"answer": "the lamp"})]

    def test_goes_to_the_named_tool(self):
        assert calls("the lamp", tools=[SUBMIT, GUESS], text_tool="guess") == [("guess", {"answer": "the lamp"})]

    def test_is_invalid_where_two_tools_could_take_it(self):
        with pytest.raises(InvalidAction, match="the tools are submit, guess"):
            parse("the lamp", tools=[SUBMIT, GUESS])

    @pytest.mark.parametrize("text_tool", ["add", "nowhere"])
    def test_is_invalid_where_the_named_tool_cannot_take_it(self, text_tool):
        with pytest.raises(InvalidAction, match=text_tool):
            parse("the lamp", tools=TOOLS, text_tool=text_tool)

    @pytest.mark.parametrize("text", ['{"name": "add", "input": {"n": 1}}', " 72 \n", "<tool_call>", "", "<think>"])
    def test_goes_verbatim_in_the_text_format(self, text):
        assert calls(text, action_format="text") == [("submit", {"answer": text})]

    def test_of_a_message_goes_verbatim_in_the_text_format_too(self):
        assert calls({"role": "assistant", "content": "[1]"}, action_format="text") == [("submit", {"answer": "[1]"})]

    @pytest.mark.parametrize(
        "text",
        ["[1, 2]", '{"answer": 72}', '"72"', "null", "```python\nprint(1)\n```", '```json\n{"a": 1}\n```', "f(x) = [x]", "[f(1)]"],
    )
    def test_that_only_resembles_a_call_is_plain(self, text):
        assert calls(text) == [("submit", {"answer": text})]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (None, "not None"),
        (7, "not 7"),
        (True, "not True"),
        (1.5, "not 1.5"),
        (b"72", "bytes"),
        (np.bytes_(b"72"), "bytes"),
        (np.array([1, 2]), "ndarray"),
        pytest.param(object(), "object", id="object"),
        ([], "list"),
        ([1], "holds 1"),
        ({}, "no name"),
        ({"name": 3, "input": {}}, "no name"),
        ({"name": " ", "input": {}}, "without a name"),
        ({"name": "add", "input": [1]}, "list"),
        ({"name": "add", "input": "n=1"}, "not valid JSON"),
        ({"name": "add", "input": "[1]"}, "list"),
        ({"name": "add", "arguments": '{"n": NaN}'}, "NaN is no JSON number"),
        ({"name": "add", "input": {"n": float("nan")}}, "nan is no JSON number"),
        ({"name": "add", "input": {"n": np.inf}}, "inf is no JSON number"),
        ({"name": "add", "input": {1: 2}}, "key 1"),
        ({"name": "add", "input": {"n": {1, 2}}}, "set"),
        ({"name": "add", "input": {"n": b"1"}}, "bytes"),
        ({"name": "add", "input": {"n": 1}, "arguments": {"n": 2}}, "input and arguments"),
        ({"name": "add", "n": 1}, "inside"),
        ({"role": "user", "content": "72"}, "assistant"),
        ({"role": "assistant"}, "neither"),
        ({"role": "assistant", "content": 5}, "content"),
        ({"role": "assistant", "tool_calls": 5}, "tool_calls"),
        ("\ud800", "surrogate at character 0"),
        ('{"name": "add", "input": {"n": "\\ud800"}}', "surrogate"),
        ({"name": "a\udfff", "input": {}}, "surrogate"),
        ({"name": "add", "input": {"\ud800": 1}}, "surrogate"),
        ("", "an empty action"),
        (" \n", "an empty action"),
        ("<think>hm", "reasoning that does not end"),
        ('{"name": "add", "input": {"n": 1}', "not valid JSON"),
        ('```json\n{"name": "add", "input": {"n": 1}\n```', "not valid JSON"),
        ('{"name": "add", "input": ' + "[" * 100_000, "nested too deeply"),
        ("x" * (MAX_ACTION_SIZE + 1), "the limit is 1,000,000"),
        (json.dumps([{"name": "look"}] * (MAX_CALLS + 1)), "129 tool calls"),
        ([{"name": "look"}] * (MAX_CALLS + 1), "129 tool calls"),
        ('<tool_call>{"name": "look"}</tool_call>' * (MAX_CALLS + 1), "129 tool calls"),
        ({"name": "add", "input": {"n": ["x" * 600_000] * 2}}, "more than 1,000,000"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_no_action_is_refused_with_its_reason(action, reason):
    with pytest.raises(InvalidAction, match=reason):
        parse(action, tools=TOOLS)


def test_an_integer_that_cannot_be_written_is_refused():
    with pytest.raises(InvalidAction, match="an integer of more than"):
        parse({"name": "add", "input": {"n": 10**5000}})


def test_an_input_that_holds_itself_is_refused():
    endless: dict = {}
    endless["again"] = endless

    with pytest.raises(InvalidAction, match=f"more than {MAX_DEPTH} deep"):
        parse({"name": "add", "input": endless})


def test_an_input_that_multiplies_itself_is_refused():
    wide: list = [1]
    for _ in range(60):
        wide = [wide, wide]

    with pytest.raises(InvalidAction, match="more than 1,000,000"):
        parse({"name": "add", "input": {"n": wide}})


def test_nul_and_all_other_unicode_go_through():
    text = "".join(map(chr, (0, 7, 0x85, 0x2028, 0xFEFF, 0x1F600, 0x10FFFF)))

    assert calls(text + "x") == [("submit", {"answer": text + "x"})]


def test_another_format_is_the_callers_mistake():
    with pytest.raises(ValueError, match="'yaml'"):
        parse("72", action_format="yaml")  # type: ignore[arg-type]


DEEP: dict = {}
for _ in range(3000):
    DEEP = {"items": DEEP}


@pytest.mark.parametrize(
    "schema",
    [{"type": 5}, {"properties": {"n": {"$ref": "http://example.com/n"}}}, {"properties": {"n": {"$ref": "#/properties/n"}}}, DEEP],
    ids=["no schema", "remote", "endless", "deep"],
)
def test_a_broken_schema_does_not_stop_the_reading(schema):
    broken = ToolSpec.model_construct(name="add", input_schema=schema)

    assert calls("<tool_call>add<arg_key>n</arg_key><arg_value>3</arg_value></tool_call>", [broken]) == [("add", {"n": "3"})]


MARKS = [
    *"{}[]()<>|:;,.=\"'\\/ \n`_-0123ae\x00\u2028é😀",
    *("<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", "<|tool_call>", "<tool_call|>", "call:", '<|"|>', "<|tool_call_start|>", "<|tool_call_end|>"),
    *("<|python_tag|>", ".call(", "to=functions.", "<|channel|>", "<|message|>", "<|call|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
    *("<|tool_call|>", "<|START_ACTION|>", '<invoke name="', '<parameter name="', "</invoke>", "<think>", "</think>", "<|im_end|>"),
    *("```", "```json\n", '{"name": "add"', '"input": {', '"arguments": ', "add", "null", "true", "None", "\\u", "\\ud83d", "NaN"),
]


@given(st.lists(st.sampled_from(MARKS), max_size=40).map("".join) | st.text())
@settings(max_examples=600, deadline=None)
def test_any_text_gives_calls_or_an_invalid_action(text):
    for tools in (TOOLS, [ADD]):
        try:
            found = parse(text, tools=tools)
        except InvalidAction:
            continue
        assert found
        assert all(isinstance(call, ToolCall) and json.dumps(call.input, allow_nan=False).encode() for call in found)


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["name", "input", "role", "tool_calls", "function", "x"]), inner)
    ),
)


@given(ANY_VALUE)
@settings(max_examples=200, deadline=None)
def test_any_value_gives_calls_or_an_invalid_action(value):
    with contextlib.suppress(InvalidAction):
        assert parse(value, tools=TOOLS)


UNITS = [
    *("<tool_call>", "<tool_call>add", "<function=add>", "<function=add><parameter=n>", "<parameter=n>1</parameter>"),
    *("<|tool_call>call:", "<|tool_call>call:add{n:", "[TOOL_CALLS]", "[TOOL_CALLS]add{", "to=functions.", "to=functions.add {}"),
    *("<|tool_call_start|>[add(", "<think>", "</think>", "<|im_end|>", "```", '```{"', "```[", "{", '{"name":', '{"name":"add"}'),
    *("[add(", "'", "\\", '<invoke name="', "<arg_key>", "<arg_key>k</arg_key><arg_value>v</arg_value>", "<｜tool▁call▁begin｜>"),
    *("<|tool_call_begin|>a:1:", " ", "\n", "a(", "<|START_ACTION|>["),
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "head", ["", "<tool_call>", "<tool_call><function=add>", "[add(n='", "<|tool_call>call:add{n:[", "<tool_call>add"]
)
@pytest.mark.timeout(20)
def test_hostile_repetitions_end(head, unit):
    with contextlib.suppress(InvalidAction):
        parse(head + unit * (300_000 // len(unit)), tools=TOOLS)
