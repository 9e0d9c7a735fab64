"""`RestoreNative`: a Gymnasium environment that was served as ORS, as the Gymnasium environment that it was."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from ors_gym.protocol import ToolCall
from ors_gym.spaces.exact import decode
from ors_gym.spaces.native import action_to_json, space_from_json


class RestoreNative(gym.Wrapper[Any, Any, Any, Any]):
    """Gives an environment that `ors_gym.serving.gymnasium_environment` serves its own spaces, observations and flags back.

    Observations, rewards and both flags are equal to the native environment's, to the bit, for the same seed and actions. Actions
    are native ones. `info["native"]` is the native info, and the reset's `info["seed"]` the task's seed.

    Where the episode breaks (a lost session), the last observation comes again, with `truncated` and `info["error"]`. So it does
    for an action that the environment refused, with `info["invalid_action"]`.

    Making it opens one session, to ask for the spaces; it closes with the first reset.

    Args:
        env: An `ORSEnv` on a served Gymnasium environment.

    Raises:
        TypeError: The environment behind it is not a served Gymnasium environment.
        ORSError: The server could not be asked.

    >>> from ors_gym.env import ORSEnv
    >>> from ors_gym.serving import LocalServer
    >>> with LocalServer(["gym:FrozenLake-v1?is_slippery=false&render_mode=null"]) as server:
    ...     env = RestoreNative(ORSEnv(server.base_url))
    ...     observation, info = env.reset(options={"index": 0})
    ...     print(env.action_space, observation, env.step(1)[:4])
    ...     env.close()
    Discrete(4) 0 (4, 0, False, False)
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        inner = env.unwrapped
        inner.reset(options={"index": 0})
        *_, info = inner.step(ToolCall(name="spaces", input={}))
        match info["metadata"]:
            case {"ors_gym": {"action_space": dict(action_space), "observation_space": dict(observation_space)}}:
                self.action_space = space_from_json(action_space)
                self.observation_space = space_from_json(observation_space)
            case _:
                reason = info["invalid_action"] or info["error"] or "its answer has no spaces"
                raise TypeError(f"{env} is not a Gymnasium environment served by ors_gym.serving: {reason}")
        self._observation: Any = None

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; see `ORSEnv.reset`. The observation and `info["native"]` are the native environment's."""
        _, info = self.env.reset(seed=seed, options=None if options is None else dict(options))
        native = next(block["detail"]["ors_gym"] for block in info["blocks"] if "ors_gym" in (block.get("detail") or {}))
        self._observation = decode(native["observation"])
        return self._observation, {**info, "native": decode(native["info"]), "seed": native["seed"]}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a native action; see `gymnasium.Env.step`."""
        call = ToolCall(name="step", input={"action": action_to_json(self.action_space, action)})
        _, reward, terminated, truncated, info = self.env.step(call)
        native = info["metadata"].get("ors_gym")
        if native is None:
            return self._observation, reward, terminated, truncated, {**info, "native": {}}
        self._observation = decode(native["observation"])
        return (
            self._observation,
            decode(native["reward"]),
            native["terminated"],
            truncated or native["truncated"],
            {**info, "native": decode(native["info"])},
        )
