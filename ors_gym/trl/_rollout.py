"""`rollout_func`: our own loop of many turns on the trainer's generation."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ors_gym import actions
from ors_gym.episode import Episode, Step
from ors_gym.errors import InvalidAction
from ors_gym.portal import portal
from ors_gym.protocol import ToolSpec
from ors_gym.tools import ToolList, to_openai_chat
from ors_gym.trl._chat import Chat, Message, tries_to_call
from ors_gym.trl._content import to_text
from ors_gym.trl._episodes import LiveEpisode
from ors_gym.trl._rows import EPISODE, TRANSCRIPT, read_prompt
from ors_gym.trl._source import Source, Sources
from ors_gym.trl._tool_sets import ToolSets


@dataclass
class _Row:
    """One rollout.

    Attributes:
        transcript: The conversation as chat messages.
        tools: What the model may call.
        offered: The same, as chat templates take it.
        heard: The tokens behind the model's last turn, at first the prompt's.
        completion_ids, mask, logprobs: The tokens behind the prompt; 1 for the model's and 0 for the environment's; and the
            log-probabilities that they were sampled with, 0.0 for the environment's.
        message: The model's last turn.
        called: Whether that turn tried to call a tool.
        running: Whether the rollout goes on.
    """

    source: Source
    live: LiveEpisode
    transcript: list[Message]
    tools: Sequence[ToolSpec]
    offered: ToolList = field(default_factory=list)
    heard: Sequence[int] = ()
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    message: Message = field(default_factory=dict)
    called: bool = True
    running: bool = True

    @property
    def ids(self) -> list[int]:
        """All tokens so far."""
        return self.prompt_ids + self.completion_ids

    def add_turn(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Takes in what the model wrote."""
        self.completion_ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)

    def add_environment(self, ids: Sequence[int]) -> None:
        """Takes in what the environment said."""
        self.heard = ids
        self.completion_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def end_on_the_model(self, eos_token_id: int) -> None:
        """Leaves out what the environment said last; TRL takes no completion without a token."""
        while self.mask and self.mask[-1] == 0:
            del self.completion_ids[-1], self.mask[-1], self.logprobs[-1]
        if not self.completion_ids:
            self.add_environment([eos_token_id])


class RolloutFunction:
    """What `rollout_func` is: it plays the rollouts of a step's prompts, and gives TRL their tokens and episodes.

    All tool calls of a turn run at once; a rollout ends at `finished`, at a turn without a call, at `max_steps`, at the token
    budget, or with its session. The tokens that the model wrote stay as they are. A tool's answer that does not fit in
    the budget is left out whole, and so is one behind which nothing is generated: each rollout ends on the model's tokens.

    Args:
        sources: The environments.
        tool_sets: The tools of tasks that have tools of their own.
        nudge: What a model that made no call is told; None ends its rollout.
        pipeline: Generate one half of the batch while the tools of the other run.
    """

    def __init__(self, sources: Sources, tool_sets: ToolSets, nudge: str | None, pipeline: bool) -> None:
        self._sources = sources
        self._tool_sets = tool_sets
        self._nudge = nudge
        self._pipeline = pipeline

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """The rollouts of these prompts, one each, in their order.

        Args:
            prompts: Conversational prompts, each with its task.
            trainer: The `GRPOTrainer`.

        Raises:
            ValueError: A prompt names no task.
        """
        chat = Chat(trainer)
        rows = [self._row(prompt) for prompt in prompts]
        middle = len(rows) // 2 if self._pipeline else 0
        halves = [_Half(half, chat, trainer, self._nudge) for half in (rows[:middle], rows[middle:]) if self._pipeline or half]
        try:
            self._begin(rows, chat)
            running = True
            while running:
                running = False
                for half in halves:
                    running = half.turn() or running
            episodes = portal().call(_end_all, rows)
        except BaseException:
            portal().submit(_end_all, rows)
            raise
        for row in rows:
            row.end_on_the_model(trainer.processing_class.eos_token_id)
        has_logprobs = all(half.has_logprobs for half in halves)
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids for row in rows],
            "env_mask": [row.mask for row in rows],
            "logprobs": [row.logprobs for row in rows] if has_logprobs else None,
            EPISODE: episodes,
            TRANSCRIPT: [row.transcript for row in rows],
        }

    def _row(self, prompt: Any) -> _Row:
        named = read_prompt(prompt)
        source = self._sources.of(named.environment)
        transcript: list[Message] = [{"role": message["role"], "content": _text(message["content"])} for message in prompt]
        return _Row(source, LiveEpisode(source, named.task), transcript, self._tool_sets.tools(named.tool_set) or ())

    def _begin(self, rows: Sequence[_Row], chat: Chat) -> None:
        """Opens the sessions, and renders the prompts meanwhile, or behind those that have to be waited for."""
        portal().submit(_opened_all, rows)
        waiting = [row for row in rows if row.source.options.live_prompt or not row.tools]
        for row, episode in zip(waiting, portal().call(_opened_all, waiting), strict=True):
            row.tools = tuple(episode.tools) or row.source.discovery.tools
            if row.source.options.live_prompt:
                row.transcript[-1]["content"] += to_text(episode.prompt)
        for row in rows:
            row.offered = to_openai_chat(row.tools)
            row.heard = row.prompt_ids = list(chat.prompt_ids(row.transcript, row.offered))


