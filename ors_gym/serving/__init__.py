"""ORS servers at hand: a local server in a process of its own, and other libraries' environments as ORS environments.

`LocalServer` needs nothing but the core; the environment classes import the reference SDK (`pip install "ors-gym[server]"`).
"""

from typing import TYPE_CHECKING, Any

from ors_gym.serving.local_server import LocalServer

if TYPE_CHECKING:
    from ors_gym.serving.largest_digit import LargestDigit

__all__ = ["LargestDigit", "LocalServer"]

_LAZY = {"LargestDigit": "ors_gym.serving.largest_digit"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
