"""Stable-Baselines3's vector environment over ORS environments that are stepped all at once. Needs the extra `sb3`."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.wrappers.vector import DictInfoToList
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from ors_gym.portal import portal


class ORSVecEnv(VecEnv):
    """A vector environment of Gymnasium's, as Stable-Baselines3 wants it.

    `DummyVecEnv` steps one environment after another, `SubprocVecEnv` starts a process for each. Over HTTP both waste the time that
    the tools take. This one hands all actions to `ORSVectorEnv`, whose sessions run concurrently on one event loop.

    An environment whose episode ended is reset in the same step: its info has `terminal_observation` and `TimeLimit.truncated`, and
    `reset_infos` has the info of the new episode. `env_method("action_masks")` gives the masks of the wrapped tool calls, as
    `MaskablePPO` wants them; other methods and attributes are those of the single environments.

    Args:
        envs: The vector environment, wrapped so that its spaces are ones that SB3 takes, with `autoreset_mode` `SAME_STEP`.

    Raises:
        ValueError: Another autoreset mode.

    >>> from gymnasium.vector import AutoresetMode
    >>> from ors_gym.env import ORSVectorEnv
    >>> from ors_gym.wrappers import DiscreteToolCalls, HashedText
    >>> envs = ORSVectorEnv(4, base_url, "largest_digit", autoreset_mode=AutoresetMode.SAME_STEP)
    >>> digits = {"submit": {"answer": [str(digit) for digit in range(10)]}}
    >>> vec_env = ORSVecEnv(HashedText(DiscreteToolCalls(envs, candidates=digits), analyzer="char"))
    >>> vec_env.reset().shape
    (4, 256)
    >>> observations, rewards, dones, infos = vec_env.step([9, 9, 9, 9])
    >>> dones.all(), infos[0]["terminal_observation"].shape, infos[0]["TimeLimit.truncated"]
    (np.True_, (256,), False)
    >>> vec_env.close()
    """

    def __init__(self, envs: VectorEnv[Any, Any, NDArray[Any]]) -> None:
        if envs.metadata["autoreset_mode"] != AutoresetMode.SAME_STEP:
            raise ValueError(
                "Stable-Baselines3 resets in the step that ends an episode: make the vector environment with "
                "autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP"
            )
        self.envs = envs
        self._listed = DictInfoToList(envs)
        self._actions: Any = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> VecEnvObs:
        """Begin an episode in each environment, with the seed and the options that were set, which are then used up.

        The first environment's seed is the seed of them all: tasks are drawn for the vector environment as a whole, so that no two
        environments play the same one.

        Raises:
            ValueError: Options that differ from one environment to another.
        """
        options = self._options[0]
        if any(other != options for other in self._options):
            raise ValueError("the environments share their options: give set_options one dict for all")
        observations, infos = self._listed.reset(seed=self._seeds[0], options=options or None)
        self.reset_infos = list(infos)
        self._reset_seeds()
        self._reset_options()
        return observations  # type: ignore[no-any-return]

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step all environments at once; those whose episode ended begin their next one."""
        observations, rewards, terminations, truncations, listed = self._listed.step(self._actions)
        infos: list[dict[str, Any]] = list(listed)
        for index in np.flatnonzero(terminations | truncations):
            terminal_observation, terminal_info = infos[index].pop("final_obs"), infos[index].pop("final_info")
            self.reset_infos[index] = infos[index]
            infos[index] = {**terminal_info, "terminal_observation": terminal_observation}
        for info, terminated, truncated in zip(infos, terminations, truncations, strict=True):
            info["TimeLimit.truncated"] = bool(truncated and not terminated)
        return observations, rewards.astype(np.float32), terminations | truncations, infos

    def close(self) -> None:
        """Close the environments and their sessions."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of each single environment; `action_masks`, which is the wrapper's, as the function that gives its mask."""
        if attr_name == "action_masks":
            layer = self._masking_layer()
            return [lambda index=index: layer.action_masks()[index] for index in self._get_indices(indices)]
        return [getattr(self._single_envs[index], attr_name) for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of single environments."""
        for index in self._get_indices(indices):
            setattr(self._single_envs[index], attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of single environments, all at once if it is a coroutine method."""
        results = [method(*method_args, **method_kwargs) for method in self.get_attr(method_name, indices)]
        if any(inspect.isawaitable(result) for result in results):
            return portal().call(_gather, results)
        return results

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Whether the vector environment is wrapped in a wrapper, under its name for one environment or for a vector."""
        wanted = (wrapper_class, getattr(wrapper_class, "vector_form", wrapper_class))
        wrapped = any(isinstance(layer, wanted) for layer in self._layers())
        return [wrapped for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of each environment."""
        images: Any = self.envs.render()
        return list(images) if images is not None else [None] * self.num_envs

    @property
    def _single_envs(self) -> Sequence[Any]:
        base: Any = self.envs.unwrapped
        envs: Sequence[Any] = base.envs
        return envs

    def _masking_layer(self) -> Any:
        for layer in self._layers():
            if hasattr(layer, "action_masks"):
                return layer
        raise AttributeError("no wrapper gives action masks; wrap the environments in DiscreteToolCalls")

    def _layers(self) -> Iterator[VectorEnv[Any, Any, NDArray[Any]]]:
        layer = self.envs
        yield layer
        while isinstance(layer, VectorWrapper):
            layer = layer.env
            yield layer


async def _gather(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*awaitables))
