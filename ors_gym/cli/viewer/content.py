"""An episode as the JSON that the page unpacks: everything cut to its limits, with the address of the whole."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ors_gym.cli.viewer.attachments import Attachments
from ors_gym.cli.viewer.limits import Limits
from ors_gym.episode import Episode, Step
from ors_gym.protocol import Block, ImageBlock, JSONObject, TextBlock, ToolSpec

T = TypeVar("T")

_NAME = 200
"""Characters of a name: of a tool, a parameter, a type."""

_ENTRIES = 64
"""An object of more entries is shown as JSON."""


class Chunk:
    """Several episodes' contents, packed together: what they share, tools and images, is in it once.

    Args:
        limits: What is cut, and where.
        attachments: Where the wholes go.
    """

    def __init__(self, limits: Limits, attachments: Attachments) -> None:
        self._limits = limits
        self._attachments = attachments
        self._tools: dict[str, int] = {}
        self._images: dict[str, int] = {}
        self._episodes: list[str] = []
        self.size = 0
        """Bytes so far, before they are packed."""

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, episode: Episode) -> None:
        """Put an episode's contents in."""
        tools = to_json(self._some(episode.tools, self._tool))
        if tools not in self._tools:
            self._tools[tools] = len(self._tools)
            self.size += len(tools)
        content = to_json(
            {
                "id": episode.id,
                "session": episode.session_id,
                "task": self._value(episode.task.task_spec),
                "prompt": self._some(episode.prompt, self._block),
                "tools": self._tools[tools],
                "steps": self._steps(episode.steps),
                "error": self._text(episode.error) if episode.error else None,
                "kind": episode.error_kind,
                "metadata": self._value(episode.metadata or None),
            }
        )
        self._episodes.append(content)
        self.size += len(content)

    def json(self) -> str:
        """The whole chunk."""
        return (
            f'{{"tools":[{",".join(self._tools)}],"images":{to_json(list(self._images))},"episodes":[{",".join(self._episodes)}]}}'
        )

    def _some(self, items: Sequence[T], show: Callable[[T], JSONObject]) -> list[JSONObject]:
        """The items; of too many, the first and the last, and how many are left out between."""
        left_out = len(items) - self._limits.items
        if left_out <= 0:
            return [show(item) for item in items]
        half = self._limits.items // 2
        return [*map(show, items[:half]), {"omitted": len(items) - 2 * half}, *map(show, items[len(items) - half :])]

    def _steps(self, steps: Sequence[Step]) -> list[JSONObject]:
        return self._some(list(enumerate(steps, start=1)), lambda numbered: self._step(*numbered))

    def _step(self, place: int, step: Step) -> JSONObject:
        said = step.call.input if step.call is not None else step.action
        return {
            "place": place,
            "name": None if step.call is None else step.call.name[:_NAME],
            "said": self._value(said),
            "blocks": self._some(step.blocks, self._block),
            "reward": step.reward,
            "finished": step.finished,
            "invalid": self._text(step.invalid_action) if step.invalid_action else None,
            "error": self._text(step.error) if step.error else None,
            "kind": step.error_kind,
            "metadata": self._value(step.metadata or None),
            "seconds": step.elapsed,
        }

    def _tool(self, tool: ToolSpec) -> JSONObject:
        return {"name": tool.name[:_NAME], "description": self._text(tool.description), "schema": self._value(tool.input_schema)}

    def _block(self, block: Block) -> JSONObject:
        match block:
            case TextBlock():
                return {"type": "text", **self._text(block.text)}
            case ImageBlock():
                return {"type": "image", "mime": block.mimeType[:_NAME], **self._image(block.data)}
            case _:
                return {"type": "other", "name": block.type[:_NAME], "value": self._value(block.model_dump())}

    def _text(self, text: str, limit: int | None = None) -> JSONObject:
        limit = self._limits.text if limit is None else limit
        data = text.encode("utf-8", "backslashreplace")
        if len(data) <= limit:
            return {"text": text}
        shown = data[:limit].decode("utf-8", "ignore")
        return {"text": shown, "shown": limit, "size": len(data), "href": self._attachments.text(text)}

    def _value(self, value: Any) -> JSONObject | None:
        """A JSON value, written out here: a browser would round its large integers. An object's entries share one limit."""
        if value is None:
            return None
        if not isinstance(value, Mapping) or len(value) > _ENTRIES:
            return self._text(_written(value))
        entries = []
        left = self._limits.text
        for name, held in value.items():
            shown = self._text(_written(held), left)
            left -= min(left, shown.get("size", len(shown["text"])))
            entries.append((str(name)[:_NAME], shown))
        return {"entries": entries}

    def _image(self, data: str) -> JSONObject:
        try:
            image = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return {"image": None, "size": len(data), "broken": True}
        small, href = self._attachments.image(image, self._limits.image)
        whole = {"href": href} if href else {}
        if small is None:
            return {"image": None, "size": len(image), **whole}
        source = f"data:{small.mime_type};base64,{base64.b64encode(small.data).decode()}"
        if source not in self._images:
            self._images[source] = len(self._images)
            self.size += len(source)
        return {"image": self._images[source], "size": len(image), "width": small.width, "height": small.height, **whole}


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False, default=repr)


def to_json(value: Any) -> str:
    """Compact JSON, with nothing in it that a browser's parser refuses."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
