"""Episodes as JSONL: one line an episode, written as it ends and read by everything that shows or scores it later.

The file, `episodes.jsonl` in a run's folder:

- Each line is one `Record` as JSON, ASCII only. `Record` and the models below it document every field; `version` says
  which schema it is, and a reader refuses a version that it does not know.
- An image is stored once, as `images/<SHA-256>.<extension>` beside the file, and a block refers to it by that name.
- A line is written whole, in one system call, so that a reader sees every episode at once, also while the file is being
  written, and the writer's death loses at most the line that it was writing. Reading drops such a torn last line, and
  opening the file to write mends it. Only `flush` and `close` ask the disk (`fsync`): a power cut can lose the episodes
  since. One writer a file; a second one should write a file of its own.
- What a policy said may be any object. It is kept as JSON: mappings, sequences, dataclasses, pydantic models and numpy
  values as their contents, anything else as its `repr`.
- Records hold no secret, provided that the writer is told them (`redactor`): a server may echo what it received.
"""

import base64
import binascii
import hashlib
import json
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ors_gym.episode import Episode, FailureKind, Step
from ors_gym.errors import RecordError
from ors_gym.protocol import ImageBlock, JSONObject, Prompt, TextBlock, ToolCall, ToolSpec, UnknownBlock, blocks_adapter
from ors_gym.rewards import RewardReduction, reduce
from ors_gym.secrets import Redactor
from ors_gym.tasks import TaskRef

logger = logging.getLogger("ors_gym.records")

RECORD_VERSION = 1
"""The version of the schema that this release writes."""

EPISODES_FILE = "episodes.jsonl"
"""The name of the file of records in a run's folder."""

IMAGES_FOLDER = "images"
_IMAGE_NAME = re.compile(r"images/[0-9a-f]{64}\.[a-z]+")
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/bmp": "bmp"}
_MAX_DEPTH = 100
_MAX_BITS = 10_000
_MAX_REPR = 10_000


class _Model(BaseModel):
    """Unknown fields are passed over: a later minor change adds fields and keeps the version."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RecordedTask(_Model):
    """Which task: `split` and `index`, or `task_spec`."""

    env_name: str | None = None
    split: str | None = None
    index: int | None = None
    task_spec: JSONObject | None = None


class RecordedCall(_Model):
    """A tool call: the tool's name and its input."""

    name: str
    input: JSONObject = Field(default_factory=dict)


