"""The statistics against values worked out by hand, and against brute force."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ors_gym.rollout import Interval, bootstrap_interval, paired_test, pass_at_k, pass_hat_k


@pytest.mark.parametrize(
    ("n", "c", "k", "at_least_one", "all_of_them"),
    [
        (1, 0, 1, 0.0, 0.0),
        (1, 1, 1, 1.0, 1.0),
        (4, 1, 1, 0.25, 0.25),
        # of the 6 pairs of 4, 3 hold the one success
        (4, 1, 2, 0.5, 0.0),
        # 1 - C(3,2)/C(5,2) = 1 - 3/10; C(2,2)/C(5,2) = 1/10
        (5, 2, 2, 0.7, 0.1),
        # 1 - C(7,3)/C(10,3) = 1 - 35/120; C(3,3)/C(10,3) = 1/120
        (10, 3, 3, 85 / 120, 1 / 120),
        (10, 8, 5, 1.0, 56 / 252),
        (200, 1, 100, 0.5, 0.0),
        (1000, 999, 2, 1.0, 0.998),
    ],
)
def test_pass_at_k_and_pass_hat_k_worked_out_by_hand(n: int, c: int, k: int, at_least_one: float, all_of_them: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(at_least_one, abs=1e-12)
    assert pass_hat_k(n, c, k) == pytest.approx(all_of_them, abs=1e-12)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_agrees_with_going_through_every_choice_of_k(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    choices = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(statistics.fmean(any(choice) for choice in choices))
    assert pass_hat_k(n, c, k) == pytest.approx(statistics.fmean(all(choice) for choice in choices))


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_the_estimates_have_no_bias(chance: float) -> None:
    """Their expectation over binomial counts is what they estimate, exactly: 1 - (1-p)^k and p^k."""
    n, k = 6, 3
    weights = [math.comb(n, c) * chance**c * (1 - chance) ** (n - c) for c in range(n + 1)]
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(1 - (1 - chance) ** k)
    assert sum(w * pass_hat_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(chance**k)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 1, 3), (2, 3, 1), (2, -1, 1), (2, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
            estimate(n, c, k)


def test_the_bootstrap_of_two_values_worked_out_by_hand() -> None:
    """The means of two draws from {0, 1} are 0, 0.5 and 1 with chances 1/4, 1/2 and 1/4: the middle 95% reach both ends, the middle
    40% are all 0.5."""
    assert bootstrap_interval([0.0, 1.0]) == Interval(0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.4) == Interval(0.5, 0.5)


def test_the_bootstrap_agrees_with_going_through_every_resample() -> None:
    values = [0.0, 1.0, 1.0, 3.0]
    means = [statistics.fmean(draw) for draw in itertools.product(values, repeat=4)]
    assert np.quantile(means, [0.025, 0.975]).tolist() == [0.25, 2.5]
    assert bootstrap_interval(values, samples=200_000) == Interval(0.25, 2.5)


def test_the_bootstrap_of_many_values_is_near_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(size=2_000)
    interval = bootstrap_interval(values.tolist())
    assert interval is not None
    error = 1.96 * values.std(ddof=1) / math.sqrt(2_000)
    assert interval.low == pytest.approx(values.mean() - error, abs=0.004)
    assert interval.high == pytest.approx(values.mean() + error, abs=0.004)


def test_the_bootstrap_is_the_same_every_time_and_of_nothing_is_none() -> None:
    values = [0.1, 0.5, 0.9, 0.2]
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)
    assert bootstrap_interval([]) is None
    assert bootstrap_interval([0.3]) == Interval(0.3, 0.3)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_interval([1.0], level=level)


def test_a_paired_test_worked_out_by_hand() -> None:
    """Differences 1, 2, 3: of the 8 sums of ±1 ±2 ±3, two (6 and -6) are as far from 0 as 6."""
    test = paired_test([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    assert test is not None
    assert (test.difference, test.p_value, test.num_tasks) == (2.0, 0.25, 3)


@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9))
def test_the_p_value_agrees_with_going_through_every_sign(differences: list[float]) -> None:
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product([1, -1], repeat=len(differences))
    ]
    expected = statistics.fmean(total >= abs(sum(differences)) for total in sums)
    test = paired_test([0.0] * len(differences), differences)
    assert test is not None
    assert test.p_value == pytest.approx(expected)


def test_the_sampled_p_value_is_near_the_exact_one_and_never_zero() -> None:
    """18 wins and 6 losses of the same size: the two-sided sign test's p is 0.0227."""
    differences = [1.0] * 18 + [-1.0] * 6
    exact = 2 * sum(math.comb(24, losses) for losses in range(7)) / 2**24
    test = paired_test([0.0] * 24, differences, samples=40_000)
    assert test is not None
    assert test.p_value == pytest.approx(exact, abs=0.004)
    certain = paired_test([0.0] * 40, [1.0] * 40, samples=1_000)
    assert certain is not None
    assert certain.p_value == 1 / 1_001


def test_equal_runs_do_not_differ_and_no_tasks_say_nothing() -> None:
    test = paired_test([0.5, 1.0], [0.5, 1.0])
    assert test is not None
    assert (test.difference, test.p_value) == (0.0, 1.0)
    assert paired_test([], []) is None
    with pytest.raises(ValueError, match="same tasks"):
        paired_test([1.0], [1.0, 2.0])