class _Half:
    """Rollouts that are generated together."""

    def __init__(self, rows: Sequence[_Row], chat: Chat, trainer: Any, nudge: str | None) -> None:
        self._rows = rows
        self._chat = chat
        self._trainer = trainer
        self._nudge = nudge
        self._acting: list[_Row] = []
        self._steps: Future[list[Sequence[Step]]] | None = None
        self.has_logprobs = True

    def turn(self) -> bool:
        """One turn: the tools' answers, what the model writes, and its calls on their way. False if no rollout runs on any rank."""
        self._hear()
        running = [row for row in self._rows if row.running]
        size = _most_on_any_rank(len(running), self._trainer)
        if size == 0:
            return False
        self._generate(running, size)
        self._call([row for row in running if row.running])
        return True

    def _hear(self) -> None:
        """Waits for the tools and appends their answers."""
        if self._steps is None:
            return
        try:
            answers = self._steps.result()
        except BaseException:
            self._steps.cancel()
            raise
        finally:
            self._steps = None
        told = [(row, self._told(row, steps)) for row, steps in zip(self._acting, answers, strict=True)]
        over = [row for row, messages in told if row.live.episode.ended or not messages]
        going = [(row, messages) for row, messages in told if messages and not row.live.episode.ended]
        suffixes = self._chat.suffix_ids([messages for _, messages in going])
        for (row, _), suffix in zip(going, suffixes, strict=True):
            if len(suffix) < self._tokens_left(row):
                row.add_environment(suffix)
            else:
                over.append(row)
        self._stop(over)

    def _told(self, row: _Row, steps: Sequence[Step]) -> list[Message]:
        """What the model of a rollout is told after its turn, which goes into the transcript."""
        nudge: Message = {"role": "user", "content": self._nudge}
        messages = [_tool_message(step, row.tools) for step in steps] if row.called else [nudge]
        row.transcript += messages
        return messages

    def _stop(self, rows: Sequence[_Row]) -> None:
        """Ends rollouts; their sessions are closed in the background."""
        for row in rows:
            row.running = False
        if rows:
            portal().submit(_end_all, rows)

    def _generate(self, rows: Sequence[_Row], size: int) -> None:
        """Has the model write a turn of each rollout, in a batch of the same size on every rank."""
        prefixes = [row.ids for row in rows]
        filler = prefixes[0] if prefixes else [self._trainer.processing_class.eos_token_id]
        batch = prefixes + [filler] * (size - len(prefixes))
        with _at_most(max(map(self._tokens_left, rows), default=1), self._trainer):
            written, logprobs = self._trainer._generate_single_turn(batch, None, {}, num_generations=1)
        self.has_logprobs = self.has_logprobs and logprobs is not None
        for number, row in enumerate(rows):
            left = self._tokens_left(row)
            ids = written[number][:left]
            row.add_turn(ids, None if logprobs is None else logprobs[number][:left])
            row.message = self._chat.read(ids, row.heard, row.offered)
            row.transcript.append(row.message)

    def _call(self, rows: Sequence[_Row]) -> None:
        """Sends the calls of every rollout on their way; one that made none is told so, or ends."""
        for row in rows:
            row.called = tries_to_call(row.message) or _has_call(row)
        self._acting = [row for row in rows if row.called or self._nudge is not None]
        self._stop([row for row in rows if not row.called and self._nudge is None])
        self._steps = portal().submit(_act_all, self._acting)

    def _tokens_left(self, row: _Row) -> int:
        trainer = self._trainer
        longest = getattr(trainer.model.config, "max_position_embeddings", None)
        if trainer.use_vllm and trainer.vllm_mode == "colocate":
            longest = trainer.vllm_generation.llm.llm_engine.model_config.max_model_len
        budget: int = trainer.max_completion_length
        if longest is not None:
            budget = min(budget, longest - len(row.prompt_ids))
        return budget - len(row.completion_ids)


async def _opened_all(rows: Sequence[_Row]) -> list[Episode]:
    return await asyncio.gather(*(row.live.opened() for row in rows))


async def _act_all(rows: Sequence[_Row]) -> list[Sequence[Step]]:
    return await asyncio.gather(*(row.live.act(row.message) for row in rows))


async def _end_all(rows: Sequence[_Row]) -> list[Episode]:
    return await asyncio.gather(*(row.live.end() for row in rows))


def _has_call(row: _Row) -> bool:
    options = row.source.options
    try:
        return bool(actions.parse(row.message, action_format=options.action_format, tools=row.tools, text_tool=options.text_tool))
    except InvalidAction:
        return False


def _tool_message(step: Step, tools: Sequence[ToolSpec]) -> Message:
    """A tool's answer. A name that no tool has is not repeated: it is the model's own text."""
    names = [tool.name for tool in tools]
    called = step.call.name if step.call is not None else ""
    return {"role": "tool", "name": called if called in names else next(iter(names), "tool"), "content": to_text(step.blocks)}


def _text(content: Any) -> str:
    """A prompt's text, where its content is parts."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if part.get("text"))


def _most_on_any_rank(count: int, trainer: Any) -> int:
    """The largest of the ranks' counts: generation is collective, so that every rank takes part until all are done."""
    if trainer.accelerator.num_processes == 1:
        return count
    import torch

    return int(trainer.accelerator.gather(torch.tensor([count], device=trainer.accelerator.device)).max())


@contextmanager
def _at_most(tokens: int, trainer: Any) -> Iterator[None]:
    """Has the trainer generate no more tokens than any rollout may still have."""
    holder, name = (
        (trainer.vllm_generation, "max_completion_length") if trainer.use_vllm else (trainer.generation_config, "max_new_tokens")
    )
    usual = getattr(holder, name)
    setattr(holder, name, min(usual, tokens))
    try:
        yield
    finally:
        setattr(holder, name, usual)
