"""Which task (`TaskRef`), and which task next (`TaskSampler`)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ors_gym.protocol import JSONObject


@dataclass(frozen=True)
class TaskRef:
    """A task: `split` with `index`, or a `task_spec` of its own.

    Args:
        split: The split's name.
        index: The task's zero-based position in the split.
        task_spec: The task itself, instead of `split` and `index`.
        env_name: The environment, where a list of tasks spans several; None is the one it is used with.

    Raises:
        ValueError: Neither form, or both, are given.

    >>> TaskRef("train", 17).key
    'train/17'
    """

    split: str | None = None
    index: int | None = None
    task_spec: JSONObject | None = None
    env_name: str | None = None

    def __post_init__(self) -> None:
        by_index = self.split is not None and self.index is not None
        if by_index == (self.task_spec is not None) or (self.split is None) != (self.index is None):
            raise ValueError(
                f"a task is named by split and index, or by task_spec: got split={self.split!r}, index={self.index!r} "
                f"and {'a' if self.task_spec is not None else 'no'} task_spec"
            )
        if self.index is not None and (isinstance(self.index, bool) or self.index < 0):
            raise ValueError(f"index must be an int >= 0, not {self.index!r}")

    @property
    def key(self) -> str:
        """A short string that is the same for the same task: `split/index`, or a hash of the `task_spec`."""
        if self.task_spec is None:
            return f"{self.split}/{self.index}"
        canonical = json.dumps(self.task_spec, sort_keys=True, separators=(",", ":"))
        return f"spec/{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, as JSON values.

        >>> TaskRef("train", 17).to_dict()
        {'split': 'train', 'index': 17}
        """
        fields = {"env_name": self.env_name, "split": self.split, "index": self.index, "task_spec": self.task_spec}
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "TaskRef":
        """The task that `to_dict` wrote.

        Raises:
            ValueError: An unknown field, or neither or both forms.

        >>> TaskRef.from_dict({"split": "train", "index": 17}) == TaskRef("train", 17)
        True
        """
        unknown = set(fields) - {"env_name", "split", "index", "task_spec"}
        if unknown:
            raise ValueError(f"unknown fields of a task: {sorted(unknown)}; known are env_name, split, index and task_spec")
        return cls(**fields)

    def __hash__(self) -> int:
        return hash((self.env_name, self.key))


@dataclass(frozen=True)
class TaskSampler:
    """Which task is the n-th of a group: a pure function of the seed, the group and n.

    Each epoch goes through the split in an order of its own and repeats nothing. With several groups, the groups
    share the epoch: group `g` of `G` takes the positions `g`, `g + G`, `g + 2G` and so on.

    Args:
        split: The split's name.
        indices: The tasks to draw from, or their number if that is all of them.
        num_groups: How many groups share the sequence.

    Raises:
        ValueError: There is no task to draw.

    >>> sampler = TaskSampler("train", 3)
    >>> sorted(sampler.task(seed=0, n=n).index for n in range(3))
    [0, 1, 2]
    """

    split: str
    indices: int | Sequence[int]
    num_groups: int = 1

    def __post_init__(self) -> None:
        if self.num_tasks < 1:
            raise ValueError(f"split {self.split!r} has no task to draw: it is empty, or a filter left nothing")
        if self.num_groups < 1:
            raise ValueError(f"num_groups must be at least 1, not {self.num_groups}")

    @property
    def num_tasks(self) -> int:
        """The number of tasks in an epoch."""
        return self.indices if isinstance(self.indices, int) else len(self.indices)

    def task(self, *, seed: int, n: int, group: int = 0) -> TaskRef:
        """The n-th task of a group.

        Args:
            seed: The seed of the whole sequence, at least 0.
            n: The number of the group's episode, from 0.
            group: The group's number, below `num_groups`.
        """
        epoch, offset = divmod(n * self.num_groups + group, self.num_tasks)
        position = int(_permutation(seed, epoch, self.num_tasks)[offset])
        return TaskRef(self.split, position if isinstance(self.indices, int) else int(self.indices[position]))


@lru_cache(maxsize=16)
def _permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(size)
