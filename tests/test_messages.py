"""An episode becomes the conversation that it was."""

import json

from ors_gym.episode import Episode, Step
from ors_gym.messages import content_of, episode_messages
from ors_gym.protocol import ImageBlock, TextBlock, ToolCall, ToolSpec
from ors_gym.tasks import TaskRef

SUBMIT = ToolSpec(
    name="submit", input_schema={"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
)
PIXEL = ImageBlock(data="R0lGODlhAgABAA==", mimeType="image/gif")


def text(*lines):
    return tuple(TextBlock(text=line) for line in lines)


def episode(*steps, prompt=text("2+2?")):
    return Episode(TaskRef("train", 0), prompt=prompt, tools=(SUBMIT,), steps=list(steps))


def step(action, answer, *lines, **more):
    return Step(action, ToolCall(name="submit", input={"answer": answer}), text(*lines), **more)


def test_the_prompt_is_the_users_behind_a_system_message():
    assert episode_messages(episode(), "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
    ]


def test_a_call_is_the_assistants_and_its_output_the_tools():
    assert episode_messages(episode(step("4", "4", "Right."))) == [
        {"role": "user", "content": "2+2?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_0_0", "type": "function", "function": {"name": "submit", "arguments": '{"answer": "4"}'}}],
        },
        {"role": "tool", "tool_call_id": "call_0_0", "name": "submit", "content": "Right."},
    ]


def test_several_calls_of_one_action_are_one_message():
    action = [{"name": "submit", "input": {"answer": "3"}}, {"name": "submit", "input": {"answer": "4"}}]

    messages = episode_messages(episode(step(action, "3", "No."), step(action, "4", "Yes."), step("5", "5", "Over.")))

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["call_0_0", "call_0_1"]
    assert [message["content"] for message in messages[2:4]] == ["No.", "Yes."]


def test_the_same_action_twice_is_two_turns():
    action = "4"

    messages = episode_messages(episode(step(action, "4", "No."), step(action, "4", "Still no.")))

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]


def test_a_turn_that_ended_at_its_first_call_has_that_call_only():
    action = [{"name": "submit", "input": {"answer": "3"}}, {"name": "submit", "input": {"answer": "4"}}]

    messages = episode_messages(episode(step(action, "3", "Yes.", finished=True)))

    assert [len(message.get("tool_calls", ())) for message in messages] == [0, 1, 0]


def test_an_action_that_was_none_is_said_and_answered():
    messages = episode_messages(episode(Step("hm", None, text("No tool call."), invalid_action="no tool call")))

    assert messages[1:] == [{"role": "assistant", "content": "hm"}, {"role": "user", "content": "No tool call."}]


def test_a_rejected_call_is_answered_by_its_reason():
    assert episode_messages(episode(step("4", "4", invalid_action="not now")))[-1]["content"] == "not now"


def test_a_failed_call_is_answered_by_the_failure():
    assert episode_messages(episode(step("4", "4", error="it broke", error_kind="environment")))[-1]["content"] == "it broke"


def test_text_beside_the_calls_of_a_chat_message_is_kept():
    said = {"role": "assistant", "content": "It is four.", "tool_calls": [{"name": "submit", "arguments": '{"answer": "4"}'}]}

    assert episode_messages(episode(step(said, "4", "Right.")))[1]["content"] == "It is four."


def test_an_action_of_any_type_can_be_written():
    json.dumps(episode_messages(episode(Step(b"\x00", None, invalid_action="bytes"), Step(object(), None, invalid_action="no"))))


def test_images_are_placeholders_or_parts():
    blocks = (*text("See:"), PIXEL)

    assert content_of(blocks) == "See:\n[image: image/gif, 2x1]"
    assert content_of(blocks, images=True) == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlhAgABAA=="}},
    ]
    assert content_of(text("See:"), images=True) == "See:"
