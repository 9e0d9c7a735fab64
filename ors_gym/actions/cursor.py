"""A cursor over a completion: JSON, Python's literals, and Gemma's JSON with bare keys, read where they stand.

Nothing is evaluated; time is linear and depth is bounded whatever the text.
"""

import json
import re
from typing import Any

from ors_gym.actions.forms import MAX_DEPTH, shortened
from ors_gym.errors import InvalidAction

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d][\w.-]*")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_HEX = re.compile(r"[0-9a-fA-F]+")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", "\\": "\\", "/": "/", '"': '"', "'": "'"}
_ESCAPE_WIDTHS = {"x": 2, "u": 4, "U": 8}
_GEMMA_QUOTE = '<|"|>'
_QUOTES = {'"': re.compile(r'[\\"]'), "'": re.compile(r"[\\']")}
_BEHIND_A_STRING = re.compile(r"\s*(?:[,:)\]}]|\Z)")
_CLOSINGS = {"[": "]", "(": ")"}
_JSON = json.JSONDecoder()


class Cursor:
    """A text, and how far it has been read.

    >>> Cursor("[1, 'two', {three: null}]").value()
    [1, 'two', {'three': None}]
    >>> Cursor("search(query='ors', limit=3)").call()
    ('search', {'query': 'ors', 'limit': 3})

    Methods that read raise `InvalidAction` where the text does not go on as it must.
    """

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position

    @property
    def done(self) -> bool:
        """Whether only white space is left."""
        self.skip_space()
        return self.position >= len(self.text)

    def skip_space(self) -> None:
        """Step over white space."""
        found = _SPACE.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def at(self, *tokens: str) -> bool:
        """Whether one of the tokens comes next, after white space."""
        self.skip_space()
        return self.text.startswith(tokens, self.position)

    def accept(self, token: str) -> bool:
        """Step over the token if it comes next."""
        if not self.at(token):
            return False
        self.position += len(token)
        return True

    def expect(self, token: str) -> None:
        """Step over the token, which must come next."""
        if not self.accept(token):
            raise self._unexpected(shortened(token))

    def seek(self, token: str) -> bool:
        """Step behind the next occurrence of the token; stay and return False if there is none."""
        found = self.text.find(token, self.position)
        if found < 0:
            return False
        self.position = found + len(token)
        return True

    def until(self, *tokens: str) -> str:
        """The text up to the first of the tokens, which is stepped over; up to the end if there is none."""
        start = self.position
        found = [(place, len(token)) for token in tokens if (place := self.text.find(token, start)) >= 0]
        end, width = min(found, default=(len(self.text), 0))
        self.position = end + width
        return self.text[start:end]

    def before(self, token: str) -> str:
        """The text up to the token, which must come and is not stepped over."""
        start = self.position
        end = self.text.find(token, start)
        if end < 0:
            raise InvalidAction(f"a tool call without its {token}")
        self.position = end
        return self.text[start:end]

    def json(self) -> Any:
        """A JSON value."""
        self.skip_space()
        try:
            value, self.position = _JSON.raw_decode(self.text, self.position)
        except RecursionError:
            raise InvalidAction("JSON that is nested too deeply") from None
        except ValueError as error:
            raise InvalidAction(f"not valid JSON: {error}") from None
        return value

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """A bracketed list of calls, `[first(a=1), second()]`."""
        self.expect("[")
        calls: list[tuple[str, dict[str, Any]]] = []
        while not self.accept("]"):
            calls.append(self.call())
            self._separator("]")
        return calls

    def call(self) -> tuple[str, dict[str, Any]]:
        """One call, `name(key=value, ...)`; a tool's input has no place for positional arguments."""
        name = self.name()
        self.expect("(")
        arguments: dict[str, Any] = {}
        while not self.accept(")"):
            key = self.name()
            self.expect("=")
            arguments[key] = self.value()
            self._separator(")")
        return name, arguments

    def value(self, depth: int = 0) -> Any:
        """A string, a number, a list, a tuple (as a list), an object, or one of the words for true, false and null."""
        if depth > MAX_DEPTH:
            raise InvalidAction(f"an input nested more than {MAX_DEPTH} deep")
        self.skip_space()
        if self.at("[", "("):
            return self._items(depth)
        if self.at("{"):
            return self._object(depth)
        if self.at('"', "'", _GEMMA_QUOTE):
            return self._string()
        if number := _NUMBER.match(self.text, self.position):
            self.position = number.end()
            return _number(number.group())
        word = self.name()
        if word not in _WORDS:
            raise InvalidAction(f"{shortened(word)} is no value; strings are quoted")
        return _WORDS[word]

    def name(self) -> str:
        """A bare name."""
        self.skip_space()
        found = _NAME.match(self.text, self.position)
        if not found:
            raise self._unexpected("a name")
        self.position = found.end()
        return found.group()

    def _items(self, depth: int) -> list[Any]:
        closing = _CLOSINGS[self.text[self.position]]
        self.position += 1
        items: list[Any] = []
        while not self.accept(closing):
            items.append(self.value(depth + 1))
            self._separator(closing)
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        self.expect("{")
        items: dict[str, Any] = {}
        while not self.accept("}"):
            key = self._string() if self.at('"', "'", _GEMMA_QUOTE) else self.name()
            self.expect(":")
            items[key] = self.value(depth + 1)
            self._separator("}")
        return items

    def _separator(self, closing: str) -> None:
        if not self.accept(",") and not self.at(closing):
            raise self._unexpected(f"a comma or {closing}")

    def _string(self) -> str:
        """A string in double or single quotes, with escapes, or between Gemma's quotes, without.

        LFM2.5 writes `'it's'`: a quote that nothing follows which could follow a string is part of it.
        """
        if self.accept(_GEMMA_QUOTE):
            start = self.position
            if not self.seek(_GEMMA_QUOTE):
                raise InvalidAction("a string that does not end")
            return self.text[start : self.position - len(_GEMMA_QUOTE)]
        special = _QUOTES[self.text[self.position]]
        self.position += 1
        pieces: list[str] = []
        while found := special.search(self.text, self.position):
            pieces.append(self.text[self.position : found.start()])
            self.position = found.end()
            if found.group() == "\\":
                pieces.append(self._escape())
            elif _BEHIND_A_STRING.match(self.text, self.position):
                return _with_pairs_joined("".join(pieces))
            else:
                pieces.append(found.group())
        raise InvalidAction("a string that does not end")

    def _escape(self) -> str:
        """What the escape stands for whose backslash has been read; as in Python, an unknown one for itself."""
        letter = self.text[self.position : self.position + 1]
        self.position += 1
        width = _ESCAPE_WIDTHS.get(letter)
        if width is None:
            return _ESCAPES.get(letter, "\\" + letter)
        digits = self.text[self.position : self.position + width]
        self.position += width
        if len(digits) == width and _HEX.fullmatch(digits) and (code := int(digits, 16)) < 0x110000:
            return chr(code)
        raise InvalidAction(f"a broken escape {shortened(letter + digits)}")

    def _unexpected(self, wanted: str) -> InvalidAction:
        seen = self.text[self.position : self.position + 20]
        return InvalidAction(f"expected {wanted} at character {self.position}, not {shortened(seen) if seen else 'the end'}")


def _number(digits: str) -> int | float:
    try:
        return float(digits) if any(mark in digits for mark in ".eE") else int(digits)
    except ValueError as error:  # Python reads no integer of more than 4,300 digits
        raise InvalidAction(f"not a number: {error}") from None


def _with_pairs_joined(text: str) -> str:
    """The text with each escaped pair of surrogates as the one character that it stands for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if not text.isascii() else text
