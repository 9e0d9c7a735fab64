"""The spaces of text, tool calls, blocks and images, alone and in Gymnasium's hands."""

import copy
import json
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.spaces.utils import flatdim, is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space, concatenate, create_empty_array, iterate
from gymnasium.wrappers import DelayObservation, FlattenObservation, FrameStackObservation
from gymnasium.wrappers.utils import create_zero_array

from ors_gym.protocol import ToolSpec
from ors_gym.schemas import SchemaError
from ors_gym.spaces import (
    BlocksSpace,
    ImageSpace,
    JSONText,
    ToolCallSpace,
    UnicodeText,
    action_space_for,
    observation_space_for,
)

MOVE = ToolSpec(
    name="move",
    input_schema={
        "type": "object",
        "properties": {"to": {"enum": ["north", "south"]}, "steps": {"type": "integer", "minimum": 1, "maximum": 3}},
        "required": ["to"],
        "additionalProperties": False,
    },
)
LOOK = ToolSpec(name="look")
BROKEN = ToolSpec(name="broken", input_schema={"type": 5})
TOOLS = [MOVE, LOOK]

MAKERS = {
    "text": lambda: UnicodeText(),
    "bounded text": lambda: UnicodeText(30, 2),
    "tool calls": lambda: ToolCallSpace(TOOLS),
    "json": lambda: JSONText(TOOLS),
    "blocks": lambda: BlocksSpace(),
    "bounded blocks": lambda: BlocksSpace(5),
    "image": lambda: ImageSpace(),
    "small image": lambda: ImageSpace(4),
    "multimodal": lambda: observation_space_for("multimodal"),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right) and left.dtype == right.dtype
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


class TestEverySpace:
    def test_contains_its_samples(self, make):
        space = make()

        assert all(space.contains(space.sample()) is True for _ in range(50))

    def test_samples_by_its_seed(self, make):
        first, second = make(), make()
        first.seed(7)
        second.seed(7)

        assert same([first.sample() for _ in range(5)], [second.sample() for _ in range(5)])

    def test_contains_nothing_else_and_raises_nothing(self, make):
        space = make()

        for value in (None, 5, b"x", [], {"name": 5, "input": None}, (5,), ({"type": 5},), np.zeros((2, 2)), object()):
            assert space.contains(value) is False

    def test_equals_its_like_only(self, make):
        assert make() == make()
        assert make() != UnicodeText(1)
        assert make() != Discrete(2)

    def test_goes_through_json(self, make):
        space = make()
        samples = [space.sample() for _ in range(5)]

        assert same(space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples)))), samples)

    @pytest.mark.parametrize("clone", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))], ids=["deepcopy", "pickle"])
    def test_is_copied_with_its_generator(self, make, clone):
        space = make()
        space.seed(3)
        space.sample()
        other = clone(space)

        assert other == space
        assert same(other.sample(), space.sample())
        assert other.np_random is not space.np_random

    def test_has_a_short_repr(self, make):
        assert len(repr(make())) < 100

    def test_is_not_flattened(self, make):
        assert make().is_np_flattenable is False
        with pytest.raises(ValueError, match="cannot be flattened"):
            flatdim(make())


