"""The statistics of an evaluation: pure functions of numbers, each with its formula and source."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BATCH = 2**22
_EXACT_LIMIT = 16
"""Up to so many tasks that differ, the paired test goes through every assignment of signs instead of sampling them."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"[{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class PairedTest:
    """How two runs differ on the tasks that both have.

    Attributes:
        difference: The mean over tasks of the second run's mean reward less the first's.
        interval: Its 95% bootstrap interval over tasks.
        p_value: Of a two-sided sign-flip permutation test: how often a difference at least as large arises by chance.
        num_tasks: The number of tasks compared.
    """

    difference: float
    interval: Interval
    p_value: float
    num_tasks: int


def bootstrap_interval(values: Sequence[float], *, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval | None:
    """The percentile bootstrap interval of the mean (Efron and Tibshirani 1993, chapter 13).

    The values, one a task, are drawn again with replacement `samples` times; the interval holds the middle `level` of the
    means. The same values, in the same order, give the same interval.

    Args:
        values: One number a task.
        level: The share of the means that lie in it, above 0 and below 1.
        samples: How often to draw.
        seed: Of the draws.

    Returns:
        The interval, or None if there are no values.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    Interval(low=0.5, high=0.5)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    if len(values) == 0:
        return None
    numbers = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(seed)
    rows = max(1, _BATCH // len(numbers))
    means = np.concatenate(
        [
            numbers[generator.integers(len(numbers), size=(min(rows, samples - start), len(numbers)))].mean(axis=1)
            for start in range(0, samples, rows)
        ]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k rollouts succeeds, estimated without bias from c successes in n of them.

    1 − C(n − c, k) / C(n, k): Chen et al. 2021, arXiv:2107.03374, equation 1.

    Args:
        n: The number of rollouts, at least k.
        c: How many of them succeeded.
        k: At least 1.

    Raises:
        ValueError: Not 1 ≤ k ≤ n, or not 0 ≤ c ≤ n.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    _check_counts(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k rollouts succeed, pass^k, estimated without bias from c successes in n of them.

    C(c, k) / C(n, k): Yao et al. 2024 (τ-bench), arXiv:2406.12045, section 3.

    Args:
        n: The number of rollouts, at least k.
        c: How many of them succeeded.
        k: At least 1.

    Raises:
        ValueError: Not 1 ≤ k ≤ n, or not 0 ≤ c ≤ n.

    >>> pass_hat_k(4, 3, 2)
    0.5
    """
    _check_counts(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def paired_test(first: Sequence[float], second: Sequence[float], *, samples: int = 10_000, seed: int = 0) -> PairedTest | None:
    """Whether two runs differ on the same tasks.

    The p-value is that of a two-sided permutation test (Fisher 1935): under the hypothesis that the runs are equal, each
    task's difference is as likely with the other sign. All assignments of signs are gone through where at most 16 tasks
    differ; otherwise `samples` of them are drawn, and the observed one is counted with them.

    Args:
        first: One number a task.
        second: The same tasks' numbers in the other run, in the same order.
        samples: How many assignments to draw.
        seed: Of the draws.

    Returns:
        The test, or None if there is no task.

    Raises:
        ValueError: The lengths differ.

    >>> paired_test([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]).p_value
    0.25
    """
    if len(first) != len(second):
        raise ValueError(f"a paired test takes the same tasks of both runs; got {len(first)} and {len(second)} numbers")
    differences = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    interval = bootstrap_interval(differences.tolist(), samples=samples, seed=seed)
    if interval is None:
        return None
    return PairedTest(float(differences.mean()), interval, _sign_flip_p_value(differences, samples, seed), len(differences))


def _sign_flip_p_value(differences: NDArray[np.float64], samples: int, seed: int) -> float:
    differing = differences[differences != 0]
    size = len(differing)
    if size == 0:
        return 1.0
    observed = abs(differing.sum()) * (1 - 1e-12)
    if size <= _EXACT_LIMIT:
        signs = 1 - 2 * (np.arange(2**size)[:, None] >> np.arange(size) & 1)
        return float(np.mean(np.abs(signs @ differing) >= observed))
    generator = np.random.default_rng(seed)
    rows = max(1, _BATCH // size)
    extreme = 0
    for start in range(0, samples, rows):
        signs = generator.integers(2, size=(min(rows, samples - start), size)) * 2 - 1
        extreme += int(np.count_nonzero(np.abs(signs @ differing) >= observed))
    return (extreme + 1) / (samples + 1)


def _check_counts(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@k takes 1 <= k <= n and 0 <= c <= n; got n={n}, c={c}, k={k}")
