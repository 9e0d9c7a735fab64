"""One name for two classes: a wrapper of one environment, and the same for a vector environment."""

from typing import Any, ClassVar

import gymnasium as gym
from gymnasium.vector import VectorEnv, VectorWrapper


class ForBoth(type):
    """The class of the wrappers that take either: called with a vector environment, they make their `vector_form`."""

    vector_form: ClassVar[type[VectorWrapper[Any, Any, Any, Any, Any]]]

    def __call__(cls, env: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return cls.vector_form(env, *args, **kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(f"{cls.__name__} wraps an environment or a vector environment, not {type(env).__name__}")
        return super().__call__(env, *args, **kwargs)
