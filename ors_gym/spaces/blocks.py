"""Blocks as a server sends them, and images of any size."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ors_gym.schemas import draw_text
from ors_gym.spaces._base import ValueSpace, refuse_mask

Image = NDArray[np.uint8]

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"  # a PNG of one black pixel


class BlocksSpace(ValueSpace[tuple[dict[str, Any], ...]]):
    """Tuples of blocks, each a dict: `{"type": "text", "text"}`, `{"type": "image", "data", "mimeType"}`, or of another type.

    Args:
        max_length: The most characters of a text block; None is no limit.
        seed: A seed for `sample`, or a generator.

    >>> BlocksSpace().contains(({"type": "text", "text": "What is 2+2?"},))
    True
    """

    def __init__(self, max_length: int | None = None, *, seed: int | np.random.Generator | None = None) -> None:
        if max_length is not None and max_length < 0:
            raise ValueError(f"no text has at most {max_length} characters")
        self.max_length = max_length
        super().__init__(seed)

    def contains(self, x: Any) -> bool:
        """Whether it is a tuple of blocks."""
        return isinstance(x, tuple) and all(self._is_block(block) for block in x)

    def sample(self, mask: None = None, probability: None = None) -> tuple[dict[str, Any], ...]:
        """Up to three blocks: short texts, and images of one pixel.

        Raises:
            ValueError: A mask or probabilities were given.
        """
        refuse_mask(self, mask, probability)
        return tuple(self._sample_block() for _ in range(int(self.np_random.integers(4))))

    def zero(self) -> tuple[dict[str, Any], ...]:
        """No blocks."""
        return ()

    def to_jsonable(self, sample_n: Iterable[tuple[dict[str, Any], ...]]) -> list[Any]:
        """Samples as JSON values: lists of blocks."""
        return [list(blocks) for blocks in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[tuple[dict[str, Any], ...]]:
        """The samples that `to_jsonable` wrote."""
        return [tuple(blocks) for blocks in sample_n]

    def __repr__(self) -> str:
        return "BlocksSpace()" if self.max_length is None else f"BlocksSpace({self.max_length})"

    def _is_block(self, block: Any) -> bool:
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            return False
        if block["type"] == "text":
            text = block.get("text")
            return isinstance(text, str) and (self.max_length is None or len(text) <= self.max_length)
        if block["type"] == "image":
            return isinstance(block.get("data"), str) and isinstance(block.get("mimeType"), str)
        return True

    def _sample_block(self) -> dict[str, Any]:
        if self.np_random.integers(4) == 0:
            return {"type": "image", "data": _PIXEL, "mimeType": "image/png"}
        high = 24 if self.max_length is None else min(24, self.max_length)
        return {"type": "text", "text": draw_text(self.np_random, min(1, high), high)}

    def _key(self) -> int | None:
        return self.max_length


class ImageSpace(ValueSpace[Image]):
    """Images of any size: uint8 arrays of shape (height, width, 3).

    Args:
        max_size: The most pixels of a side; None is no limit.
        seed: A seed for `sample`, or a generator.

    >>> ImageSpace().contains(np.zeros((20, 30, 3), dtype=np.uint8))
    True
    """

    def __init__(self, max_size: int | None = None, *, seed: int | np.random.Generator | None = None) -> None:
        if max_size is not None and max_size < 1:
            raise ValueError(f"no image has sides of at most {max_size} pixels")
        self.max_size = max_size
        super().__init__(seed)

    def contains(self, x: Any) -> bool:
        """Whether it is such an array, with at least one pixel."""
        if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 3 or x.shape[2] != 3 or x.size == 0:
            return False
        return self.max_size is None or max(x.shape[:2]) <= self.max_size

    def sample(self, mask: None = None, probability: None = None) -> Image:
        """An image of random pixels, up to 16 of them a side.

        Raises:
            ValueError: A mask or probabilities were given.
        """
        refuse_mask(self, mask, probability)
        most = 16 if self.max_size is None else min(16, self.max_size)
        height, width = self.np_random.integers(1, most + 1, size=2)
        return self.np_random.integers(0, 256, size=(height, width, 3), dtype=np.uint8)

    def zero(self) -> Image:
        """One black pixel."""
        return np.zeros((1, 1, 3), dtype=np.uint8)

    def to_jsonable(self, sample_n: Iterable[Image]) -> list[Any]:
        """Samples as JSON values: the shape, and the bytes in base64."""
        return [{"shape": list(image.shape), "data": base64.b64encode(image.tobytes()).decode("ascii")} for image in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Image]:
        """The samples that `to_jsonable` wrote."""
        return [np.frombuffer(base64.b64decode(image["data"]), dtype=np.uint8).reshape(image["shape"]).copy() for image in sample_n]

    def __repr__(self) -> str:
        return "ImageSpace()" if self.max_size is None else f"ImageSpace({self.max_size})"

    def _key(self) -> int | None:
        return self.max_size
