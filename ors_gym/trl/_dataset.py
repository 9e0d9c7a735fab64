"""Datasets of tasks: rows with prompts from the server, fetched concurrently, or streamed where there are too many to hold."""

import asyncio
import json
import logging
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ors_gym.episode import Episode
from ors_gym.errors import SessionSetupFailed
from ors_gym.portal import portal
from ors_gym.protocol import Blocks, ImageBlock, JSONObject, ToolSpec
from ors_gym.tasks import TaskRef
from ors_gym.trl._content import to_image, to_text
from ors_gym.trl._rows import ENV, INDEX, MESSAGE_KEY, SPLIT, TASK_SPEC, TOOL_SET, to_message_value
from ors_gym.trl._source import Source
from ors_gym.trl._tool_sets import ToolSets

if TYPE_CHECKING:
    from datasets import Dataset, Features, IterableDataset

logger = logging.getLogger("ors_gym.trl")

STREAM_FROM = 50_000
"""From so many tasks on a dataset is streamed, unless one says otherwise."""

_SHARD = 256  # tasks that a stream fetches together
_RANGE = 500  # tasks in one request

PromptSource = Literal["dataset", "session"]
SystemPrompt = str | Callable[[Sequence[ToolSpec]], str]


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """What `ORSSpec` is told about its rows; each field is the argument of that name."""

    num_tasks: int | None = None
    indices: Sequence[int] | None = None
    shuffle_seed: int | None = None
    streaming: bool | None = None
    prompt: PromptSource = "dataset"
    system_prompt: SystemPrompt | None = None
    conversational: bool = True
    images: bool = False
    include_metadata: bool = True
    discover_task_tools: bool = True
    task_tools_discovery_index: int | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.num_tasks is not None and self.indices is not None:
            raise ValueError("pass num_tasks or indices, not both")
        if self.prompt not in ("dataset", "session"):
            raise ValueError(f"prompt is 'dataset' or 'session', not {self.prompt!r}")
        if not self.conversational and (self.prompt == "session" or self.images):
            raise ValueError("prompt='session' and images=True need conversational prompts")


@dataclass(frozen=True)
class Start:
    """What a task's row is made of.

    Attributes:
        index: The task's place in the split.
        prompt: Its prompt's blocks.
        tools: Its tools.
        task_spec: The task itself, where it was asked for.
    """

    index: int
    prompt: Blocks = ()
    tools: Sequence[ToolSpec] = ()
    task_spec: JSONObject | None = None


