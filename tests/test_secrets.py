"""Secrets: resolved late, named without being held, redacted in every form."""

import base64
import json
import pickle
from typing import Any

import pytest

from ors_gym.secrets import EnvSecret, Redactor, ResolvedSecret, resolve_secrets

SECRET = 'sé"cret\n\\ /+='


def test_every_form_of_a_secret_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "value")
    secrets = {
        "plain": "a",
        "limited": ("b", ["example.com", "example.org"]),
        "named": EnvSecret("MY_KEY"),
        "named and limited": EnvSecret("MY_KEY", ("example.com",)),
        "pair of a name": (EnvSecret("MY_KEY"), ["x.org"]),
        "json": {"env": "MY_KEY", "allowed_domains": ["example.com"]},
        "short json": {"env": "MY_KEY"},
        "list": ["c", ["example.com"]],
    }
    assert resolve_secrets(secrets) == {  # type: ignore[arg-type]
        "plain": ResolvedSecret("a"),
        "limited": ResolvedSecret("b", ("example.com", "example.org")),
        "named": ResolvedSecret("value"),
        "named and limited": ResolvedSecret("value", ("example.com",)),
        "pair of a name": ResolvedSecret("value", ("x.org",)),
        "json": ResolvedSecret("value", ("example.com",)),
        "short json": ResolvedSecret("value"),
        "list": ResolvedSecret("c", ("example.com",)),
    }
    assert resolve_secrets(None) == {}


def test_a_reference_is_read_when_it_is_resolved_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = EnvSecret("NOT_SET_YET")
    with pytest.raises(KeyError, match="'NOT_SET_YET' that a secret refers to is not set"):
        resolve_secrets({"key": reference})
    monkeypatch.setenv("NOT_SET_YET", "now")
    assert reference.resolve() == "now"


def test_a_reference_holds_no_secret_and_goes_through_pickle_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    reference = EnvSecret("MY_KEY", ("example.com",))
    assert pickle.loads(pickle.dumps(reference)) == reference
    assert SECRET.encode() not in pickle.dumps(reference)
    form = json.loads(json.dumps({"env": reference.env, "allowed_domains": list(reference.allowed_domains)}))
    assert resolve_secrets({"key": form})["key"] == ResolvedSecret(SECRET, ("example.com",))


@pytest.mark.parametrize(
    "secret", [5, None, (), (SECRET,), (SECRET, 5), (5, []), {"value": SECRET}, {"env": 5}, {"env": "X", "more": 1}]
)
def test_another_form_is_refused_without_being_shown(secret: Any) -> None:
    with pytest.raises(TypeError) as error:
        resolve_secrets({"key": secret})
    assert SECRET not in str(error.value)


def test_a_resolved_secret_hides_its_value() -> None:
    assert repr(ResolvedSecret(SECRET)) == "ResolvedSecret(value='[redacted]')"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        json.dumps({"detail": json.dumps({"k": SECRET})}),
    ],
)
def test_every_form_of_a_secret_is_redacted(form: str) -> None:
    redacted = Redactor([SECRET]).redact(f"before {form} after")
    assert "[redacted]" in redacted
    assert "cret" not in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")


def test_longer_secrets_are_replaced_before_their_parts() -> None:
    assert Redactor(["key", "key-and-more"]).redact("key-and-more, key") == "[redacted], [redacted]"


def test_an_empty_secret_is_none() -> None:
    assert Redactor([""]).redact("text") == "text"


def test_what_a_redactor_is_extended_by_all_of_its_kin_know() -> None:
    first = Redactor(["one"])
    second, third = first.extended("two"), first.extended("three")
    for redactor in (first, second, third, second.extended("four")):
        assert redactor.redact("one two three") == "[redacted] [redacted] [redacted]"
    assert Redactor(["one"]).redact("one two") == "[redacted] two"
    assert "one" not in repr(first)


def test_what_was_lent_long_ago_is_forgotten_and_ones_own_never() -> None:
    first = Redactor(["one"])
    second = first.extended("two")
    for number in range(1_000):
        first.extended(f"secret-{number}")
    assert first.redact("one two secret-0") == "[redacted] two [redacted]"
    assert second.redact("one two secret-0") == "[redacted] [redacted] [redacted]"


def test_lone_surrogates_do_no_harm() -> None:
    assert Redactor(["a\ud800b"]).redact("x a\ud800b") == "x [redacted]"
