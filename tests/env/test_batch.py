"""Infos as arrays: Gymnasium's, where it has an answer; never forced, where it has none."""

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import VectorEnv

from ors_gym.env._batch import batch_infos, with_final
from ors_gym.env._slot import Transition


@pytest.mark.parametrize(
    "infos",
    [
        [{"a": 1, "b": 0.5, "c": True, "d": "text"}, {"a": 2, "b": 1.5, "c": False, "d": "more"}],
        [{"a": np.float32(1)}, {}, {"a": np.float32(2)}],
        [{"a": np.zeros(3)}, {"a": np.ones(3)}],
        [{"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}, "d": "x"}}],
        [{"a": [1, 2]}, {"a": [3]}],
        [{"a": None}, {"a": None}],
        [{"final_obs": {"x": 1}, "final_info": {"y": 2}}, {}],
        [{}, {"a": {}}],
        [{}, {}],
    ],
)
def test_infos_of_one_type_are_what_gymnasium_makes_of_them(infos: list[dict[str, Any]]) -> None:
    reference: Any = VectorEnv()
    reference.num_envs = len(infos)
    expected: dict[str, Any] = {}
    for i, info in enumerate(infos):
        expected = reference._add_info(expected, info, i)
    assert data_equivalence(batch_infos(infos), expected, exact=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 0.75], [1.0, 0.75]),
        ([{"x": 1}, None], [{"x": 1}, None]),
        ([None, {"x": 1}], [None, {"x": 1}]),
        ([2**70, 1], [2**70, 1]),
        ([True, 3], [True, 3]),
        (["a", 1], ["a", 1]),
    ],
)
def test_values_of_different_types_all_survive(values: list[Any], expected: list[Any]) -> None:
    assert batch_infos([{"a": value} for value in values])["a"].tolist() == expected


def test_ragged_arrays_survive() -> None:
    batch = batch_infos([{"a": np.zeros(2)}, {"a": np.ones(3)}])["a"]
    assert [value.tolist() for value in batch] == [[0.0, 0.0], [1.0, 1.0, 1.0]]


def test_flat_infos_keep_dicts_and_lists_as_objects() -> None:
    batch = batch_infos([{"task": {"index": 1}, "tools": [1, 2], "ok": True}, None], nested=False)
    assert batch["task"].tolist() == [{"index": 1}, None]
    assert batch["tools"].tolist() == [[1, 2], None]
    assert batch["ok"].dtype == np.bool_
    assert batch["_task"].tolist() == [True, False]


def test_a_final_info_is_taken_apart_and_a_final_observation_is_not() -> None:
    transition = Transition("begin", info={"n": 0}, final=("end", {"n": 9, "task": {"index": 1}}))
    batch = batch_infos([with_final(transition), {"n": 1}], nested=False)
    assert batch["final_obs"].tolist() == ["end", None]
    assert batch["final_info"]["n"].tolist() == [9, 0]
    assert batch["final_info"]["task"].tolist() == [{"index": 1}, None]
    assert batch["n"].tolist() == [0, 1]
