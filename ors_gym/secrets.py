"""Secrets: what they are, how they are named without being held, and how they are kept out of everything that is printed."""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import quote, quote_plus


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

        >>> EnvSecret("PATH").resolve() == os.environ["PATH"]
        True
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
    """Replaces every secret that it knows in a text, also where it was escaped (twice, too), quoted for a URL, or in base64."""

    placeholder = "[redacted]"
    _most_lent = 1_000

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._origin = self
        self._lent: dict[str, set[str]] = {}
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Secrets to replace from now on. Empty strings are ignored."""
        for secret in filter(None, secrets):
            self._forms |= _forms(secret)

    def extended(self, *secrets: str) -> "Redactor":
        """Another redactor that knows these secrets too.

        This one, and all that come of it, know the last 1,000 of them as well: a server may send one session's to another.
        """
        other, lent = Redactor(), self._origin._lent
        other._origin, other._forms = self._origin, set(self._forms)
        for secret in filter(None, secrets):
            forms = lent[secret] = lent.get(secret) or _forms(secret)
            other._forms |= forms
        for oldest in list(lent)[: -self._most_lent]:
            del lent[oldest]
        return other

    @property
    def longest(self) -> int:
        """The length of the longest text that it replaces, or 1: so much may be a part of one at the end of a text that was cut."""
        return max(map(len, self._known()), default=1)

    def redact(self, text: str) -> str:
        """`text` with every known secret replaced by `[redacted]`."""
        for form in sorted({form for form in self._known() if form in text}, key=len, reverse=True):
            text = text.replace(form, self.placeholder)
        return text

    def _known(self) -> Iterator[str]:
        return chain(self._forms, *list(self._origin._lent.values()))

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"


def _forms(secret: str) -> set[str]:
    """How a secret may look in a server's answer: as it is, escaped once or twice, in base64, quoted for a URL."""
    once = _escaped(secret)
    twice = {form for text in once for form in _escaped(text)}
    encoded = secret.encode("utf-8", "surrogatepass")
    return {secret, *once, *twice, base64.b64encode(encoded).decode(), quote(encoded, safe=""), quote_plus(encoded)}


def _escaped(text: str) -> set[str]:
    """`text` as JSON and Python write it in a string."""
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
