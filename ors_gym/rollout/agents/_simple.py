"""Agents that need no model: random ones, and scripts."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ors_gym.protocol import ToolCall, ToolSpec
from ors_gym.rollout.agents._agent import Conversation
from ors_gym.schemas import Sampler, SchemaError


class RandomAgent:
    """Calls a random tool with an input that its schema allows.

    What it does in a rollout depends on the seed, the task, the rollout's number and the turn only: it is the same at any
    concurrency and in any process.

    Args:
        seed: At least 0.

    >>> import asyncio
    >>> from ors_gym.rollout import Tasks, collect_episodes
    >>> episodes = asyncio.run(collect_episodes(RandomAgent(seed=1), Tasks(base_url, num_tasks=3)))
    >>> [episode.steps[0].call.name for episode in episodes]
    ['submit', 'submit', 'submit']
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    async def act(self, conversation: Conversation) -> ToolCall:
        """A valid call.

        Raises:
            SchemaError: The task has no tool whose input can be sampled.
        """
        generator = self._generator(conversation)
        failures = []
        for position in generator.permutation(len(conversation.tools)):
            tool: ToolSpec = conversation.tools[position]
            try:
                return ToolCall(name=tool.name, input=_sampler(json.dumps(tool.input_schema)).sample(generator))
            except SchemaError as error:
                failures.append(f"{tool.name}: {error}")
        raise SchemaError(f"no tool of this task can be called at random: {'; '.join(failures) or 'it has none'}")

    def _generator(self, conversation: Conversation) -> np.random.Generator:
        task = int.from_bytes(hashlib.sha256(conversation.task.key.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        return np.random.default_rng([self.seed, task, conversation.episode.metadata.get("rollout", 0), conversation.turn])

    def __repr__(self) -> str:
        return f"RandomAgent({self.seed})"


@lru_cache(maxsize=256)
def _sampler(schema: str) -> Sampler:
    """Checking a schema costs a hundred times what a sample does, and every episode has the same ones."""
    return Sampler(json.loads(schema))


class ScriptedAgent:
    """Plays a list of actions, one a turn, and ends the episode after the last.

    Args:
        actions: The actions; or, to play each task by a script of its own, a mapping from the task's key
            (`TaskRef("train", 17).key` is `"train/17"`) to its actions.

    >>> import asyncio
    >>> from ors_gym.rollout import Tasks, collect_episodes
    >>> agent = ScriptedAgent({"train/0": [{"name": "submit", "input": {"answer": "9"}}], "train/1": []})
    >>> episodes = asyncio.run(collect_episodes(agent, Tasks(base_url, split="train", indices=[0, 1])))
    >>> [episode.terminated for episode in episodes]
    [True, False]
    """

    def __init__(self, actions: Sequence[Any] | Mapping[str, Sequence[Any]]) -> None:
        self.actions = actions

    async def act(self, conversation: Conversation) -> Any:
        """The action of this turn, or None after the last.

        Raises:
            LookupError: There is no script for this task.
        """
        script = self._script(conversation.task.key)
        return script[conversation.turn] if conversation.turn < len(script) else None

    def _script(self, key: str) -> Sequence[Any]:
        if not isinstance(self.actions, Mapping):
            return self.actions
        if key not in self.actions:
            raise LookupError(f"no script for the task {key}; there are scripts for {', '.join(list(self.actions)[:10])}")
        return self.actions[key]

    def __repr__(self) -> str:
        return f"ScriptedAgent({len(self.actions)} {'tasks' if isinstance(self.actions, Mapping) else 'actions'})"
