"""Reducing an episode to one reward, by literal values."""

import pytest

from ors_gym.episode import Episode, Step
from ors_gym.rewards import reduce
from ors_gym.tasks import TaskRef


def _episode(*rewards: float | None, **fields: object) -> Episode:
    return Episode(TaskRef("train", 0), steps=[Step("a", reward=reward) for reward in rewards], **fields)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("sum", 1.75), ("last", -0.25), ("mean", 0.4375), ("max", 1.5)],
)
def test_steps_without_a_reward_count_as_nothing(reduction: str, expected: float) -> None:
    assert reduce(_episode(0.5, None, 1.5, 0.0, -0.25, None), reduction) == expected


@pytest.mark.parametrize("reduction", ["sum", "last", "mean", "max"])
def test_no_reward_at_all_is_zero(reduction: str) -> None:
    assert reduce(_episode(), reduction) == 0.0
    assert reduce(_episode(None, None), reduction) == 0.0


def test_the_maximum_of_negative_rewards_is_negative() -> None:
    assert reduce(_episode(-2.0, None, -1.0), "max") == -1.0


@pytest.mark.parametrize("reduction", ["sum", "last", "mean", "max", lambda episode: 1 / 0])
@pytest.mark.parametrize("kind", ["environment", "infrastructure"])
def test_an_unscored_episode_is_none_whatever_its_steps_gave(reduction: object, kind: str) -> None:
    assert reduce(_episode(1.0, truncated=True, error="lost", error_kind=kind), reduction) is None


def test_a_step_limit_is_scored() -> None:
    assert reduce(_episode(0.5, truncated=True)) == 0.5


def test_a_function_sees_the_episode_and_may_leave_it_unscored() -> None:
    assert reduce(_episode(1.0, 1.0, 0.0), lambda episode: episode.num_steps / 4) == 0.75
    assert reduce(_episode(1.0), lambda episode: None) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high"])
def test_a_function_that_returns_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="finite number"):
        reduce(_episode(1.0), lambda episode: value)


def test_an_unknown_reduction_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match=r"'last', 'max', 'mean', 'sum'.*'total'"):
        reduce(_episode(1.0), "total")
    with pytest.raises(ValueError, match="'total'"):
        reduce(_episode(error="lost", error_kind="infrastructure"), "total")


def test_a_sum_never_leaves_the_range_of_a_float() -> None:
    assert reduce(_episode(1.5e308, 1.5e308)) == 1.7976931348623157e308
    assert reduce(_episode(1.5e308, 1.5e308), "mean") == 1.5e308
