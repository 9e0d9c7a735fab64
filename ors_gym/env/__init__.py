"""ORS environments in Gymnasium: the asynchronous engine, `ORSEnv`, the vector environments and the pool."""

from ors_gym.env._info import InfoDict
from ors_gym.env.engine import AsyncORSEnv
from ors_gym.env.env import ORSEnv
from ors_gym.env.ors_vector import ORSVectorEnv
from ors_gym.env.pool import ORSEnvPool, PoolBatch
from ors_gym.env.registration import ENV_ID, register, register_server
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
