"""What an agent is: one method, asked for the next action of one conversation."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ors_gym.env import InfoDict
from ors_gym.episode import Episode
from ors_gym.messages import episode_messages
from ors_gym.protocol import ToolSpec
from ors_gym.tasks import TaskRef


@dataclass(frozen=True)
class Conversation:
    """One episode, as its agent sees it when it must act. Agents read it; `report` is all that they write.

    Attributes:
        episode: The ledger so far: prompt, tools, and every step with its action, output and reward.
        observation: The last observation, in the run's `observation_format`.
        info: The last info dict.
        turn: How often the agent has acted in this episode.
    """

    episode: Episode
    observation: Any
    info: InfoDict
    turn: int

    @property
    def task(self) -> TaskRef:
        """Which task it is."""
        return self.episode.task

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of this task."""
        return self.episode.tools

    def messages(self, system_prompt: str | None = None, *, images: bool = False) -> list[dict[str, Any]]:
        """The conversation as chat messages, as `ors_gym.messages.episode_messages` makes them.

        >>> from ors_gym.protocol import TextBlock
        >>> episode = Episode(TaskRef("train", 0), prompt=(TextBlock(text="2+2?"),))
        >>> Conversation(episode, "2+2?", {}, turn=0).messages(system_prompt="Be brief.")
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '2+2?'}]
        """
        return episode_messages(self.episode, system_prompt, images=images)

    def report(self, **amounts: float) -> None:
        """Add to the amounts that the episode keeps about its agent, in `episode.metadata["agent"]`.

        Evaluation adds up `prompt_tokens` and `completion_tokens`; other names are kept in the records.

        >>> conversation = Conversation(Episode(TaskRef("train", 0)), "", {}, turn=0)
        >>> conversation.report(prompt_tokens=12)
        >>> conversation.report(prompt_tokens=30, completion_tokens=5)
        >>> conversation.episode.metadata["agent"]
        {'prompt_tokens': 42, 'completion_tokens': 5}
        """
        kept = self.episode.metadata.setdefault("agent", {})
        for name, amount in amounts.items():
            kept[name] = kept.get(name, 0) + amount


@runtime_checkable
class Agent(Protocol):
    """Anything that can say what to do next. One agent serves many conversations at once, so what it remembers of one
    belongs to that conversation's episode, not to itself.
    """

    async def act(self, conversation: Conversation) -> Any:
        """The next action, in any form that `step` takes; None ends the episode there, scored as it is."""
        ...


AgentFunction = Callable[[Conversation], Any | Awaitable[Any]]
AgentLike = Agent | AgentFunction
"""An agent, or a function of the conversation that returns the action or awaits it."""


@dataclass(frozen=True)
class FunctionAgent:
    """A function as an agent. It runs in the event loop: one that waits should be `async`, or it holds up the others."""

    function: AgentFunction

    async def act(self, conversation: Conversation) -> Any:
        """What the function returns, awaited if it can be."""
        action = self.function(conversation)
        return await action if inspect.isawaitable(action) else action

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


def as_agent(agent: AgentLike) -> Agent:
    """An agent as it is, a function as an agent.

    Raises:
        TypeError: It is neither, or it is a class where one of its instances is meant.

    >>> as_agent(len)
    len
    """
    if inspect.isclass(agent):
        raise TypeError(f"{agent.__name__} is a class; pass an instance of it: {agent.__name__}(...)")
    if isinstance(agent, Agent):
        return agent
    if callable(agent):
        return FunctionAgent(agent)
    raise TypeError(f"an agent has an `async act(conversation)`, or is a function of the conversation; got {agent!r}")
