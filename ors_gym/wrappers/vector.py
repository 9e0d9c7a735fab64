"""The wrappers of `ors_gym.wrappers` for vector environments, batched, under the same names.

`ors_gym.wrappers.HashedText(envs)` makes `ors_gym.wrappers.vector.HashedText(envs)` where `envs` is a vector environment; their
arguments are documented there. All work in every autoreset mode.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from ors_gym.protocol import ToolCall, ToolSpec
from ors_gym.wrappers._forms import AnyVectorWrapper
from ors_gym.wrappers.call_tables import Candidates, DiscreteCalls, MultiDiscreteCalls, ToolCallTable
from ors_gym.wrappers.encoders import ByteEncoder, Encoder, FunctionEncoder, HashEncoder, ImageEncoder

Envs = VectorEnv[Any, Any, NDArray[Any]]
StepReturn = tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]


class Layer(AnyVectorWrapper):
    """The parent of the wrappers here."""

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """When an environment whose episode ended is reset, under the name that TorchRL asks for."""
        mode: AutoresetMode = self.metadata["autoreset_mode"]
        return mode


class EncodedObservation(Layer):
    """Observations through an `Encoder`, all of a step in one call; final observations too."""

    def __init__(self, env: Envs, encoder: Encoder) -> None:
        super().__init__(env)
        self._encoder = encoder
        self.single_observation_space = encoder.space
        self.observation_space = batch_space(encoder.space, env.num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type] # Gymnasium's type forgets lists
        return self._encode(observations), infos

    def step(self, actions: Any) -> StepReturn:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        if "final_obs" in infos:
            infos = {**infos, "final_obs": self._encode_present(infos["final_obs"])}
        return self._encode(observations), rewards, terminations, truncations, infos

    def _encode(self, observations: Any) -> NDArray[Any]:
        return self._encoder(_rows(observations, self.num_envs))

    def _encode_present(self, observations: NDArray[Any]) -> NDArray[Any]:
        encoded = np.full(len(observations), None, dtype=object)
        present = [index for index, observation in enumerate(observations) if observation is not None]
        if present:
            for index, row in zip(present, self._encoder([observations[index] for index in present]), strict=True):
                encoded[index] = row
        return encoded


class HashedText(EncodedObservation):
    """`ors_gym.wrappers.HashedText` for a vector environment."""

    def __init__(
        self,
        env: Envs,
        n_features: int = 256,
        ngrams: tuple[int, int] = (1, 3),
        analyzer: Literal["word", "char"] = "word",
    ) -> None:
        super().__init__(env, HashEncoder(n_features, ngrams, analyzer))


class TextBytes(EncodedObservation):
    """`ors_gym.wrappers.TextBytes` for a vector environment."""

    def __init__(self, env: Envs, max_length: int = 1024) -> None:
        super().__init__(env, ByteEncoder(max_length))


class ImageObservation(EncodedObservation):
    """`ors_gym.wrappers.ImageObservation` for a vector environment."""

    def __init__(self, env: Envs, size: tuple[int, int] = (84, 84)) -> None:
        super().__init__(env, ImageEncoder(size))


class EmbeddedText(EncodedObservation):
    """`ors_gym.wrappers.EmbeddedText` for a vector environment: `encode` is called once a step, with the texts of all."""

    def __init__(self, env: Envs, encode: Callable[[list[str]], ArrayLike]) -> None:
        super().__init__(env, FunctionEncoder(encode))


class NumberedToolCalls(Layer):
    """Actions by a `ToolCallTable`, all of a step in one call."""

    def __init__(self, env: Envs, table: ToolCallTable) -> None:
        super().__init__(env)
        self.table = table
        self.single_action_space = table.space
        self.action_space = batch_space(table.space, env.num_envs)
        self._masks = np.tile(table.mask([]), (env.num_envs, 1))

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type] # Gymnasium's type forgets lists
        return observations, self._masked(infos)

    def step(self, actions: Any) -> StepReturn:
        observations, rewards, terminations, truncations, infos = self.env.step([self.tool_call(action) for action in actions])
        return observations, rewards, terminations, truncations, self._masked(infos)

    def tool_call(self, action: Any) -> ToolCall:
        """The tool call that one environment's action stands for."""
        return self.table.call(action)

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions each environment's task allows, of shape `(num_envs, n)`."""
        return self._masks.astype(np.bool_)

    def _masked(self, infos: dict[str, Any]) -> dict[str, Any]:
        told = infos["_tools"]
        for index in np.flatnonzero(told):
            self._masks[index] = self.table.mask(infos["tools"][index])
        return {**infos, "action_mask": self._masks.copy(), "_action_mask": told.copy()}


class DiscreteToolCalls(NumberedToolCalls):
    """`ors_gym.wrappers.DiscreteToolCalls` for a vector environment."""

    def __init__(
        self,
        env: Envs,
        candidates: Candidates | None = None,
        max_actions: int = 10_000,
        tools: Sequence[ToolSpec] | None = None,
    ) -> None:
        super().__init__(env, DiscreteCalls(tools_of(env, tools), candidates, max_actions))


class MultiDiscreteToolCalls(NumberedToolCalls):
    """`ors_gym.wrappers.MultiDiscreteToolCalls` for a vector environment."""

    def __init__(
        self, env: Envs, candidates: Candidates | None = None, bins: int = 11, tools: Sequence[ToolSpec] | None = None
    ) -> None:
        super().__init__(env, MultiDiscreteCalls(tools_of(env, tools), candidates, bins))


def tools_of(env: gym.Env[Any, Any] | Envs, tools: Sequence[ToolSpec] | None) -> Sequence[ToolSpec]:
    """The tools that were given, or those that every task of the environment has.

    Raises:
        ValueError: None were given, and it is not an ORS environment that knows them.
    """
    if tools is not None:
        return tools
    discovery = getattr(env.unwrapped, "discovery", None)
    if discovery is None:
        raise ValueError(f"{env} does not tell its tools; pass tools=, or wrap an ORSEnv or an ORSVectorEnv")
    shared: Sequence[ToolSpec] = discovery.tools
    return shared


def _rows(observations: Any, count: int) -> list[Any]:
    """A batch of observations, one by one: a batch of dicts comes as a dict of batches."""
    if isinstance(observations, Mapping):
        columns = {key: _rows(batch, count) for key, batch in observations.items()}
        return [{key: column[index] for key, column in columns.items()} for index in range(count)]
    return list(observations)
