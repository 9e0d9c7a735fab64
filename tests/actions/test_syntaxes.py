"""The model families' tags, each in the forms that its template renders and its models write."""

import importlib.util
import json
from pathlib import Path

import pytest

from ors_gym.actions import parse
from ors_gym.errors import InvalidAction
from ors_gym.protocol import ToolSpec
from ors_gym.tools import to_openai_chat

PROPERTIES = {
    "answer": {"type": "string"},
    "count": {"type": "integer"},
    "x": {"type": "number"},
    "flag": {"type": "boolean"},
    "deep": {"type": "object"},
    "list": {"type": "array"},
    "none": {"type": ["string", "null"]},
}
SUBMIT = ToolSpec(name="submit", input_schema={"type": "object", "properties": PROPERTIES, "required": ["answer"]})
LOOK = ToolSpec(name="look")


def calls(text):
    return [(call.name, call.input) for call in parse(text, tools=[SUBMIT, LOOK])]


TAGGED = [
    '<tool_call>\n{"name": "submit", "arguments": {"answer": "72"}}\n</tool_call>',
    '<tool_call>{"name": "submit", "arguments": {"answer": "72"}}',
    '<tool_call>\n```json\n{"name": "submit", "arguments": {"answer": "72"}}\n```\n</tool_call>',
    "<tool_call>\n<function=submit>\n<parameter=answer>\n72\n</parameter>\n</function>\n</tool_call><|im_end|>",
    "<function=submit>\n<parameter=answer>\n72\n</parameter>\n</function>",
    '<function=submit>{"answer": "72"}</function>',
    "<tool_call>submit\n<arg_key>answer</arg_key>\n<arg_value>72</arg_value>\n</tool_call>",
    '<|tool_call>call:submit{answer:<|"|>72<|"|>}<tool_call|><|tool_response>',
    "<|tool_call_start|>[submit(answer='72')]<|tool_call_end|>",
    '<|tool_call_start|>[{"name": "submit", "arguments": {"answer": "72"}}]<|tool_call_end|>',
    '<|python_tag|>{"name": "submit", "parameters": {"answer": "72"}}<|eom_id|>',
    '<|python_tag|>submit.call(answer="72")<|eom_id|>',
    '<|channel|>commentary to=functions.submit <|constrain|>json<|message|>{"answer": "72"}<|call|>',
    '[TOOL_CALLS][{"name": "submit", "arguments": {"answer": "72"}}]</s>',
    '[TOOL_CALLS]submit{"answer": "72"}</s>',
    '[TOOL_CALLS]submit[CALL_ID]abc123[ARGS]{"answer": "72"}</s>',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>submit\n```json\n{"answer": "72"}\n```<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>submit<｜tool▁sep｜>{"answer": "72"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.submit:0<|tool_call_argument_begin|>{"answer": "72"}'
    "<|tool_call_end|><|tool_calls_section_end|>",
    '<|tool_call|>[{"name": "submit", "arguments": {"answer": "72"}}]',
    '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "submit", "parameters": {"answer": "72"}}]<|END_ACTION|>',
    '<function_calls>\n<invoke name="submit">\n<parameter name="answer">72</parameter>\n</invoke>\n</function_calls>',
    '<｜DSML｜function_calls><｜DSML｜invoke name="submit"><｜DSML｜parameter name="answer" string="true">72'
    "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
    '<atem:function_calls>\n<atem:invoke name="submit">\n<atem:parameter name="answer">72</atem:parameter>\n</atem:invoke>',
]
WHOLE = [
    '{"name": "submit", "parameters": {"answer": "72"}}<|eot_id|>',
    '[submit(answer="72")]',
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.submit<|channel|>commentary json"
    '<|message|>{"answer": "72"}<|call|>',
    'analysisHm.assistantcommentary to=functions.submit json{"answer": "72"}',
]
THOUGHT = "<think>\nSubmit, by <tool_call>?\n</think>\n\n"


@pytest.mark.parametrize("text", [*TAGGED, *WHOLE], ids=lambda text: text[:40])
def test_each_familys_form(text):
    assert calls(text) == [("submit", {"answer": "72"})]


@pytest.mark.parametrize("text", TAGGED, ids=lambda text: text[:40])
@pytest.mark.parametrize("before", ["I will submit it.\n", THOUGHT], ids=["prose", "thought"])
def test_each_familys_form_behind_what_was_said_before(before, text):
    assert calls(before + text) == [("submit", {"answer": "72"})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "look", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name": "submit", "arguments": {"answer": "a"}}</tool_call>',
        '<tool_call>\n{"name": "look"}\n{"name": "submit", "arguments": {"answer": "a"}}\n</tool_call>',
        "<tool_call>\n<function=look>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=submit>\n<parameter=answer>\na\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>look</tool_call><tool_call>submit<arg_key>answer</arg_key><arg_value>a</arg_value></tool_call>",
        '<|tool_call>call:look{}<tool_call|><|tool_call>call:submit{answer:<|"|>a<|"|>}<tool_call|>',
        "<|tool_call_start|>[look(), submit(answer='a')]<|tool_call_end|>",
        '[look(), submit(answer="a")]',
        '<|python_tag|>{"name": "look", "parameters": {}}; {"name": "submit", "parameters": {"answer": "a"}}',
        '[TOOL_CALLS]look[ARGS]{}[TOOL_CALLS]submit[ARGS]{"answer": "a"}',
        "<invoke name=\"look\"></invoke><invoke name=\"submit\"><parameter name=\"answer\">a</parameter></invoke>",
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_parallel_calls(text):
    assert calls(text) == [("look", {}), ("submit", {"answer": "a"})]


@pytest.mark.parametrize(
    ("parameter", "written", "value"),
    [
        ("answer", "75001", "75001"),
        ("answer", "true", "true"),
        ("answer", '"quoted"', '"quoted"'),
        ("answer", "two\n\nlines ", "two\n\nlines "),
        ("count", "75001", 75001),
        ("count", "many", "many"),
        ("x", "0.5", 0.5),
        ("flag", "true", True),
        ("flag", "False", False),
        ("deep", '{"a": [1, null]}', {"a": [1, None]}),
        ("list", "[1, 2]", [1, 2]),
        ("none", "null", None),
        ("none", "None", None),
        ("none", "72", "72"),
        ("unlisted", "72", 72),
        ("unlisted", "some text", "some text"),
    ],
)
def test_bare_values_are_read_as_the_schema_wants_them(parameter, written, value):
    qwen = f"<tool_call>\n<function=submit>\n<parameter={parameter}>\n{written}\n</parameter>\n</function>\n</tool_call>"
    glm = f"<tool_call>submit\n<arg_key>{parameter}</arg_key>\n<arg_value>{written}</arg_value>\n</tool_call>"

    assert calls(qwen) == calls(glm) == [("submit", {parameter: value})]


def test_a_closing_tag_inside_a_json_string_is_text():
    arguments = {"answer": "</tool_call> and <tool_call> and </think>"}
    call = json.dumps({"name": "submit", "arguments": arguments})

    assert calls(f"<tool_call>{call}</tool_call>") == [("submit", arguments)]
    assert calls(call) == [("submit", arguments)]


def test_a_fence_before_a_tag_is_read_and_one_inside_it_is_not():
    fence = '```json\n{"name": "look", "input": {}}\n```'

    assert calls(f"{fence}\n<tool_call>{{}}</tool_call>") == [("look", {})]
    assert calls(f"<tool_call><function=submit><parameter=answer>{fence}</parameter></function>") == [("submit", {"answer": fence})]


def test_the_final_channel_is_plain_text():
    assert calls("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>72<|return|>") == [
        ("submit", {"answer": "72"})
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call></tool_call>", "followed by"),
        ("<tool_call>{broken</tool_call>", "not valid JSON"),
        ('<tool_call>{"arguments": {}}</tool_call>', '"name" and "arguments"'),
        ("<tool_call>two words</tool_call>", "followed by"),
        ("<|tool_call>submit{}<tool_call|>", "expected 'call:'"),
        ("<|tool_call>call:submit", "without its {"),
        ("<|tool_call>call:submit{answer:<|\"|>open", "does not end"),
        ("<|tool_call_start|>[submit('72')]", "expected a name"),
        ("<|tool_call_start|>[submit(answer=lamp)]", "'lamp' is no value; strings are quoted"),
        ("[submit(answer='72')] and more", "behind a list"),
        ("<|python_tag|>print(1)", "expected a name"),
        ("to=functions.submit", "without its {"),
        ("[TOOL_CALLS]nothing", "without its {"),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>submit\n{}", "expected"),
        ("<|START_ACTION|>{}", "tool_name"),
        ("<|tool_call_start|>[submit(answer=" + "[" * 200, "nested more than 100 deep"),
        ("[submit(count=" + "9" * 5000 + ")]", "not a number"),
        ("[submit(answer='\\uZZZZ')]", "broken escape"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_tag_that_goes_wrong_says_how(text, reason):
    with pytest.raises(InvalidAction, match=reason):
        parse(text, tools=[SUBMIT, LOOK])


def chat_templates():
    """The chat templates that TRL ships for generation and that render tool calls."""
    found = importlib.util.find_spec("trl")
    folder = Path(found.submodule_search_locations[0]) / "chat_templates" if found else Path("nowhere")
    paths = sorted(path for path in folder.glob("*.jinja") if "training" not in path.name)
    dropped = {"deepseek_r1_distill"}  # renders no tool call beside content
    return [path for path in paths if "tool_call" in path.read_text(encoding="utf-8") and path.stem not in dropped]


@pytest.mark.parametrize("path", chat_templates(), ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("look", {}),
        ("submit", {"answer": "75001", "count": 3, "x": 0.5, "flag": True}),
        ("submit", {"answer": "False", "flag": False, "list": ["a", 2.5, None], "deep": {"a": [1, {"b": None}]}}),
        ("submit", {"answer": 'one "line"\nit\'s <b> {x} [y] \\ é 漢'}),
        ("submit", {"answer": "a", "none": None}),
    ],
    ids=["empty", "scalars", "nested", "quotes", "null"],
)
def test_what_a_chat_template_renders_is_read_back(path, name, arguments):
    template = path.read_text(encoding="utf-8")

    assert calls(rendered_turn(template, name, arguments)) == [(name, arguments)]


def rendered_turn(template, name, arguments):
    """What the template puts behind the generation prompt for an assistant's turn with one call."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(messages, **options):
        tools = to_openai_chat([SUBMIT, LOOK])
        return render_jinja_template([messages], tools=tools, chat_template=template, bos_token="<s>", eos_token="</s>", **options)[
            0
        ][0]

    user = {"role": "user", "content": "Go."}
    prompt = render([user], add_generation_prompt=True)
    for written in (arguments, json.dumps(arguments)):  # some templates want the one, some the other
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": written}}
        try:
            whole = render([user, {"role": "assistant", "content": "", "tool_calls": [call]}])
        except (TemplateError, TypeError):
            continue
        common = next((place for place, pair in enumerate(zip(whole, prompt, strict=False)) if pair[0] != pair[1]), len(prompt))
        return whole[common:]
    raise AssertionError("the template renders neither form")
