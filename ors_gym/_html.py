"""HTML for notebooks: small pieces that the `_repr_html_` of every room is made of. Text is escaped where it enters."""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_TEXT = 20_000
"""Characters of one text that are shown."""

MAX_IMAGE = 2 * 2**20
"""Base64 characters of one image that are shown."""

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MUTED = "opacity:.65"
_PRE = (
    "margin:.2em 0;padding:.5em .7em;white-space:pre-wrap;"
    "overflow-wrap:anywhere;word-break:normal;unicode-bidi:plaintext;border-radius:4px"
)
_BOX = "margin:.4em 0;padding:.5em .8em;border:1px solid rgba(128,128,128,.35);border-radius:6px;max-width:60em"
_GROUND = "background:rgba(128,128,128,.1)"


class Markup(str):
    """HTML. Any other `str` is text, and is escaped where it enters."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """`text` as HTML that shows it; lone surrogates, which no page can hold, as escapes.

    >>> escape("<b>&")
    '&lt;b&gt;&amp;'
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(text.encode("utf-8", "backslashreplace").decode()))


def join(parts: Iterable[str]) -> Markup:
    """`parts`, one after another."""
    return Markup("".join(escape(part) for part in parts))


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """`<tag attributes>children</tag>`.

    >>> element("b", "1 < 2", title='"')
    '<b title="&quot;">1 &lt; 2</b>'
    """
    opening = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{opening}>{join(children)}</{tag}>")


def muted(text: str) -> Markup:
    """Text that steps back."""
    return element("span", text, style=_MUTED)


def number(value: float | None, digits: int = 3) -> str:
    """A number for a reader; a dash for None.

    >>> number(0.5), number(12), number(None)
    ('0.5', '12', '–')
    """
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}".rstrip("0").rstrip(".")


def text(value: str) -> Markup:
    """Text as it is, its line breaks kept, at most `MAX_TEXT` characters of it."""
    shown: list[str] = [value[:MAX_TEXT]]
    if len(value) > MAX_TEXT:
        shown.append(muted(f" … {len(value) - MAX_TEXT:,} more characters"))
    return element("pre", *shown, style=f"{_PRE};{_GROUND}")


def json_text(value: Any) -> Markup:
    """A JSON value, indented; what JSON does not know is shown by its `repr`."""
    return text(json.dumps(value, indent=2, ensure_ascii=False, default=repr))


def image(data: str, mime_type: str) -> Markup:
    """A base64-encoded image; one that is too large, or of a type that browsers do not draw, as a line that says so."""
    if mime_type not in _IMAGE_TYPES or len(data) > MAX_IMAGE or not _BASE64.fullmatch(data):
        return muted(f"[{mime_type}, {len(data) * 3 // 4:,} bytes]")
    source = f'src="data:{mime_type};base64,{data}"'
    return Markup(f'<img {source} alt="image" style="display:block;max-width:320px;margin:.2em 0">')


def table(headings: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> Markup:
    """A table; numbers stand right."""

    def cell(value: str | float | None) -> Markup:
        if isinstance(value, str):
            return element("td", value, style="text-align:left;vertical-align:top")
        return element("td", number(value), style="text-align:right;vertical-align:top;font-variant-numeric:tabular-nums")

    head = element("tr", *(element("th", heading, style="text-align:left") for heading in headings))
    return element("table", element("thead", head), element("tbody", *(element("tr", *map(cell, row)) for row in rows)))


def folded(summary: str, *body: str, unfolded: bool = False) -> Markup:
    """`body` under a line that opens it."""
    head = element("summary", summary, style="cursor:pointer")
    return element("details", head, *body, **({"open": ""} if unfolded else {}))


def box(title: str, facts: Mapping[str, str | float | None], *body: str) -> Markup:
    """A bordered box: a title, facts beside it, and what belongs to it below."""
    shown = [f"{name} {value if isinstance(value, str) else number(value)}" for name, value in facts.items()]
    head = element("div", element("b", title), "  ", muted(" · ".join(shown)))
    return element("div", head, *body, style=_BOX)
