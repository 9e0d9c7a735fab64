"""What an episode was worth: `Episode` → one number, or None where nobody can say."""

import math
from collections.abc import Callable
from typing import Literal

from ors_gym.episode import Episode

RewardFunction = Callable[[Episode], float | None]
RewardReduction = Literal["sum", "last", "mean", "max"] | RewardFunction
"""How the rewards of an episode's steps become one: by name, or by a function of the whole `Episode`."""


def reduce(episode: Episode, reward: RewardReduction = "sum") -> float | None:
    """The reward of a whole episode.

    A step without a reward counts as nothing: it is neither added, nor the last one, nor part of a mean. An episode in
    which no step had a reward is worth 0.0. An unscored episode, one that the environment or the infrastructure broke,
    is None whatever its steps say; a function is not asked about it.

    Args:
        episode: The ledger.
        reward: `"sum"`, `"last"`, `"mean"` or `"max"` of the rewards that were given, or a function of the episode,
            which may return None to leave it unscored.

    Returns:
        A finite number, or None.

    Raises:
        ValueError: `reward` is none of the names, or a function returned something that is not a finite number.

    >>> from ors_gym.episode import Step
    >>> from ors_gym.tasks import TaskRef
    >>> episode = Episode(TaskRef("train", 0), steps=[Step("a", reward=0.5), Step("b"), Step("c", reward=0.25)])
    >>> reduce(episode), reduce(episode, "last"), reduce(episode, "mean"), reduce(episode, "max")
    (0.75, 0.25, 0.375, 0.5)
    """
    check_reduction(reward)
    if episode.unscored:
        return None
    if callable(reward):
        return _checked(reward(episode), reward)
    return _REDUCTIONS[reward](episode.rewards) if episode.rewards else 0.0


def check_reduction(reward: RewardReduction) -> None:
    """For what is asked to reduce episodes that are still to come.

    Raises:
        ValueError: `reward` is none of the names, and no function.
    """
    if not callable(reward) and reward not in _REDUCTIONS:
        raise ValueError(f"reward must be one of {sorted(_REDUCTIONS)} or a function of the episode, not {reward!r}")


def _checked(value: float | None, function: RewardFunction) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        name = getattr(function, "__name__", repr(function))
        raise ValueError(f"the reward function {name} returned {value!r}; return a finite number, or None for unscored")
    return number


def _sum(rewards: list[float]) -> float:
    """The sum, held within the range of a float: a server may send 1e308 twice."""
    total = sum(rewards)
    return total if math.isfinite(total) else math.copysign(1.7976931348623157e308, total)


_REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": _sum,
    "last": lambda rewards: rewards[-1],
    "mean": lambda rewards: _sum([reward / len(rewards) for reward in rewards]),
    "max": max,
}
