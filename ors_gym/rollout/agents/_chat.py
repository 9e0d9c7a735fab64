"""A model behind an OpenAI-compatible endpoint as an agent."""

import asyncio
from collections.abc import Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ors_gym.errors import InfrastructureError
from ors_gym.rollout.agents._agent import Conversation
from ors_gym.secrets import EnvSecret, Redactor
from ors_gym.tools import to_openai_chat

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class ChatFailed(InfrastructureError):
    """The model's endpoint refused, or stayed away after the retries; the message has its words."""


class ChatAgent:
    """Asks a model through the `openai` package (extra `agents`): vLLM, llama.cpp, or a hosted endpoint.

    The conversation goes to it as chat messages with the tools in its own format and images as data URLs. What it says,
    text or one or several tool calls, is the action as it is; calls that it malformed come back to it as the tool's answer.
    A connection that fails, a time-out, a 429 and a 5xx are retried, after `Retry-After` where the endpoint sends one.
    The tokens that the endpoint counts are reported as `prompt_tokens` and `completion_tokens`.

    Args:
        model: The model's name, as the endpoint knows it.
        base_url: The endpoint; None takes the variables OPENAI_BASE_URL and OPENAI_API_KEY, or OpenAI's own endpoint.
        api_key: The key, better as an `EnvSecret`. It goes to `base_url` only; and a `base_url` that is given here gets no
            other key than the one that is given here.
        system_prompt: The first message, if any.
        max_retries: How often a request is tried again.
        timeout: Seconds for one answer.
        options: More arguments of `chat.completions.create`: `temperature`, `max_tokens`, `tool_choice`, `extra_body` …

    Raises:
        ImportError: The `openai` package is not installed.

    Close it with `await aclose()` or `async with`.

    >>> ChatAgent("Qwen/Qwen3-4B", base_url="http://localhost:8000/v1", options={"temperature": 0.7})
    ChatAgent('Qwen/Qwen3-4B', temperature=0.7)
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | EnvSecret | None = None,
        system_prompt: str | None = None,
        max_retries: int = 5,
        timeout: float = 600.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if find_spec("openai") is None:
            raise ImportError("a ChatAgent needs the extra 'agents': pip install 'ors-gym[agents]'")
        self.model = model
        self.base_url = base_url
        self.system_prompt = system_prompt
        self.max_retries = max_retries
        self.timeout = timeout
        self.options = dict(options or {})
        self._api_key = api_key
        self._client: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def act(self, conversation: Conversation) -> dict[str, Any]:
        """The model's next message: a dict with `role`, `content` and, if it made any, `tool_calls`.

        Raises:
            ChatFailed: No answer could be had.
        """
        import openai

        client = self._connected()
        messages: Any = _messages(conversation, self.system_prompt)
        tools = {"tools": to_openai_chat(conversation.tools)} if conversation.tools else {}
        try:
            answer = await client.chat.completions.create(model=self.model, messages=messages, **{**tools, **self.options})
        except openai.OpenAIError as error:
            reason = Redactor([client.api_key]).redact(str(error))
            raise ChatFailed(f"the model {self.model!r} at {client.base_url} gave no answer: {reason}") from None
        if answer.usage:
            conversation.report(prompt_tokens=answer.usage.prompt_tokens, completion_tokens=answer.usage.completion_tokens)
        if not answer.choices:
            raise ChatFailed(f"the model {self.model!r} at {client.base_url} answered without a choice")
        return _message(answer.choices[0].message)

    def _connected(self) -> "AsyncOpenAI":
        """The client of the running event loop, made at the first request."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            import openai

            key = self._api_key.resolve() if isinstance(self._api_key, EnvSecret) else self._api_key
            self._client = openai.AsyncOpenAI(
                base_url=self.base_url,
                api_key=key or ("none" if self.base_url else None),
                max_retries=self.max_retries,
                timeout=self.timeout,
                http_client=openai.DefaultAioHttpClient(),
            )
            self._loop = loop
        return self._client

    async def aclose(self) -> None:
        """Close the connections. It may be used again afterwards."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_loop": None}

    def __repr__(self) -> str:
        named = {"system_prompt": self.system_prompt, **self.options}
        options = "".join(f", {name}={value!r}" for name, value in named.items() if value is not None)
        return f"ChatAgent({self.model!r}{options})"


def _messages(conversation: Conversation, system_prompt: str | None) -> list[dict[str, Any]]:
    """The conversation with its images. Endpoints take them in a user's message only: a tool's images follow it there."""
    messages: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for message in conversation.messages(system_prompt, images=True):
        if message["role"] != "tool" and images:
            messages.append({"role": "user", "content": images})
            images = []
        if message["role"] == "tool" and not isinstance(message["content"], str):
            images = images + [part for part in message["content"] if part["type"] == "image_url"]
            text = "\n".join(part["text"] for part in message["content"] if part["type"] == "text")
            message = {**message, "content": text or "The output is the image below."}
        messages.append(message)
    return [*messages, {"role": "user", "content": images}] if images else messages


def _message(message: Any) -> dict[str, Any]:
    """What of the model's message belongs to the conversation."""
    kept: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    if reasoning:
        kept["reasoning_content"] = reasoning
    calls = [call for call in message.tool_calls or () if call.type == "function"]
    if calls:
        kept["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
            for call in calls
        ]
    return kept