class RowMaker:
    """Makes the rows of an environment's tasks. It pickles, for streams that are read in other processes.

    Args:
        source: The environment.
        name: Its key in the rows.
        split: The tasks' split.
        options: What the rows are like.
        tool_sets: Where tool sets get their keys.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        split: str,
        options: RowOptions,
        tool_sets: ToolSets,
    ) -> None:
        self._source = source
        self._name = name
        self._split = split
        self._options = options
        self._tool_sets = tool_sets

    @cached_property
    def indices(self) -> Sequence[int]:
        """The places in the split of the tasks that the options name, in their order.

        Raises:
            ValueError: There is none, or one is out of range.
        """
        count, options = self._source.discovery.num_tasks[self._split], self._options
        chosen: Sequence[int] = range(count if options.num_tasks is None else min(count, options.num_tasks))
        if options.indices is not None:
            chosen = [operator.index(index) for index in options.indices]
        if outside := [index for index in chosen if not 0 <= index < count][:5] if options.indices is not None else []:
            raise ValueError(f"split {self._split!r} has {count} tasks; there is no index {', '.join(map(str, outside))}")
        if not chosen:
            raise ValueError(f"there is no task to make rows of: split {self._split!r} has {count}, of which none is wanted")
        if options.shuffle_seed is None:
            return chosen
        order = np.random.default_rng(options.shuffle_seed).permutation(len(chosen))
        return [chosen[position] for position in order.tolist()]

    @property
    def streaming(self) -> bool:
        """Whether the rows are to be fetched as they are read."""
        wanted = self._options.streaming
        return len(self.indices) >= STREAM_FROM if wanted is None else wanted

    @cached_property
    def fixed_tools(self) -> tuple[ToolSpec, ...] | None:
        """The tools that every row is given; None if each has its own."""
        index = self._options.task_tools_discovery_index
        if not self._options.discover_task_tools:
            return self._source.discovery.tools
        if index is None and not self.streaming:
            return None
        episode = portal().call(self._run_reset, self.indices[0] if index is None else index)
        return tuple(episode.tools)

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of these tasks, in their order, without those that the environment cannot set up.

        Raises:
            ORSError: The server cannot be reached, or no task at all can be set up.
        """
        self._source.connect()
        tools = self.fixed_tools
        with _progress_bar(self._options.progress, f"Prompts of {self._name}/{self._split}", len(indices)) as advance:
            starts = portal().call(self._fetch, indices, tools, advance)
        return [self._row(start) for start in starts]

    def stream(self, shards: list[Sequence[int]]) -> Iterator[dict[str, Any]]:
        """The rows of shards of tasks, one shard fetched after another."""
        for shard in shards:
            yield from self.rows(shard)

    async def _fetch(self, indices: Sequence[int], tools: tuple[ToolSpec, ...] | None, advance: Callable[[], None]) -> list[Start]:
        specs = await self._fetch_specs(indices) if self._options.include_metadata else {}
        needs_session = self._options.prompt == "dataset" or tools is None
        failures: dict[int, SessionSetupFailed] = {}

        async def fetch(index: int) -> Start | None:
            try:
                episode = await self._run_reset(index) if needs_session else None
            except SessionSetupFailed as error:
                failures[index] = error
                return None
            finally:
                advance()
            prompt = episode.prompt if episode is not None and self._options.prompt == "dataset" else ()
            own_tools = tools if tools is not None else tuple(episode.tools if episode is not None else ())
            return Start(index, prompt, own_tools, specs.get(index))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(fetch(index)) for index in indices]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        starts = [start for task in tasks if (start := task.result()) is not None]
        if failures:
            first = failures[min(failures)]
            if not starts:
                raise first
            logger.warning(
                "%d tasks cannot be set up and are left out: %s; the first: %s", len(failures), sorted(failures)[:10], first
            )
        return starts

    async def _run_reset(self, index: int) -> Episode:
        """A task's prompt and tools: an episode that is begun and left."""
        env = self._source.new_env()
        async with self._source.slots:
            try:
                await env.reset(options={"task": TaskRef(self._split, index)})
            finally:
                await env.close()
        assert env.episode is not None
        return env.episode

    async def _fetch_specs(self, indices: Sequence[int]) -> dict[int, JSONObject]:
        environment, slots, wanted = self._source.environment, self._source.slots, set(indices)
        first, last = min(wanted, default=0), max(wanted, default=-1)

        async def fetch_range(start: int, stop: int) -> list[tuple[int, JSONObject]]:
            async with slots:
                return list(enumerate(await environment.get_task_range(self._split, start, stop), start))

        async def fetch_one(index: int) -> list[tuple[int, JSONObject]]:
            async with slots:
                return [(index, await environment.get_task(self._split, index))]

        if last - first < 4 * len(wanted):
            fetches = [fetch_range(start, min(start + _RANGE, last + 1)) for start in range(first, last + 1, _RANGE)]
        else:
            fetches = [fetch_one(index) for index in wanted]
        return dict(pair for pairs in await asyncio.gather(*fetches) for pair in pairs)

    def _row(self, start: Start) -> dict[str, Any]:
        row = {
            ENV: self._name,
            SPLIT: self._split,
            INDEX: start.index,
            TASK_SPEC: None if start.task_spec is None else json.dumps(start.task_spec),
            TOOL_SET: self._tool_sets.add(self._name, start.tools),
        }
        if not self._options.include_metadata:
            del row[TASK_SPEC]
        if self._options.images:
            images = [(block, to_image(block)) for block in start.prompt if isinstance(block, ImageBlock)]
            row["images"] = [image for _, image in images if image is not None]
        return {"prompt": self._prompt(start, row), **row}

    def _prompt(self, start: Start, row: dict[str, Any]) -> Any:
        system_prompt = self._options.system_prompt
        system = system_prompt(start.tools) if callable(system_prompt) else system_prompt
        if not self._options.conversational:
            text = to_text(start.prompt)
            return f"{system}\n\n{text}" if system else text
        as_parts = self._options.images
        user: Any = _parts(start.prompt) if as_parts else to_text(start.prompt)
        messages = [] if not system else [{"role": "system", "content": [_text_part(system)] if as_parts else system}]
        return [*messages, {"role": "user", "content": user, MESSAGE_KEY: to_message_value(row)}]


def make_dataset(maker: RowMaker) -> "Dataset | IterableDataset":
    """A dataset of the tasks' rows; a stream fetches a shard of tasks at a time, and its `shuffle(seed)` shuffles shards and rows.

    Raises:
        ORSError: The server cannot be reached, or no task can be set up.
        ValueError: There is no task.
    """
    from datasets import Dataset, IterableDataset

    indices = maker.indices
    if maker.streaming:
        shards = [indices[start : start + _SHARD] for start in range(0, len(indices), _SHARD)]
        return IterableDataset.from_generator(maker.stream, gen_kwargs={"shards": shards})
    rows = maker.rows(indices)
    return Dataset.from_list(rows, features=_features(rows[0]) if "images" in rows[0] else None)


def _features(row: Mapping[str, Any]) -> "Features":
    """The types of rows with images, which cannot be told from rows without one."""
    from datasets import Features, Image, List, Value

    text = Value("string")
    message = {"role": text, "content": List({"type": text, "text": text}), MESSAGE_KEY: text}
    columns = {name: Value("int64") if name == INDEX else text for name in row}
    return Features({**columns, "prompt": List(message), "images": List(Image())})


def _parts(blocks: Blocks) -> list[dict[str, Any]]:
    """A prompt's parts; an image is a placeholder, which TRL fills from the column `images`."""
    return [
        {"type": "image", "text": None}
        if isinstance(block, ImageBlock) and to_image(block) is not None
        else _text_part(to_text([block]))
        for block in blocks
    ]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _progress_bar(wanted: bool | None, title: str, total: int) -> "AbstractContextManager[Callable[[], None]]":
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return nullcontext(lambda: None)
    return _rich_bar(title, total)


@contextmanager
def _rich_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda: progress.advance(bar)
