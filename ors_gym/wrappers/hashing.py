"""Text of any length as a vector of fixed length: signed feature hashing of n-grams.

Weinberger, Dasgupta, Langford, Smola and Attenberg, "Feature Hashing for Large Scale Multitask Learning", 2009 (arXiv:0902.2206).
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class TextHasher:
    """Counts a text's n-grams in `n_features` places, each with a sign of its own, and scales the whole to length one.

    An n-gram's place and sign come from its BLAKE2b hash: they are the same in every process and on every machine. The sign lets
    n-grams that fall on one place cancel out on average, so that the product of two vectors estimates, without bias, that of
    the full counts.

    Args:
        n_features: The vector's length, at least 1.
        ngrams: The shortest and the longest n-gram, in words or in characters.
        analyzer: What an n-gram is made of: `"word"` (words and punctuation marks, in lower case) or `"char"`.

    Raises:
        ValueError: An argument is out of its range.

    >>> vector = TextHasher(n_features=8)("the cat sat")
    >>> vector.shape, round(float(vector @ vector), 5)
    ((8,), 1.0)
    """

    n_features: int = 256
    ngrams: tuple[int, int] = (1, 3)
    analyzer: Literal["word", "char"] = "word"

    def __post_init__(self) -> None:
        shortest, longest = self.ngrams
        if self.n_features < 1:
            raise ValueError(f"n_features must be at least 1, not {self.n_features}")
        if not 1 <= shortest <= longest:
            raise ValueError(f"ngrams is (shortest, longest) with 1 <= shortest <= longest, not {self.ngrams}")
        if self.analyzer not in ("word", "char"):
            raise ValueError(f'analyzer must be "word" or "char", not {self.analyzer!r}')

    def __call__(self, text: str) -> NDArray[np.float32]:
        """The text's vector, of shape `(n_features,)` and length one; all zeros for a text without n-grams."""
        counts = np.zeros(self.n_features, dtype=np.float32)
        for ngram in self._ngrams(text.lower()):
            digest = _digest(ngram)
            counts[(digest >> 1) % self.n_features] += 1.0 if digest & 1 else -1.0
        length = np.linalg.norm(counts)
        return counts / length if length else counts

    def _ngrams(self, text: str) -> Iterator[str]:
        pieces = _WORD_OR_MARK.findall(text) if self.analyzer == "word" else list(text)
        between = " " if self.analyzer == "word" else ""
        shortest, longest = self.ngrams
        for size in range(shortest, longest + 1):
            for start in range(len(pieces) - size + 1):
                yield between.join(pieces[start : start + size])


@lru_cache(maxsize=2**16)
def _digest(ngram: str) -> int:
    return int.from_bytes(hashlib.blake2b(ngram.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
