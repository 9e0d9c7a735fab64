"""ORS environments in Gymnasium: the asynchronous engine, `ORSEnv`, the vector environments and the pool."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ors_gym.env.registration import ENV_ID, register, register_server

if TYPE_CHECKING:
    from ors_gym.env._info import InfoDict
    from ors_gym.env.engine import AsyncORSEnv
    from ors_gym.env.env import ORSEnv

__all__ = [
    "ENV_ID",
    "AsyncORSEnv",
    "InfoDict",
    "ORSEnv",
    "register",
    "register_server",
]

_LAZY = {
    "AsyncORSEnv": "ors_gym.env.engine",
    "InfoDict": "ors_gym.env._info",
    "ORSEnv": "ors_gym.env.env",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
