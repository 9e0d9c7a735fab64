"""Sessions as episodes begin with them: started, with prompt and tools, and where wanted one episode ahead."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from ors_gym.client import AsyncEnvironment, AsyncSession, Timeout
from ors_gym.errors import EnvironmentFailure, InfrastructureError
from ors_gym.protocol import Blocks, ToolSpec
from ors_gym.secrets import SecretLike
from ors_gym.tasks import TaskRef

Secrets = Mapping[str, SecretLike]


@dataclass(frozen=True)
class Opened:
    """A session that has begun, and what its episode starts with."""

    session: AsyncSession
    prompt: Blocks
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True)
class _Ahead:
    task: TaskRef
    secrets: Secrets | None
    opening: asyncio.Task[Opened]


class Opener:
    """Opens the sessions of one environment, one after another.

    Args:
        environment: Where sessions come from.
        timeout: Their limits; None takes the client's.
    """

    def __init__(self, environment: AsyncEnvironment, timeout: Timeout | None) -> None:
        self._environment = environment
        self._timeout = timeout
        self._ahead: _Ahead | None = None

    async def open(self, task: TaskRef, secrets: Secrets | None) -> Opened:
        """A session of this task: the one that was opened ahead, or a new one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if (ahead.task, ahead.secrets) == (task, secrets):
                try:
                    return await ahead.opening
                except (EnvironmentFailure, InfrastructureError):
                    pass  # a new one says whether it is for good
                except BaseException:
                    await _discard(ahead.opening)
                    raise
            else:
                await _discard(ahead.opening)
        return await self._open(task, secrets)

    def open_ahead(self, task: TaskRef, secrets: Secrets | None) -> None:
        """Begins to open the next session."""
        opening = asyncio.create_task(self._open(task, secrets))
        opening.add_done_callback(lambda opened: opened.cancelled() or opened.exception())  # it may never be asked for
        self._ahead = _Ahead(task, secrets, opening)

    async def aclose(self) -> None:
        """Closes the session that was opened ahead, if there is one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await _discard(ahead.opening)

    async def _open(self, task: TaskRef, secrets: Secrets | None) -> Opened:
        session = self._environment.session(task=task, secrets=secrets, timeout=self._timeout)
        try:
            await session.start()
            # One after the other: at once would take a second connection for each session.
            return Opened(session, await session.get_prompt(), await session.list_tools())
        except BaseException:
            await session.aclose()
            raise


async def _discard(opening: asyncio.Task[Opened]) -> None:
    """Closes a session that may be open already, also where this is cancelled meanwhile."""
    opening.cancel()
    try:
        await asyncio.wait((opening,))
    finally:
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().session.aclose()
