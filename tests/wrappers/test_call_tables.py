import gymnasium as gym
import pytest
from gymnasium.spaces import Discrete, MultiDiscrete

from ors_gym.protocol import ToolSpec
from ors_gym.wrappers.call_tables import DiscreteCalls, MultiDiscreteCalls


def tool(name: str, required: list[str] | None = None, **properties: dict) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties) if required is None else required}
    return ToolSpec(name=name, input_schema=schema)


LOOK = ToolSpec(name="look")
PAINT = tool("paint", color={"enum": ["red", "blue"]}, twice={"type": "boolean"})
SAY = tool("say", text={"type": "string"})


def calls(*tools: ToolSpec, **options: object) -> list[tuple[str, dict]]:
    return [(call.name, call.input) for call in DiscreteCalls(tools, **options).calls]  # type: ignore[arg-type]


def test_calls_are_listed_in_the_documented_order() -> None:
    assert calls(LOOK, PAINT) == [
        ("look", {}),
        ("paint", {"color": "red", "twice": False}),
        ("paint", {"color": "red", "twice": True}),
        ("paint", {"color": "blue", "twice": False}),
        ("paint", {"color": "blue", "twice": True}),
    ]


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"enum": ["b", "a"]}, ["b", "a"]),
        ({"const": 7}, [7]),
        ({"type": "boolean"}, [False, True]),
        ({"type": "null"}, [None]),
        ({"type": "integer", "minimum": -1, "maximum": 2}, [-1, 0, 1, 2]),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3}, [1, 2]),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, [False, True, None]),
        ({"oneOf": [{"const": "x"}, {"type": "integer", "minimum": 1, "maximum": 2}]}, ["x", 1, 2]),
        ({"$ref": "#/$defs/Color"}, ["red", "green"]),
    ],
)
def test_every_kind_of_finite_parameter_is_listed(schema: dict, values: list) -> None:
    spec = ToolSpec(
        name="t",
        input_schema={
            "type": "object",
            "properties": {"p": schema},
            "required": ["p"],
            "$defs": {"Color": {"enum": ["red", "green"]}},
        },
    )

    assert calls(spec) == [("t", {"p": value}) for value in values]


def test_an_optional_parameter_is_first_left_out() -> None:
    assert calls(tool("t", [], p={"type": "boolean"})) == [("t", {}), ("t", {"p": False}), ("t", {"p": True})]


def test_only_calls_that_the_whole_schema_allows_are_listed() -> None:
    schema = {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "minProperties": 1, "maxProperties": 1}

    assert calls(ToolSpec(name="t", input_schema=schema)) == [("t", {"b": 2}), ("t", {"a": 1})]


def test_a_schema_of_alternatives_is_listed_whole() -> None:
    red, blue = ({"type": "object", "properties": {"color": {"const": color}}, "required": ["color"]} for color in ("red", "blue"))
    spec = ToolSpec(name="t", input_schema={"oneOf": [red, blue]})

    assert calls(spec) == [("t", {"color": "red"}), ("t", {"color": "blue"})]
    with pytest.raises(ValueError, match="use DiscreteToolCalls"):
        MultiDiscreteCalls([spec])


def test_candidates_give_a_string_its_values_and_narrow_others() -> None:
    candidates = {"say": {"text": ["yes", "no"]}, "paint": {"color": ["blue"]}}

    assert calls(SAY, PAINT, candidates=candidates) == [
        ("say", {"text": "yes"}),
        ("say", {"text": "no"}),
        ("paint", {"color": "blue", "twice": False}),
        ("paint", {"color": "blue", "twice": True}),
    ]


def test_an_infinite_parameter_is_named_with_what_to_pass() -> None:
    with pytest.raises(ValueError, match=r"'say' takes a parameter 'text'.*candidates=\{'say': \{'text': \[...\]\}\}"):
        DiscreteCalls([LOOK, SAY])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "array", "items": {"type": "boolean"}},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {},
        True,
    ],
)
def test_no_infinite_parameter_is_taken_for_a_finite_one(schema: dict | bool) -> None:
    spec = ToolSpec(name="t", input_schema={"type": "object", "properties": {"p": schema}})

    with pytest.raises(ValueError, match=r"'t'.*'p'.*candidates"):
        DiscreteCalls([spec])


def test_too_many_calls_are_refused_with_their_numbers() -> None:
    digit = {"type": "integer", "minimum": 0, "maximum": 9}

    with pytest.raises(ValueError, match=r"10,001 calls \(look: 1, dial: 10,000\).*max_actions=10,000"):
        DiscreteCalls([LOOK, tool("dial", a=digit, b=digit, c=digit, d=digit)])


