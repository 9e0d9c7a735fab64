"""A local model as an agent, its conversations generated in batches."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ors_gym.messages import template_messages
from ors_gym.rollout.agents._agent import Conversation
from ors_gym.tools import to_openai_chat


@dataclass(frozen=True)
class _Request:
    prompt: list[int]
    completion: "asyncio.Future[list[int]]"


class TransformersAgent:
    """Generates with a `transformers` model in this process, through its tokenizer's chat template.

    Conversations that wait for an action at the same time are generated together, at most `batch_size` of them, while the
    others' tools run. The model's text is the action: `actions.parse` reads the tool-call syntax of the model's family.
    Tokens are reported as `prompt_tokens` and `completion_tokens`.

    Args:
        model: A causal language model, on its device.
        tokenizer: Its tokenizer, with a chat template that renders tools.
        system_prompt: The first message, if any.
        batch_size: The most conversations in one call of `generate`.
        template: More arguments of `apply_chat_template`, for instance `{"enable_thinking": False}`.
        generation: Arguments of `generate`: `max_new_tokens` (256 unless given), `do_sample`, `temperature` …

    >>> model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")  # doctest: +SKIP
    >>> tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")  # doctest: +SKIP
    >>> agent = TransformersAgent(model, tokenizer, template={"enable_thinking": False})  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        system_prompt: str | None = None,
        batch_size: int = 32,
        template: Mapping[str, Any] | None = None,
        generation: Mapping[str, Any] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.model = model
        self.tokenizer = tokenizer
        self.system_prompt = system_prompt
        self.batch_size = batch_size
        self.template = dict(template or {})
        self.generation = {"max_new_tokens": 256, **(generation or {})}
        self._waiting: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None

    async def act(self, conversation: Conversation) -> str:
        """The model's next text, without its end-of-turn token."""
        prompt = self.tokenizer.apply_chat_template(
            template_messages(conversation.episode, self.system_prompt),
            tools=to_openai_chat(conversation.tools) or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **self.template,
        )["input_ids"]
        request = _Request(list(prompt), asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._generate_waiting())
        completion = await request.completion
        conversation.report(prompt_tokens=len(request.prompt), completion_tokens=len(completion))
        stops = self._stop_ids()
        text = completion[:-1] if completion and completion[-1] in stops else completion
        return str(self.tokenizer.decode(text, skip_special_tokens=False))

    async def _generate_waiting(self) -> None:
        """Generate for everyone who waits, batch after batch, until nobody does."""
        while self._waiting:
            await asyncio.sleep(0)  # whoever is ready to ask in this turn of the loop joins the batch
            batch, self._waiting = self._waiting[: self.batch_size], self._waiting[self.batch_size :]
            batch = [request for request in batch if not request.completion.done()]
            if not batch:
                continue
            try:
                completions = await asyncio.to_thread(self._generate, [request.prompt for request in batch])
            except Exception as error:
                for request in batch:
                    if not request.completion.done():
                        request.completion.set_exception(error)
                continue
            for request, completion in zip(batch, completions, strict=True):
                if not request.completion.done():
                    request.completion.set_result(completion)

    def _generate(self, prompts: list[list[int]]) -> list[list[int]]:
        """One completion a prompt, each up to and with the token that ended it."""
        import torch

        width = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.tokenizer.eos_token_id
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=self.model.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=self.model.device)
        with torch.inference_mode():
            output = self.model.generate(input_ids=ids, attention_mask=mask, pad_token_id=pad, **self.generation)
        return [self._until_stop(completion) for completion in output[:, width:].tolist()]

    def _until_stop(self, tokens: list[int]) -> list[int]:
        stops = self._stop_ids()
        end = next((position for position, token in enumerate(tokens) if token in stops), len(tokens) - 1)
        return tokens[: end + 1]

    def _stop_ids(self) -> frozenset[int]:
        configured = self.generation.get("eos_token_id", self.model.generation_config.eos_token_id)
        stops = configured if isinstance(configured, (list, tuple)) else [configured]
        return frozenset({*stops, self.tokenizer.eos_token_id} - {None})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": [], "_worker": None}

    def __repr__(self) -> str:
        return f"TransformersAgent({getattr(self.model, 'name_or_path', '') or type(self.model).__name__!r})"
