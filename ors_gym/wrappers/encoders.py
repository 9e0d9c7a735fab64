"""Observations → arrays, many at a time: what the observation wrappers do to one observation and to a batch of them.

An encoder takes a sequence of n observations in any `observation_format` and returns one array of shape `(n, *space.shape)`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from ors_gym.observations import decode_image
from ors_gym.protocol import ImageBlock
from ors_gym.wrappers.hashing import TextHasher


class Encoder(Protocol):
    """What turns observations into rows of an array."""

    @property
    def space(self) -> Box:
        """The space of one row."""
        ...

    def __call__(self, observations: Sequence[Any]) -> NDArray[Any]:
        """One row an observation."""
        ...


class HashEncoder:
    """Text → signed, L2-normalised feature hashing of its n-grams."""

    def __init__(self, n_features: int, ngrams: tuple[int, int], analyzer: Literal["word", "char"]) -> None:
        self._hasher = TextHasher(n_features, ngrams, analyzer)
        self.space = Box(-1.0, 1.0, (n_features,), np.float32)

    def __call__(self, observations: Sequence[Any]) -> NDArray[np.float32]:
        return np.stack([self._hasher(observed_text(observation)) for observation in observations])


class ByteEncoder:
    """Text → its first UTF-8 bytes, zeros after its end."""

    def __init__(self, max_length: int) -> None:
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1 byte, not {max_length}")
        self.space = Box(0, 255, (max_length,), np.uint8)

    def __call__(self, observations: Sequence[Any]) -> NDArray[np.uint8]:
        rows = np.zeros((len(observations), *self.space.shape), dtype=np.uint8)
        for row, observation in zip(rows, observations, strict=True):
            encoded = observed_text(observation).encode("utf-8", "replace")[: len(row)]
            row[: len(encoded)] = np.frombuffer(encoded, dtype=np.uint8)
        return rows


class FunctionEncoder:
    """Text → what a function of the user's makes of it."""

    def __init__(self, encode: Callable[[list[str]], ArrayLike]) -> None:
        self._encode = encode
        probe = np.asarray(encode([""]))
        if probe.ndim < 2 or len(probe) != 1:
            raise ValueError(
                f"encode takes a list of n texts and returns an array of shape (n, …); for one text it gave shape {probe.shape}"
            )
        self.space = Box(-np.inf, np.inf, probe.shape[1:], np.float32)

    def __call__(self, observations: Sequence[Any]) -> NDArray[np.float32]:
        return np.asarray(self._encode([observed_text(observation) for observation in observations]), dtype=np.float32)


class ImageEncoder:
    """The last image of an observation, resized; black where there is none."""

    def __init__(self, size: tuple[int, int]) -> None:
        height, width = size
        if height < 1 or width < 1:
            raise ValueError(f"size is (height, width) in pixels, each at least 1, not {size}")
        self.space = Box(0, 255, (height, width, 3), np.uint8)

    def __call__(self, observations: Sequence[Any]) -> NDArray[np.uint8]:
        rows = np.zeros((len(observations), *self.space.shape), dtype=np.uint8)
        for row, observation in zip(rows, observations, strict=True):
            image = last_image(observation)
            if image is not None:
                row[:] = _resized(image, self.space.shape[0], self.space.shape[1])
        return rows


def observed_text(observation: Any) -> str:
    """The text of an observation in any `observation_format`; of blocks, the text blocks joined by newlines."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping):
        return str(observation["text"])
    return "\n".join(block["text"] for block in observation if block["type"] == "text")


def last_image(observation: Any) -> NDArray[np.uint8] | None:
    """The last image of a `"multimodal"` or `"blocks"` observation, of shape `(height, width, 3)`; None if it has none.

    Raises:
        TypeError: It is a `"text"` observation, in which images are words.
    """
    if isinstance(observation, str):
        raise TypeError('a "text" observation holds no image: make the environment with observation_format="multimodal"')
    if isinstance(observation, Mapping):
        images = observation["images"]
    else:
        blocks = [ImageBlock.model_validate(block) for block in observation if block["type"] == "image"]
        images = [decode_image(block) for block in blocks[-1:]]
    return images[-1] if len(images) else None


def _resized(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
