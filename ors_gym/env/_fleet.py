"""Many engines over one connection, in groups: what the vector environment and the pool have in common."""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ors_gym.client import AsyncORSClient, ORSClient
from ors_gym.env._connection import ClientOptions, Connection, EngineOptions
from ors_gym.env._tasks import TaskSource
from ors_gym.env.engine import MAX_OBSERVATION_LENGTH, AsyncORSEnv, Shared
from ors_gym.spaces import action_space_for, observation_space_for
from ors_gym.tasks import TaskRef

Seeds = int | Sequence[int | None] | None


class Fleet:
    """Makes the engines of `num_envs` sub-environments, and says with which seed and on which task each is reset.

    Args:
        num_envs: How many.
        group_size: How many neighbours have the same tasks.
        base_url, env_name, client, client_options: The connection.
        split: Where tasks come from.
        render_mode: Of every engine.
        options: Those of the engines.

    Raises:
        ORSError: The server, or the environment on it, cannot be had.
        ValueError: `group_size` does not divide `num_envs`, or the client has too few sessions.
    """

    def __init__(
        self,
        num_envs: int,
        group_size: int,
        base_url: str | Sequence[str],
        env_name: str | None,
        client: AsyncORSClient | ORSClient | None,
        client_options: ClientOptions,
        split: str | None,
        render_mode: str | None,
        options: EngineOptions,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, not {num_envs!r}")
        if group_size < 1 or num_envs % group_size:
            raise ValueError(f"group_size must divide num_envs={num_envs}, and be at least 1; {group_size!r} does not")
        needed = num_envs * (2 if options.get("prefetch") else 1)
        if client is not None and client.max_sessions is not None and client.max_sessions < needed:
            raise ValueError(
                f"the client has max_sessions={client.max_sessions}, and {num_envs} sub-environments need {needed} at once"
                + (", one of each opened ahead" if options.get("prefetch") else "")
            )
        self.num_envs = num_envs
        self.group_size = group_size
        self.connection = Connection(base_url, env_name, client, client_options)
        self._begun = False
        environment, discovery = self.connection.environment, self.connection.discovery
        try:
            tasks = TaskSource(
                environment, discovery, split=split, task_filter=options.get("task_filter"), num_groups=num_envs // group_size
            )
            shared = Shared(
                tasks,
                action_space_for(discovery.tools, options.get("action_format", "tool_call")),
                observation_space_for(
                    options.get("observation_format", "text"),
                    options.get("max_observation_length", MAX_OBSERVATION_LENGTH),
                ),
            )
        except BaseException:
            self.connection.close()
            raise
        self.makers = [
            partial(
                AsyncORSEnv,
                environment,
                discovery,
                timeout=client_options.get("timeout"),
                render_mode=render_mode,
                shared=shared,
                group=number // group_size,
                **options,
            )
            for number in range(num_envs)
        ]

    def seeds(self, seed: Seeds) -> list[int | None]:
        """A seed for each; those of a group are equal, also of the first reset, where none is given.

        Raises:
            ValueError: A list of another length, or one that differs within a group.
        """
        if seed is None and not self._begun:
            seed = secrets.randbits(31)
        self._begun = True
        if seed is None or isinstance(seed, int):
            return [seed] * self.num_envs
        if len(seed) != self.num_envs:
            raise ValueError(f"seed is an int or a list of {self.num_envs}, one for each sub-environment, not of {len(seed)}")
        for start in range(0, self.num_envs, self.group_size):
            group = seed[start : start + self.group_size]
            if any(other != group[0] for other in group):
                raise ValueError(f"a group has one seed, for it has one sequence of tasks; from {start} on they are {list(group)}")
        return list(seed)

    def options(self, options: Mapping[str, Any] | None) -> list[dict[str, Any] | None]:
        """The options of each: `tasks` is a list with a task for each, or None where the next is drawn.

        Raises:
            ValueError: `tasks` has another length.
        """
        given = {name: value for name, value in (options or {}).items() if name not in ("reset_mask", "tasks")}
        tasks: Sequence[TaskRef | Mapping[str, Any] | None] | None = (options or {}).get("tasks")
        if tasks is None:
            return [given] * self.num_envs
        if len(tasks) != self.num_envs:
            raise ValueError(f"options['tasks'] is a list of {self.num_envs}, one for each sub-environment, not of {len(tasks)}")
        return [given if task is None else {**given, "task": task} for task in tasks]
