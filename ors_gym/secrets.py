"""Secrets: what they are, how they are named without being held, and how they are kept out of everything that is printed."""

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EnvSecret:
    """A reference to an environment variable, resolved only when a session is created.

    It may be pickled, printed and written as JSON (`{"env": …, "allowed_domains": […]}`), since it holds no secret.

    Args:
        env: The name of the environment variable.
        allowed_domains: The domains that the secret may be sent to by the environment, for servers that enforce that.

    >>> EnvSecret("OPENAI_API_KEY")
    EnvSecret(env='OPENAI_API_KEY', allowed_domains=())
    """

    env: str
    allowed_domains: tuple[str, ...] = ()

    def resolve(self) -> str:
        """The variable's value.

        Raises:
            KeyError: The variable is not set.
        """
        try:
            return os.environ[self.env]
        except KeyError:
            raise KeyError(
                f"the environment variable {self.env!r} that a secret refers to is not set; set it before the session is created"
            ) from None


@dataclass(frozen=True)
class ResolvedSecret:
    """A secret's value and the domains that it may go to; the repr hides the value."""

    value: str
    allowed_domains: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "ResolvedSecret(value='[redacted]')"


def resolve_secrets(secrets: "Mapping[str, SecretLike] | None") -> dict[str, ResolvedSecret]:
    """Every secret by name with its value, environment variables read now.

    Args:
        secrets: Names to a string, to `(string, [allowed domains])`, to an `EnvSecret`, or to an `EnvSecret`'s JSON form.

    Raises:
        KeyError: An environment variable is not set.
        TypeError: A value has none of these forms; the message does not show it.
    """
    return {name: _resolve(name, secret) for name, secret in (secrets or {}).items()}


def _resolve(name: str, secret: "SecretLike") -> ResolvedSecret:
    match secret:
        case str():
            return ResolvedSecret(secret)
        case EnvSecret():
            return ResolvedSecret(secret.resolve(), secret.allowed_domains)
        case Mapping() as form if isinstance(form.get("env"), str) and set(form) <= {"env", "allowed_domains"}:
            reference = EnvSecret(form["env"], tuple(form.get("allowed_domains", ())))
            return ResolvedSecret(reference.resolve(), reference.allowed_domains)
        case (str(value), domains):
            return ResolvedSecret(value, tuple(domains))
        case (EnvSecret() as reference, domains):
            return ResolvedSecret(reference.resolve(), tuple(domains))
    raise TypeError(
        f"the secret {name!r} is a {type(secret).__name__}; pass a str, (str, [allowed domains]) or ors_gym.EnvSecret(...)"
    )


SecretLike = str | tuple[str | EnvSecret, Sequence[str]] | EnvSecret | Mapping[str, Any]


class Redactor:
    """Replaces every secret that it knows in a text, also in its JSON-escaped and base64 forms."""

    placeholder = "[redacted]"

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: dict[str, None] = {}
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Secrets to replace from now on. Empty strings are ignored."""
        for secret in secrets:
            if not secret:
                continue
            encoded = secret.encode("utf-8", "surrogatepass")
            forms = (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
                repr(secret)[1:-1],
                base64.b64encode(encoded).decode(),
            )
            self._forms.update(dict.fromkeys(forms))
        self._forms = dict.fromkeys(sorted(self._forms, key=len, reverse=True))

    def extended(self, *secrets: str) -> "Redactor":
        """Another redactor that knows these secrets too."""
        other = Redactor()
        other._forms = dict(self._forms)
        other.add(*secrets)
        return other

    def redact(self, text: str) -> str:
        """`text` with every known secret replaced by `[redacted]`."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, self.placeholder)
        return text

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"
