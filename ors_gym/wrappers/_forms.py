"""One name for two classes: a wrapper of one environment, and the same for a vector environment."""

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

if TYPE_CHECKING:
    AnyVectorWrapper = VectorWrapper[Any, Any, Any, Any, NDArray[Any]]
else:
    AnyVectorWrapper = VectorWrapper  # in Gymnasium 1.2 it is not generic


class ForBoth(type):
    """The class of the wrappers that take either: called with a vector environment, they make their `vector_form`."""

    vector_form: ClassVar[type[AnyVectorWrapper]]

    def __call__(cls, env: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return cls.vector_form(env, *args, **kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(f"{cls.__name__} wraps an environment or a vector environment, not {type(env).__name__}")
        return super().__call__(env, *args, **kwargs)
