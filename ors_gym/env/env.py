"""`ORSEnv`: an ORS environment as a `gymnasium.Env`."""

import os
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import gymnasium as gym

from ors_gym.client import AsyncORSClient, Discovery, ORSClient, Retry, Timeout
from ors_gym.env._connection import Connection, EngineOptions, client_options
from ors_gym.env._info import InfoDict
from ors_gym.env._specs import plain_secrets
from ors_gym.env.engine import AsyncORSEnv
from ors_gym.episode import Episode
from ors_gym.portal import portal
from ors_gym.protocol import ToolSpec


class ORSEnv(gym.Env[Any, Any]):
    """An environment of an ORS server as a `gymnasium.Env`: an action is a tool call, an episode is a session.

    Works in scripts, threads, notebooks and inside a running loop. Under `gym.make("ors_gym/ORS-v0", base_url=…)` it takes the
    same arguments, secrets by reference only.

    Args:
        base_url: The server, or several equal ones.
        env_name: The environment; None is the server's first.
        split: The split to draw tasks from; None is the first of type train.
        client: A client to share, instead of one of this environment's own; whoever made it closes it.
        api_key, headers, timeout, retry: The options of the client that is made here. `timeout` also bounds the sessions.
        render_mode: None; "human" prints each reset and step to the terminal; "ansi" and "rgb_array" for `render`.
        options: Those of `AsyncORSEnv`: `task_filter`, `secrets`, `max_steps`, `action_format`, `observation_format`, `text_tool`,
            `invalid_action_reward`, `on_tool_error`, `reset_retries`, `max_observation_length`, `prefetch`.

    Raises:
        ORSError: The server, or the environment on it, cannot be had.
        ValueError: An unknown split, format, `text_tool` or render mode, or a number out of its range.

    >>> env = ORSEnv(base_url, "largest_digit")
    >>> observation, info = env.reset(options={"split": "train", "index": 0})
    >>> observation, reward, terminated, truncated, info = env.step({"name": "submit", "input": {"answer": max(observation[:3])}})
    >>> reward, terminated, truncated
    (1.0, True, False)
    >>> env.close()
    """

    metadata: dict[str, Any] = dict(AsyncORSEnv.metadata)  # noqa: RUF012 - as gymnasium.Env declares it

    def __init__(
        self,
        base_url: str | Sequence[str],
        env_name: str | None = None,
        *,
        split: str | None = None,
        client: AsyncORSClient | ORSClient | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Timeout | None = None,
        retry: Retry | None = None,
        render_mode: str | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        self._arguments = {
            "base_url": base_url,
            "env_name": env_name,
            "split": split,
            "client": client,
            "api_key": api_key,
            "headers": headers,
            "timeout": timeout,
            "retry": retry,
            "render_mode": render_mode,
            **options,
        }
        self._connection = Connection(
            base_url, env_name, client, client_options(api_key=api_key, headers=headers, timeout=timeout, retry=retry)
        )
        self._make_engine = partial(AsyncORSEnv, split=split, timeout=timeout, render_mode=render_mode, **options)
        try:
            engine = self._make_engine(self._connection.environment, self._connection.discovery)
        except BaseException:
            self._connection.close()
            raise
        self._engines = {os.getpid(): engine}
        self.action_space = engine.action_space
        self.observation_space = engine.observation_space
        self.render_mode = render_mode
        self._seeded = False

    @property
    def _engine(self) -> AsyncORSEnv:
        """The engine of this process: a forked child leaves its parent's episode alone, and begins with a reset."""
        if os.getpid() not in self._engines:
            self._engines[os.getpid()] = self._make_engine(self._connection.environment, self._connection.discovery)
        return self._engines[os.getpid()]

    @property
    def episode(self) -> Episode | None:
        """The ledger of the current or the last episode; None before the first."""
        return self._engine.episode

    @property
    def discovery(self) -> Discovery:
        """What every task has in common: the environment's name, tools and splits."""
        return self._connection.discovery

    @property
    def failure(self) -> BaseException | None:
        """What ended that episode unscored, as the exception that it was; None where nothing did."""
        return self._engine.failure

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the current task; before the first reset, those that every task has."""
        return self._engine.tools

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, InfoDict]:  # type: ignore[override]
        """Begins an episode on the next task, or on the one that `options` names. See `AsyncORSEnv.reset`.

        >>> env = ORSEnv(base_url, "largest_digit")
        >>> observation, info = env.reset(seed=0)  # a task drawn by this seed; the next reset draws the next one
        >>> observation, info = env.reset(options={"split": "test", "index": 7})
        >>> info["task"]
        {'split': 'test', 'index': 7}
        >>> env.close()
        """
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        return portal().call(self._engine.reset, seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, InfoDict]:  # type: ignore[override]
        """Runs the tool call or calls of an action. See `AsyncORSEnv.step`.

        >>> env = ORSEnv(base_url, "largest_digit")
        >>> digits, info = env.reset()
        >>> observation, reward, terminated, truncated, info = env.step('{"name": "guess", "input": {}}')
        >>> bool(info["invalid_action"]), terminated
        (True, False)
        >>> observation, reward, terminated, truncated, info = env.step({"name": "submit", "input": {"answer": max(digits[:3])}})
        >>> observation, reward, terminated
        ('Correct.', 1.0, True)
        >>> env.close()
        """
        return portal().call(self._engine.step, action)

    def render(self) -> Any:
        """The episode so far, as `render_mode` says. See `AsyncORSEnv.render`.

        >>> env = ORSEnv(base_url, "largest_digit", render_mode="rgb_array")
        >>> observation, info = env.reset()
        >>> env.render().shape
        (600, 800, 3)
        >>> env.close()
        """
        return self._engine.render()

    def close(self) -> None:
        """Closes the session, and the client unless it is shared. Closing again does nothing."""
        try:
            portal().call(self._engine.close)
        finally:
            self._connection.close()

    def failure_info(self, error: BaseException) -> InfoDict:
        """The info of an environment among many, where one raised. See `AsyncORSEnv.failure_info`."""
        return self._engine.failure_info(error)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy connects anew, with the same arguments."""
        if self._arguments["client"] is not None:
            raise pickle.PicklingError("an ORSEnv with a shared client cannot be copied: a connection stays in its process")
        if held := plain_secrets(self._arguments):
            raise pickle.PicklingError(
                f"an ORSEnv that holds a secret itself ({', '.join(held)}) cannot be pickled or copied; use ors_gym.EnvSecret(...)"
            )
        return _rebuild, (self._arguments,)

    def _repr_html_(self) -> str:
        return self._engine._repr_html_()

    def __str__(self) -> str:
        return f"ORSEnv({self._connection.discovery.env_name!r})" if self.spec is None else f"<ORSEnv<{self.spec.id}>>"


def _rebuild(arguments: Mapping[str, Any]) -> ORSEnv:
    return ORSEnv(**arguments)
