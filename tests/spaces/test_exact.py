"""Observations go to JSON and come back equal to the bit."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.spaces import GraphInstance
from gymnasium.utils.env_checker import data_equivalence

from ors_gym.spaces.exact import decode, encode, encode_info


def round_trip(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        10**30,
        0.1,
        "text é\ud800 🎲",
        [1, [2.5, None]],
        (1, (2, "x")),
        {"a": (1,), "array": [{"tuple": 1}]},
        np.int64(5),
        np.float32(0.1),
        np.bool_(True),
        np.str_("word"),
        np.array([0.1, -0.0], np.float32),
        np.zeros((2, 0, 3), np.uint8),
        np.array(7),
        np.array(["a", "bc"]),
        np.arange(6, dtype=">i4").reshape(2, 3).astype("=i4"),
        np.arange(6).reshape(2, 3).T,
    ],
    ids=repr,
)
def test_a_value_comes_back_with_its_type_and_bits(value: Any) -> None:
    restored = round_trip(value)

    assert type(restored) is type(value)
    assert data_equivalence(restored, value, exact=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), np.float32("nan"), np.array([np.nan, np.inf])])
def test_what_is_not_finite_comes_back_too(value: Any) -> None:
    restored = round_trip(value)

    assert type(restored) is type(value)
    np.testing.assert_array_equal(restored, value)


def test_a_graph_comes_back_equal() -> None:
    space: Space[GraphInstance] = spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3), seed=1)
    graph = space.sample()
    restored = round_trip(graph)

    assert isinstance(restored, GraphInstance)
    for part, original in zip(restored, graph, strict=True):
        np.testing.assert_array_equal(part, original)


def test_a_restored_array_can_be_written_to() -> None:
    restored = round_trip(np.zeros(3))
    restored[0] = 1.0

    assert restored.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {2}}, np.array([object()])], ids=["object", "keys", "set", "array"])
def test_what_cannot_be_written_exactly_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="exactly"):
        encode(value)


def test_an_info_keeps_the_text_of_what_cannot_be_written() -> None:
    assert decode(encode_info({"prob": np.float32(0.5), "kept": {1, 2}})) == {"prob": np.float32(0.5), "kept": "{1, 2}"}


@pytest.mark.parametrize(
    "encoded",
    [
        {"unknown": 1},
        {"float": "12"},
        {"array": {"dtype": "|O", "shape": [1], "data": "AAAAAAAAAAA="}},
        {"array": {"dtype": "<f4", "shape": [2], "data": "AAAA"}},
        {"dict": {}, "tuple": []},
    ],
)
def test_what_encode_does_not_write_is_refused(encoded: Any) -> None:
    with pytest.raises(ValueError):
        decode(encoded)
