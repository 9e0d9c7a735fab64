"""The tool sets of a training's tasks: tasks of one environment may have tools of their own."""

import hashlib
import json
from collections.abc import Sequence

from ors_gym.protocol import ToolSpec


class ToolSets:
    """Tool sets by keys, which are the same in every process."""

    def __init__(self) -> None:
        self._sets: dict[str, tuple[str, tuple[ToolSpec, ...]]] = {}

    def add(self, environment: str, tools: Sequence[ToolSpec]) -> str:
        """The key of a tool set of an environment."""
        canonical = json.dumps([tool.model_dump() for tool in tools], sort_keys=True)
        key = f"{environment}/{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"
        self._sets.setdefault(key, (environment, tuple(tools)))
        return key

    def tools(self, key: str | None) -> tuple[ToolSpec, ...] | None:
        """The tools of a key; None if it is not known."""
        known = self._sets.get(key or "")
        return None if known is None else known[1]

    def items(self) -> list[tuple[str, str, tuple[ToolSpec, ...]]]:
        """Key, environment and tools of each."""
        return [(key, environment, tools) for key, (environment, tools) in self._sets.items()]
