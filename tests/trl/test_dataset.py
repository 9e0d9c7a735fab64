"""`spec.train_dataset`: a task a row, with its prompt."""

import json
import logging
from pathlib import Path

import pytest
from datasets import Dataset, IterableDataset, load_from_disk

from ors_gym.errors import NotFound
from ors_gym.trl import ORSSpec


def test_a_row_has_the_prompt_and_names_its_task(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        rows = spec.train_dataset
    assert len(rows) == 20
    assert {name: value for name, value in rows[3].items() if name != "environment"} == {
        "prompt": [
            {
                "role": "user",
                "content": "What is 3 + 4?",
                "ors": json.dumps(
                    {"ors_env": "arithmetic", "ors_split": "train", "ors_index": 3, "environment": rows[3]["environment"]}
                ),
            }
        ],
        "ors_env": "arithmetic",
        "ors_split": "train",
        "ors_index": 3,
        "ors_task_spec": '{"question": "3 + 4", "answer": "7"}',
    }
    assert rows[3]["environment"].startswith("arithmetic/")


def test_tasks_are_chosen_by_number_and_by_index(base_url: str) -> None:
    assert ORSSpec(base_url, "arithmetic", num_tasks=2).train_dataset["ors_index"][:] == [0, 1]
    assert ORSSpec(base_url, "arithmetic", num_tasks=99).train_dataset["ors_index"][:] == list(range(20))
    assert ORSSpec(base_url, "arithmetic", indices=[7, 2, 7]).train_dataset["ors_index"][:] == [7, 2, 7]
    with pytest.raises(ValueError, match="there is no index 20"):
        _ = ORSSpec(base_url, "arithmetic", indices=[20]).train_dataset
    with pytest.raises(ValueError, match="not both"):
        ORSSpec(base_url, "arithmetic", indices=[1], num_tasks=1)


def test_the_held_out_split_is_a_dataset_too(base_url: str) -> None:
    with ORSSpec(base_url, "counter", num_tasks=1) as spec:
        assert spec.eval_dataset()["prompt"][0][0]["content"] == "Count to 20."
        assert spec.eval_dataset("hard", num_tasks=2)["ors_split"][:] == ["hard", "hard"]
        with pytest.raises(ValueError, match="no split 'other'"):
            spec.eval_dataset("other")


def test_prompts_are_plain_text_where_that_is_wanted(base_url: str) -> None:
    spec = ORSSpec(base_url, "arithmetic", num_tasks=1, conversational=False, system_prompt="Be quick.")
    assert spec.train_dataset["prompt"][0] == "Be quick.\n\nWhat is 0 + 1?"


def test_a_system_prompt_stands_first_and_may_tell_of_the_tools(base_url: str) -> None:
    spec = ORSSpec(
        base_url, "arithmetic", num_tasks=1, system_prompt=lambda tools: "Tools: " + ", ".join(tool.name for tool in tools)
    )
    assert [(message["role"], message["content"]) for message in spec.train_dataset["prompt"][0]] == [
        ("system", "Tools: submit, think"),
        ("user", "What is 0 + 1?"),
    ]


def test_a_dataset_survives_saving_mapping_and_streaming(base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "arithmetic", num_tasks=4) as spec:
        rows = spec.train_dataset.map(lambda row: {"difficulty": row["ors_index"] / 4}).filter(lambda row: row["ors_index"] != 1)
        rows.save_to_disk(tmp_path / "rows")
        kept = next(iter(load_from_disk(tmp_path / "rows").to_iterable_dataset().skip(1).batch(1)))
        columns = {name: values for name, values in kept.items() if name != "prompt"}
        assert spec.reward_funcs(kept["prompt"], ["5"], **columns) == [1.0]
        assert json.loads(kept["prompt"][0][-1]["ors"])["ors_index"] == 2


def test_task_specs_of_mixed_types_fit(base_url: str) -> None:
    with ORSSpec(base_url, "faulty", num_tasks=2) as spec:
        assert spec.train_dataset["ors_task_spec"][:] == ['{"number": 0}', '{"number": 1}']
    assert "ors_task_spec" not in ORSSpec(base_url, "faulty", num_tasks=1, include_metadata=False).train_dataset.column_names


def test_rows_tell_tool_sets_apart(base_url: str) -> None:
    with ORSSpec(base_url, "tasktools") as spec:
        assert len(set(spec.train_dataset["environment"])) == 3
    with ORSSpec(base_url, "tasktools", discover_task_tools=False) as spec:
        assert len(set(spec.train_dataset["environment"])) == 1
    with ORSSpec(base_url, "tasktools", task_tools_discovery_index=2, system_prompt=lambda tools: tools[-1].name) as spec:
        assert [prompt[0]["content"] for prompt in spec.train_dataset["prompt"]] == ["solve"] * 3


def test_tasks_that_cannot_be_set_up_are_left_out_with_a_warning(base_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with ORSSpec(base_url, "brokensetup") as spec, caplog.at_level(logging.WARNING, "ors_gym.trl"):
        assert spec.train_dataset["ors_index"][:] == [0, 2, 4]
    assert "3 tasks cannot be set up and are left out: [1, 3, 5]" in caplog.text


def test_live_prompts_leave_the_dataset_without(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic", num_tasks=1, prompt="session", system_prompt="Be quick.") as spec:
        assert [message["content"] for message in spec.train_dataset["prompt"][0]] == ["Be quick.", ""]


def test_a_large_split_is_streamed_and_never_read_whole(base_url: str) -> None:
    with ORSSpec(base_url, "million", progress=False) as spec:
        rows = spec.train_dataset
        assert isinstance(rows, IterableDataset)
        assert [row["prompt"][0]["content"] for row in rows.take(2)] == ["task 0", "task 1"]


def test_streams_give_the_same_rows_as_datasets(base_url: str) -> None:
    whole, streamed = (ORSSpec(base_url, "arithmetic", streaming=streaming).train_dataset for streaming in (False, True))
    assert isinstance(whole, Dataset)
    assert list(streamed) == list(whole)


@pytest.mark.parametrize("streaming", [False, True])
def test_shuffling_is_the_same_for_the_same_seed(streaming: bool, base_url: str) -> None:
    def order(seed: int) -> list[int]:
        return [row["ors_index"] for row in ORSSpec(base_url, "arithmetic", streaming=streaming).shuffle(seed).train_dataset]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(20))


def test_a_server_that_is_not_there_and_a_name_that_is_none_are_clear() -> None:
    with pytest.raises(NotImplementedError, match="not supported yet: pass the URL"):
        ORSSpec("Eigent/SETA")


def test_an_environment_that_is_not_there_is_clear(base_url: str) -> None:
    with pytest.raises(NotFound):
        _ = ORSSpec(base_url, "nowhere").train_dataset