class TestGymnasiumsFunctions:
    def test_batch_concatenate_and_iterate(self, make):
        space = make()
        batched = batch_space(space, 3)
        samples = [space.sample() for _ in range(3)]

        joined = concatenate(space, samples, create_empty_array(space, 3))

        assert batched.contains(joined)
        assert batched.contains(batched.sample())
        assert same(list(iterate(batched, joined)), samples)

    def test_a_batch_samples_different_values_by_its_seed(self):
        first, second = batch_space(UnicodeText(), 4), batch_space(UnicodeText(), 4)
        first.seed(1)
        second.seed(1)
        values = first.sample()

        assert values == second.sample()
        assert len(set(values)) == 4

    def test_batch_of_differing_spaces(self):
        batched = batch_differing_spaces([UnicodeText(3), UnicodeText(5)])

        assert batched.contains(("abc", "abcde"))
        assert not batched.contains(("abcd", "abcde"))

    def test_empty_and_zero_arrays_are_in_the_space(self, make):
        space = make()

        assert space.contains(create_zero_array(space))
        assert batch_space(space, 2).contains(create_empty_array(space, 2))

    def test_spaces_of_one_kind_are_equivalent(self, make):
        assert is_space_dtype_shape_equiv(make(), make())
        assert not is_space_dtype_shape_equiv(make(), Discrete(2))

    @pytest.mark.parametrize("observation_mode", ["same", "different"])
    def test_a_vector_environment(self, make, observation_mode):
        envs = gym.vector.SyncVectorEnv([lambda: Echo(make())] * 2, observation_mode=observation_mode)

        observations, _ = envs.reset(seed=0)

        assert envs.observation_space.contains(observations)
        assert envs.observation_space.contains(envs.step([0, 0])[0])

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda env: FrameStackObservation(env, 3),
            lambda env: FrameStackObservation(env, 3, padding_type="zero"),
            lambda env: DelayObservation(env, 2),
        ],
        ids=["stack", "stack with zeros", "delay"],
    )
    def test_wrappers_that_remember(self, make, wrap):
        env = wrap(Echo(make()))

        observation, _ = env.reset(seed=0)

        assert env.observation_space.contains(observation)
        for _ in range(4):
            assert env.observation_space.contains(env.step(0)[0])

    def test_flattening_fails_with_gymnasiums_own_error(self, make):
        with pytest.raises(NotImplementedError):
            FlattenObservation(Echo(make()))


class Echo(gym.Env[Any, int]):
    """Observes samples of a space."""

    action_space = Discrete(2)

    def __init__(self, space: gym.Space[Any]) -> None:
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


class TestUnicodeText:
    @pytest.mark.parametrize("text", ["", "naïve 漢字 😀", "\x00\n\u2028", "x" * 10_000_000])
    def test_contains_any_text(self, text):
        assert UnicodeText().contains(text)

    def test_keeps_to_its_lengths(self):
        assert [UnicodeText(4, 2).contains("x" * length) for length in range(1, 6)] == [False, True, True, True, False]

    @pytest.mark.parametrize("space", [UnicodeText(), UnicodeText(10**9), UnicodeText(3), UnicodeText(0), UnicodeText(50, 40)])
    def test_samples_are_short_and_printable(self, space):
        for _ in range(50):
            sample = space.sample()
            assert len(sample) <= max(24, space.min_length + 24)
            assert sample.isprintable()

    @pytest.mark.parametrize("limits", [(1, 2), (3, -1), (-1, 0)])
    def test_refuses_limits_that_leave_no_length(self, limits):
        with pytest.raises(ValueError, match="no text"):
            UnicodeText(*limits)

    @pytest.mark.parametrize("space", [UnicodeText(), BlocksSpace(), ImageSpace()])
    def test_has_no_mask(self, space):
        with pytest.raises(ValueError, match="without a mask"):
            space.sample(mask=np.ones(1, dtype=np.int8))


