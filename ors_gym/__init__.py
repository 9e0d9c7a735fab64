"""ors-gym: every Open Reward Standard environment in the loops people train with.

The rooms with heavier needs (`serving`, `trl`, `rollout`, `wrappers`, `conformance`, `testing`) are imported on first use.
"""

import importlib
from types import ModuleType

from ors_gym._version import __version__
from ors_gym.client import AsyncORSClient, ORSClient, Retry, Timeout
from ors_gym.env import AsyncioVectorEnv, AsyncORSEnv, ORSEnv, ORSEnvPool, ORSVectorEnv, register, register_server
from ors_gym.episode import Episode, Step
from ors_gym.errors import ORSError
from ors_gym.groups import RolloutGroup
from ors_gym.protocol import ToolCall, ToolOutput, ToolSpec
from ors_gym.records import load_records
from ors_gym.secrets import EnvSecret
from ors_gym.tasks import TaskRef

__all__ = [
    "AsyncORSClient",
    "AsyncORSEnv",
    "AsyncioVectorEnv",
    "EnvSecret",
    "Episode",
    "ORSClient",
    "ORSEnv",
    "ORSEnvPool",
    "ORSError",
    "ORSVectorEnv",
    "Retry",
    "RolloutGroup",
    "Step",
    "TaskRef",
    "Timeout",
    "ToolCall",
    "ToolOutput",
    "ToolSpec",
    "__version__",
    "load_records",
    "register_server",
]

_ROOMS = frozenset({"conformance", "rollout", "serving", "testing", "trl", "wrappers"})


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"ors_gym.{name}")
    raise AttributeError(f"module 'ors_gym' has no attribute {name!r}")


register()
