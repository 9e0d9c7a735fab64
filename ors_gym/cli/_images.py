"""Images in a terminal, as characters: two pixels a character where the terminal has colours, brightness where it has none."""

import io

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from ors_gym.cli.viewer.attachments import thumbnail

_RAMP = " .:-=+*#%@"
_LARGEST = 64_000


def drawn(data: bytes, console: Console, *, columns: int = 48) -> Text | None:
    """An image in at most so many columns; None for what cannot be drawn: no image, or Pillow (the extra `images`) is missing."""
    try:
        from PIL import Image
    except ImportError:
        return None
    small = thumbnail(data, _LARGEST)
    if small is None:
        return None
    with Image.open(io.BytesIO(small.data)) as opened:
        picture = opened.convert("RGB")
    width = min(columns, picture.width, console.width)
    height = max(2, round(width * picture.height / picture.width / 2) * 2)
    picture = picture.resize((width, height))
    if console.color_system is None:
        gray = picture.convert("L").resize((width, height // 2))
        marks = [_RAMP[level * (len(_RAMP) - 1) // 255] for level in gray.tobytes()]
        return Text("\n".join("".join(marks[row : row + width]) for row in range(0, len(marks), width)))
    pixels = picture.tobytes()
    text = Text()
    for row in range(0, height, 2):
        for column in range(width):
            upper, lower = (_color(pixels, (row + down) * width + column) for down in (0, 1))
            text.append("▀", Style(color=upper, bgcolor=lower))
        text.append("\n")
    text.right_crop(1)
    return text


def _color(pixels: bytes, place: int) -> Color:
    return Color.from_rgb(*pixels[3 * place : 3 * place + 3])