class TestToolCallSpace:
    @pytest.mark.parametrize(
        ("call", "contained"),
        [
            ({"name": "move", "input": {"to": "north"}}, True),
            ({"name": "move", "input": {"to": "north", "steps": 3}}, True),
            ({"name": "look", "input": {}}, True),
            ({"name": "move", "input": {}}, False),
            ({"name": "move", "input": {"to": "up"}}, False),
            ({"name": "move", "input": {"to": "north", "steps": 4}}, False),
            ({"name": "move", "input": {"to": "north", "other": 1}}, False),
            ({"name": "move", "input": '{"to": "north"}'}, False),
            ({"name": "look", "input": {"at": 1}}, False),
            ({"name": "fly", "input": {}}, False),
            ({"name": "look"}, False),
            ({"name": "look", "input": {}, "id": 1}, False),
        ],
    )
    def test_contains_what_the_tools_schemas_allow(self, call, contained):
        assert ToolCallSpace(TOOLS).contains(call) is contained
        assert JSONText(TOOLS).contains(json.dumps(call)) is contained

    @pytest.mark.parametrize("space", [ToolCallSpace(TOOLS), JSONText(TOOLS)])
    def test_mask_and_probability_choose_the_tool(self, space):
        def names(**options):
            samples = [space.sample(**options) for _ in range(20)]
            return {(json.loads(sample) if isinstance(sample, str) else sample)["name"] for sample in samples}

        assert names() == {"move", "look"}
        assert names(mask=np.array([0, 1], dtype=np.int8)) == {"look"}
        assert names(probability=np.array([1.0, 0.0])) == {"move"}

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"mask": np.zeros(2, dtype=np.int8)}, "leaves no tool"),
            ({"mask": np.ones(3, dtype=np.int8)}, r"shape \(2,\)"),
            ({"mask": [1, 0]}, r"shape \(2,\)"),
            ({"probability": np.array([0.5, 0.2])}, "sum to 1"),
            ({"mask": np.ones(2, dtype=np.int8), "probability": np.array([0.5, 0.5])}, "not both"),
        ],
    )
    def test_refuses_masks_that_do_not_fit(self, options, reason):
        with pytest.raises(ValueError, match=reason):
            ToolCallSpace(TOOLS).sample(**options)

    def test_of_no_tools_has_nothing_to_sample(self):
        with pytest.raises(ValueError, match="no tool to call"):
            ToolCallSpace([]).sample()

    def test_says_which_tool_cannot_be_sampled_and_why(self):
        with pytest.raises(SchemaError, match=r"'broken'.*not a valid JSON Schema"):
            ToolCallSpace([BROKEN]).sample()

    def test_leaves_the_judgement_of_a_broken_schema_to_its_server(self):
        assert ToolCallSpace([BROKEN]).contains({"name": "broken", "input": {"x": 1}})

    def test_equals_one_of_the_same_tools_only(self):
        assert ToolCallSpace(TOOLS) != ToolCallSpace([LOOK, MOVE])
        assert ToolCallSpace(TOOLS) != JSONText(TOOLS)

    def test_shows_the_first_names_of_many_and_none_of_their_control_characters(self):
        tools = [ToolSpec(name=f"tool{n}\x1b[31m" + "x" * 500) for n in range(100)]

        assert "\x1b" not in repr(ToolCallSpace(tools))
        assert len(repr(ToolCallSpace(tools))) < 250
        assert repr(ToolCallSpace(TOOLS)) == "ToolCallSpace(move, look)"


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, "1" * 5000, '{"name": "look", "input": {}} x'])
def test_json_text_contains_no_other_text(text):
    assert JSONText(TOOLS).contains(text) is False


def test_blocks_of_unknown_types_are_blocks():
    assert BlocksSpace().contains(({"type": "audio", "seconds": 3},))
    assert not BlocksSpace().contains([{"type": "text", "text": "a list"}])
    assert not BlocksSpace(3).contains(({"type": "text", "text": "four"},))
    assert not BlocksSpace().contains(({"type": "image", "data": b"bytes", "mimeType": "image/png"},))


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4, 3), dtype=np.float32),
        np.zeros((4, 4), dtype=np.uint8),
        np.zeros((4, 4, 4), dtype=np.uint8),
        np.zeros((0, 4, 3), dtype=np.uint8),
    ],
)
def test_an_image_is_rgb_in_bytes(image):
    assert not ImageSpace().contains(image)
    assert ImageSpace(4).contains(np.zeros((4, 2, 3), dtype=np.uint8))
    assert not ImageSpace(4).contains(np.zeros((5, 2, 3), dtype=np.uint8))


@pytest.mark.parametrize(("action_format", "kind"), [("tool_call", ToolCallSpace), ("json", JSONText), ("text", UnicodeText)])
def test_each_action_format_has_its_space(action_format, kind):
    assert isinstance(action_space_for(TOOLS, action_format), kind)


@pytest.mark.parametrize("helper", [lambda: action_space_for(TOOLS, "yaml"), lambda: observation_space_for("yaml")])  # type: ignore[arg-type]
def test_another_format_is_a_mistake(helper):
    with pytest.raises(ValueError, match="'yaml'"):
        helper()
