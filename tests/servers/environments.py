"""The environments that the tests are run against: one source for both SDKs, chosen by the variable ORS_GYM_TEST_SDK."""

import asyncio
import importlib
import json
import os
import struct
import zlib
from base64 import b64encode
from typing import Any

from pydantic import BaseModel, Field

sdk = importlib.import_module(os.environ.get("ORS_GYM_TEST_SDK", "ors"))
Environment, ImageBlock, ListToolsOutput, Split = sdk.Environment, sdk.ImageBlock, sdk.ListToolsOutput, sdk.Split
TextBlock, ToolOutput, ToolSpec, tool = sdk.TextBlock, sdk.ToolOutput, sdk.ToolSpec, sdk.tool


class Answer(BaseModel):
    answer: str = Field(description="The answer.")


class Amount(BaseModel):
    amount: int = Field(ge=0, le=5, description="How much to add.")


class Seconds(BaseModel):
    seconds: float = Field(ge=0)


class Size(BaseModel):
    size: int = Field(ge=0, description="Characters to return.")


class Text(BaseModel):
    text: str


class Arithmetic(Environment):
    """Add two numbers: one call of `submit` ends the episode. 20 tasks in train, 5 in test."""

    @classmethod
    def list_splits(cls) -> list[Any]:
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        first, count = {"train": (0, 20), "test": (20, 5)}[split]
        return [{"question": f"{n} + {n + 1}", "answer": str(2 * n + 1)} for n in range(first, first + count)]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text=f"What is {self.task_spec['question']}?")]

    @tool
    def submit(self, params: Answer) -> ToolOutput:
        """Submit the answer."""
        correct = params.answer.strip() == self.task_spec["answer"]
        return ToolOutput(
            blocks=[TextBlock(text="Correct!" if correct else "Incorrect.")], reward=1.0 if correct else 0.0, finished=True
        )

    @tool
    def think(self) -> ToolOutput:
        """Take a moment. Nothing happens."""
        return ToolOutput(blocks=[TextBlock(text="Go on.")])


class Counter(Environment):
    """Add amounts until the target is reached: several turns, a reward at each."""

    def __init__(self, task_spec: Any = {}, secrets: Any = {}) -> None:  # noqa: B006 - the SDKs' signature
        super().__init__(task_spec, secrets)
        self.total = 0

    @classmethod
    def list_splits(cls) -> list[Any]:
        return [Split(name="train", type="train"), Split(name="hard", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        return [{"target": target} for target in ({"train": range(3, 11), "hard": range(20, 24)}[split])]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text=f"Count to {self.task_spec['target']}.")]

    @tool
    def add(self, params: Amount) -> ToolOutput:
        """Add an amount to the total. The reward is a tenth of what was added."""
        self.total += params.amount
        target = self.task_spec["target"]
        return ToolOutput(
            blocks=[TextBlock(text=f"The total is {self.total} of {target}.")],
            metadata={"total": self.total},
            reward=params.amount / 10,
            finished=self.total >= target,
        )


