"""ORS environments in Gymnasium: the asynchronous engine, `ORSEnv`, the vector environments and the pool."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ors_gym.env.registration import ENV_ID, register, register_server

if TYPE_CHECKING:
    from ors_gym.env._info import InfoDict
    from ors_gym.env.engine import AsyncORSEnv
    from ors_gym.env.env import ORSEnv
    from ors_gym.env.ors_vector import ORSVectorEnv
    from ors_gym.env.pool import ORSEnvPool, PoolBatch
    from ors_gym.env.vector import AsyncioVectorEnv

__all__ = [
    "ENV_ID",
    "AsyncORSEnv",
    "AsyncioVectorEnv",
    "InfoDict",
    "ORSEnv",
    "ORSEnvPool",
    "ORSVectorEnv",
    "PoolBatch",
    "register",
    "register_server",
]

_LAZY = {
    "AsyncORSEnv": "ors_gym.env.engine",
    "AsyncioVectorEnv": "ors_gym.env.vector",
    "InfoDict": "ors_gym.env._info",
    "ORSEnv": "ors_gym.env.env",
    "ORSEnvPool": "ors_gym.env.pool",
    "ORSVectorEnv": "ors_gym.env.ors_vector",
    "PoolBatch": "ors_gym.env.pool",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
