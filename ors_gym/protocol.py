"""The wire: pydantic models of the types on the standard's page "Data Types".

What is read is read tolerantly: absent optional fields have defaults, unknown fields and unknown block types are kept.
What is sent is strict: unknown fields and wrong types are refused before they leave.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    JsonValue,
    StrictBool,
    StrictInt,
    Tag,
    TypeAdapter,
)

from ors_gym import _html

JSONValue = JsonValue
JSONObject = dict[str, Any]
Task = JSONObject


class _Read(BaseModel):
    """A type that servers send: tolerant, immutable."""

    model_config = ConfigDict(extra="allow", frozen=True)


class _Sent(BaseModel):
    """A type that we send: strict, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class TextBlock(_Read):
    """Text content. Standard: Data Types, TextBlock."""

    text: str
    detail: JSONObject | None = None
    type: Literal["text"] = "text"

    def _repr_html_(self) -> str:
        return _html.text(self.text)


class ImageBlock(_Read):
    """An image, base64-encoded. Standard: Data Types, ImageBlock."""

    data: str = Field(repr=False)
    mimeType: str
    detail: JSONObject | None = None
    type: Literal["image"] = "image"

    def _repr_html_(self) -> str:
        return _html.image(self.data, self.mimeType)


class UnknownBlock(_Read):
    """A block of a type that the standard does not define; its fields are kept in `model_extra`."""

    type: str

    def _repr_html_(self) -> str:
        return _html.folded(f"a block of type {self.type!r}", _html.json_text(self.model_dump()))


def _block_tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return kind if kind in ("text", "image") else "unknown"


Block = Annotated[
    Annotated[TextBlock, Tag("text")] | Annotated[ImageBlock, Tag("image")] | Annotated[UnknownBlock, Tag("unknown")],
    Discriminator(_block_tag),
]
Blocks = tuple[Block, ...]


class Prompt(tuple[Block, ...]):
    """A prompt: its blocks, and in a notebook what they show."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return blocks_html(self)


def blocks_html(blocks: Blocks) -> _html.Markup:
    """Blocks as a notebook shows them."""
    return _html.join(_html.Markup(block._repr_html_()) for block in blocks)


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a reward is a number, not a boolean")
    if isinstance(value, str):
        raise ValueError("a reward is a number, not a string")
    return value


Reward = Annotated[FiniteFloat, BeforeValidator(_refuse_bool)]


class ToolSpec(_Read):
    """A tool that an environment offers. Standard: Data Types, ToolSpec.

    `input_schema` is a JSON Schema, or None for a tool without parameters.
    """

    name: str
    description: str = ""
    input_schema: JSONObject | None = None

    def _repr_html_(self) -> str:
        schema = (
            _html.folded("parameters", _html.json_text(self.input_schema)) if self.input_schema else _html.muted("no parameters")
        )
        return _html.box(self.name, {}, _html.element("div", self.description), schema)


class Tools(tuple[ToolSpec, ...]):
    """The tools of an environment or of a task, and in a notebook a box for each."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _html.join(_html.Markup(tool._repr_html_()) for tool in self)


class ListToolsOutput(_Read):
    """The answer of `/tools` and `/task_tools`. Standard: Data Types, ListToolsOutput."""

    tools: tuple[ToolSpec, ...]


class ToolOutput(_Read):
    """What a tool call returned. Standard: Data Types, ToolOutput.

    `reward` is None where the environment gave none; it is always finite.
    """

    blocks: Blocks = ()
    reward: Reward | None = None
    finished: StrictBool = False
    metadata: JSONObject | None = None

    def _repr_html_(self) -> str:
        facts: dict[str, str | float | None] = {"reward": self.reward, "finished": "yes" if self.finished else "no"}
        metadata = [_html.folded("metadata", _html.json_text(self.metadata))] if self.metadata else []
        return _html.box("output", facts, blocks_html(self.blocks), *metadata)


