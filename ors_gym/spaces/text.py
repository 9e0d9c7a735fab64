"""Text of any kind and length."""

from typing import Any

import numpy as np

from ors_gym.schemas import draw_text
from ors_gym.spaces._base import ValueSpace, refuse_mask


class UnicodeText(ValueSpace[str]):
    """Any Unicode string within limits on its length.

    Gymnasium's `Text` lists its characters one by one; this one does not, so any text is in it, and looking is done in no time.

    Args:
        max_length: The most characters; None is no limit.
        min_length: The fewest characters.
        seed: A seed for `sample`, or a generator.

    Raises:
        ValueError: The limits are negative, or leave no length.

    >>> UnicodeText(max_length=5).contains("naïve"), UnicodeText(max_length=5).contains("naïveté")
    (True, False)
    """

    def __init__(
        self, max_length: int | None = None, min_length: int = 0, *, seed: int | np.random.Generator | None = None
    ) -> None:
        if min_length < 0 or (max_length is not None and max_length < min_length):
            raise ValueError(f"no text has a length from {min_length} to {max_length}")
        self.max_length = max_length
        self.min_length = min_length
        super().__init__(seed)

    def contains(self, x: Any) -> bool:
        """Whether it is a string of a length within the limits; in constant time."""
        return isinstance(x, str) and self.min_length <= len(x) and (self.max_length is None or len(x) <= self.max_length)

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Printable text, short unless `min_length` is not.

        Raises:
            ValueError: A mask or probabilities were given; there is nothing that they could choose from.
        """
        refuse_mask(self, mask, probability)
        low = max(self.min_length, 1)
        high = max(low, self.min_length + _SHORT)
        return draw_text(self.np_random, low, high) if self.max_length is None else self._bounded_sample(low, high)

    def zero(self) -> str:
        """An empty text; of spaces, where the text has a least length."""
        return " " * self.min_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"

    def _bounded_sample(self, low: int, high: int) -> str:
        assert self.max_length is not None
        return draw_text(self.np_random, min(low, self.max_length), min(high, self.max_length))

    def _key(self) -> tuple[int | None, int]:
        return self.max_length, self.min_length


_SHORT = 24
