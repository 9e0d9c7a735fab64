"""ORS servers at hand: a local server in a process of its own, and other libraries' environments as ORS environments.

`LocalServer` needs nothing but the core; the environment classes import the reference SDK (`pip install "ors-gym[server]"`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ors_gym.serving.local_server import LocalServer

if TYPE_CHECKING:
    from ors_gym.serving._gymnasium import gymnasium_environment
    from ors_gym.serving._reasoning_gym import reasoning_gym_environment
    from ors_gym.serving.largest_digit import LargestDigit

__all__ = ["LargestDigit", "LocalServer", "gymnasium_environment", "reasoning_gym_environment"]

_MODULES = {
    "LargestDigit": "largest_digit",
    "gymnasium_environment": "_gymnasium",
    "reasoning_gym_environment": "_reasoning_gym",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"ors_gym.serving.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
