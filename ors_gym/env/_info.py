"""The info dict: the same keys with the same types at every reset and every step."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypedDict

from ors_gym import observations
from ors_gym.episode import FailureKind, Step
from ors_gym.errors import ORSError
from ors_gym.protocol import Block, ToolSpec
from ors_gym.tasks import TaskRef


class InfoDict(TypedDict):
    """What `reset` and `step` tell beside the observation. Every key is always there.

    Attributes:
        task: The task's reference: `split` and `index`, or `task_spec`.
        tools: The tools of this task as on the wire: `name`, `description`, `input_schema`.
        blocks: What came back, as on the wire.
        metadata: The environment's metadata.
        finished: The environment ended the episode.
        reward_missing: The environment gave no reward; the reward is 0.0.
        unscored: The environment or the infrastructure failed: no reward of this episode may be learnt from.
        invalid_action: Why the action was malformed or rejected, or "".
        error: What failed, or "".
        error_kind: Whose failure it is: "environment", "infrastructure", or "".
        elapsed: Seconds that the call took.

    >>> info = make_info(TaskRef("train", 17), [])
    >>> info["task"], info["reward_missing"], info["error"]
    ({'split': 'train', 'index': 17}, False, '')
    """

    task: dict[str, Any]
    tools: list[dict[str, Any]]
    blocks: list[dict[str, Any]]
    metadata: dict[str, Any]
    finished: bool
    reward_missing: bool
    unscored: bool
    invalid_action: str
    error: str
    error_kind: FailureKind
    elapsed: float


def make_info(
    task: TaskRef | None,
    tools: Sequence[ToolSpec],
    *,
    blocks: Sequence[Block] = (),
    steps: Sequence[Step] = (),
    unscored: bool = False,
    error: str = "",
    error_kind: FailureKind = "",
    elapsed: float = 0.0,
) -> InfoDict:
    """A fresh info dict, which shares nothing that can be changed with any other."""
    return {
        "task": copy_json(task.to_dict()) if task else {},
        "tools": [tool.model_dump() for tool in tools],
        "blocks": list(observations.render(blocks, "blocks")),
        "metadata": {key: copy_json(value) for step in steps for key, value in (step.metadata or {}).items()},
        "finished": any(step.finished for step in steps),
        "reward_missing": any(not step.invalid_action for step in steps) and all(step.reward is None for step in steps),
        "unscored": unscored,
        "invalid_action": "\n".join(step.invalid_action for step in steps if step.invalid_action),
        "error": error,
        "error_kind": error_kind,
        "elapsed": elapsed,
    }


def copy_json(value: Any) -> Any:
    """A copy of a JSON value; a tenth of the cost of `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copy_json(item) for item in value]
    return value


def failure_of(error: BaseException) -> tuple[str, FailureKind]:
    """What failed, and whose failure it is: an `ORSError` knows; of others, the system's are the infrastructure's."""
    if isinstance(error, asyncio.CancelledError):
        return "the call was cancelled", "infrastructure"
    if isinstance(error, ORSError) and error.kind in ("environment", "infrastructure"):
        return str(error), error.kind
    return f"{type(error).__name__}: {error}", "infrastructure" if isinstance(error, OSError) else "environment"
