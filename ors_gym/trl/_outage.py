"""`on_server_down`: what becomes of a training whose rollouts are all lost, step after step."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

from ors_gym.errors import ServerDown
from ors_gym.portal import portal
from ors_gym.tasks import TaskRef
from ors_gym.trl._episodes import begin
from ors_gym.trl._ledger import Rollout
from ors_gym.trl._source import Source

logger = logging.getLogger("ors_gym.trl")

OnServerDown = Literal["wait", "raise", "continue"]

_LONGEST_PAUSE = 15.0  # seconds between two attempts


class Outage:
    """Counts the steps of which every rollout was lost.

    Args:
        policy: "wait" pauses until a session can be had again, and raises after `timeout`; "raise" raises at once; "continue"
            goes on without a gradient.
        timeout: Seconds to wait.
        patience: Such steps in a row until something is done.
    """

    def __init__(self, policy: OnServerDown, timeout: float, patience: int) -> None:
        self._policy = policy
        self._timeout = timeout
        self._patience = patience
        self._lost_steps = 0
        self._waiting = threading.Lock()

    def __reduce__(self) -> tuple[type["Outage"], tuple[Any, ...]]:
        return Outage, (self._policy, self._timeout, self._patience)

    def after(self, rollouts: Sequence[Rollout], sources: Sequence[Source]) -> None:
        """Called after each step with its rollouts, and the environment of each.

        Raises:
            ServerDown: As the policy says.
        """
        if not rollouts or any(rollout.reward is not None for rollout in rollouts):
            self._lost_steps = 0
            return
        with self._waiting:
            self._lost_steps += 1
            reason = rollouts[0].episode.error
            logger.warning("all %d rollouts of a step were lost: %s", len(rollouts), reason)
            if self._policy == "continue" or self._lost_steps < self._patience:
                return
            if self._policy == "raise":
                raise ServerDown(f"all rollouts of {self._lost_steps} steps in a row were lost; the last reason: {reason}")
            self._wait(sources[0], rollouts[0].episode.task, reason)

    def _wait(self, source: Source, task: TaskRef, reason: str) -> None:
        logger.warning("training pauses until the server gives a session again, for at most %.0f s", self._timeout)
        deadline, pause = time.monotonic() + self._timeout, 0.5
        while (error := portal().call(_probe, source, task)) is not None:
            if time.monotonic() + pause > deadline:
                raise ServerDown(
                    f"all rollouts of {self._lost_steps} steps in a row were lost ({reason}), and in {self._timeout:.0f} s of "
                    f"waiting no session could be had: {error}"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        logger.warning("the server is back; training goes on")


async def _probe(source: Source, task: TaskRef) -> str | None:
    """Why no session can be had; None if one can."""
    env = source.new_env()
    try:
        await begin(env, task)
    finally:
        await env.close()
    assert env.episode is not None
    return env.episode.error if env.episode.error_kind else None
