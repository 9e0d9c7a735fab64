"""What goes into a vector environment, checked: spaces, actions, masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space, iterate
from numpy.typing import NDArray

ObservationMode = str | tuple[Space[Any], Space[Any]]


def observation_spaces(envs: Sequence[Any], mode: ObservationMode) -> tuple[Space[Any], Space[Any]]:
    """The single and the batched observation space of sub-environments.

    Raises:
        RuntimeError: Theirs do not fit together.
        TypeError, ValueError: There is no such mode.
    """
    single: Space[Any] = envs[0].observation_space
    batched: Space[Any] | None = None
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(f"observation_mode as a pair is of spaces, not of {[type(space) for space in mode]}")
        batched, single = mode
    elif mode not in ("same", "different"):
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
            f"actual got {mode}"
        )
    for number, env in enumerate(envs):
        if mode == "same" and env.observation_space != single:
            raise RuntimeError(
                "AsyncioVectorEnv(..., observation_mode='same') however the sub-environments observation spaces are not "
                f"equivalent. single_observation_space={single}, sub-environment {number} has {env.observation_space}. "
                "If this is intentional, use `observation_mode='different'` instead."
            )
        if mode != "same" and not is_space_dtype_shape_equiv(env.observation_space, single):
            raise RuntimeError(
                f"sub-environment {number} has the observation space {env.observation_space}: another shape or dtype than {single}"
            )
    if mode == "same":
        batched = batch_space(single, len(envs))
    return single, batched or batch_differing_spaces([env.observation_space for env in envs])


def action_spaces(envs: Sequence[Any]) -> tuple[Space[Any], Space[Any]]:
    """The single and the batched action space of sub-environments.

    Raises:
        RuntimeError: Theirs are not equal.
    """
    single: Space[Any] = envs[0].action_space
    for number, env in enumerate(envs):
        if env.action_space != single:
            raise RuntimeError(f"sub-environment {number} has the action space {env.action_space}, the first one {single}")
    return single, batch_space(single, len(envs))


def each_action(action_space: Space[Any], actions: Any, num_envs: int) -> list[Any]:
    """The action of each sub-environment.

    Raises:
        TypeError: One action for all.
        ValueError: Another number of them.
    """
    if isinstance(actions, (str, bytes)) or (isinstance(actions, Mapping) and not isinstance(action_space, spaces.Dict)):
        raise TypeError(f"actions is a sequence of {num_envs}, one for each sub-environment, not one {type(actions).__name__}")
    each = list(iterate(action_space, actions))
    if len(each) != num_envs:
        raise ValueError(f"there are {num_envs} sub-environments, and {len(each)} actions")
    return each


def reset_mask(options: Mapping[str, Any] | None, begun: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which sub-environments a reset is for; the options are only read.

    Args:
        options: Those of `reset`.
        begun: Which have been reset before.

    Raises:
        TypeError, ValueError: The mask has the wrong form, or leaves out one that was never reset.
    """
    if options is None or "reset_mask" not in options:
        return np.ones(begun.shape, dtype=np.bool_)
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"options['reset_mask'] must be a numpy array, not {type(mask).__name__}")
    if mask.shape != begun.shape:
        raise ValueError(f"options['reset_mask'] must have shape {begun.shape}, not {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"options['reset_mask'] must have dtype bool, not {mask.dtype}")
    if not mask.any():
        raise ValueError("options['reset_mask'] must have at least one True")
    if not (mask | begun).all():
        raise ValueError(f"sub-environments {np.flatnonzero(~(mask | begun)).tolist()} were never reset: reset them too")
    return mask
