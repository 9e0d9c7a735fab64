"""The columns of a dataset's rows: what a row says about its task, and how that is read back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ors_gym.tasks import TaskRef

ENV, SPLIT, INDEX, TASK_SPEC = "ors_env", "ors_split", "ors_index", "ors_task_spec"
"""The columns that name a row's task. `ors_task_spec` is JSON: Arrow has no column of mixed types."""

TOOL_SET = "environment"
"""The column by which TRL picks the environment factory, here by the tools of the row's task."""

MESSAGE_KEY = "ors"
"""The key of the prompt's last message under which the task travels to a rollout function, which sees no columns."""

EPISODE, TRANSCRIPT = "ors_episode", "ors_transcript"
"""What our rollout function hands to the reward functions: the `Episode`, and the conversation as chat messages."""


@dataclass(frozen=True)
class RowTask:
    """Which task a row is.

    Attributes:
        environment: The key of its environment.
        task: The task.
        tool_set: The key of its tools, None where the row does not say.
    """

    environment: str
    task: TaskRef
    tool_set: str | None = None


def read_columns(columns: Mapping[str, Any], count: int) -> list[RowTask]:
    """The tasks of a batch of rows.

    Args:
        columns: Columns by name, each a list of `count` values.
        count: The number of rows.

    Raises:
        ValueError: The rows name no task: the dataset is not the spec's, or its columns were removed.
    """
    return [read_row({name: columns[name][row] for name in (*_NAMING, TOOL_SET) if name in columns}) for row in range(count)]


def read_row(row: Mapping[str, Any]) -> RowTask:
    """The task of a row.

    Raises:
        ValueError: It names none.
    """
    split, index, task_spec = row.get(SPLIT), row.get(INDEX), row.get(TASK_SPEC)
    tool_set = row.get(TOOL_SET)
    if split is not None and index is not None:
        return RowTask(row.get(ENV) or "", TaskRef(split, int(index)), tool_set)
    if task_spec is not None:
        spec = json.loads(task_spec) if isinstance(task_spec, str) else dict(task_spec)
        return RowTask(row.get(ENV) or "", TaskRef(task_spec=spec), tool_set)
    raise ValueError(
        f"a row of the dataset names no task: it needs the columns {SPLIT} and {INDEX}, or {TASK_SPEC}, and has "
        f"{', '.join(sorted(row)) or 'none of them'}; train on spec.train_dataset, and keep its ors_ columns"
    )


def to_message_value(row: Mapping[str, Any]) -> str:
    """A row's task as the value of `MESSAGE_KEY`."""
    return json.dumps({name: row[name] for name in (*_NAMING, TOOL_SET) if row.get(name) is not None and _needed(name, row)})


def read_prompt(prompt: Sequence[Mapping[str, Any]] | str) -> RowTask:
    """The task that a conversational prompt carries.

    Raises:
        ValueError: It carries none.
    """
    messages = [] if isinstance(prompt, str) else prompt
    for message in reversed(messages):
        if message.get(MESSAGE_KEY):
            return read_row(json.loads(message[MESSAGE_KEY]))
    raise ValueError(
        f"a prompt names no task: the rollout function reads it from the key {MESSAGE_KEY!r} of the last message, which "
        "spec.train_dataset puts there in conversational prompts; keep the messages' keys, and conversational=True"
    )


_NAMING = (ENV, SPLIT, INDEX, TASK_SPEC)


def _needed(name: str, row: Mapping[str, Any]) -> bool:
    """The task itself travels only where nothing else names it."""
    return name != TASK_SPEC or row.get(INDEX) is None
