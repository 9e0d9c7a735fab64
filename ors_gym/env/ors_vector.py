"""`ORSVectorEnv`: many sessions of one ORS environment as a Gymnasium vector environment."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from gymnasium.vector import AutoresetMode

from ors_gym.client import AsyncORSClient, Discovery, ORSClient, Retry, Timeout
from ors_gym.env._batch import batch_infos
from ors_gym.env._connection import EngineOptions, client_options
from ors_gym.env._fleet import Fleet, Seeds
from ors_gym.env.vector import AsyncioVectorEnv, OnError
from ors_gym.episode import Episode
from ors_gym.protocol import ToolSpec


class ORSVectorEnv(AsyncioVectorEnv):
    """Steps the sessions of many episodes of one ORS environment at once; what `gym.make_vec("ors_gym/ORS-v0", …)` makes.

    Everything that `AsyncioVectorEnv` does, and:

    - Tasks: with `group_size=G`, G neighbours are a group. The n-th episode of each has the group's n-th task, whenever it begins,
      and groups share the epochs of the split. An int seed is the seed of them all. A list has a seed for each, equal in a group.
      `reset(options={"tasks": [...]})` sets a task for each (a `TaskRef` or its dict), or None where the next is drawn.
    - Infos: bools and floats stand in typed arrays, everything else in arrays of objects, with Gymnasium's `_key` masks.

    Args:
        num_envs: How many sessions.
        base_url: The server, or several equal ones.
        env_name: The environment; None is the server's first.
        split: The split to draw tasks from; None is the first of type train.
        group_size: How many neighbours have the same tasks; it divides `num_envs`.
        client: A client to share, instead of one of this environment's own; whoever made it closes it.
        api_key, headers, timeout, retry: The options of the client that is made here. `timeout` also bounds the sessions.
        autoreset_mode, copy, max_concurrency, step_timeout, on_error: As in `AsyncioVectorEnv`.
        render_mode: None, "human", "ansi" or "rgb_array".
        options: Those of `AsyncORSEnv`. With `prefetch=True` the next episodes' sessions are opened while the current ones run.

    Raises:
        ORSError: The server, or the environment on it, cannot be had.
        ValueError: An argument is out of its range, or the client has fewer sessions than are needed.

    >>> envs = ORSVectorEnv(4, base_url, "largest_digit", group_size=2)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations[0] == observations[1], observations[0] == observations[2]
    (True, False)
    >>> actions = [{"name": "submit", "input": {"answer": max(digits[:3])}} for digits in observations]
    >>> observations, rewards, terminations, truncations, infos = envs.step(actions)
    >>> rewards
    array([1., 1., 1., 1.])
    >>> envs.close()
    """

    def __init__(
        self,
        num_envs: int,
        base_url: str | Sequence[str],
        env_name: str | None = None,
        *,
        split: str | None = None,
        group_size: int = 1,
        client: AsyncORSClient | ORSClient | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Timeout | None = None,
        retry: Retry | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        max_concurrency: int | None = None,
        step_timeout: float | None = None,
        on_error: OnError = "truncate",
        render_mode: str | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        connecting = client_options(api_key=api_key, headers=headers, timeout=timeout, retry=retry)
        self._fleet = Fleet(num_envs, group_size, base_url, env_name, client, connecting, split, render_mode, options)
        try:
            super().__init__(
                self._fleet.makers,
                copy=copy,
                autoreset_mode=autoreset_mode,
                max_concurrency=max_concurrency,
                step_timeout=step_timeout,
                on_error=on_error,
            )
        except BaseException:
            self._fleet.connection.close()
            raise

    @property
    def group_size(self) -> int:
        """How many neighbours have the same tasks."""
        return self._fleet.group_size

    @property
    def episodes(self) -> tuple[Episode | None, ...]:
        """The ledger of each sub-environment's current or last episode."""
        return tuple(env.episode for env in self.envs)

    @property
    def discovery(self) -> Discovery:
        """What every task has in common: the environment's name, tools and splits."""
        return self._fleet.connection.discovery

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that every task has; those of each task are in `infos["tools"]`."""
        return self._fleet.connection.discovery.tools

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every session, and the client unless it is shared."""
        super().close_extras(**kwargs)
        if os.getpid() == self._owner:
            self._fleet.connection.close()

    def _seeds(self, seed: Seeds) -> Sequence[int | None]:
        return self._fleet.seeds(seed)

    def _options(self, options: Mapping[str, Any] | None) -> Sequence[dict[str, Any] | None]:
        return self._fleet.options(options)

    def _batch_infos(self, infos: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
        return batch_infos(infos, nested=False)
