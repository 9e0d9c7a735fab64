"""`spec.reward_funcs` as a plain callable: completions → sessions → rewards."""

import logging
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from ors_gym.episode import Episode
from ors_gym.errors import InvalidAction
from ors_gym.trl import ORSSpec


def rows(count: int, index: int = 0, **columns: Any) -> dict[str, Any]:
    return {"ors_split": ["train"] * count, "ors_index": [index] * count, **columns}


def reward(spec: ORSSpec, completions: list[Any], **columns: Any) -> list[float | None]:
    return spec.reward_funcs(["prompt"] * len(completions), completions, **(rows(len(completions)) | columns))


def said(text: str = "", *calls: tuple[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    functions = [{"type": "function", "function": {"name": name, "arguments": dict(arguments)}} for name, arguments in calls]
    return [{"role": "assistant", "content": text, **({"tool_calls": functions} if functions else {})}]


def test_every_completion_is_run_in_a_session_of_its_own(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        rewards = reward(spec, [said("", ("submit", {"answer": "1"})), said("", ("submit", {"answer": "2"}))])
        episodes = [episode for group in spec.groups for episode in group.episodes]
    assert rewards == [1.0, 0.0]
    assert len({episode.session_id for episode in episodes}) == 2
    assert [episode.terminated for episode in episodes] == [True, True]


@pytest.mark.parametrize(
    "completion",
    [
        '{"name": "submit", "input": {"answer": "1"}}',
        'So:\n```json\n{"name": "submit", "arguments": {"answer": "1"}}\n```',
        '<think>0 + 1</think><tool_call>\n{"name": "submit", "arguments": {"answer": "1"}}\n</tool_call><|im_end|>',
        '[submit(answer="1")]',
        '<|python_tag|>{"name": "submit", "parameters": {"answer": "1"}}<|eom_id|>',
        '<|channel|>commentary to=functions.submit <|constrain|>json<|message|>{"answer": "1"}<|call|>',
        "1",
        [{"role": "assistant", "content": "1"}],
        said("", ("think", {}), ("submit", {"answer": "1"})),
        [*said("", ("think", {})), {"role": "tool", "name": "think", "content": "Go on."}, *said("", ("submit", {"answer": "1"}))],
    ],
)
def test_calls_are_read_in_every_form_that_models_write(completion: Any, base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        assert reward(spec, [completion]) == [1.0]


def test_calls_after_finished_are_not_made(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        assert reward(spec, [said("", ("submit", {"answer": "2"}), ("submit", {"answer": "1"}))]) == [0.0]
        assert [step.call.input for step in spec.groups[0].episodes[0].steps if step.call] == [{"answer": "2"}]


def test_rewards_of_several_calls_are_summed_or_reduced_as_wanted(base_url: str) -> None:
    calls = said("", ("add", {"amount": 1}), ("add", {"amount": 2}))
    for reduction, expected in [("sum", 0.3), ("last", 0.2), ("max", 0.2), ("mean", 0.15), (lambda episode: 7.0, 7.0)]:
        with ORSSpec(base_url, "counter", reward=reduction) as spec:
            assert reward(spec, [calls]) == [pytest.approx(expected)]


def test_a_completion_without_a_valid_call_opens_no_session(base_url: str) -> None:
    with ORSSpec(base_url, "counter", invalid_action_reward=-0.5) as spec:
        assert reward(spec, ["I would rather not.", "", [], '{"name": "add", "input": ']) == [-0.5] * 4
        assert [episode.session_id for group in spec.groups for episode in group.episodes] == [""] * 4


def test_a_rollout_that_a_tool_broke_is_none(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        assert reward(spec, [said("", ("boom", {})), said("", ("finish", {}))]) == [None, 1.0]
        assert spec.groups[0].rewards == [None, 1.0]
    with ORSSpec(base_url, "faulty", on_tool_error="observe") as spec:
        assert reward(spec, [said("", ("boom", {}), ("finish", {}))]) == [1.0]


def test_an_unknown_task_is_none_and_nothing_is_raised(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        assert reward(spec, ["1"], ors_index=[999]) == [None]


def test_a_task_of_ones_own_is_given_by_its_spec(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        columns = {"ors_task_spec": ['{"question": "6 + 7", "answer": "13"}']}
        assert spec.reward_funcs(["6 + 7"], ["13"], **columns) == [1.0]


def test_a_dataset_that_is_not_the_specs_is_refused(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        with pytest.raises(ValueError, match="ors_split"):
            spec.reward_funcs(["prompt"], ["1"])
        with pytest.raises(ValueError, match="is of environment 'counter'"):
            reward(spec, ["1"], ors_env=["counter"])


def test_256_completions_run_at_once(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        completions = [said("", ("slow", {"seconds": 0.2}))] * 256
        assert reward(spec, completions) == [0.5] * 256
        in_flight = [
            step.metadata["peak_in_flight"] for group in spec.groups for e in group.episodes for step in e.steps if step.metadata
        ]
    assert max(in_flight) >= 200


def test_no_more_run_at_once_than_max_concurrency(base_url: str) -> None:
    with ORSSpec(base_url, "faulty", max_concurrency=2) as spec:
        reward(spec, [said("", ("echo", {"text": "x"}))] * 6)
        starts = sorted((e.started_at, e.ended_at) for group in spec.groups for e in group.episodes)
    for third in range(2, 6):
        assert sum(end > starts[third][0] for _, end in starts[:third]) <= 1


def test_an_action_parser_of_ones_own_reads_completions(base_url: str) -> None:
    def parser(completion: str) -> list[dict[str, Any]]:
        if "ANSWER" not in completion:
            raise InvalidAction("no answer")
        return [{"name": "submit", "input": {"answer": completion.split("ANSWER ")[1]}}]

    with ORSSpec(base_url, "arithmetic", action_parser=parser) as spec:
        assert reward(spec, ["so ANSWER 1", "so 1"]) == [1.0, 0.0]


def test_components_of_a_reward_are_functions_of_their_own_and_run_the_tools_once(base_url: str) -> None:
    with ORSSpec(base_url, "copy", reward_components=["parts.right", "parts.tried"]) as spec:
        right, tried = spec.reward_funcs
        completions = [said("", ("press", {"digit": 0})), said("", ("press", {"digit": 1}))]
        columns = rows(2)
        assert right(["p"] * 2, completions, **columns) == [1.0, 0.0]
        first = [episode.id for episode in spec.groups[0].episodes]
        assert tried(["p"] * 2, completions, **columns) == [0.25, 0.25]
        assert [episode.id for episode in spec.groups[0].episodes] == first
        assert [right.__name__, tried.__name__] == ["parts.right", "parts.tried"]


def test_a_reward_function_that_raises_leaves_the_rollout_unscored(base_url: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(episode: Episode) -> float:
        raise RuntimeError("a bug")

    with ORSSpec(base_url, "arithmetic", reward=broken) as spec, caplog.at_level(logging.ERROR, "ors_gym.trl"):
        assert reward(spec, ["1"]) == [None]
    assert "a bug" in caplog.text


def test_numbers_of_a_step_are_logged(base_url: str) -> None:
    numbers: dict[str, float] = {}
    with ORSSpec(base_url, "arithmetic") as spec:
        completions = ["1", "1", "2", said("", ("nothing", {}))]
        reward(spec, completions, ors_index=[0, 0, 1, 1], log_metric=numbers.__setitem__)
    assert numbers["ors/success_rate"] == 0.5
    assert numbers["ors/invalid_action_rate"] == 0.25
    assert numbers["ors/unscored_rate"] == 0.0
    assert numbers["ors/errors"] == 0.0
    assert numbers["ors/turns"] == 1.0
    assert numbers["ors/tool_calls"] == 0.75
    assert numbers["ors/invalid_actions"] == 0.25
    assert numbers["ors/group_reward_mean"] == 0.5
    assert numbers["ors/group_reward_std"] == 0.0
    assert numbers["ors/groups_without_signal"] == 1.0
    assert 0 < numbers["ors/environment_seconds"] <= numbers["ors/environment_seconds_max"]


def test_groups_are_the_rollouts_of_a_task(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        reward(spec, ["1", "2", "3", "0"], ors_index=[0, 0, 1, 1])
        assert [group.task.key for group in spec.groups] == ["train/0", "train/1"]
        assert [group.rewards for group in spec.groups] == [[1.0, 0.0], [1.0, 0.0]]
        assert spec.groups[0].advantages("center") == [0.5, -0.5]


def test_it_pickles_and_works_where_it_is_unpickled(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        copy = pickle.loads(pickle.dumps(spec.reward_funcs))
    assert copy.__name__ == "ors_reward"
    assert copy(["p"], ["1"], **rows(1)) == [1.0]
