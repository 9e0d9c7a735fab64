"""Which tasks of an environment may be drawn: shared by all sub-environments, so that a filter reads a split once."""

import asyncio
from collections.abc import Callable

from ors_gym.client import AsyncEnvironment, Discovery
from ors_gym.protocol import JSONObject
from ors_gym.tasks import TaskRef, TaskSampler

TaskFilter = Callable[[JSONObject], bool]


class TaskSource:
    """Draws the tasks of one environment.

    Args:
        environment: The environment, asked for its tasks only where there is a filter.
        discovery: What is known of it.
        split: The split to draw from; None is the first of type train.
        task_filter: Says of a task, as the server gives it, whether it may be drawn.
        num_groups: How many groups share the sequence.

    Raises:
        ValueError: There is no such split.
    """

    def __init__(
        self,
        environment: AsyncEnvironment,
        discovery: Discovery,
        *,
        split: str | None = None,
        task_filter: TaskFilter | None = None,
        num_groups: int = 1,
    ) -> None:
        self._environment = environment
        self._discovery = discovery
        self._filter = task_filter
        self._num_groups = num_groups
        self._samplers: dict[str, TaskSampler] = {}
        self._reading = asyncio.Lock()
        self._default = split
        self._default = self.split(split)

    def split(self, name: str | None) -> str:
        """The name of a split, where None is the default one.

        Raises:
            ValueError: There is no such split.
        """
        names = [split.name for split in self._discovery.splits]
        if name is None:
            return self._default or self._discovery.split(None).name
        if name not in names:
            raise ValueError(
                f"environment {self._discovery.env_name!r} has no split {name!r}; it has {', '.join(map(repr, names)) or 'none'}"
            )
        return name

    async def draw(self, split: str, *, seed: int, n: int, group: int = 0) -> TaskRef:
        """The n-th task of a group: the same for the same arguments.

        Raises:
            ValueError: The split has no task, or the filter leaves none.
        """
        if split not in self._samplers:
            async with self._reading:
                if split not in self._samplers:
                    self._samplers[split] = TaskSampler(split, await self._indices(split), self._num_groups)
        return self._samplers[split].task(seed=seed, n=n, group=group)

    async def _indices(self, split: str) -> int | list[int]:
        if self._filter is None:
            return self._discovery.num_tasks[split]
        return [index for index, task in enumerate(await self._environment.list_tasks(split)) if self._filter(task)]
