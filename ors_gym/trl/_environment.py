"""`environment_factory`: what TRL's own loop steps through: one object a rollout, with a callable tool for each of the server's."""

import asyncio
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ors_gym.episode import Episode
from ors_gym.portal import portal
from ors_gym.protocol import Block, JSONObject, ToolSpec
from ors_gym.tools import to_openai_chat
from ors_gym.trl._content import Content, to_content
from ors_gym.trl._episodes import LiveEpisode
from ors_gym.trl._rows import read_row
from ors_gym.trl._source import Source
from ors_gym.trl._trainer import TrainerFacts

OVER = "The episode is over. This call was not made."
FAILED = "The environment failed. The episode is over."


class ToolFunction(dict[str, Any]):
    """A tool as a chat template takes it, a dict with the server's schema verbatim, that a trainer can call.

    A dict is rendered as it is, whatever the names of the tool and of its parameters; nothing is built from them.
    """

    def __init__(self, tool: ToolSpec, run: Callable[[str, JSONObject], Any]) -> None:
        super().__init__(to_openai_chat([tool])[0])
        self.__name__ = tool.name
        self._run = run

    def __call__(self, /, **input: Any) -> Any:
        return self._run(self.__name__, input)

    __hash__ = object.__hash__  # type: ignore[assignment]


class ToolText(str):
    """The text of a tool's output, which knows its episode. `str` of it is itself; pickled and copied, it is its text."""

    __slots__ = ("episode",)
    episode: Episode | None

    def __new__(cls, text: str, episode: Episode | None) -> "ToolText":
        new = super().__new__(cls, text)
        new.episode = episode
        return new

    def __str__(self) -> str:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str.__str__(self),)


def episode_of_messages(completion: Any) -> Episode | None:
    """The episode that the tool messages of a completion come from; None if there is none."""
    messages = completion if isinstance(completion, list) else []
    texts = (message.get("content") for message in messages if isinstance(message, Mapping) and message.get("role") == "tool")
    return next((text.episode for text in texts if isinstance(text, ToolText)), None)


class RolloutEnvironment:
    """One rollout's environment in TRL's loop. TRL makes them by `spec.environment_factory` and resets them again and again.

    `reset` returns at once while the session opens; the first tool call waits for it. Calls after the end are answered
    here. Nothing that fails is raised: the episode is then unscored.
    """

    def __init__(self, source: Source, tools: Sequence[ToolSpec], trainer: TrainerFacts) -> None:
        self._source = source
        self._trainer = trainer
        self._live: LiveEpisode | None = None
        self._begun_ahead = False
        for name, tool in zip(member_names(tools), tools, strict=True):
            setattr(self, name, ToolFunction(tool, self._call))

    def reset(self, **row: Any) -> Content | None:
        """Begins the episode of a dataset's row.

        Returns:
            None; or, with `prompt="session"`, the session's prompt, for which the sessions of the whole batch are opened at once.
        """
        if not self._source.options.live_prompt:
            self._begin(row)
            return None
        if not self._begun_ahead:
            for environment, other in _batch_of_caller(self, row):
                environment._begin(other)
                environment._begun_ahead = True
        self._begun_ahead = False
        assert self._live is not None
        episode = portal().call(self._live.opened)
        return self._content(episode.prompt)

    def _begin(self, row: Mapping[str, Any]) -> None:
        previous, self._live = self._live, LiveEpisode(self._source, read_row(row).task)
        portal().submit(self._live.opened)
        if previous is not None:
            portal().submit(previous.end)

    def _call(self, name: str, input: JSONObject) -> Any:
        if self._live is None:
            return "Error: the episode has not begun."
        steps = portal().call(self._live.act, {"name": name, "input": input})
        episode = self._live.episode
        if episode.ended and self._trainer.overflow:
            return ToolText(self._trainer.overflow, episode)
        if not steps or episode.unscored:
            return ToolText(FAILED if episode.unscored else OVER, episode)
        content = self._content([block for step in steps for block in step.blocks])
        return ToolText(content, episode) if isinstance(content, str) else content

    def _content(self, blocks: Sequence[Block]) -> Content:
        """What the environment says, as the model may read it."""
        content = to_content(blocks, self._trainer.sees_images)
        neutralise = self._trainer.control_tokens.neutralise
        if isinstance(content, str):
            return neutralise(content)
        return [{**part, "text": neutralise(part["text"])} if part["type"] == "text" else part for part in content]


class EnvironmentFactory:
    """Makes the environments of one tool set. It pickles, and connects where it is used.

    Args:
        source: The environment on the server.
        tools: The tools that its rollouts have.
        trainer: What is known of the trainer.
    """

    def __init__(self, source: Source, tools: Sequence[ToolSpec], trainer: TrainerFacts) -> None:
        self._source = source
        self._tools = tuple(tools)
        self._trainer = trainer
        self.environments: weakref.WeakSet[RolloutEnvironment] = weakref.WeakSet()
        members = dict.fromkeys(member_names(self._tools), _placeholder)
        self._class: type[RolloutEnvironment] = type("ORSRolloutEnvironment", (RolloutEnvironment,), members)

    def __reduce__(self) -> tuple[type["EnvironmentFactory"], tuple[Any, ...]]:
        return EnvironmentFactory, (self._source, self._tools, self._trainer)

    def __call__(self) -> RolloutEnvironment:
        """A new environment; its session opens at `reset`."""
        environment = self._class(self._source, self._tools, self._trainer)
        self.environments.add(environment)
        return environment

    def end_episodes(self) -> None:
        """Ends every episode that still runs, and closes its session."""
        running = [environment for environment in self.environments if environment._live is not None]
        if running:
            finish(running)


def finish(environments: Sequence[RolloutEnvironment]) -> list[Episode]:
    """Ends the episodes of a batch, all at once, and gives them.

    Raises:
        RuntimeError: An environment was never reset.
    """
    lives = [environment._live for environment in environments]

    async def end_all() -> list[Episode]:
        return await asyncio.gather(*(live.end() for live in lives if live is not None))

    if None in lives:
        raise RuntimeError("an environment that was never reset has no episode to score")
    return portal().call(end_all)


def member_names(tools: Sequence[ToolSpec]) -> list[str]:
    """The attributes under which TRL finds the tools, in the server's order; it knows each by its `__name__`."""
    return [f"tool_{number:04d}" for number in range(len(tools))]


def _placeholder() -> None:
    """Stands on the class where TRL looks for methods; each instance has a tool in its place."""


def _batch_of_caller(environment: RolloutEnvironment, row: Mapping[str, Any]) -> list[tuple[RolloutEnvironment, Mapping[str, Any]]]:
    """The environments that TRL is about to reset, with their rows; this one alone where its loop is not the caller.

    TRL resets one rollout after another and tells none of the others; its local variables do.
    """
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    names = caller.f_locals if caller is not None else {}
    rows, environments = names.get("inputs"), getattr(names.get("self"), "environments", None)
    if not isinstance(rows, list) or not isinstance(environments, list) or len(rows) != len(environments):
        return [(environment, row)]
    batch = list(zip(environments, rows, strict=True))
    return batch if any(one is environment for one, _ in batch) else [(environment, row)]