class RunToolSuccess(_Read):
    """Standard: Data Types, RunToolSuccess."""

    ok: Literal[True]
    output: ToolOutput


class RunToolError(_Read):
    """Standard: Data Types, RunToolError. `openreward` adds a `reason`."""

    ok: Literal[False]
    error: str = ""


def _ok_tag(value: Any) -> str | None:
    ok = value.get("ok") if isinstance(value, Mapping) else getattr(value, "ok", None)
    return {True: "success", False: "error"}[ok] if isinstance(ok, bool) else None


RunToolOutput = Annotated[
    Annotated[RunToolSuccess, Tag("success")] | Annotated[RunToolError, Tag("error")],
    Discriminator(_ok_tag),
]


def _split_type(value: Any) -> Any:
    return "validation" if value is None or (isinstance(value, str) and value not in ("train", "test")) else value


class Split(_Read):
    """A named list of tasks. Standard: Data Types, Split; a split of another type than the three has type "validation"."""

    name: str
    type: Annotated[Literal["train", "validation", "test"], BeforeValidator(_split_type)] = "validation"


class ToolCall(_Sent):
    """A request to run a tool. Standard: Data Types, ToolCall.

    `task_id` is the server's own, and only to resume a call whose stream broke.
    """

    name: str
    input: JSONObject = Field(default_factory=dict)
    task_id: str | None = None


class CreateSession(_Sent):
    """The body of `/create`: exactly one of `task_spec`, or `split` with `index`. Standard: Data Types, CreateSession."""

    env_name: str
    task_spec: JSONObject | None = None
    split: str | None = None
    index: int | None = None
    secrets: dict[str, str] | None = Field(default=None, repr=False)


class ListTasks(_Sent):
    """The body of `/tasks`. Standard: Data Types, ListTasks."""

    split: str


class NumTasks(_Sent):
    """The body of `/num_tasks`. Standard: Data Types, NumTasks."""

    split: str


class GetTask(_Sent):
    """The body of `/task` and `/get_task`. Standard: Data Types, GetTask."""

    split: str
    index: int


class GetTaskRange(_Sent):
    """The body of `/task_range`: `start` inclusive, `stop` exclusive, both may be negative. Standard: Data Types, GetTaskRange."""

    split: str
    start: int | None = None
    stop: int | None = None


class SessionId(_Read):
    """The answer of `/create_session`, `/create` and `/delete`. Standard: HTTP API, Session Management."""

    sid: str


class NumTasksOutput(_Read):
    """The answer of `/num_tasks`. Standard: HTTP API, POST /{env_name}/num_tasks."""

    num_tasks: Annotated[StrictInt, Field(ge=0)]


class TaskOutput(_Read):
    """The answer of `/task` and `/get_task`. Standard: HTTP API, POST /{env_name}/task."""

    task: Task


class TasksOutput(_Read):
    """The answer of `/tasks` and `/task_range`. Standard: HTTP API, POST /{env_name}/tasks."""

    tasks: tuple[Task, ...]


blocks_adapter: TypeAdapter[Blocks] = TypeAdapter(Blocks)
names_adapter: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...])
list_tools_adapter = TypeAdapter(ListToolsOutput)
session_id_adapter = TypeAdapter(SessionId)
num_tasks_adapter = TypeAdapter(NumTasksOutput)
task_adapter = TypeAdapter(TaskOutput)
tasks_adapter = TypeAdapter(TasksOutput)
run_tool_output_adapter: TypeAdapter[RunToolSuccess | RunToolError] = TypeAdapter(RunToolOutput)
splits_adapter: TypeAdapter[tuple[Split, ...]] = TypeAdapter(tuple[Split, ...])


def text_of(blocks: Sequence[TextBlock | ImageBlock | UnknownBlock]) -> str:
    """The text blocks, joined by newlines; other blocks are left out.

    >>> text_of([TextBlock(text="What is"), TextBlock(text="2+2?")])
    'What is\\n2+2?'
    """
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
