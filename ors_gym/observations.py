"""Observations: blocks, in the form that a policy reads."""

import base64
import binascii
import importlib.util
import io
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from ors_gym.protocol import ImageBlock, TextBlock, UnknownBlock

ObservationFormat = Literal["text", "blocks", "multimodal"]
Image = NDArray[np.uint8]

MAX_PIXELS = 4096 * 4096
"""The largest image that is decoded; a few bytes can claim to be gigabytes of pixels."""


class MultimodalObservation(TypedDict):
    """Text, with a placeholder where each image stands, and the images: uint8 arrays of shape (height, width, 3)."""

    text: str
    images: tuple[Image, ...]


def render(
    blocks: Sequence[TextBlock | ImageBlock | UnknownBlock],
    observation_format: ObservationFormat = "text",
    *,
    max_length: int | None = None,
) -> Any:
    """Blocks as an observation.

    Args:
        blocks: What the server sent.
        observation_format: `"text"`: a `str`, blocks joined by newlines, with a short placeholder for each image. `"blocks"`: a
            tuple of dicts, as on the wire. `"multimodal"`: a `MultimodalObservation`.
        max_length: The most characters of text, in `"blocks"` of each block; what is longer loses its middle, and says so. None
            is no limit.

    Raises:
        ValueError: Another format.
        ImportError: `"multimodal"` met an image, and pillow is not installed.

    >>> render([TextBlock(text="What is this?"), ImageBlock(data="R0lGODlhAgABAA==", mimeType="image/gif")])
    'What is this?\\n[image: image/gif, 2x1]'
    """
    if observation_format == "blocks":
        return tuple(_as_dict(block, max_length) for block in blocks)
    text = shorten("\n".join(_as_text(block) for block in blocks), max_length)
    if observation_format == "text":
        return text
    if observation_format == "multimodal":
        decoded = (decode_image(block) for block in blocks if isinstance(block, ImageBlock))
        return MultimodalObservation(text=text, images=tuple(image for image in decoded if image is not None))
    raise ValueError(f"observation_format is 'text', 'blocks' or 'multimodal', not {observation_format!r}")


def shorten(text: str, max_length: int | None) -> str:
    """The text, or its beginning and end with a note between them, in at most `max_length` characters.

    >>> shorten("0123456789" * 10, 50)
    '0123456789\\n[… 81 characters left out …]\\n123456789'
    """
    if max_length is None or len(text) <= max_length:
        return text
    kept = max_length - len(_left_out(len(text)))
    if kept < 2:
        return text[:max_length]
    head = (kept + 1) // 2
    tail = kept - head
    return text[:head] + _left_out(len(text) - kept) + text[len(text) - tail :]


def image_size(block: ImageBlock) -> tuple[int, int] | None:
    """Width and height in pixels, read from the image's first bytes; None where they are of no format known here.

    PNG, GIF, JPEG, WebP and BMP are known, without any library.

    >>> image_size(ImageBlock(data="R0lGODlhAgABAA==", mimeType="image/gif"))
    (2, 1)
    """
    try:
        head = base64.b64decode(block.data[:_HEAD], validate=False)
    except (ValueError, binascii.Error):
        return None
    return _size_in(head)


def decode_image(block: ImageBlock) -> Image | None:
    """The image as a uint8 array of shape (height, width, 3); None where its bytes are no image, or one over `MAX_PIXELS`.

    Raises:
        ImportError: pillow is not installed.
    """
    if importlib.util.find_spec("PIL") is None:
        raise ImportError("images as arrays need pillow: pip install 'ors-gym[images]'")
    from PIL import Image as PillowImage

    try:
        data = base64.b64decode(block.data, validate=False)
        with PillowImage.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                return None
            return np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError, PillowImage.DecompressionBombError):  # what pillow raises on broken images
        return None


def _as_text(block: TextBlock | ImageBlock | UnknownBlock) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ImageBlock):
        size = image_size(block)
        dimensions = f"{size[0]}x{size[1]}" if size else f"{len(block.data) * 3 // 4:,} bytes"
        return f"[image: {_printable(block.mimeType)}, {dimensions}]"
    return f"[{_printable(block.type)} block: {json.dumps(block.model_extra)}]"


def _as_dict(block: TextBlock | ImageBlock | UnknownBlock, max_length: int | None) -> dict[str, Any]:
    fields = block.model_dump(exclude_unset=True) | {"type": block.type}
    if isinstance(block, TextBlock):
        fields["text"] = shorten(block.text, max_length)
    return fields


def _left_out(count: int) -> str:
    return f"\n[… {count:,} characters left out …]\n"


def _printable(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "", text)[:60]


_HEAD = 65_536
_JPEG_SIZES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}


def _size_in(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return _big(head[16:20]), _big(head[20:24])
    if head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        return _little(head[6:8]), _little(head[8:10])
    if head.startswith(b"BM") and len(head) >= 26:
        return _little(head[18:22]), abs(int.from_bytes(head[22:26], "little", signed=True))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    return _jpeg_size(head) if head.startswith(b"\xff\xd8") else None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind, body = head[12:16], head[20:]
    if kind == b"VP8X" and len(body) >= 10:
        return _little(body[4:7]) + 1, _little(body[7:10]) + 1
    if kind == b"VP8 " and len(body) >= 10:
        return _little(body[6:8]) & 0x3FFF, _little(body[8:10]) & 0x3FFF
    if kind == b"VP8L" and len(body) >= 5:
        bits = _little(body[1:5])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    position = 2
    while position + 9 <= len(head) and head[position] == 0xFF:
        marker = head[position + 1]
        if marker in _JPEG_SIZES:
            return _big(head[position + 7 : position + 9]), _big(head[position + 5 : position + 7])
        position += 2 + max(_big(head[position + 2 : position + 4]), 2)
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
