"""The wire: tolerant of what is read, strict in what is sent."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from ors_gym.protocol import (
    CreateSession,
    GetTask,
    GetTaskRange,
    ImageBlock,
    ListTasks,
    ListToolsOutput,
    NumTasks,
    NumTasksOutput,
    RunToolError,
    RunToolSuccess,
    SessionId,
    Split,
    TextBlock,
    ToolCall,
    ToolOutput,
    ToolSpec,
    UnknownBlock,
    blocks_adapter,
    run_tool_output_adapter,
    splits_adapter,
    text_of,
)


def test_the_standards_examples_are_read() -> None:
    blocks = blocks_adapter.validate_python(
        [{"text": "What?", "detail": None, "type": "text"}, {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
    )
    assert blocks == (TextBlock(text="What?"), ImageBlock(data="iVBORw0KGgo=", mimeType="image/png"))
    spec = {"name": "bash", "description": "Run.", "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}}}
    tools = ListToolsOutput.model_validate({"tools": [spec, {"name": "hint", "description": "A hint.", "input_schema": None}]})
    assert tools.tools[0].input_schema == spec["input_schema"]
    assert tools.tools[1].input_schema is None
    output = {
        "blocks": [{"text": "Correct!", "detail": None, "type": "text"}],
        "metadata": {"a": 1},
        "reward": 1.0,
        "finished": True,
    }
    assert run_tool_output_adapter.validate_python({"ok": True, "output": output}) == RunToolSuccess(
        ok=True, output=ToolOutput(blocks=(TextBlock(text="Correct!"),), metadata={"a": 1}, reward=1.0, finished=True)
    )
    assert run_tool_output_adapter.validate_python({"ok": False, "error": "no"}) == RunToolError(ok=False, error="no")
    assert SessionId.model_validate({"sid": "abc"}).sid == "abc"


def test_what_is_absent_has_a_default() -> None:
    assert ToolOutput.model_validate({}) == ToolOutput(blocks=(), reward=None, finished=False, metadata=None)
    assert ToolSpec.model_validate({"name": "t"}) == ToolSpec(name="t", description="", input_schema=None)
    assert Split.model_validate({"name": "hard"}).type == "validation"
    assert RunToolError.model_validate({"ok": False}).error == ""


def test_a_split_of_an_unknown_type_is_a_validation_split() -> None:
    assert splits_adapter.validate_python([{"name": "hard", "type": "hard"}, {"name": "x", "type": None}]) == (
        Split(name="hard", type="validation"),
        Split(name="x", type="validation"),
    )
    with pytest.raises(ValidationError):
        Split.model_validate({"name": "x", "type": 5})


def test_unknown_fields_and_unknown_blocks_are_kept() -> None:
    (block,) = blocks_adapter.validate_python([{"type": "audio", "data": "abc", "seconds": 3}])
    assert isinstance(block, UnknownBlock)
    assert block.model_dump() == {"type": "audio", "data": "abc", "seconds": 3}
    output = ToolOutput.model_validate({"blocks": [], "score": 7})
    assert output.model_extra == {"score": 7}
    assert blocks_adapter.validate_python([{"type": "text", "text": "x", "citations": [1]}])[0].model_extra == {"citations": [1]}


@pytest.mark.parametrize("reward", [True, "1.0", float("nan"), float("inf"), [1], {}])
def test_a_reward_is_a_finite_number_or_none(reward: Any) -> None:
    with pytest.raises(ValidationError):
        ToolOutput(reward=reward)


@pytest.mark.parametrize(("reward", "expected"), [(1, 1.0), (-0.5, -0.5), (None, None), (10**300, 1e300)])
def test_rewards_are_floats(reward: Any, expected: float | None) -> None:
    assert ToolOutput(reward=reward).reward == expected


@pytest.mark.parametrize("count", ["5", True, -1, 1.5, None])
def test_a_count_is_a_whole_number(count: Any) -> None:
    with pytest.raises(ValidationError):
        NumTasksOutput(num_tasks=count)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (ToolCall, {"name": "t", "input": {}, "extra": 1}),
        (ToolCall, {"name": 5, "input": {}}),
        (ToolCall, {"name": "t", "input": []}),
        (CreateSession, {"env_name": "e", "task": {}}),
        (CreateSession, {"env_name": "e", "index": "0"}),
        (CreateSession, {"env_name": "e", "secrets": {"k": 5}}),
        (ListTasks, {"split": None}),
        (NumTasks, {"split": 5}),
        (GetTask, {"split": "train", "index": 1.0}),
        (GetTaskRange, {"split": "train", "step": 2}),
    ],
)
def test_what_is_sent_is_strict_and_not_shown_when_it_is_wrong(model: type[BaseModel], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        model(**fields)
    assert "input_value" not in str(error.value)


def test_no_secret_is_in_the_repr_of_what_is_sent() -> None:
    assert "hush" not in repr(CreateSession(env_name="e", split="train", index=0, secrets={"key": "hush"}))


def test_an_images_data_is_not_in_its_repr() -> None:
    assert repr(ImageBlock(data="x" * 1000, mimeType="image/png")) == "ImageBlock(mimeType='image/png', detail=None, type='image')"


def test_models_survive_a_round_trip_through_json() -> None:
    blocks = blocks_adapter.validate_python([{"type": "text", "text": "é"}, {"type": "new", "x": [1]}])
    dumped = json.dumps([block.model_dump() for block in blocks])
    assert blocks_adapter.validate_json(dumped) == blocks


def test_the_text_of_blocks() -> None:
    blocks = (TextBlock(text="one"), ImageBlock(data="", mimeType="image/png"), TextBlock(text="two"))
    assert text_of(blocks) == "one\ntwo"
    assert text_of(()) == ""
