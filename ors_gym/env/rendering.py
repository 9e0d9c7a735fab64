"""How an episode looks: as text, on the terminal, as an image of fixed size, and in a notebook."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from ors_gym import _html, observations
from ors_gym.episode import Episode, Step
from ors_gym.protocol import Blocks, ImageBlock

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

CANVAS = (600, 800, 3)
"""The shape of a frame of `rgb_array`: height, width, RGB."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class _Entry:
    """One thing in a transcript: a heading, what was said or what came back."""

    title: str
    blocks: Blocks
    trouble: str = ""


def ansi(episode: Episode | None) -> str:
    """The transcript as plain text; control characters are shown as escapes.

    >>> from ors_gym.tasks import TaskRef
    >>> print(ansi(Episode(TaskRef("train", 0), "museum")))
    museum · train/0 · running · reward 0
    ── prompt
    """
    if episode is None:
        return "no episode yet"
    lines = [_headline(episode)]
    for entry in _entries(episode):
        lines += [f"── {entry.title}", *filter(None, [_text(entry.blocks), entry.trouble])]
    return _printable("\n".join(lines))


def show_prompt(episode: Episode) -> None:
    """Prints the beginning of an episode to the terminal."""
    _show(next(_entries(episode)), subtitle=_headline(episode))


def show_steps(episode: Episode, first: int) -> None:
    """Prints the steps from `first` on to the terminal."""
    entries = list(_entries(episode))[first + 1 :]
    for n, entry in enumerate(entries, 1):
        _show(entry, subtitle=_headline(episode) if n == len(entries) and episode.ended else None)


def html(episode: Episode | None, name: str) -> str:
    """The episode for a notebook, escaped."""
    return episode._repr_html_() if episode else _html.box(name, {}, _html.muted("no episode yet"))


def rgb_array(episode: Episode | None) -> NDArray[np.uint8]:
    """The end of the transcript with its images, drawn on a canvas of shape `CANVAS`.

    Raises:
        gymnasium.error.DependencyNotInstalled: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise DependencyNotInstalled('render_mode="rgb_array" draws with Pillow: pip install "ors-gym[images]"') from error
    height, width, _ = CANVAS
    canvas = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(canvas)
    pieces = [piece for entry in _entries(episode) for piece in _pieces(entry)] if episode else []
    bottom = min(height - _MARGIN, _HEADER + sum(piece.height for piece in pieces))
    for piece in reversed(pieces):
        bottom -= piece.height
        if bottom < _HEADER:
            break
        piece.draw(canvas, draw, bottom)
    draw.rectangle((0, 0, width, _HEADER - 6), fill=_INK)
    headline = _printable(_headline(episode)) if episode else "no episode yet"
    draw.text((_MARGIN, 10), _wrap(headline, width - 2 * _MARGIN)[0], font=_font(), fill=_PAPER)
    return np.asarray(canvas, dtype=np.uint8).copy()


def _entries(episode: Episode) -> Iterator[_Entry]:
    yield _Entry("prompt", episode.prompt)
    for n, step in enumerate(episode.steps, 1):
        yield _Entry(f"step {n}: {_said(step)}", step.blocks, _outcome(step))


def _said(step: Step) -> str:
    if step.call is not None:
        return f"{step.call.name} {json.dumps(step.call.input, ensure_ascii=False)}"
    return step.action if isinstance(step.action, str) else repr(step.action)


def _outcome(step: Step) -> str:
    if step.error:
        return f"{step.error_kind} failed: {step.error}"
    if step.invalid_action:
        return "invalid action"
    reward = "no reward" if step.reward is None else f"reward {step.reward:g}"
    return f"{reward}, finished" if step.finished else reward


def _headline(episode: Episode) -> str:
    score = "unscored" if episode.unscored else f"reward {sum(episode.rewards):g}"
    return f"{episode.env_name} · {episode.task.key} · {episode.outcome} · {score}"


def _text(blocks: Blocks) -> str:
    return str(observations.render(blocks, "text"))


def _printable(text: str) -> str:
    """`text` without anything that steers a terminal or turns the direction of writing."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def _show(entry: _Entry, subtitle: str | None) -> None:
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.text import Text

    body = [Text(_printable(_text(entry.blocks)))]
    if entry.trouble:
        body.append(Text(_printable(entry.trouble), style="bold"))
    title = Text(_printable(entry.title).replace("\n", " "), overflow="ellipsis")
    Console().print(Panel(Group(*body), title=title, title_align="left", subtitle=Text(_printable(subtitle or ""))))


# Drawing

_MARGIN, _HEADER, _LINE, _FONT_SIZE = 14, 44, 20, 15
_PAPER, _INK, _MUTED, _ACCENT = (250, 250, 247), (33, 37, 41), (110, 116, 122), (24, 91, 160)
_MAX_THUMBNAIL = (360, 240)
_MAX_DRAWN = 6_000  # characters of one text: more than a canvas holds


@dataclass(frozen=True)
class _Line:
    text: str
    colour: tuple[int, int, int]
    height: int = _LINE

    def draw(self, canvas: "Image", draw: Any, top: int) -> None:
        draw.text((_MARGIN, top), self.text, font=_font(), fill=self.colour)


@dataclass(frozen=True)
class _Picture:
    image: "Image"

    @property
    def height(self) -> int:
        return self.image.height + 8

    def draw(self, canvas: "Image", draw: Any, top: int) -> None:
        canvas.paste(self.image, (_MARGIN, top + 4))


def _pieces(entry: _Entry) -> Iterator[_Line | _Picture]:
    yield _Line("", _INK, 8)
    yield from _lines(entry.title, _ACCENT)
    for block in entry.blocks:
        picture = observations.decode_image(block) if isinstance(block, ImageBlock) else None
        if picture is None:
            yield from _lines(_text((block,)), _INK)
        else:
            yield _thumbnail(picture)
    if entry.trouble:
        yield from _lines(entry.trouble, _MUTED)


def _lines(text: str, colour: tuple[int, int, int]) -> Iterator[_Line]:
    for line in _wrap(_printable(text[-_MAX_DRAWN:]), CANVAS[1] - 2 * _MARGIN):
        yield _Line(line, colour)


def _thumbnail(pixels: NDArray[np.uint8]) -> _Picture:
    from PIL import Image

    image = Image.fromarray(pixels)
    scale = min(_MAX_THUMBNAIL[0] / image.width, _MAX_THUMBNAIL[1] / image.height)
    if scale < 1 or max(image.size) < 64:
        scale = min(scale, 8.0)
        image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))), Image.Resampling.NEAREST)
    return _Picture(image)


def _wrap(text: str, width: int) -> list[str]:
    """`text` as lines that are at most `width` pixels wide; at least one."""
    measure = _font().getlength
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        line = ""
        for word in re.findall(r"\s*\S+|\s+$", paragraph):
            if line and measure(line + word) > width:
                lines.append(line)
                line = word.lstrip()
            else:
                line += word
            while measure(line) > width:
                fitting = max(1, int(len(line) * width / measure(line)))
                while measure(line[:fitting]) > width:
                    fitting -= 1
                lines.append(line[:fitting])
                line = line[fitting:]
        lines.append(line)
    return lines


@lru_cache(maxsize=1)
def _font() -> "Font":
    """A font with most of the world's alphabets where the system has it, else the one that Pillow brings."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans.ttf", _FONT_SIZE)
    except OSError:
        return ImageFont.load_default(_FONT_SIZE)