class Faulty(Environment):
    """Everything that can be odd about a tool, with counters of what happens in the process."""

    in_flight = 0
    peak_in_flight = 0
    setups = 0
    teardowns = 0

    def __init__(self, task_spec: Any = {}, secrets: Any = {}) -> None:  # noqa: B006 - the SDKs' signature
        super().__init__(task_spec, secrets)
        self.secrets = dict(secrets)
        self.calls = 0

    def setup(self) -> None:
        Faulty.setups += 1

    def teardown(self) -> None:
        Faulty.teardowns += 1

    @classmethod
    def list_splits(cls) -> list[Any]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        return [{"number": number} for number in range(10)]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text="Do as you like."), ImageBlock(data=PNG, mimeType="image/png")]

    @tool
    def boom(self) -> ToolOutput:
        """Raise an exception."""
        raise RuntimeError("boom went the tool")

    @tool
    async def slow(self, params: Seconds) -> ToolOutput:
        """Take the given seconds. The metadata tells the calls of this session and the most calls ever in flight."""
        self.calls += 1
        Faulty.in_flight += 1
        Faulty.peak_in_flight = max(Faulty.peak_in_flight, Faulty.in_flight)
        try:
            await asyncio.sleep(params.seconds)
        finally:
            Faulty.in_flight -= 1
        return ToolOutput(
            blocks=[TextBlock(text=f"That took {params.seconds} s.")],
            metadata={"calls": self.calls, "peak_in_flight": Faulty.peak_in_flight},
            reward=0.5,
        )

    @tool
    def big(self, params: Size) -> ToolOutput:
        """Return a text of the given size, with runs of spaces, non-ASCII characters and every kind of line break."""
        unit = "line of text,  two spaces,   three \u2028\u0085\x0b\r\n\té漢🎲"
        return ToolOutput(blocks=[TextBlock(text=(unit * (params.size // len(unit) + 1))[: params.size])], reward=0.0)

    @tool
    def image(self) -> ToolOutput:
        """Return a text and an image of 4x3 red pixels."""
        return ToolOutput(blocks=[TextBlock(text="Red:"), ImageBlock(data=PNG, mimeType="image/png")], reward=0.0)

    @tool
    def no_reward(self) -> ToolOutput:
        """Return no reward."""
        return ToolOutput(blocks=[TextBlock(text="Nothing.")])

    @tool
    def nan_reward(self) -> ToolOutput:
        """Return a reward that is not a number."""
        return ToolOutput(blocks=[TextBlock(text="Not a number.")], reward=float("nan"))

    @tool
    def echo(self, params: Text) -> ToolOutput:
        """Return the text."""
        return ToolOutput(blocks=[TextBlock(text=params.text)], reward=0.0)

    @tool
    def whoami(self) -> ToolOutput:
        """Return the secrets and the task that this session received, as JSON."""
        received = {"secrets": self.secrets, "task": dict(self.task_spec)}
        return ToolOutput(blocks=[TextBlock(text=json.dumps(received, sort_keys=True))], metadata=received, reward=0.0)

    @tool
    def finish(self) -> ToolOutput:
        """End the episode."""
        self.calls += 1
        return ToolOutput(blocks=[TextBlock(text="The end.")], metadata={"calls": self.calls}, reward=1.0, finished=True)

    @tool
    def counts(self) -> ToolOutput:
        """Tell what has happened in this process so far, as metadata."""
        counts = {
            "setups": Faulty.setups,
            "teardowns": Faulty.teardowns,
            "in_flight": Faulty.in_flight,
            "peak_in_flight": Faulty.peak_in_flight,
        }
        return ToolOutput(blocks=[TextBlock(text=json.dumps(counts))], metadata=counts)

    @tool(shared=False)
    def hidden(self) -> ToolOutput:
        """Callable, and listed nowhere."""
        return ToolOutput(blocks=[TextBlock(text="You found me.")], reward=0.25)


class TaskTools(Environment):
    """Task 0 has only the shared tool; task 1 lists `hint` too; task 2 lists `hint` and `solve`."""

    @classmethod
    def list_splits(cls) -> list[Any]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        return [{"extra_tools": number} for number in range(3)]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text="Say the magic word.")]

    def list_task_tools(self) -> Any:
        extra = [
            ToolSpec(name="hint", description="Get a hint.", input_schema=None),
            ToolSpec(name="solve", description="Solve it.", input_schema=Text.model_json_schema()),
        ]
        return ListToolsOutput(tools=extra[: self.task_spec.get("extra_tools", 0)])

    @tool
    def say(self, params: Text) -> ToolOutput:
        """Say a word."""
        return ToolOutput(blocks=[TextBlock(text=f"You said {params.text}.")], reward=float(params.text == "please"), finished=True)

    @tool(shared=False)
    def hint(self) -> ToolOutput:
        """Get a hint."""
        return ToolOutput(blocks=[TextBlock(text="It is polite.")], reward=0.0)

    @tool(shared=False)
    def solve(self, params: Text) -> ToolOutput:
        """Solve it."""
        return ToolOutput(blocks=[TextBlock(text="Solved.")], reward=1.0, finished=True)


class BrokenSetup(Environment):
    """`setup` raises for the tasks that say so: every second one."""

    async def setup(self) -> None:
        if self.task_spec.get("broken"):
            raise RuntimeError("this task cannot be set up")

    @classmethod
    def list_splits(cls) -> list[Any]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, bool]]:
        return [{"broken": number % 2 == 1} for number in range(6)]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text="It works.")]

    @tool
    def done(self) -> ToolOutput:
        """End the episode."""
        return ToolOutput(blocks=[TextBlock(text="Done.")], reward=1.0, finished=True)


def png(width: int, height: int, rgb: tuple[int, int, int]) -> bytes:
    """A PNG image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(rgb) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PNG = b64encode(png(4, 3, (255, 0, 0))).decode()

ALL = [Arithmetic, Counter, Faulty, TaskTools, BrokenSetup]