class RecordedBlock(_Model):
    """A block of a prompt or an output.

    A text block has `text`. An image block has `mimeType` and either `image`, the name of a file beside the record, or
    `data`, base64 as the server sent it, where that could not be decoded. Blocks of other types keep all their fields.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    text: str | None = None
    mimeType: str | None = None
    image: str | None = None
    data: str | None = Field(default=None, repr=False)
    detail: JSONObject | None = None


class RecordedStep(_Model):
    """One tool call, or one action that could not become one; the fields are those of `ors_gym.Step`.

    `action` is JSON: what was no JSON value is its `repr`. Times are seconds; `started_at` is since the epoch.
    """

    action: Any = None
    call: RecordedCall | None = None
    blocks: tuple[RecordedBlock, ...] = ()
    reward: float | None = None
    finished: bool = False
    metadata: JSONObject | None = None
    invalid_action: str = ""
    error: str = ""
    error_kind: FailureKind = ""
    started_at: float = 0.0
    elapsed: float = 0.0


class Record(_Model):
    """One line of a file of records: one episode, version 1 of the schema.

    Attributes:
        format: What the line is.
        version: The schema's version.
        id: The episode's unique id.
        env_name, session_id: The environment and the server's id of the session.
        task: Which task it was.
        prompt: The prompt's blocks.
        tools: The tools of this task, as the standard's ToolSpec.
        steps: The steps in order.
        terminated: The environment said `finished`.
        truncated: It was cut: by the step limit, a time-out, a failure, or because its owner closed it.
        error, error_kind: What failed and whose failure it is; "" if nothing did.
        reward: The episode's reward, as the run reduced it; None if it is unscored (`error_kind` is not "").
        started_at, ended_at: Seconds since the epoch; `ended_at` is None if the episode had not ended.
        metadata: What its owner noted. Rollouts write `group` (the number of the task in the run), `rollout` (the
            number in the group), `attempt` (0, or the number of the retry), and what the agent reported as `agent`
            (`prompt_tokens`, `completion_tokens`, …).
    """

    format: Literal["ors-gym/episode"] = "ors-gym/episode"
    version: int = RECORD_VERSION
    id: str
    env_name: str = ""
    session_id: str = ""
    task: RecordedTask
    prompt: tuple[RecordedBlock, ...] = ()
    tools: tuple[JSONObject, ...] = ()
    steps: tuple[RecordedStep, ...] = ()
    terminated: bool = False
    truncated: bool = False
    error: str = ""
    error_kind: FailureKind = ""
    reward: float | None = None
    started_at: float = 0.0
    ended_at: float | None = None
    metadata: JSONObject = Field(default_factory=dict)

    @property
    def unscored(self) -> bool:
        """Whether the environment or the infrastructure failed, so that the episode has no reward."""
        return bool(self.error_kind)

    def to_episode(self, folder: str | os.PathLike[str]) -> Episode:
        """The episode again, its images read from beside the file.

        Args:
            folder: The folder that the file of records is in.

        Raises:
            RecordError: An image is missing, or a field makes no sense.
        """
        try:
            return self._to_episode(Path(folder))
        except ValueError as error:
            raise RecordError(f"the record of episode {self.id}: {_reason(error)}") from error

    def _to_episode(self, folder: Path) -> Episode:
        return Episode(
            task=TaskRef(**self.task.model_dump()),
            env_name=self.env_name,
            session_id=self.session_id,
            prompt=Prompt(_restored(self.prompt, folder)),
            tools=tuple(ToolSpec.model_validate(tool) for tool in self.tools),
            steps=[
                Step(
                    action=step.action,
                    call=None if step.call is None else ToolCall(name=step.call.name, input=step.call.input),
                    blocks=_restored(step.blocks, folder),
                    reward=step.reward,
                    finished=step.finished,
                    metadata=step.metadata,
                    invalid_action=step.invalid_action,
                    error=step.error,
                    error_kind=step.error_kind,
                    started_at=step.started_at,
                    elapsed=step.elapsed,
                )
                for step in self.steps
            ],
            terminated=self.terminated,
            truncated=self.truncated,
            error=self.error,
            error_kind=self.error_kind,
            started_at=self.started_at,
            ended_at=self.ended_at,
            metadata=dict(self.metadata),
            id=self.id,
        )


class RecordWriter:
    """Appends episodes to a file of records; a context manager. Threads may share it.

    Args:
        path: The file, or a folder, whose `episodes.jsonl` is then meant. Missing folders are made; an existing file is
            continued, and a torn last line in it is cut off.
        reward: How an episode's rewards become one, as in `ors_gym.rewards.reduce`.
        redactor: What knows the secrets that must not be written.

    Raises:
        OSError: The file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with RecordWriter(folder) as writer:
    ...         writer.write(Episode(TaskRef("train", 0), terminated=True))
    ...     [episode.task.key for episode in load_records(folder)]
    ['train/0']
    """

    def __init__(self, path: str | os.PathLike[str], *, reward: RewardReduction = "sum", redactor: Redactor | None = None) -> None:
        self.path = records_file(path)
        self.reward = reward
        self._redactor = redactor
        self._lock = threading.Lock()
        self._known_images: set[str] = set()
        self._torn = False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (closed by `close`)
        try:
            _mend(self.path)
        except BaseException:
            self._file.close()
            raise

    def write(self, episode: Episode) -> None:
        """Append one episode; a reader sees it at once.

        Raises:
            OSError: The disk is full, or the like. What was written of the episode is cut off by the next one.
            ValueError: The writer is closed, or the reward function gave no number.
        """
        fields = self._fields(episode)
        line = memoryview((json.dumps(fields, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii"))
        with self._lock:
            if self._torn:
                _mend(self.path)
            self._torn = True
            while line:
                line = line[self._file.write(line) :]
            self._torn = False

    def flush(self) -> None:
        """Have the disk keep what was written: after this, a power cut loses none of it."""
        with self._lock:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close. Closing twice is fine."""
        with self._lock:
            if not self._file.closed:
                try:
                    os.fsync(self._file.fileno())
                finally:
                    self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _fields(self, episode: Episode) -> dict[str, Any]:
        """A `Record`'s fields as JSON values. Secrets are looked for in what others said, not in names and ids."""
        return {
            "format": "ors-gym/episode",
            "version": RECORD_VERSION,
            "id": episode.id,
            "env_name": episode.env_name,
            "session_id": episode.session_id,
            "task": jsonable(episode.task.to_dict()),
            "prompt": [self._block(block) for block in episode.prompt],
            "tools": [self._content(tool.model_dump(exclude_unset=True)) for tool in episode.tools],
            "steps": [self._step(step) for step in episode.steps],
            "terminated": episode.terminated,
            "truncated": episode.truncated,
            "error": self._content(episode.error),
            "error_kind": episode.error_kind,
            "reward": reduce(episode, self.reward),
            "started_at": episode.started_at,
            "ended_at": episode.ended_at,
            "metadata": self._content(episode.metadata),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        call = None if step.call is None else {"name": step.call.name, "input": self._content(step.call.input)}
        return {
            "action": self._content(step.action),
            "call": call,
            "blocks": [self._block(block) for block in step.blocks],
            "reward": step.reward,
            "finished": step.finished,
            "metadata": self._content(step.metadata),
            "invalid_action": self._content(step.invalid_action),
            "error": self._content(step.error),
            "error_kind": step.error_kind,
            "started_at": step.started_at,
            "elapsed": step.elapsed,
        }

    def _block(self, block: TextBlock | ImageBlock | UnknownBlock) -> dict[str, Any]:
        fields = block.model_dump(exclude_none=True)
        kind = fields.pop("type")
        content = _decoded(block.data) if isinstance(block, ImageBlock) else None
        if content is None:
            return {"type": kind, **self._content(fields)}
        del fields["data"]
        return {"type": kind, "image": self._store(content, fields["mimeType"]), **self._content(fields)}

    def _content(self, value: Any) -> Any:
        return jsonable(value, self._redactor)

    def _store(self, content: bytes, mime_type: str) -> str:
        name = image_name(content, mime_type)
        if name not in self._known_images:
            store_image(self.path.parent, content, mime_type)
            self._known_images.add(name)
        return name


def write_records(
    path: str | os.PathLike[str],
    episodes: Iterable[Episode],
    *,
    reward: RewardReduction = "sum",
    redactor: Redactor | None = None,
) -> Path:
    """Append episodes to a file of records, and have the disk keep them. Arguments as in `RecordWriter`.

    Returns:
        The file.
    """
    with RecordWriter(path, reward=reward, redactor=redactor) as writer:
        for episode in episodes:
            writer.write(episode)
        return writer.path


def read_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of a file, one after another, without their images.

    Args:
        path: The file, or the run's folder that it is in.

    Yields:
        One `Record` a line. A torn last line is left out.

    Raises:
        FileNotFoundError: There is no such file.
        RecordError: A line before the last is no record, or of a version that this release does not know.
    """
    path = records_file(path)
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                yield _record(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise RecordError(f"{path}, line {number}: {_reason(error)}") from error


def load_records(path: str | os.PathLike[str]) -> list[Episode]:
    """The episodes of a file, with their images.

    Args:
        path: The file, or the run's folder that it is in.

    Raises:
        FileNotFoundError: There is no such file.
        RecordError: A line before the last is no record, of an unknown version, or an image is missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_records(folder, [Episode(TaskRef("train", 0), terminated=True)])
    ...     [episode.terminated for episode in load_records(path)]
    [True]
    """
    folder = records_file(path).parent
    return [record.to_episode(folder) for record in read_records(path)]


def records_file(path: str | os.PathLike[str]) -> Path:
    """The file of records that a path means: itself, or `episodes.jsonl` in it where it is no `.jsonl` and no file.

    >>> records_file("runs/gsm8k").name, records_file("runs/gsm8k/other.jsonl").name
    ('episodes.jsonl', 'other.jsonl')
    """
    path = Path(path)
    return path if path.is_file() or (path.suffix == ".jsonl" and not path.is_dir()) else path / EPISODES_FILE


def image_name(content: bytes, mime_type: str) -> str:
    """The name that an image has beside a file of records: by its hash."""
    return f"{IMAGES_FOLDER}/{hashlib.sha256(content).hexdigest()}.{_EXTENSIONS.get(mime_type, 'bin')}"


def store_image(folder: Path, content: bytes, mime_type: str) -> Path:
    """Keep an image beside a file of records, once.

    Args:
        folder: The folder that the file of records is in.
        content: The image.
        mime_type: What the server called it.

    Returns:
        The image's path.
    """
    target = folder / image_name(content, mime_type)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        unfinished.write_bytes(content)
        unfinished.replace(target)
    return target


def jsonable(value: Any, redactor: Redactor | None = None) -> Any:
    """Any object as JSON values, never failing.

    Numbers that JSON has not (NaN, infinities), bytes, and objects that are none of mappings, sequences, sets, dataclasses,
    pydantic models and numpy values become their `repr`, as does what is nested more than 100 deep.

    Args:
        value: Whatever a policy or an owner handed over.
        redactor: Replaces secrets in every text.

    >>> jsonable({1: (True, float("nan")), "raw": b"x"})
    {'1': [True, 'nan'], 'raw': "b'x'"}
    """
    return _jsonable(value, (lambda text: text) if redactor is None else redactor.redact, ())


def _jsonable(value: Any, redact: Callable[[str], str], parents: tuple[int, ...]) -> Any:
    """`parents` are the ids of the containers that `value` is in: a cycle ends where it closes."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    match value:
        case None | bool():
            return value
        case str():
            return redact(str.__str__(value))
        case int() | np.integer() if int(value).bit_length() < _MAX_BITS:
            return int(value)
        case float() | np.floating():
            return float(value) if math.isfinite(value) else repr(float(value))
        case np.bool_():
            return bool(value)
    contents = None if id(value) in parents or len(parents) == _MAX_DEPTH else _contents(value)
    inside = (*parents, id(value))
    match contents:
        case dict():
            return {redact(_key(key)): _jsonable(item, redact, inside) for key, item in contents.items()}
        case list():
            return [_jsonable(item, redact, inside) for item in contents]
    return redact(_repr(value))


def _contents(value: Any) -> dict[Any, Any] | list[Any] | None:
    """What a container holds; None if it is none, or does not let itself be read."""
    try:
        match value:
            case BaseModel():
                return {name: getattr(value, name) for name in type(value).model_fields} | (value.model_extra or {})
            case np.ndarray():
                return list(value.tolist())
            case object(__dataclass_fields__=fields) if not isinstance(value, type):
                return {name: getattr(value, name) for name in fields}
            case Mapping():
                return dict(value.items())
            case list() | tuple() | set() | frozenset():
                return list(value)
    except Exception as error:
        logger.debug("a %s cannot be read, and is recorded as its repr", type(value).__name__, exc_info=error)
    return None


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else _repr(key)


def _repr(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception as error:
        shown = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return shown if len(shown) <= _MAX_REPR else f"{shown[:_MAX_REPR]}… ({len(shown)} characters)"


def _record(line: bytes) -> Record:
    """One line as a record; a `ValueError` says why it is none."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or fields.get("format") != "ors-gym/episode":
        raise ValueError("not a record of an episode")
    if fields.get("version") != RECORD_VERSION:
        raise ValueError(f"the schema's version {fields.get('version')!r} is unknown here; a newer release of ors-gym reads it")
    return Record.model_validate(fields)


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _restored(blocks: Iterable[RecordedBlock], folder: Path) -> Any:
    return blocks_adapter.validate_python([_with_image(block, folder) for block in blocks])


def _with_image(block: RecordedBlock, folder: Path) -> dict[str, Any]:
    fields = block.model_dump(exclude_unset=True)
    if block.type != "image" or "data" in fields:
        return fields
    name = fields.pop("image", None)
    if not isinstance(name, str) or not _IMAGE_NAME.fullmatch(name):
        raise RecordError(f"an image block refers to {name!r}, which is not a name in {IMAGES_FOLDER}/")
    try:
        content = (folder / name).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"the image {folder / name} is missing; it belongs beside the file of records") from None
    return {**fields, "data": base64.b64encode(content).decode()}


def _decoded(data: str) -> bytes | None:
    """The bytes of base64 data; None where they would not give the same text again."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if base64.b64encode(content).decode() == data else None


def _mend(path: Path) -> None:
    """End the file with a whole line: cut off a torn one, complete one that lacks only its line break."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        start = end
        tail = b""
        while start > 0 and b"\n" not in tail:
            start = max(0, start - 2**16)
            file.seek(start)
            tail = file.read(end - start)
        line = tail[tail.rfind(b"\n") + 1 :]
        if not line:
            return
        try:
            _record(line)
        except ValueError:
            file.truncate(end - len(line))
        else:
            file.seek(end)
            file.write(b"\n")
