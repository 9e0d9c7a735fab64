"""Gymnasium's spaces, their schemas and their actions go to JSON and come back equal."""

import json
from typing import Any

import jsonschema
import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.utils.env_checker import data_equivalence

from ors_gym.spaces.native import (
    OutsideSpace,
    action_from_json,
    action_schema,
    action_to_json,
    space_from_json,
    space_to_json,
)

SPACES = [
    spaces.Discrete(4),
    spaces.Discrete(3, start=-1, dtype=np.int32),
    spaces.Discrete(1000),
    spaces.MultiDiscrete([2, 3, 100]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, -3]], dtype=np.int16),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    spaces.Box(-2.0, 2.0, (1,)),
    spaces.Box(np.array([-1, 0], np.float32), np.array([0.1, np.inf], np.float32)),
    spaces.Box(0, 255, (2, 2, 3), np.uint8),
    spaces.Box(-5, 5, (), np.float64),
    spaces.Text(10),
    spaces.Text(5, min_length=0, charset="ab-]^\\ é\n"),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Dict({"x": spaces.Box(0, 1, (2,))})}),
    spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(1)]),
    spaces.OneOf([spaces.Discrete(2), spaces.Text(3), spaces.Box(0, 1, (1,))]),
    spaces.Sequence(spaces.Discrete(3)),
    spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True),
    spaces.Sequence(spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Text(2))])),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_comes_back_equal(space: Space[Any]) -> None:
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space


@pytest.mark.parametrize("edge", [None, spaces.Discrete(3)])
def test_a_graph_space_comes_back_equal(edge: Space[Any] | None) -> None:
    space = spaces.Graph(spaces.Box(-1, 1, (3,)), edge)

    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_an_action_is_valid_json_for_its_schema_and_comes_back_equal(space: Space[Any]) -> None:
    schema = action_schema(space)
    jsonschema.Draft202012Validator.check_schema(schema)
    space.seed(0)
    for _ in range(20):
        action = space.sample()
        written = json.loads(json.dumps(action_to_json(space, action)))

        jsonschema.Draft202012Validator(schema).validate(written)
        restored = action_from_json(space, written)
        assert data_equivalence(restored, action, exact=True)


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.Discrete(4), 4, "action must be an integer from 0 to 3, not 4"),
        (spaces.Discrete(4), True, "action must be an integer from 0 to 3, not True"),
        (spaces.Discrete(4), "1", "action must be an integer from 0 to 3, not '1'"),
        (spaces.Discrete(4), None, "action must be an integer from 0 to 3, not None"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], "action[1] must be an integer from 0 to 2, not 3"),
        (spaces.MultiDiscrete([2, 3]), [1], "action must be a list of 2, not [1]"),
        (spaces.MultiBinary(2), [0, 2], "action[1] must be an integer from 0 to 1, not 2"),
        (spaces.Box(-2, 2, (1,)), [2.5], "action[0] must be a number from -2.0 to 2.0, not 2.5"),
        (spaces.Box(-2, 2, (1,)), [float("nan")], "action[0] must be a number from -2.0 to 2.0, not nan"),
        (spaces.Box(-2, 2, (1,)), 1.0, "action must be a list of 1, not 1.0"),
        (spaces.Box(-2, 2, (2, 1)), [[1.0], ["x"]], "action[1][0] must be a number from -2.0 to 2.0, not 'x'"),
        (spaces.Box(-np.inf, np.inf, (1,)), [10**400], "action[0] must be a number"),
        (spaces.Box(0, 255, (1,), np.uint8), [256], "action[0] must be an integer from 0 to 255, not 256"),
        (spaces.Text(3, charset="ab"), "abba", "action must be a text of 1 to 3 characters out of 'ab', not 'abba'"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, "action must be an object with the keys ['a'], not {'b': 1}"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": 2}, "action.a must be an integer from 0 to 1, not 2"),
        (spaces.Tuple([spaces.Discrete(2)]), [7], "action[0] must be an integer from 0 to 1, not 7"),
        (spaces.OneOf([spaces.Discrete(2)]), {"choice": 1, "value": 0}, "action.choice must be an integer from 0 to 0, not 1"),
        (spaces.OneOf([spaces.Discrete(2)]), [0, 0], "action must be an object with the keys 'choice' and 'value'"),
        (spaces.Sequence(spaces.Discrete(2)), [0, 1, 2], "action[2] must be an integer from 0 to 1, not 2"),
        (spaces.Sequence(spaces.Discrete(2)), 0, "action must be a list, not 0"),
    ],
)
def test_an_action_outside_its_space_is_refused_with_what_would_be_in_it(space: Space[Any], value: Any, message: str) -> None:
    with pytest.raises(OutsideSpace) as caught:
        action_from_json(space, value)

    assert message in str(caught.value)


def test_meanings_are_told_in_the_schema() -> None:
    assert action_schema(spaces.Discrete(2, start=1), ["left", "right"]) == {
        "type": "integer",
        "enum": [1, 2],
        "description": "1: left; 2: right",
    }


def test_a_space_without_actions_in_json_is_named() -> None:
    graph = spaces.Graph(spaces.Discrete(2), None)

    with pytest.raises(TypeError, match="Graph"):
        action_schema(graph)
