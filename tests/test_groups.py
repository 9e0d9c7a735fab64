"""Rewards and advantages of a group: literal values worked out by hand, and properties."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ors_gym.episode import Episode, Step
from ors_gym.groups import RolloutGroup
from ors_gym.tasks import TaskRef

TASK = TaskRef("train", 3)


def _group(*rewards: float | None) -> RolloutGroup:
    """A group with these rewards; None is an episode that the infrastructure lost after a reward of 1."""
    return RolloutGroup(
        TASK,
        [
            Episode(TASK, steps=[Step("a", reward=1.0)], truncated=True, error="lost", error_kind="infrastructure")
            if reward is None
            else Episode(TASK, steps=[Step("a", reward=reward)], terminated=True)
            for reward in rewards
        ],
    )


@pytest.mark.parametrize(
    ("rewards", "normalize", "leave_one_out", "expected"),
    [
        # mean 2.5, deviations -1.5 -.5 .5 1.5, sum of squares 5, s = sqrt(5/3)
        ((1.0, 2.0, 3.0, 4.0), "group", False, [-1.161895003862225, -0.3872983346207417, 0.3872983346207417, 1.161895003862225]),
        ((1.0, 2.0, 3.0, 4.0), "center", False, [-1.5, -0.5, 0.5, 1.5]),
        # others' means: 3, 8/3, 7/3, 2
        ((1.0, 2.0, 3.0, 4.0), "center", True, [-2.0, -2 / 3, 2 / 3, 2.0]),
        ((1.0, 2.0, 3.0, 4.0), "none", False, [1.0, 2.0, 3.0, 4.0]),
        # mean .25, s = sqrt((.5625 + 3 * .0625) / 3) = .5
        ((1.0, 0.0, 0.0, 0.0), "group", False, [1.5, -0.5, -0.5, -0.5]),
        # (1 - 0) / .5 and (0 - 1/3) / .5
        ((1.0, 0.0, 0.0, 0.0), "group", True, [2.0, -2 / 3, -2 / 3, -2 / 3]),
        ((0.0, 2.0), "group", False, [-math.sqrt(0.5), math.sqrt(0.5)]),
        ((0.0, 2.0), "center", True, [-2.0, 2.0]),
        # unscored episodes are no part of the baseline
        ((1.0, None, 0.0, 0.0, None, 0.0), "group", False, [1.5, None, -0.5, -0.5, None, -0.5]),
        ((1.0, None, 3.0), "center", False, [-1.0, None, 1.0]),
        ((1.0, None, 3.0), "center", True, [-2.0, None, 2.0]),
        ((1.0, None), "none", False, [1.0, None]),
    ],
)
def test_advantages_worked_out_by_hand(
    rewards: tuple[float | None, ...], normalize: str, leave_one_out: bool, expected: list[float | None]
) -> None:
    advantages = _group(*rewards).advantages(normalize, leave_one_out)
    assert [a is None for a in advantages] == [e is None for e in expected]
    assert [a for a in advantages if a is not None] == pytest.approx([e for e in expected if e is not None], abs=1e-12)


@pytest.mark.parametrize("normalize", ["group", "center"])
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -3.7, 1e300])
def test_no_spread_gives_exactly_zero(normalize: str, leave_one_out: bool, reward: float) -> None:
    assert _group(reward, reward, None, reward).advantages(normalize, leave_one_out) == [0.0, 0.0, None, 0.0]


def test_a_spread_that_is_only_rounding_is_none() -> None:
    assert _group(0.1 + 0.2, 0.3, 0.3).advantages() == [0.0, 0.0, 0.0]


def test_a_small_but_real_spread_is_kept() -> None:
    assert _group(1e-12, 0.0).advantages() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])


def test_huge_rewards_do_not_overflow() -> None:
    assert _group(1e300, -1e300).advantages() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])


@pytest.mark.parametrize("normalize", ["group", "center"])
def test_a_single_scored_episode_has_nothing_to_be_compared_with(normalize: str) -> None:
    assert _group(1.0, None, None).advantages(normalize) == [0.0, None, None]
    assert _group(1.0, None).advantages(normalize, leave_one_out=True) == [0.0, None]


def test_all_unscored_and_empty_groups() -> None:
    assert _group(None, None).advantages() == [None, None]
    assert _group(None, None).mean_reward is None
    assert _group().advantages() == []


def test_no_baseline_and_leave_one_out_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="center"):
        _group(1.0, 0.0).advantages("none", leave_one_out=True)
    with pytest.raises(ValueError, match="'std'"):
        _group(1.0, 0.0).advantages("std")


@given(st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=9).filter(lambda rewards: len(set(rewards)) > 1))
def test_advantages_agree_with_the_definitions(rewards: list[float]) -> None:
    group = _group(*rewards)
    mean, spread = statistics.fmean(rewards), statistics.stdev(rewards)
    assert group.advantages() == pytest.approx([(r - mean) / spread for r in rewards], abs=1e-9)
    assert group.advantages("center", leave_one_out=True) == pytest.approx(
        [r - statistics.fmean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)], abs=1e-9
    )


def test_a_reward_function_is_asked_once_an_episode() -> None:
    asked = []

    def judge(episode: Episode) -> float:
        asked.append(episode.id)
        return 1.0

    episodes = [Episode(TASK), Episode(TASK)]
    group = RolloutGroup(TASK, episodes, judge)
    assert (group.rewards, group.rewards, group.advantages()) == ([1.0, 1.0], [1.0, 1.0], [0.0, 0.0])
    assert asked == [episode.id for episode in episodes]
    assert len(group) == 2


def test_the_notebook_form_escapes_what_a_server_said() -> None:
    hostile = Episode(TaskRef("<img src=x onerror=1>", 0), truncated=True, error="<script>x</script>", error_kind="environment")
    shown = RolloutGroup(hostile.task, [hostile])._repr_html_()
    assert "<script>" not in shown
    assert "<img" not in shown
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize(
    ("group", "shown"),
    [
        (_group(1.0, 0.0, 0.5, 0.5), "<RolloutGroup 'train/3': 4 episodes, mean reward 0.5>"),
        (_group(1.0, None), "<RolloutGroup 'train/3': 2 episodes, mean reward 1, 1 unscored>"),
        (_group(None), "<RolloutGroup 'train/3': 1 episode, 1 unscored>"),
    ],
)
def test_its_repr_is_a_short_line(group: RolloutGroup, shown: str) -> None:
    assert repr(group) == shown
