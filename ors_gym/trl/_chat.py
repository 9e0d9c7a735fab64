"""`Chat`: a trainer's chat template at work: messages → tokens, and what the model wrote → an action."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ors_gym.actions import syntaxes
from ors_gym.tools import ToolList
from ors_gym.trl._control_tokens import ControlTokens

Message = dict[str, Any]

_QUESTION: Message = {"role": "user", "content": "?"}


class Chat:
    """Renders prompts and what follows a turn of the model, by the trainer's template, and reads what the model wrote.

    What the model wrote is never tokenized again: what follows it is rendered behind a stand-in, which is then cut off.
    What has been rendered is kept, for the rollouts of a group share their prompt, and many a tool's answer.

    Args:
        trainer: A `GRPOTrainer`.

    Raises:
        ValueError: The model takes images: TRL gives a rollout function none.
    """

    def __init__(self, trainer: Any) -> None:
        from transformers import ProcessorMixin
        from trl import chat_template_utils as templates

        tokenizer = trainer.processing_class
        if isinstance(tokenizer, ProcessorMixin):
            raise ValueError(
                "the rollout function is for models of text: TRL passes it no images; train this model with "
                'trainer_kwargs("environment")'
            )
        self._tokenizer = tokenizer
        self._parse_response = templates.parse_response
        self._control_tokens = ControlTokens(tokenizer)
        self._takes_tools = templates.supports_tool_calling(tokenizer)
        keeps_prefix = not self._takes_tools or templates.is_chat_template_prefix_preserving(tokenizer)
        self._arguments: dict[str, Any] = {
            "chat_template": trainer.chat_template or (None if keeps_prefix else templates.get_training_chat_template(tokenizer)),
            **trainer.chat_template_kwargs,
        }
        if self._takes_tools and getattr(tokenizer, "response_template", None) is None:
            _add_response_template(tokenizer)
        self._parser = _with_compiled_template(tokenizer)
        self._prompts: dict[str, list[int]] = {}
        self._suffixes: dict[str, list[int]] = {}
        self._stand_ins: dict[str | None, list[int]] = {}

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: ToolList) -> list[int]:
        """The tokens of a prompt, up to where the model speaks.

        Args:
            messages: The prompt.
            tools: What the model may call.
        """
        offered = tools if self._takes_tools and tools else None
        key = json.dumps([messages, offered])
        if key not in self._prompts:
            (self._prompts[key],) = self._render([self.safe(messages)], tools=offered, add_generation_prompt=True)
        return self._prompts[key]

    def suffix_ids(self, follows: Sequence[Sequence[Message]]) -> list[list[int]]:
        """The tokens of what follows turns of the model, each from the turn's end to where the model speaks again.

        Args:
            follows: Behind each turn the tools' answers, or what a user says.

        Raises:
            ValueError: The chat template is none that can be rendered in turns.
        """
        keys = [json.dumps(messages) for messages in follows]
        new = {key: messages for key, messages in zip(keys, follows, strict=True) if key not in self._suffixes}
        if new:
            self._suffixes |= zip(new, self._render_behind_a_turn(list(new.values())), strict=True)
        return [self._suffixes[key] for key in keys]

    def safe(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages, with control tokens in their texts neutralised."""
        return [{**message, "content": self._control_tokens.neutralise(message["content"])} for message in messages]

    def read(self, ids: Sequence[int], heard: Sequence[int], tools: ToolList) -> Message:
        """What the model wrote, as a message: with `tool_calls` where the template's parser finds some, else its text.

        Args:
            ids: The tokens of one turn.
            heard: Those that stand between it and the model's turn before, or the prompt.
            tools: What the model may call.
        """
        if self._parser is not None:
            message: Message = self._parse_response(self._parser, list(ids), prefix=list(heard), tools=tools or None)
            if message.get("tool_calls"):
                return message
        text = self._tokenizer.decode(ids)
        return {"role": "assistant", "content": syntaxes.spoken(_without_end(text, self._tokenizer))}

    def _render_behind_a_turn(self, follows: Sequence[Sequence[Message]]) -> list[list[int]]:
        turns = [
            self.safe(messages if self._takes_tools else [{**message, "role": "user"} for message in messages])
            for messages in follows
        ]
        names = [messages[0].get("name") if self._takes_tools else None for messages in turns]
        conversations = [[*_stand_in(name), *messages] for name, messages in zip(names, turns, strict=True)]
        rendered = self._render(conversations, add_generation_prompt=True)
        return [self._behind(self._prefix(name), ids) for name, ids in zip(names, rendered, strict=True)]

    def _prefix(self, name: str | None) -> list[int]:
        """The tokens of the stand-in for a turn that called this tool, or none."""
        if name not in self._stand_ins:
            (ids,) = self._render([_stand_in(name)])
            self._stand_ins[name] = self._up_to_end_of_turn(ids)
        return self._stand_ins[name]

    def _behind(self, prefix: list[int], ids: list[int]) -> list[int]:
        if ids[: len(prefix)] != prefix:
            raise ValueError("the chat template changes what stands before a tool's answer, so it cannot be trained on in turns")
        return ids[len(prefix) :]

    def _render(self, conversations: Sequence[Sequence[Message]], **options: Any) -> list[list[int]]:
        ids: list[list[int]] = self._tokenizer.apply_chat_template(
            list(conversations), tokenize=True, return_dict=False, **options, **self._arguments
        )
        return ids

    def _up_to_end_of_turn(self, ids: list[int]) -> list[int]:
        """Without what a template writes behind the token that ends a turn: the model ends with that token itself."""
        ends = [position for position, token in enumerate(ids) if token == self._tokenizer.eos_token_id]
        return ids[: ends[-1] + 1] if ends else ids


def tries_to_call(message: Message) -> bool:
    """Whether a message has the marks of a tool call, however broken."""
    content = message.get("content") or ""
    return bool(message.get("tool_calls")) or content.lstrip().startswith("{") or syntaxes.find_syntax(content) is not None


def _stand_in(name: str | None) -> list[Message]:
    """A conversation up to a turn of the model: one that called the tool of that name, or spoke."""
    turn: Message = {"role": "assistant", "content": "" if name else "!"}
    if name is not None:
        turn["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": {}}}]
    return [_QUESTION, turn]


def _without_end(text: str, tokenizer: Any) -> str:
    for token in (tokenizer.eos_token, tokenizer.pad_token):
        while token and text.endswith(token):
            text = text.removesuffix(token)
    return text


def _add_response_template(tokenizer: Any) -> None:
    """Has the tokenizer parse calls by its own template, where TRL knows it; else `ors_gym.actions` reads the text."""
    from trl.chat_template_utils import add_response_schema

    try:
        add_response_schema(tokenizer)
    except ValueError:
        return


def _with_compiled_template(tokenizer: Any) -> Any:
    """The tokenizer with a response template that is not compiled anew for each response; None if it has none."""
    template = getattr(tokenizer, "response_template", None)
    if template is None:
        return None
    from transformers.utils.chat_parsing.response_templates import load_response_template

    compiled = copy.copy(tokenizer)
    compiled.response_template = load_response_template(template)
    return compiled
