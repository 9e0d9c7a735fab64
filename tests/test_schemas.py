"""JSON Schema at work: validation, samples, finite values, and forms for people; and hostile schemas, which harm nothing."""

import json
import socket
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ors_gym.schemas import SafeValidator, SchemaError, enumerate_values, parameters, read_text, sample, validate


def obj(properties: dict, required: list | None = None, **more: Any) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, **more}


TREE = {
    "$defs": {"node": obj({"value": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}})},
    "$ref": "#/$defs/node",
}
LINKED = {
    "$ref": "#/$defs/link",
    "$defs": {"link": {"anyOf": [{"type": "null"}, obj({"next": {"$ref": "#/$defs/link"}})]}},
}

SAMPLEABLE: dict[str, Any] = {
    "no parameters": None,
    "anything": {},
    "true": True,
    "object": obj({"a": {"type": "string"}, "b": {"type": "integer"}}, ["a"]),
    "nested": obj({"inner": obj({"deep": {"type": "array", "items": {"type": "boolean"}}})}),
    "parameters called title, from and self": obj({"title": {"type": "string", "title": "T"}, "from": {}, "self": {"const": 1}}),
    "required but not described": {"type": "object", "required": ["x"]},
    "enum": {"enum": [1, "x", None, {"a": [2]}]},
    "const": {"const": {"a": 1}},
    "types": {"type": ["integer", "null"]},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 4},
    "empty": {"type": "string", "maxLength": 0},
    "pattern": {"type": "string", "pattern": r"^[A-Z]{2}\d{3,5}(-[^a-z]+)?(foo|bar)*$"},
    "pattern and lengths": {"type": "string", "pattern": "^[a-z]+$", "minLength": 30, "maxLength": 60},
    "pattern anywhere": {"type": "string", "pattern": r"\w\s\D"},
    "pattern with look-ahead, and an example": {"type": "string", "pattern": r"^(?=.*\d).{8}$", "examples": ["abcdefg1"]},
    "pattern that only others know, and a default": {"type": "string", "pattern": r"^\p{Lu}$", "default": "Ä"},
    "range": {"type": "integer", "minimum": -3, "maximum": 3},
    "open range": {"type": "integer", "minimum": 10**30},
    "exclusive": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    "exclusive in draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 1,
    },
    "small number": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-9},
    "huge number": {"type": "number", "minimum": -1e308, "maximum": 1e308},
    "a number beyond all floats": {"type": "number", "minimum": 10**400},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 20},
    "decimal multiple": {"type": "number", "multipleOf": 0.25, "minimum": 0, "exclusiveMaximum": 1},
    "array": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "maxItems": 5},
    "unique": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True},
    "tuple": {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False, "minItems": 2},
    "tuple in draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"const": 1}, {"const": 2}],
        "additionalItems": False,
        "minItems": 1,
    },
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"const": 77}, "minItems": 2},
    "anyOf": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "oneOf": {"oneOf": [{"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 5}]},
    "oneOf by a tag": {"oneOf": [obj({"kind": {"const": "a"}, "x": {"type": "integer"}}), obj({"kind": {"const": "b"}})]},
    "allOf": {"allOf": [obj({"a": {"type": "integer"}}), obj({"a": {"minimum": 5, "maximum": 6}, "b": {"const": 1}})]},
    "allOf of types": {"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "null"]}]},
    "not": {"type": "integer", "minimum": 0, "maximum": 3, "not": {"const": 2}},
    "if": {**obj({"a": {"enum": [1, 2]}, "b": {}}, ["a"]), "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
    "dependent": obj({"a": {}, "b": {"type": "integer"}}, [], dependentRequired={"a": ["b"]}),
    "additional": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 3},
    "no additional": obj({"a": {}, "b": {}}, [], additionalProperties=False, minProperties=2),
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^x_[a-z]{3}$": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 2,
    },
    "property names": {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
    "a reference beside keywords": {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "minimum": 5, "maximum": 5},
    "an optional property that cannot be sampled": obj({"a": {"type": "string", "pattern": r"(?=x)y"}, "b": {"const": 1}}, ["b"]),
    "a branch that cannot be sampled": {"anyOf": [{"type": "string", "pattern": r"(?=x)y"}, {"type": "null"}]},
    "definitions": {"definitions": {"n": {"const": 1}}, **obj({"a": {"$ref": "#/definitions/n"}})},
    "a tree": TREE,
    "a linked list": LINKED,
}

UNSAMPLEABLE: dict[str, tuple[Any, str]] = {
    "no schema": ({"type": 5}, "not a valid JSON Schema, at \\$.type"),
    "false": (False, "cannot be sampled"),
    "no number": ({"type": "integer", "minimum": 5, "maximum": 3}, "no number is in its bounds"),
    "two types at once": ({"allOf": [{"type": "string"}, {"type": "null"}]}, "exclude each other"),
    "a part without end": (obj({"a": {"$ref": "#"}}), "no end"),
    "a reference to itself": ({"$ref": "#"}, "no end"),
    "references in a circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "no end"),
    "a reference to nowhere": ({"$ref": "#/$defs/none"}, "leads nowhere"),
    "look-ahead": ({"type": "string", "pattern": r"^(?=.*\d).{8,}$"}, "look-around"),
    "no pattern": ({"type": "string", "pattern": "("}, "cannot be sampled"),
    "minLength": ({"type": "string", "minLength": 10**12}, "minLength is 1000000000000"),
    "minItems": ({"type": "array", "minItems": 10**9, "items": {}}, "minItems is 1000000000"),
    "minProperties": ({"type": "object", "minProperties": 10**9}, "minProperties is 1000000000"),
    "a pattern's repeats": (
        {"type": "string", "pattern": "^" + "(" * 3 + "a{900}" + "){900}" * 3 + "$"},
        "cannot be sampled|10,000",
    ),
}


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = wrap(value)
    return value


CHAIN = {
    "$ref": "#/$defs/0",
    "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)} | {"40": {"const": 5}},
}
BUSH = {
    "$ref": "#/$defs/0",
    "$defs": {str(n): obj({"a": {"$ref": f"#/$defs/{n + 1}"}, "b": {"$ref": f"#/$defs/{n + 1}"}}) for n in range(40)}
    | {"40": {"const": 5}},
}
HOSTILE: dict[str, Any] = {
    "evil pattern": {"type": "string", "pattern": "^(a+)+$"},
    "evil property patterns": {
        "type": "object",
        "patternProperties": {"^(a+)+$": {}},
        "additionalProperties": False,
        "unevaluatedProperties": False,
    },
    "a deep schema": nested(3000, lambda inner: {"type": "array", "items": inner}),
    "a schema of branches": CHAIN,
    "a schema of parts": BUSH,
    "itself": {"$ref": "#"},
    "itself by allOf": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "itself by not": {"not": {"$ref": "#"}},
    "a million choices": {"enum": list(range(100_000))},
    "a strange draft": {"$schema": "http://example.com/draft", "type": "string"},
    "a draft that is none": {"$schema": 5},
    "an infinite bound": {"type": "number", "minimum": float("inf")},
    "an infinite step": {"type": "number", "multipleOf": float("inf")},
    "long items": {"type": "array", "items": {"const": 1}, "minItems": 10**6, "maxItems": 10**9},
}


class TestSample:
    @pytest.mark.parametrize("name", SAMPLEABLE)
    def test_gives_valid_values(self, name):
        schema = SAMPLEABLE[name]
        judge = jsonschema.validators.validator_for(schema or {}, default=jsonschema.Draft202012Validator)(
            {"type": "object", "maxProperties": 0} if schema is None else _without_foreign_patterns(schema)
        )
        rng = np.random.default_rng(0)

        for _ in range(50):
            value = sample(schema, rng)
            judge.validate(value)
            json.dumps(value, allow_nan=False)

    @pytest.mark.parametrize("name", SAMPLEABLE)
    def test_is_decided_by_the_generator_alone(self, name):
        first, second = ([sample(SAMPLEABLE[name], rng) for _ in range(3)] for rng in map(np.random.default_rng, (7, 7)))

        assert first == second

    def test_leaves_out_and_puts_in_what_is_optional(self):
        values = [sample(SAMPLEABLE["object"], np.random.default_rng(seed)) for seed in range(20)]

        assert {tuple(value) for value in values} == {("a",), ("a", "b")}

    def test_takes_each_branch(self):
        values = [sample(SAMPLEABLE["oneOf by a tag"], np.random.default_rng(seed)) for seed in range(20)]

        assert {value["kind"] for value in values} == {"a", "b"}

    @pytest.mark.parametrize(
        ("name", "check"),
        [
            ("date", r"\d{4}-\d\d-\d\d"),
            ("date-time", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
            ("email", r"[a-z]+@example\.com"),
            ("uuid", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"),
            ("ipv4", r"\d+(\.\d+){3}"),
            ("uri", r"https://example\.com/[a-z]+"),
        ],
    )
    def test_knows_formats(self, name, check):
        jsonschema.validate(sample({"type": "string", "format": name}, np.random.default_rng(0)), {"pattern": f"^{check}$"})

    @pytest.mark.parametrize("name", UNSAMPLEABLE)
    def test_says_why_it_cannot(self, name):
        schema, reason = UNSAMPLEABLE[name]

        with pytest.raises(SchemaError, match=reason):
            sample(schema, np.random.default_rng(0))

    @pytest.mark.parametrize("name", HOSTILE)
    @pytest.mark.timeout(30)
    def test_of_a_hostile_schema_ends(self, name):
        try:
            json.dumps(sample(HOSTILE[name], np.random.default_rng(0)))
        except SchemaError as error:
            assert len(str(error)) < 1000  # noqa: PT017


SCALARS = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "null"}, {"enum": [1, "b"]}, {"const": None}, {"minimum": 3}, True]
)
ANY_SCHEMA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(lambda part: {"type": "array", "items": part, "minItems": 1}, inner),
        st.builds(lambda a, b: obj({"a": a, "b": b}, ["b"]), inner, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"type": "object", "additionalProperties": a, "minProperties": 1}, inner),
    ),
    max_leaves=8,
)


