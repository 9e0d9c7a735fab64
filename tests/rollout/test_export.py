"""Episodes as arrays, data sets, data frames and tokens."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ors_gym.episode import Episode, Step
from ors_gym.groups import RolloutGroup
from ors_gym.protocol import TextBlock, ToolCall, ToolSpec
from ors_gym.records import write_records
from ors_gym.rollout import to_dataset, to_numpy, to_pandas, token_mask
from ors_gym.tasks import TaskRef

TASK = TaskRef("train", 5)
TOOLS = (ToolSpec(name="add", description="Add.", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}}),)


def _step(n: int, reward: float | None = None, **fields: Any) -> Step:
    call = ToolCall(name="add", input={"n": n})
    return Step(f"add {n}", call, (TextBlock(text=f"now {n}"),), reward, elapsed=0.5, **fields)


def _episode(*steps: Step, **fields: Any) -> Episode:
    base = {"terminated": True, "started_at": 100.0, "ended_at": 103.0, **fields}
    return Episode(TASK, "sums", "s", (TextBlock(text="Start."),), TOOLS, list(steps), **base)


def _groups() -> list[RolloutGroup]:
    first = _episode(_step(1, 0.5), _step(2), _step(3, 0.5, finished=True), id="a")
    refused = Step("?", blocks=(TextBlock(text="Error: no call"),), invalid_action="no call")
    second = _episode(refused, terminated=False, truncated=True, id="b")
    failure = {"error": "gone", "error_kind": "infrastructure"}
    lost = _episode(_step(4, 9.0), terminated=False, truncated=True, id="c", **failure)
    return [RolloutGroup(TASK, [first, second, lost]), RolloutGroup(TASK, [_episode(_step(5, 1.0), id="d")])]


def test_arrays_of_groups() -> None:
    arrays = to_numpy(_groups())
    assert arrays["rewards"].tolist()[:2] == [1.0, 0.0]
    assert math.isnan(arrays["rewards"][2])
    assert arrays["advantages"].tolist()[:2] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])
    assert (math.isnan(arrays["advantages"][2]), arrays["advantages"][3]) == (True, 0.0)
    assert arrays["group"].tolist() == [0, 0, 0, 1]
    assert arrays["lengths"].tolist() == [3, 1, 1, 1]
    assert arrays["terminated"].tolist() == [True, False, False, True]
    assert arrays["truncated"].tolist() == [False, True, True, False]
    assert arrays["unscored"].tolist() == [False, False, True, False]
    assert arrays["step_rewards"].tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert arrays["step_mask"].sum(axis=1).tolist() == [3, 1, 1, 1]
    assert arrays["invalid"].tolist() == [[False] * 3, [True, False, False], [False] * 3, [False] * 3]
    assert {name: str(array.dtype) for name, array in arrays.items()} == {
        "rewards": "float64",
        "group": "int64",
        "lengths": "int64",
        "terminated": "bool",
        "truncated": "bool",
        "unscored": "bool",
        "step_rewards": "float64",
        "step_mask": "bool",
        "invalid": "bool",
        "advantages": "float64",
    }


def test_arrays_of_episodes_have_no_advantages_and_take_a_reduction() -> None:
    arrays = to_numpy(list(_groups()[0].episodes), reward="last")
    assert arrays["rewards"].tolist()[:2] == [0.5, 0.0]
    assert arrays["group"].tolist() == [0, 1, 2]
    assert "advantages" not in arrays


def test_arrays_of_nothing() -> None:
    assert to_numpy([])["step_rewards"].shape == (0, 0)


def test_a_data_set_has_the_scored_episodes() -> None:
    dataset = to_dataset(_groups(), system_prompt="Count.")
    assert dataset["id"][:] == ["a", "b", "d"]
    first, second = dataset[0], dataset[1]
    assert [message["role"] for message in first["messages"]] == ["system", "user"] + ["assistant", "tool"] * 3
    assert first["messages"][2]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"n": 1}}
    assert first["masks"] == [0, 0, 1, 0, 1, 0, 1, 0]
    assert (first["actions"], first["rewards"], first["reward"]) == (['"add 1"', '"add 2"', '"add 3"'], [0.5, 0.0, 0.5], 1.0)
    assert first["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert first["advantage"] == pytest.approx(math.sqrt(0.5))
    assert json.loads(first["task"]) == {"split": "train", "index": 5}
    assert (second["messages"][2]["content"], second["truncated"]) == ("?", True)


def test_a_data_set_with_everything_and_without_groups() -> None:
    dataset = to_dataset([episode for group in _groups() for episode in group.episodes], include_unscored=True)
    assert dataset["reward"][:] == [1.0, 0.0, None, 1.0]
    assert "advantage" not in dataset.column_names


def test_arguments_of_different_tools_do_not_mix() -> None:
    other = ToolCall(name="go", input={"where": ["x"], "n": "text"})
    dataset = to_dataset([_episode(_step(1, 1.0)), _episode(Step(other, other, reward=1.0))])
    arguments = [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in dataset]
    assert arguments == [{"n": 1}, {"where": ["x"], "n": "text"}]


def test_a_frame_of_groups_and_of_a_file(tmp_path: Path) -> None:
    frame = to_pandas(_groups())
    assert frame["id"].tolist() == ["a", "b", "c", "d"]
    assert frame["reward"].tolist()[:2] == [1.0, 0.0]
    assert frame["reward"].isna().tolist() == [False, False, True, False]
    assert frame["task"].tolist() == ["train/5"] * 4
    assert (frame["num_steps"].tolist(), frame["num_invalid"].tolist()) == ([3, 1, 1, 1], [0, 1, 0, 0])
    assert (frame["seconds"][0], frame["environment_seconds"][0]) == (3.0, 1.5)
    assert frame["started_at"][0].isoformat() == "1970-01-01T00:01:40"
    assert frame["error_kind"].tolist() == ["", "", "infrastructure", ""]
    write_records(tmp_path, [episode for group in _groups() for episode in group.episodes])
    assert to_pandas(tmp_path).equals(frame)
    assert list(to_pandas([]).columns) == list(frame.columns)


class _Characters:
    """A tokenizer of characters; its template writes `<role>content</role>`, calls as their arguments."""

    def __init__(self, forgetful: bool = False) -> None:
        self.forgetful = forgetful

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(char) for char in text]}

    def apply_chat_template(
        self, messages: list[dict[str, Any]], tools: Any, tokenize: bool, add_generation_prompt: bool, **options: Any
    ) -> str:
        assert not tokenize
        shown = [self._message(message, message is messages[-1]) for message in messages]
        return f"[{len(tools or ())}{options or ''}]" + "".join(shown) + ("<assistant>" if add_generation_prompt else "")

    def _message(self, message: dict[str, Any], last: bool) -> str:
        calls = [json.dumps(call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        thought = "hm " if self.forgetful and last and message["role"] == "assistant" else ""
        return f"<{message['role']}>{thought}{message['content']}{''.join(calls)}</{message['role']}>"


def _said(ids: np.ndarray, mask: np.ndarray) -> list[str]:
    text = "".join(chr(token) if said else "\0" for token, said in zip(ids, mask, strict=True))
    return [part for part in text.split("\0") if part]


def test_tokens_that_the_agent_said_are_masked() -> None:
    ids, mask = token_mask(_groups()[0].episodes[0], _Characters(), system_prompt="Count.")
    assert "".join(map(chr, ids)) == (
        "[1]<system>Count.</system><user>Start.</user>"
        '<assistant>{"n": 1}</assistant><tool>now 1</tool>'
        '<assistant>{"n": 2}</assistant><tool>now 2</tool>'
        '<assistant>{"n": 3}</assistant><tool>now 3</tool>'
    )
    assert _said(ids, mask) == ['{"n": 1}</assistant>', '{"n": 2}</assistant>', '{"n": 3}</assistant>']
    assert (ids.dtype, mask.dtype, ids.shape) == (np.int64, np.bool_, mask.shape)


def test_an_action_that_was_no_call_is_what_the_agent_said_too() -> None:
    ids, mask = token_mask(_groups()[0].episodes[1], _Characters(), template={"k": 1})
    assert _said(ids, mask) == ["?</assistant>"]
    assert "".join(map(chr, ids)).startswith("[1{'k': 1}]")


def test_an_episode_without_steps_has_no_token_of_the_agent() -> None:
    ids, mask = token_mask(_episode(), _Characters())
    assert ("".join(map(chr, ids)), mask.any()) == ("[1]<user>Start.</user>", False)


def test_a_template_that_forgets_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="does not keep prefixes"):
        token_mask(_groups()[0].episodes[0], _Characters(forgetful=True))


def test_tokens_in_a_data_set() -> None:
    dataset = to_dataset(_groups(), tokenizer=_Characters())
    ids, mask = token_mask(_groups()[0].episodes[0], _Characters())
    assert dataset[0]["input_ids"] == ids.tolist()
    assert dataset[0]["assistant_masks"] == mask.astype(int).tolist()
