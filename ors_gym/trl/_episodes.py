"""Episodes of completions: each completion's tool calls, run in a session of its own."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from ors_gym import actions
from ors_gym.env import AsyncORSEnv
from ors_gym.episode import Episode, FailureKind, Step
from ors_gym.errors import InvalidAction, ORSError
from ors_gym.protocol import TextBlock, ToolSpec
from ors_gym.tasks import TaskRef
from ors_gym.trl._source import Source

logger = logging.getLogger("ors_gym.trl")

ActionParser = Callable[[Any], Sequence[Any]]
"""Reads a completion, text or messages, as tool calls, each a `ToolCall` or a dict with `name` and `input`."""


def actions_of(completion: Any, parser: ActionParser | None = None) -> list[Any]:
    """What the policy did in a completion, one action a turn, each in a form that `ors_gym.actions.parse` takes.

    Args:
        completion: Text, or chat messages, of which the assistant's count.
        parser: Reads the completion instead; all that it returns is one action.

    Raises:
        InvalidAction: The parser says so, or finds no call.
    """
    if parser is not None:
        calls = list(parser(completion))
        if not calls:
            raise InvalidAction("the action parser found no tool call")
        return [calls]
    if isinstance(completion, str):
        return [completion]
    return [message for message in completion if message.get("role") == "assistant"] or [""]


async def replay(source: Source, task: TaskRef, completion: Any, tools: Sequence[ToolSpec], parser: ActionParser | None) -> Episode:
    """The episode of one completion: its actions in a session of their own, until one finishes it. Raises nothing.

    A completion without a valid call opens no session. What fails ends the episode unscored, and says so in it.

    Args:
        source: The environment.
        task: The task.
        completion: Text, or chat messages.
        tools: The tools by which plain text is read.
        parser: Reads the completion, instead of `ors_gym.actions.parse`.
    """
    try:
        acts = actions_of(completion, parser)
        actions.parse(acts[0], action_format=source.options.action_format, tools=tools, text_tool=source.options.text_tool)
    except InvalidAction as error:
        return without_session(source, task, completion, str(error))
    env = source.new_env()
    async with source.slots:
        try:
            await begin(env, task)
            for action in acts:
                await act(env, action)
        finally:
            await env.close()
    assert env.episode is not None
    return env.episode


async def begin(env: AsyncORSEnv, task: TaskRef) -> None:
    """Begins an episode; one that cannot begin is there all the same, unscored. Raises no error of the server's."""
    try:
        await env.reset(options={"task": task})
    except ORSError as error:
        if env.episode is None or env.episode.task is not task:
            env.episode = failed_episode(task, env.discovery.env_name, str(error))
        logger.warning("no session for task %s: %s", task.key, error)


async def act(env: AsyncORSEnv, action: Any) -> None:
    """Runs an action, if the episode still goes on. Whatever fails is in the episode, which then is unscored."""
    if env.episode is None or env.episode.ended:
        return
    try:
        await env.step(action)
    except Exception:
        logger.exception("an action of task %s failed in an unforeseen way; its episode is unscored", env.episode.task.key)


class LiveEpisode:
    """An episode that is opened, stepped and ended on the portal's loop; whichever of these comes first opens its session.

    Args:
        source: The environment.
        task: The task.
    """

    def __init__(self, source: Source, task: TaskRef) -> None:
        self._task = task
        self._slots = source.slots
        self._env = source.new_env()
        self._opening: asyncio.Task[None] | None = None

    @property
    def episode(self) -> Episode:
        """The ledger; empty until the session is open."""
        return self._env.episode or Episode(self._task, self._env.discovery.env_name)

    async def opened(self) -> Episode:
        """Begins the episode, once, and waits until it has begun, or failed to."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)
        return self.episode

    async def act(self, action: Any) -> Sequence[Step]:
        """Runs an action and gives its steps; none if the episode is over."""
        before = (await self.opened()).num_steps
        async with self._slots:
            await act(self._env, action)
        return self.episode.steps[before:]

    async def end(self) -> Episode:
        """Ends the episode, where it still runs, and closes its session."""
        await self.opened()
        await self._env.close()
        return self.episode

    async def _open(self) -> None:
        async with self._slots:
            await begin(self._env, self._task)


def failed_episode(task: TaskRef, env_name: str, error: str, kind: FailureKind = "infrastructure") -> Episode:
    """An episode that never began."""
    return Episode(task, env_name, truncated=True, error=error, error_kind=kind, ended_at=time.time())


def without_session(source: Source, task: TaskRef, completion: Any, reason: str) -> Episode:
    """The episode of a completion that made no valid call: one invalid action, no session."""
    now = time.time()
    step = Step(
        completion,
        blocks=(TextBlock(text=f"Error: {reason}"),),
        invalid_action=reason,
        reward=source.options.invalid_action_reward or None,
        started_at=now,
    )
    return Episode(
        task, source.discovery.env_name, tools=source.discovery.tools, steps=[step], truncated=True, started_at=now, ended_at=now
    )
