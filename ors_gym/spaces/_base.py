"""What the spaces of this package share, and how Gymnasium's functions on spaces know them."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Tuple
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, create_empty_array
from gymnasium.wrappers.utils import create_zero_array

T = TypeVar("T")


class ValueSpace(Space[T]):
    """A space of values that are no arrays: they batch to tuples, and cannot be flattened.

    A subclass names what makes two spaces equal in `_key`, and gives the least of its values in `zero`.

    >>> class Colour(ValueSpace[str]):
    ...     def zero(self):
    ...         return ""
    ...     def _key(self):
    ...         return None
    >>> Colour() == Colour(), Colour().zero()
    (True, '')
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        batch_differing_spaces.register(cls)(_batch_differing_spaces)  # which looks for the class itself, not for its bases

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Never: text, calls and images of any size have no fixed number of entries."""
        return False

    def zero(self) -> T:
        """A value of the space that stands for nothing yet: an empty text, no blocks, one black pixel."""
        raise NotImplementedError

    def _key(self) -> Any:
        """What makes two spaces of one class equal."""
        raise NotImplementedError

    def to_jsonable(self, sample_n: Iterable[T]) -> list[Any]:
        """Samples as JSON values."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[T]:
        """The samples that `to_jsonable` wrote."""
        return list(sample_n)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._key() == self._key()

    def __deepcopy__(self, memo: dict[int, Any]) -> "ValueSpace[T]":
        """A copy with a generator of its own; all else is immutable, and shared: batching copies a space n times."""
        copied = copy.copy(self)
        copied._np_random = copy.deepcopy(self._np_random, memo)
        return copied


def refuse_mask(space: Space[Any], mask: Any, probability: Any) -> None:
    """Say that a space has nothing to choose from by mask or probability.

    Raises:
        ValueError: One was given.
    """
    if mask is not None or probability is not None:
        raise ValueError(f"{type(space).__name__} is sampled without a mask and without probabilities")


def _batch_differing_spaces(spaces: Sequence[ValueSpace[Any]]) -> Space[Any]:
    return Tuple([copy.deepcopy(space) for space in spaces], seed=copy.deepcopy(spaces[0].np_random))


@create_empty_array.register(ValueSpace)
def _create_empty_array(space: ValueSpace[Any], n: int = 1, fn: Callable[..., Any] = np.zeros) -> tuple[Any, ...]:
    return tuple(space.zero() for _ in range(n))


@create_zero_array.register(ValueSpace)
def _create_zero_array(space: ValueSpace[Any]) -> Any:
    return space.zero()


@is_space_dtype_shape_equiv.register(ValueSpace)
def _is_space_dtype_shape_equiv(space_1: ValueSpace[Any], space_2: Any) -> bool:
    return type(space_1) is type(space_2)
