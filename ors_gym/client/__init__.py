"""ORS servers: `AsyncORSClient` → `AsyncEnvironment` → `AsyncSession`.

Their synchronous faces are `ORSClient` → `Environment` → `Session`.
"""

from ors_gym.client._client import AsyncORSClient
from ors_gym.client._config import Retry, Timeout
from ors_gym.client._environment import AsyncEnvironment, Discovery
from ors_gym.client._session import AsyncSession
from ors_gym.client._stats import RequestTrace, Stats
from ors_gym.client._sync import Environment, ORSClient, Session

__all__ = [
    "AsyncEnvironment",
    "AsyncORSClient",
    "AsyncSession",
    "Discovery",
    "Environment",
    "ORSClient",
    "RequestTrace",
    "Retry",
    "Session",
    "Stats",
    "Timeout",
]