@pytest.mark.parametrize(
    ("candidates", "complaint"),
    [
        ({"sing": {"text": ["la"]}}, "sing.text"),
        ({"say": {"words": ["la"]}}, "say.words"),
        ({"say": {"text": [3]}}, "say.text: 3 is not of type 'string'"),
        ({"say": {"text": []}}, "say.text: there is none"),
    ],
)
def test_wrong_candidates_are_refused(candidates: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        DiscreteCalls([tool("say", [], text={"type": "string"})], candidates)


def test_an_environment_without_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="no tool"):
        DiscreteCalls([])
    with pytest.raises(ValueError, match="no tool"):
        MultiDiscreteCalls([])


def test_a_mask_allows_what_the_task_lists() -> None:
    table = DiscreteCalls([LOOK, PAINT])
    narrowed = {"name": "paint", "input_schema": tool("paint", color={"const": "red"}, twice={"type": "boolean"}).input_schema}

    assert table.mask([LOOK.model_dump(), PAINT.model_dump()]).tolist() == [1, 1, 1, 1, 1]
    assert table.mask([LOOK.model_dump()]).tolist() == [1, 0, 0, 0, 0]
    assert table.mask([narrowed]).tolist() == [0, 1, 1, 0, 0]


def test_a_mask_allows_all_where_the_task_lists_none() -> None:
    assert DiscreteCalls([LOOK, PAINT]).mask([]).tolist() == [1, 1, 1, 1, 1]
    assert DiscreteCalls([LOOK]).mask([PAINT.model_dump()]).tolist() == [1]
    assert MultiDiscreteCalls([LOOK, PAINT]).mask([]).tolist() == [1, 1, 1, 1, 1, 1]


def test_a_mask_is_not_shared() -> None:
    table = DiscreteCalls([LOOK, PAINT])

    table.mask([])[:] = 0

    assert table.mask([]).tolist() == [1, 1, 1, 1, 1]


def test_multi_discrete_has_a_number_for_the_tool_and_one_for_each_parameter() -> None:
    table = MultiDiscreteCalls([LOOK, PAINT, tool("move", [], steps={"type": "integer", "minimum": 1, "maximum": 3})])

    assert table.space == MultiDiscrete([3, 2, 2, 4])
    assert table.slots == (("paint", "color"), ("paint", "twice"), ("move", "steps"))
    assert table.call([1, 1, 0, 3]).model_dump(include={"name", "input"}) == {
        "name": "paint",
        "input": {"color": "blue", "twice": False},
    }


def test_numbers_of_other_tools_are_ignored() -> None:
    table = MultiDiscreteCalls([LOOK, PAINT])

    assert {table.call([0, color, twice]).model_dump_json() for color in (0, 1) for twice in (0, 1)} == {
        '{"name":"look","input":{},"task_id":null}'
    }


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"type": "number", "minimum": 0, "maximum": 1}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, [0.2, 0.4, 0.6, 0.8, 1.0]),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 6}, [1.0, 2.0, 3.0, 4.0, 5.0]),
        ({"anyOf": [{"type": "number", "minimum": 0, "maximum": 4}, {"type": "null"}]}, [0.0, 1.0, 2.0, 3.0, 4.0, None]),
    ],
)
def test_a_bounded_number_has_bins(schema: dict, values: list) -> None:
    table = MultiDiscreteCalls([tool("t", p=schema)], bins=5)

    assert [table.call([0, number]).input["p"] for number in range(int(table.space.nvec[1]))] == values


def test_a_number_without_bounds_wants_candidates_in_multi_discrete_too() -> None:
    with pytest.raises(ValueError, match=r"candidates=\{'t': \{'p': \[...\]\}\}"):
        MultiDiscreteCalls([tool("t", p={"type": "number", "minimum": 0})])


def test_a_multi_discrete_mask_hides_tools_that_the_task_does_not_list() -> None:
    table = MultiDiscreteCalls([LOOK, PAINT])

    assert table.mask([PAINT.model_dump()]).tolist() == [0, 1, 1, 1, 1, 1]
    assert len(table.mask([])) == sum(table.space.nvec)


def test_every_action_of_the_space_is_a_valid_call() -> None:
    from ors_gym.schemas import validate

    table = MultiDiscreteCalls([LOOK, PAINT, tool("t", [], p={"type": "number", "minimum": 0, "maximum": 3})])
    table.space.seed(0)

    for _ in range(200):
        call = table.call(table.space.sample())
        schema = {"look": None, "paint": PAINT.input_schema}.get(call.name, {"properties": {"p": {"type": ["number"]}}})
        assert validate(schema, call.input) == []


def test_a_table_of_a_thousand_calls_is_a_plain_discrete_space() -> None:
    digit = {"type": "integer", "minimum": 0, "maximum": 9}
    table = DiscreteCalls([tool("dial", a=digit, b=digit, c=digit)])

    assert isinstance(table.space, gym.Space)
    assert table.space == Discrete(1000)
    assert table.call(472).input == {"a": 4, "b": 7, "c": 2}