@given(ANY_SCHEMA, st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_a_sample_of_any_schema_is_valid_by_another_validator(schema, seed):
    try:
        value = sample(schema, np.random.default_rng(seed))
    except SchemaError:
        return
    jsonschema.Draft202012Validator(schema).validate(value)


class TestValidate:
    def test_says_nothing_of_what_is_valid(self):
        assert validate(SAMPLEABLE["object"], {"a": "x", "b": 3}) == []

    def test_names_the_place_and_the_fault(self):
        schema = obj({"inner": obj({"list": {"type": "array", "items": {"type": "integer"}}})})

        assert validate(schema, {"inner": {"list": [1, "x"]}}) == ["inner.list.1: 'x' is not of type 'integer'"]

    def test_of_a_tool_without_parameters_takes_the_empty_object_only(self):
        assert validate(None, {}) == []
        assert validate(None, {"x": 1}) != []

    def test_goes_by_the_declared_draft(self):
        schema = {"prefixItems": [{"const": 1}]}

        assert validate({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, [3]) == []
        assert validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, [3]) != []
        assert validate(schema, [3]) != []

    def test_counts_decimal_multiples_by_their_digits(self):
        schema = {"type": "number", "multipleOf": 0.1}

        assert [number for number in (0.3, 0.7, 1, 0.35, 10**400) if validate(schema, number)] == [0.35]

    def test_holds_one_and_true_apart_among_unique_items(self):
        schema = {"type": "array", "uniqueItems": True}

        assert validate(schema, [1, True, "1", [1], [True]]) == []
        assert validate(schema, [1, 1.0]) != []

    def test_shortens_what_it_says_of_large_values(self):
        assert len(validate({"type": "integer"}, "x" * 100_000)[0]) < 400

    @pytest.mark.parametrize("value", ["\ud800", 10**5000, [10**5000] * 2], ids=["surrogate", "integer", "integers"])
    @pytest.mark.parametrize("schema", [{"pattern": "a", "multipleOf": 0.3}, {"type": "null"}, {"uniqueItems": True}])
    def test_of_a_value_that_no_json_has_raises_nothing_else(self, schema, value):
        try:
            assert isinstance(validate(schema, value), list)
        except SchemaError as error:
            assert "cannot be judged" in str(error)  # noqa: PT017

    @pytest.mark.parametrize("name", HOSTILE)
    @pytest.mark.timeout(30)
    def test_by_a_hostile_schema_ends(self, name):
        for value in ("a" * 10_000 + "b", {"a" * 10_000 + "b": 1}, [[[1]]], 5, nested(2000, lambda inner: [inner])):
            try:
                validate(HOSTILE[name], value)
            except SchemaError as error:
                assert len(str(error)) < 1000  # noqa: PT017

    def test_never_fetches_a_reference(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0.2)
            schema = {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"}

            with pytest.raises(SchemaError, match="none is fetched"):
                validate(schema, 5)
            with pytest.raises(SchemaError, match="none is fetched"):
                sample(schema, np.random.default_rng(0))
            with pytest.raises(TimeoutError):
                server.accept()


class TestEnumerateValues:
    @pytest.mark.parametrize(
        ("schema", "values"),
        [
            (None, [{}]),
            ({"enum": ["b", "a", "b"]}, ["b", "a"]),
            ({"const": 7}, [7]),
            ({"type": "boolean"}, [False, True]),
            ({"type": "null"}, [None]),
            ({"type": ["null", "boolean"]}, [None, False, True]),
            ({"type": "integer", "minimum": -1, "exclusiveMaximum": 2}, [-1, 0, 1]),
            ({"type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 10}, [5, 10]),
            ({"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 0.3}, [0, 0.1, 0.2, 0.3]),
            ({"type": "integer", "minimum": 0, "maximum": 3, "not": {"const": 1}}, [0, 2, 3]),
            ({"type": "integer", "minimum": 3, "maximum": 1}, []),
            ({"type": "string", "maxLength": 0}, [""]),
            ({"anyOf": [{"enum": [2, 1]}, {"type": "null"}, {"const": 1}]}, [2, 1, None]),
            ({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, [1, 3]),
            ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 2]}]}, [2, 3]),
            ({"$defs": {"c": {"enum": ["r", "g"]}}, "$ref": "#/$defs/c"}, ["r", "g"]),
            ({"type": "array", "items": {"enum": [0, 1]}, "maxItems": 2}, [[], [0], [1], [0, 0], [0, 1], [1, 0], [1, 1]]),
            ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, [[], [1]]),
            (
                obj({"a": {"enum": [1, 2]}, "b": {"type": "boolean"}}, ["a"]),
                [{"a": 1}, {"a": 1, "b": False}, {"a": 1, "b": True}, {"a": 2}, {"a": 2, "b": False}, {"a": 2, "b": True}],
            ),
            (obj({"a": {"const": 1}, "b": {"const": 2}}, [], minProperties=1), [{"b": 2}, {"a": 1}, {"a": 1, "b": 2}]),
        ],
        ids=str,
    )
    def test_lists_every_value_once_in_its_order(self, schema, values):
        assert enumerate_values(schema) == values

    @pytest.mark.parametrize(
        ("schema", "reason"),
        [
            (obj({"answer": {"type": "string"}}), 'the property "answer" is any string'),
            (obj({"inner": obj({"n": {"type": "integer", "minimum": 0}})}), 'the property "n" is any integer of an open range'),
            (obj({"x": {"type": "number", "minimum": 0, "maximum": 1}}), 'the property "x" is any number'),
            (obj({"x": {}}), 'the property "x" allows any value'),
            (obj({"x": {"type": "object"}}), "an object of any properties"),
            ({"type": "array", "items": {"const": 1}}, "an array of any length"),
            (LINKED, "nested without end"),
            ({"$ref": "#"}, "refers to itself without end"),
            ({"type": "integer", "minimum": 0, "maximum": 10**9}, "more than 100 values"),
            (obj({str(n): {"type": "boolean"} for n in range(30)}), "more than 100 values"),
            (CHAIN, "without end"),
            (BUSH, "without end"),
            (HOSTILE["long items"], "too many"),
        ],
        ids=lambda value: str(value)[:40],
    )
    @pytest.mark.timeout(30)
    def test_names_the_part_that_has_too_many(self, schema, reason):
        with pytest.raises(ValueError, match=reason):
            enumerate_values(schema, 100)


class TestParameters:
    SCHEMA = obj(
        {
            "note": {"type": "string", "description": "A remark.", "default": "none"},
            "count": {"type": "integer", "minimum": 1},
            "color": {"$ref": "#/$defs/color", "description": "Which one."},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "many": {"type": "array", "items": {"type": "integer"}},
            "on": {"type": "boolean"},
        },
        ["count", "color"],
        **{"$defs": {"color": {"enum": ["red", "blue"]}}},
    )

    def test_say_what_to_ask_the_required_ones_first(self):
        asked = [(parameter.name, parameter.required, parameter.kind) for parameter in parameters(self.SCHEMA)]

        assert asked == [
            ("count", True, "integer"),
            ("color", True, "one of: red, blue"),
            ("note", False, "string"),
            ("maybe", False, "integer or one of: null"),
            ("many", False, "JSON array"),
            ("on", False, "one of: true, false"),
        ]

    def test_carry_description_choices_and_default(self):
        by_name = {parameter.name: parameter for parameter in parameters(self.SCHEMA)}

        assert by_name["color"].description == "Which one."
        assert by_name["color"].choices == ("red", "blue")
        assert by_name["note"].has_default
        assert by_name["note"].default == "none"
        assert not by_name["count"].has_default

    @pytest.mark.parametrize(
        ("name", "typed", "value"),
        [
            ("note", "72", "72"),
            ("note", "", ""),
            ("count", "72", 72),
            ("color", "red", "red"),
            ("maybe", "null", None),
            ("maybe", "3", 3),
            ("many", "[1, 2]", [1, 2]),
            ("on", "yes", True),
            ("on", "False", False),
        ],
    )
    def test_read_what_was_typed(self, name, typed, value):
        by_name = {parameter.name: parameter for parameter in parameters(self.SCHEMA)}

        assert by_name[name].read(typed) == value

    @pytest.mark.parametrize(
        ("name", "typed", "reason"),
        [
            ("count", "many", "count: 'many' is not of type 'integer'"),
            ("count", "0", "less than the minimum"),
            ("color", "green", "red"),
        ],
    )
    def test_say_what_is_wrong_with_it(self, name, typed, reason):
        by_name = {parameter.name: parameter for parameter in parameters(self.SCHEMA)}

        with pytest.raises(ValueError, match=reason):
            by_name[name].read(typed)

    def test_of_a_tool_without_parameters_are_none(self):
        assert parameters(None) == []

    @pytest.mark.parametrize("name", HOSTILE)
    @pytest.mark.timeout(30)
    def test_of_a_hostile_schema_end(self, name):
        try:
            assert len(parameters(HOSTILE[name])) < 3
        except SchemaError as error:
            assert len(str(error)) < 1000  # noqa: PT017


def test_text_for_any_value_is_json_where_it_can_be():
    anything = SafeValidator({})

    assert [read_text(anything, True, text) for text in ("72", '"72"', "[1", "true")] == [72, "72", "[1", True]


def _without_foreign_patterns(schema: Any) -> Any:
    """The schema without the patterns that Python's `re`, which judges here, does not know."""
    return {key: value for key, value in schema.items() if key != "pattern"} if r"\p" in json.dumps(schema) else schema
