"""`Chat`: a trainer's chat template at work: messages → tokens, and what the model wrote → an action."""

from collections.abc import Mapping, Sequence
from typing import Any

from ors_gym.actions import syntaxes
from ors_gym.protocol import ToolSpec
from ors_gym.tools import to_openai_chat
from ors_gym.trl._control_tokens import ControlTokens

Message = dict[str, Any]

_QUESTION: Message = {"role": "user", "content": "?"}


class Chat:
    """Renders prompts and what follows a turn of the model, by the trainer's template, and reads what the model wrote.

    What the model wrote is never tokenized again: what follows it is rendered behind a stand-in, which is then cut off.

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
        self._stand_ins: dict[str | None, list[int]] = {}

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> list[int]:
        """The tokens of a prompt, up to where the model speaks."""
        offered = to_openai_chat(tools) if self._takes_tools and tools else None
        return self._render(self.safe(messages), tools=offered, add_generation_prompt=True)

    def suffix_ids(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of what follows a turn of the model, from its end to where it speaks again.

        Args:
            messages: The tools' answers, or what a user says.
        """
        follows = self.safe(messages if self._takes_tools else [{**message, "role": "user"} for message in messages])
        name = follows[0].get("name") if self._takes_tools else None
        stand_in: list[Message] = [_QUESTION, {"role": "assistant", "content": "" if name else "!"}]
        if name is not None:
            stand_in[1]["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": {}}}]
        if name not in self._stand_ins:
            self._stand_ins[name] = self._up_to_end_of_turn(self._render(stand_in))
        prefix = self._stand_ins[name]
        ids = self._render([*stand_in, *follows], add_generation_prompt=True)
        if ids[: len(prefix)] != prefix:
            raise ValueError("the chat template changes what stands before a tool's answer, so it cannot be trained on in turns")
        return ids[len(prefix) :]

    def safe(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages, with control tokens in their texts neutralised."""
        return [{**message, "content": self._control_tokens.neutralise(message["content"])} for message in messages]

    def read(self, ids: Sequence[int], prefix: Sequence[int], tools: Sequence[ToolSpec]) -> Message:
        """What the model wrote, as a message: with `tool_calls` where the template's parser finds some, else its text.

        Args:
            ids: The tokens of one turn.
            prefix: Those before it.
            tools: What it may call.
        """
        if getattr(self._tokenizer, "response_template", None) is not None:
            offered = to_openai_chat(tools) or None
            message: Message = self._parse_response(self._tokenizer, list(ids), prefix=list(prefix), tools=offered)
            if message.get("tool_calls"):
                return message
        text = self._tokenizer.decode(ids)
        return {"role": "assistant", "content": syntaxes.spoken(_without_end(text, self._tokenizer))}

    def _render(self, messages: Sequence[Message], **options: Any) -> list[int]:
        ids: list[int] = self._tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=False, **options, **self._arguments
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
