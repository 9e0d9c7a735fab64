"""A discovered environment on a server, as the synchronous faces hold it."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ors_gym.actions import ActionFormat
from ors_gym.client import AsyncEnvironment, AsyncORSClient, Discovery, Environment, ORSClient, Retry, Timeout
from ors_gym.env._tasks import TaskFilter
from ors_gym.env.engine import OnToolError
from ors_gym.observations import ObservationFormat
from ors_gym.portal import portal
from ors_gym.secrets import SecretLike


class EngineOptions(TypedDict, total=False):
    """The options of `AsyncORSEnv` that everything over it takes as well."""

    task_filter: TaskFilter | None
    secrets: Mapping[str, SecretLike] | None
    max_steps: int | None
    action_format: ActionFormat
    observation_format: ObservationFormat
    text_tool: str | None
    invalid_action_reward: float
    on_tool_error: OnToolError
    reset_retries: int
    max_observation_length: int | None
    prefetch: bool


class ClientOptions(TypedDict, total=False):
    """The options of a client that is made along with an environment."""

    api_key: str
    headers: Mapping[str, str]
    timeout: Timeout
    retry: Retry


def client_options(
    *, api_key: str | None, headers: Mapping[str, str] | None, timeout: Timeout | None, retry: Retry | None
) -> ClientOptions:
    """Those that were given."""
    options: ClientOptions = {}
    if api_key is not None:
        options["api_key"] = api_key
    if headers is not None:
        options["headers"] = headers
    if timeout is not None:
        options["timeout"] = timeout
    if retry is not None:
        options["retry"] = retry
    return options


class Connection:
    """An environment of a server, discovered, with a client of its own or a shared one.

    In a forked child it goes on with connections of the child's own, unless the client is an `AsyncORSClient`.

    Args:
        base_url: The server, or several equal ones.
        env_name: The environment; None is the server's first.
        client: A client to share, which is then left open.
        options: Those of the client that is otherwise made.

    Raises:
        ORSError: The server, or the environment on it, cannot be had.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        env_name: str | None,
        client: AsyncORSClient | ORSClient | None,
        options: ClientOptions,
    ) -> None:
        self._owned: ORSClient | None = None
        if client is None:
            client = self._owned = ORSClient(base_url, **options)
        self._environment = client.environment(env_name)
        try:
            self.discovery: Discovery = portal().call(self.environment.discover)
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> AsyncEnvironment:
        """The environment, as this process has it."""
        return self._environment.asynchronous if isinstance(self._environment, Environment) else self._environment

    def close(self) -> None:
        """Closes the client, if it is not shared."""
        if self._owned is not None:
            self._owned.close()
