"""The infos of many environments as one dict of arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ors_gym.env._slot import Transition

Info = Mapping[str, Any] | None


def batch_infos(infos: Sequence[Info], *, nested: bool = True) -> dict[str, Any]:
    """One dict of arrays, each of length n, with a mask `_key` that says which environments have the key.

    Where all values of a key have one type, this is what Gymnasium makes of them. Where they differ, which Gymnasium forces
    into the first one's type or refuses, numbers take their common type, and the rest stands in an array of objects.

    Args:
        infos: Each environment's info; None for one that has none.
        nested: Whether dicts become dicts of arrays too.

    >>> batch_infos([{"lives": 3}, {"lives": 0.5}, None])
    {'lives': array([3. , 0.5, 0. ]), '_lives': array([ True,  True, False])}
    """
    batch: dict[str, Any] = {}
    for key in dict.fromkeys(key for info in infos if info for key in info):
        indices = [i for i, info in enumerate(infos) if info and key in info]
        values = [info[key] for info in infos if info and key in info]
        mask = np.zeros(len(infos), dtype=np.bool_)
        mask[indices] = True
        batch[key] = _batch(key, values, indices, len(infos), nested)
        batch[f"_{key}"] = mask
    return batch


def with_final(transition: Transition) -> Info:
    """The info of a transition, with what Gymnasium adds to it where it was reset in the same step."""
    if transition.final is None:
        return transition.info
    observation, info = transition.final
    return {"final_obs": observation, "final_info": info or {}, **(transition.info or {})}


def _batch(key: str, values: list[Any], indices: list[int], n: int, nested: bool) -> Any:
    if key != "final_obs":  # which Gymnasium never takes apart
        if (nested or key == "final_info") and all(isinstance(value, dict) for value in values):
            found = dict(zip(indices, values, strict=True))
            return batch_infos([found.get(i) for i in range(n)], nested=nested)
        if (typed := _typed(values, n)) is not None:
            typed[indices] = values
            return typed
    objects = np.full(n, None, dtype=object)
    for i, value in zip(indices, values, strict=True):
        objects[i] = value
    return objects


def _typed(values: list[Any], n: int) -> NDArray[Any] | None:
    """Zeros of the type that all values have in common; None where that is no type of an array."""
    types = {type(value) for value in values}
    if types == {bool}:
        return np.zeros(n, dtype=np.bool_)
    if all(kind in (int, float) or issubclass(kind, np.number) for kind in types):
        if any(kind is int and not -(2**63) <= value < 2**63 for kind, value in ((type(value), value) for value in values)):
            return None
        return np.zeros(n, dtype=np.result_type(*types))
    if types == {np.ndarray} and len({(value.shape, value.dtype) for value in values}) == 1:
        return np.zeros((n, *values[0].shape), dtype=values[0].dtype)
    return None
