"""Strings drawn from a generator: words, the formats of JSON Schema, and what a pattern matches."""

import re
import string
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from re import _constants as sre  # type: ignore[attr-defined]  # Python's own reading of a pattern, as hypothesis uses it
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from ors_gym.schemas._validation import SchemaError

MAX_STRING = 10_000
"""The longest string that is drawn, in characters."""

_WORD = string.ascii_lowercase
_PRINTABLE = string.ascii_letters + string.digits + " .,:;!?'()-"
_MAX_PATTERN = 2_000
_CATEGORIES = {
    sre.CATEGORY_DIGIT: string.digits,
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
}
_OTHERS = {
    sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
    sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
    sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD,
}


def draw_text(rng: np.random.Generator, low: int = 1, high: int = 12) -> str:
    """Printable text of `low` to `high` characters, without white space at its ends."""
    length = int(rng.integers(low, high + 1))
    text = "".join(_pick(rng, _PRINTABLE) for _ in range(length))
    return "".join(_pick(rng, _WORD) if letter == " " and place in (0, length - 1) else letter for place, letter in enumerate(text))


def draw_word(rng: np.random.Generator) -> str:
    """A word of three to eight letters."""
    return "".join(_pick(rng, _WORD) for _ in range(int(rng.integers(3, 9))))


def draw_format(rng: np.random.Generator, name: str) -> str | None:
    """A string of a format of JSON Schema; None for a format that is not known here."""
    draw = _FORMATS.get(name)
    return draw(rng) if draw else None


def draw_matching(rng: np.random.Generator, pattern: str, spread: int, *, beyond: int = 0) -> str:
    """A string that a pattern matches, as far as its parts say.

    Args:
        rng: What decides.
        pattern: The pattern. Look-around and back-references are passed over, so the caller has to check the result.
        spread: How far an open repetition varies.
        beyond: How far beyond its least it begins, as far as its most allows; for a string that has to be long.

    Raises:
        SchemaError: The pattern cannot be read, or asks for more than `MAX_STRING` characters.
    """
    if len(pattern) > _MAX_PATTERN:
        raise SchemaError(f"a pattern of {len(pattern):,} characters")
    try:
        tree = sre_parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise SchemaError(f"the pattern {pattern[:80]!r} cannot be drawn from: {error}") from None
    return _PatternDrawer(rng, pattern, spread, beyond).draw(tree)


class _PatternDrawer:
    """Walks a parsed pattern, and writes what it meets, within `MAX_STRING`."""

    def __init__(self, rng: np.random.Generator, pattern: str, spread: int, beyond: int) -> None:
        self.rng = rng
        self.pattern = pattern
        self.spread = spread
        self.beyond = beyond
        self.left = MAX_STRING

    def draw(self, tree: Any) -> str:
        return "".join(self._part(operator, argument) for operator, argument in tree)

    def _part(self, operator: Any, argument: Any) -> str:
        self.left -= 1
        if self.left < 0:
            raise SchemaError(f"the pattern {self.pattern[:80]!r} asks for more than {MAX_STRING:,} characters")
        if operator is sre.LITERAL:
            return chr(argument)
        if operator is sre.NOT_LITERAL:
            return self._letter_but({argument})
        if operator is sre.ANY:
            return _pick(self.rng, _WORD)
        if operator is sre.IN:
            return self._one_of(argument)
        if operator is sre.BRANCH:
            return self.draw(argument[1][int(self.rng.integers(len(argument[1])))])
        if operator is sre.SUBPATTERN:
            return self.draw(argument[-1])
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, part = argument
            first = min(low + self.beyond, int(high))
            times = first + int(self.rng.integers(min(int(high) - first, self.spread) + 1))
            return "".join(self.draw(part) for _ in range(times))
        if operator is sre.ATOMIC_GROUP:
            return self.draw(argument)
        return ""  # anchors, look-around: they match no characters of their own

    def _one_of(self, items: list[Any]) -> str:
        if items[0][0] is sre.NEGATE:
            return self._letter_but({code for item in items[1:] for code in _codes(item)})
        codes = _codes(items[int(self.rng.integers(len(items)))])
        return chr(codes[int(self.rng.integers(len(codes)))])

    def _letter_but(self, excluded: set[int]) -> str:
        allowed = [letter for letter in _PRINTABLE + string.punctuation + "\n" if ord(letter) not in excluded]
        if not allowed:
            raise SchemaError(f"the pattern {self.pattern[:80]!r} excludes every printable character")
        return allowed[int(self.rng.integers(len(allowed)))]


def _codes(item: tuple[Any, Any]) -> Any:
    """The code points that one item of a character class allows, at least one."""
    operator, argument = item
    if operator is sre.LITERAL:
        return [argument]
    if operator is sre.RANGE:
        return range(argument[0], argument[1] + 1)
    if argument in _OTHERS:
        excluded = _CATEGORIES[_OTHERS[argument]]
        return [ord(letter) for letter in _PRINTABLE if letter not in excluded]
    return [ord(letter) for letter in _CATEGORIES[argument]]


def _pick(rng: np.random.Generator, letters: str) -> str:
    return letters[int(rng.integers(len(letters)))]


def _moment(rng: np.random.Generator) -> datetime:
    return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=int(rng.integers(2**30)))


def _groups(rng: np.random.Generator, count: int, limit: int, spec: str, separator: str) -> str:
    return separator.join(format(int(rng.integers(limit)), spec) for _ in range(count))


_FORMATS: dict[str, Callable[[np.random.Generator], str]] = {
    "date": lambda rng: _moment(rng).date().isoformat(),
    "date-time": lambda rng: _moment(rng).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "time": lambda rng: _moment(rng).strftime("%H:%M:%SZ"),
    "duration": lambda rng: f"P{int(rng.integers(1, 30))}D",
    "email": lambda rng: f"{draw_word(rng)}@example.com",
    "idn-email": lambda rng: f"{draw_word(rng)}@example.com",
    "hostname": lambda rng: f"{draw_word(rng)}.example.com",
    "idn-hostname": lambda rng: f"{draw_word(rng)}.example.com",
    "ipv4": lambda rng: _groups(rng, 4, 256, "d", "."),
    "ipv6": lambda rng: _groups(rng, 8, 65536, "x", ":"),
    "uri": lambda rng: f"https://example.com/{draw_word(rng)}",
    "iri": lambda rng: f"https://example.com/{draw_word(rng)}",
    "url": lambda rng: f"https://example.com/{draw_word(rng)}",
    "uri-reference": lambda rng: f"/{draw_word(rng)}",
    "iri-reference": lambda rng: f"/{draw_word(rng)}",
    "uri-template": lambda rng: f"/{draw_word(rng)}/{{{draw_word(rng)}}}",
    "uuid": lambda rng: str(uuid.UUID(bytes=rng.bytes(16), version=4)),
    "json-pointer": lambda rng: f"/{draw_word(rng)}",
    "relative-json-pointer": lambda rng: f"0/{draw_word(rng)}",
    "regex": lambda rng: f"^{draw_word(rng)}$",
}
