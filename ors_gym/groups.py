"""`RolloutGroup`: several episodes of one task, what each was worth, and how much better than its siblings each was."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ors_gym import _html
from ors_gym.episode import Episode
from ors_gym.rewards import RewardReduction, reduce
from ors_gym.tasks import TaskRef

Normalization = Literal["group", "center", "none"]
_NORMALIZATIONS = ("group", "center", "none")
_NO_SPREAD = 1e-9
"""Rewards that differ by less than this share of the largest one are equal: their difference is rounding."""


@dataclass(frozen=True)
class RolloutGroup:
    """The episodes of one task.

    Args:
        task: The task that all of them worked on.
        episodes: The episodes, in the order of their rollouts.
        reward: How an episode's rewards become one, as in `ors_gym.rewards.reduce`.

    >>> from ors_gym.episode import Step
    >>> task = TaskRef("train", 0)
    >>> group = RolloutGroup(task, [Episode(task, steps=[Step("a", reward=reward)]) for reward in (1.0, 0.0, 0.0, 0.0)])
    >>> group
    <RolloutGroup 'train/0': 4 episodes, mean reward 0.25>
    >>> group.rewards
    [1.0, 0.0, 0.0, 0.0]
    >>> group.advantages()
    [1.5, -0.5, -0.5, -0.5]
    """

    task: TaskRef
    episodes: Sequence[Episode]
    reward: RewardReduction = "sum"

    def __len__(self) -> int:
        return len(self.episodes)

    @cached_property
    def _rewards(self) -> tuple[float | None, ...]:
        return tuple(reduce(episode, self.reward) for episode in self.episodes)

    @property
    def rewards(self) -> list[float | None]:
        """Each episode's reward; None for an unscored one. A reward function is asked once an episode."""
        return list(self._rewards)

    @property
    def num_unscored(self) -> int:
        """The number of episodes without a reward to learn from."""
        return self._rewards.count(None)

    @property
    def mean_reward(self) -> float | None:
        """The mean over the scored episodes; None if there is none."""
        scored = [reward for reward in self._rewards if reward is not None]
        return _mean(scored) if scored else None

    def advantages(self, normalize: Normalization = "group", leave_one_out: bool = False) -> list[float | None]:
        """How much better each episode was than the group.

        With the rewards r_1 … r_n of the *scored* episodes and their mean m:

        - `"group"`: (r_i − m) / s, where s is the sample standard deviation (n − 1 in the denominator, as GRPO's
          implementations have it): GRPO, Shao et al. 2024, arXiv:2402.03300.
        - `"center"`: r_i − m: Dr. GRPO, Liu et al. 2025, arXiv:2503.20783.
        - `"none"`: r_i, without a baseline.

        `leave_one_out=True` takes as baseline the mean of the *other* scored episodes instead of m. With `"center"`
        that is RLOO, Ahmadian et al. 2024, arXiv:2402.14740.

        Unscored episodes are left out of the baseline and get None. Where there is nothing to compare, because all
        rewards are equal or only one episode is scored, `"group"` and `"center"` give exactly 0.0.

        Args:
            normalize: `"group"`, `"center"` or `"none"`.
            leave_one_out: Compare each episode with the others only.

        Returns:
            One number an episode, None for an unscored one.

        Raises:
            ValueError: An unknown `normalize`; or `leave_one_out` with `"none"`, which has no baseline.
        """
        if normalize not in _NORMALIZATIONS:
            raise ValueError(f"normalize must be one of {_NORMALIZATIONS}, not {normalize!r}")
        if normalize == "none":
            if leave_one_out:
                raise ValueError('normalize="none" has no baseline to leave an episode out of; RLOO is normalize="center"')
            return self.rewards
        scored = [reward for reward in self._rewards if reward is not None]
        if not scored or max(scored) - min(scored) <= _NO_SPREAD * max(map(abs, scored)):
            return [None if reward is None else 0.0 for reward in self._rewards]

        mean, n = _mean(scored), len(scored)
        # r_i − (sum − r_i) / (n − 1) = (r_i − m) · n / (n − 1)
        factor = n / (n - 1) if leave_one_out else 1.0
        if normalize == "group":
            factor /= math.hypot(*(reward - mean for reward in scored)) / math.sqrt(n - 1)
        return [None if reward is None else (reward - mean) * factor for reward in self._rewards]

    def __repr__(self) -> str:
        mean = "" if self.mean_reward is None else f", mean reward {self.mean_reward:g}"
        unscored = f", {self.num_unscored} unscored" if self.num_unscored else ""
        return f"<RolloutGroup {self.task.key!r}: {len(self)} episode{'s' * (len(self) != 1)}{mean}{unscored}>"

    def _repr_html_(self) -> str:
        """The group as a table, for a notebook. Everything that a server said is escaped."""
        rows = [
            (rollout, reward, advantage, episode.num_steps, episode.num_invalid_actions, _ending(episode))
            for rollout, (episode, reward, advantage) in enumerate(
                zip(self.episodes, self._rewards, self.advantages(), strict=True)
            )
        ]
        return _html.box(
            f"group {self.task.key}",
            {"episodes": len(self), "mean reward": self.mean_reward, "unscored": self.num_unscored},
            _html.table(("rollout", "reward", "advantage", "steps", "invalid", "end"), rows),
        )


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(number / len(numbers) for number in numbers)


def _ending(episode: Episode) -> str:
    return f"{episode.outcome}: {episode.error[:200]}" if episode.error else episode.outcome
