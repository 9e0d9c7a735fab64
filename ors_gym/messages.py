"""An episode as chat messages, in OpenAI's form or in that of chat templates."""

import json
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from ors_gym.actions import parse
from ors_gym.episode import Episode, Step
from ors_gym.errors import InvalidAction
from ors_gym.observations import render
from ors_gym.protocol import Blocks, ImageBlock, ToolCall

Message = dict[str, Any]


def episode_messages(episode: Episode, system_prompt: str | None = None, *, images: bool = False) -> list[Message]:
    """The conversation of an episode: the prompt, then each action with what came back.

    An action that was read as several tool calls is one assistant message with all of them, followed by one tool message each. An
    action that was none is an assistant message with its text, and the reason comes back as the user's.

    Args:
        episode: The episode.
        system_prompt: A system message to begin with; None for none.
        images: Whether images are content parts (`image_url`, as data URLs) or short placeholders in the text.

    Returns:
        Messages whose `arguments` are JSON text.

    >>> from ors_gym.protocol import TextBlock
    >>> from ors_gym.tasks import TaskRef
    >>> episode_messages(Episode(TaskRef("train", 0), prompt=(TextBlock(text="2+2?"),)))
    [{'role': 'user', 'content': '2+2?'}]
    """
    messages: list[Message] = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    messages.append({"role": "user", "content": content_of(episode.prompt, images=images)})
    for number, steps in enumerate(_turns(episode)):
        messages.extend(_turn_messages(steps, number, images))
    return messages


def template_messages(episode: Episode, system_prompt: str | None = None) -> list[Message]:
    """The same for Hugging Face chat templates: a call's `arguments` are an object, where OpenAI has JSON text."""
    messages = episode_messages(episode, system_prompt)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


def content_of(blocks: Blocks, *, images: bool = False) -> str | list[dict[str, Any]]:
    """The content of a message: text, or, where `images` is set and there are some, a list of parts.

    >>> from ors_gym.protocol import TextBlock
    >>> content_of((TextBlock(text="Hello"), TextBlock(text="there")))
    'Hello\\nthere'
    """
    if not images or not any(isinstance(block, ImageBlock) for block in blocks):
        return str(render(blocks))
    return [_image_part(block) if isinstance(block, ImageBlock) else {"type": "text", "text": render([block])} for block in blocks]


def _turns(episode: Episode) -> list[list[Step]]:
    """The steps by action: an action that reads as several calls covers as many steps as made them."""
    turns: list[list[Step]] = []
    position = 0
    while position < len(episode.steps):
        step = episode.steps[position]
        meant = _calls_of(step, episode)
        following = episode.steps[position : position + max(len(meant), 1)]
        length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].call, zip(meant, following, strict=False)))
        turns.append(following[: max(length, 1)])
        position += len(turns[-1])
    return turns


def _calls_of(step: Step, episode: Episode) -> list[ToolCall]:
    try:
        return parse(step.action, tools=episode.tools) if step.call is not None else []
    except InvalidAction:  # it was read in another way, by a format or a parser of its owner's
        return []


def _turn_messages(steps: list[Step], number: int, images: bool) -> list[Message]:
    calls = [step for step in steps if step.call is not None]
    if not calls:
        reason = content_of(steps[0].blocks, images=images) or steps[0].invalid_action
        return [{"role": "assistant", "content": _said(steps[0].action)}, {"role": "user", "content": reason}]
    ids = [f"call_{number}_{position}" for position in range(len(calls))]
    tool_calls = [_tool_call(step, identifier) for step, identifier in zip(calls, ids, strict=True)]
    assistant = {"role": "assistant", "content": _text_beside(steps[0].action), "tool_calls": tool_calls}
    return [assistant, *(_tool_message(step, identifier, images) for step, identifier in zip(calls, ids, strict=True))]


def _tool_call(step: Step, identifier: str) -> dict[str, Any]:
    assert step.call is not None
    function = {"name": step.call.name, "arguments": json.dumps(step.call.input)}
    return {"id": identifier, "type": "function", "function": function}


def _tool_message(step: Step, identifier: str, images: bool) -> Message:
    assert step.call is not None
    content = content_of(step.blocks, images=images) or step.invalid_action or step.error
    return {"role": "tool", "tool_call_id": identifier, "name": step.call.name, "content": content}


def _text_beside(action: Any) -> str:
    """What a chat message says beside its calls."""
    content = action.get("content") if isinstance(action, Mapping) and action.get("role") == "assistant" else ""
    return content if isinstance(content, str) else ""


def _said(action: Any) -> str:
    """An action that was no call, as text; of a chat message, what it said and the calls that it meant."""
    if isinstance(action, Mapping) and action.get("role") == "assistant":
        calls = action.get("tool_calls") or ()
        return "\n".join(filter(None, [_text_beside(action), *(json.dumps(call, default=repr) for call in calls)]))
    return action if isinstance(action, str) else json.dumps(action, default=repr)


def _image_part(block: ImageBlock) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mimeType};base64,{block.data}"}}
