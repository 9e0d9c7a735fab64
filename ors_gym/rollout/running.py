"""One episode: an agent and an environment, until one of them ends it."""

import time
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from ors_gym.actions import ActionFormat
from ors_gym.client import AsyncEnvironment, Discovery, Timeout
from ors_gym.env import AsyncORSEnv
from ors_gym.env.engine import OnToolError
from ors_gym.episode import Episode
from ors_gym.errors import ORSError
from ors_gym.observations import ObservationFormat
from ors_gym.rollout.agents import Agent, AgentLike, Conversation, as_agent
from ors_gym.secrets import SecretLike
from ors_gym.tasks import TaskRef


class EnvOptions(TypedDict, total=False):
    """How an environment is run; each as in `AsyncORSEnv`, with its default."""

    max_steps: int | None
    action_format: ActionFormat
    observation_format: ObservationFormat
    text_tool: str | None
    invalid_action_reward: float
    on_tool_error: OnToolError
    reset_retries: int
    max_observation_length: int | None
    timeout: Timeout | None
    secrets: Mapping[str, SecretLike] | None


async def run_episode(
    agent: AgentLike,
    environment: AsyncEnvironment,
    task: TaskRef,
    *,
    metadata: Mapping[str, Any] | None = None,
    **options: Unpack[EnvOptions],
) -> Episode:
    """Run one episode. Its session is closed when it ends, however it ends.

    What the server, the network or a tool does wrong is in the episode and not raised: "error", "error_kind".

    Args:
        agent: The agent, or a function of the conversation.
        environment: The environment, of a client that the caller closes.
        task: Which task.
        metadata: What the episode should note about itself.
        options: Of the environment: `max_steps`, `action_format`, `observation_format`, `secrets` and the others of
            `AsyncORSEnv`.

    Returns:
        The ended episode: terminated by the environment, or truncated.

    Raises:
        ORSError: The environment cannot be discovered.
        Exception: Whatever the agent raised.

    >>> import asyncio
    >>> from ors_gym.client import AsyncORSClient
    >>> async def largest(conversation):
    ...     return {"name": "submit", "input": {"answer": max(conversation.observation.rstrip("="))}}
    >>> async def main():
    ...     async with AsyncORSClient(base_url) as client:
    ...         return await run_episode(largest, client.environment("largest_digit"), TaskRef("train", 0))
    >>> episode = asyncio.run(main())
    >>> episode.terminated, episode.steps[0].reward
    (True, 1.0)
    """
    episode, failure = await play(as_agent(agent), environment, await environment.discover(), task, metadata or {}, options)
    if failure is not None:
        raise failure
    return episode


async def play(
    agent: Agent,
    environment: AsyncEnvironment,
    discovery: Discovery,
    task: TaskRef,
    metadata: Mapping[str, Any],
    options: EnvOptions,
) -> tuple[Episode, Exception | None]:
    """One episode, and what the agent raised, if it did; the episode is then unscored and says so."""
    env = AsyncORSEnv(environment, discovery, **options)
    try:
        try:
            observation, info = await env.reset(options={"task": task})
        except ORSError as error:
            return _not_begun(env.episode, task, discovery.env_name, metadata, error), None
        episode = env.episode
        assert episode is not None
        episode.metadata.update(metadata)
        turn = 0
        while not episode.ended:
            try:
                action = await agent.act(Conversation(episode, observation, info, turn))
            except Exception as failure:
                _fail(episode, f"the agent raised {type(failure).__name__}: {failure}")
                return episode, failure
            if action is None:
                break
            observation, _, _, _, info = await env.step(action)
            turn += 1
        return episode, None
    finally:
        await env.close()


def failed_episode(task: TaskRef, env_name: str, error: str, metadata: Mapping[str, Any]) -> Episode:
    """An episode that never began, unscored, with the reason."""
    episode = Episode(task, env_name, metadata=dict(metadata))
    _fail(episode, error)
    return episode


def _not_begun(episode: Episode | None, task: TaskRef, env_name: str, metadata: Mapping[str, Any], error: ORSError) -> Episode:
    """The ledger of a reset that failed; the env leaves one where the failure was not the caller's request."""
    if episode is None:
        return failed_episode(task, env_name, str(error), metadata)
    episode.metadata.update(metadata)
    return episode


def _fail(episode: Episode, error: str) -> None:
    episode.truncated, episode.error, episode.error_kind = True, error, "infrastructure"
    episode.ended_at = time.time()
