"""Gymnasium spaces for what language models read and say: text, tool calls, blocks and images.

Importing this package makes them known to Gymnasium's functions on spaces, so that its vector environments and its wrappers work.
"""

from collections.abc import Sequence
from typing import Any

from gymnasium import Space, spaces

from ors_gym.actions import ActionFormat
from ors_gym.observations import ObservationFormat
from ors_gym.protocol import ToolSpec
from ors_gym.spaces._base import ValueSpace
from ors_gym.spaces.blocks import BlocksSpace, ImageSpace
from ors_gym.spaces.calls import JSONText, ToolCallSpace
from ors_gym.spaces.text import UnicodeText

__all__ = [
    "BlocksSpace",
    "ImageSpace",
    "JSONText",
    "ToolCallSpace",
    "UnicodeText",
    "ValueSpace",
    "action_space_for",
    "observation_space_for",
]


def action_space_for(tools: Sequence[ToolSpec], action_format: ActionFormat = "tool_call") -> Space[Any]:
    """The action space of an environment with these tools.

    Args:
        tools: The environment's shared tools.
        action_format: `"tool_call"`: a `ToolCallSpace`; `"json"`: a `JSONText`; `"text"`: a `UnicodeText`.

    Raises:
        ValueError: Another format.

    >>> action_space_for([ToolSpec(name="look")])
    ToolCallSpace(look)
    """
    if action_format == "tool_call":
        return ToolCallSpace(tools)
    if action_format == "json":
        return JSONText(tools)
    if action_format == "text":
        return UnicodeText()
    raise ValueError(f"action_format is 'tool_call', 'json' or 'text', not {action_format!r}")


def observation_space_for(observation_format: ObservationFormat = "text", max_length: int | None = None) -> Space[Any]:
    """The observation space of an environment.

    Args:
        observation_format: `"text"`: a `UnicodeText`; `"blocks"`: a `BlocksSpace`; `"multimodal"`: a `Dict` of `text` and `images`.
        max_length: The most characters of the text, in `"blocks"` of each block; None is no limit.

    Raises:
        ValueError: Another format.

    >>> observation_space_for("multimodal")
    Dict('images': Sequence(ImageSpace(), stack=False), 'text': UnicodeText(0, None))
    """
    if observation_format == "text":
        return UnicodeText(max_length)
    if observation_format == "blocks":
        return BlocksSpace(max_length)
    if observation_format == "multimodal":
        return spaces.Dict({"images": spaces.Sequence(ImageSpace()), "text": UnicodeText(max_length)})
    raise ValueError(f"observation_format is 'text', 'blocks' or 'multimodal', not {observation_format!r}")
