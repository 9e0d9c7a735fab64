"""Blocks as the content of chat messages: text, or parts with images where the model sees them."""

from collections.abc import Sequence
from typing import Any

from ors_gym import observations
from ors_gym.protocol import Block, ImageBlock

Content = str | list[dict[str, Any]]


def to_text(blocks: Sequence[Block]) -> str:
    """Blocks as text, each image as a short placeholder."""
    text: str = observations.render(blocks, "text")
    return text


def to_content(blocks: Sequence[Block], sees_images: bool) -> Content:
    """Blocks as a message's content.

    Args:
        blocks: What the server sent.
        sees_images: Whether the model takes images. A text-only chat template renders a list as nothing, so it gets text.

    Returns:
        Text; or, where there is an image to see, parts in the blocks' order, images as `PIL.Image.Image`.
    """
    if not sees_images or not any(isinstance(block, ImageBlock) for block in blocks):
        return to_text(blocks)
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any]:
    image = to_image(block) if isinstance(block, ImageBlock) else None
    return {"type": "text", "text": to_text([block])} if image is None else {"type": "image", "image": image}


def to_image(block: ImageBlock) -> Any:
    """The `PIL.Image.Image` of a block; None if it cannot be decoded.

    Raises:
        ImportError: pillow is not installed.
    """
    from PIL import Image

    pixels = observations.decode_image(block)
    return None if pixels is None else Image.fromarray(pixels)
