"""Environments that a tiny model can learn, and some that are odd, for the tests of `ors_gym.trl`."""

import asyncio
import json

from ors import Environment, ListToolsOutput, RunToolOutput, RunToolSuccess, TextBlock, ToolOutput, ToolSpec, tool
from pydantic import BaseModel, Field


class Digit(BaseModel):
    digit: int = Field(ge=0, le=3)


class Copy(Environment):
    """One turn: press the digit that the prompt shows."""

    @classmethod
    def list_splits(cls):
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split):
        return [{"digit": number % 4} for number in range({"train": 16, "test": 8}[split])]

    def get_prompt(self):
        return [TextBlock(text=f"press {self.task_spec['digit']}")]

    @tool
    def press(self, params: Digit) -> ToolOutput:
        """Press a digit."""
        right = params.digit == self.task_spec["digit"]
        parts = {"right": float(right), "tried": 0.25}
        return ToolOutput(
            blocks=[TextBlock(text="good" if right else "bad")], reward=float(right), finished=True, metadata={"parts": parts}
        )


class Code(Environment):
    """Two turns: `look` sets the lock to a digit and tells it; `press` ends the episode, right with that digit only."""

    looked = False

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"digit": number % 4} for number in range(16)]

    def get_prompt(self):
        return [TextBlock(text="look then press")]

    @tool
    def look(self) -> ToolOutput:
        """Look at the digit."""
        self.looked = True
        return ToolOutput(blocks=[TextBlock(text=f"digit {self.task_spec['digit']}")])

    @tool
    def press(self, params: Digit) -> ToolOutput:
        """Press a digit."""
        right = self.looked and params.digit == self.task_spec["digit"]
        return ToolOutput(blocks=[TextBlock(text="good" if right else "bad")], reward=float(right), finished=True)


class Million(Environment):
    """A split of a million tasks, which are not listed."""

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        raise RuntimeError("a million tasks are not listed")

    @classmethod
    async def num_tasks(cls, split):
        return 1_000_000

    @classmethod
    async def get_task(cls, split, index):
        return {"number": index}

    @classmethod
    async def get_task_range(cls, split, start=None, stop=None):
        return [{"number": number} for number in range(start, stop)]

    def get_prompt(self):
        return [TextBlock(text=f"task {self.task_spec['number']}")]

    @tool
    def done(self) -> ToolOutput:
        """End the episode."""
        return ToolOutput(blocks=[TextBlock(text="ok")], reward=1.0, finished=True)


class Odd(Environment):
    """Tools with names and schemas that code made from them would not survive."""

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{}]

    @classmethod
    def list_tools(cls):
        schema = {
            "type": "object",
            "properties": {
                "from": {"type": "string", "enum": ["a", "b"]},
                "self": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                "tags": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            },
            "required": ["from"],
        }
        bare = [
            ToolSpec(name=name, description="", input_schema=None) for name in ("reset", "get_reward", "_private", "with-hyphen")
        ]
        return ListToolsOutput(tools=[*bare, ToolSpec(name="search", description="Search.", input_schema=schema)])

    def get_prompt(self):
        return [TextBlock(text="odd")]

    async def _call_tool(self, name, input):
        return RunToolOutput(RunToolSuccess(output=ToolOutput(blocks=[TextBlock(text=json.dumps({name: input}))], reward=0.0)))


class Together(Environment):
    """A session opens when as many have come as its task says: one after another, they would wait for ever."""

    arrived = 0

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"together": 8}] * 8 + [{"together": 1}]

    async def setup(self):
        together = self.task_spec["together"]
        if together > 1:
            Together.arrived += 1
            last_of_batch = -(-Together.arrived // together) * together
            while Together.arrived < last_of_batch:  # noqa: ASYNC110 (the loop of the next arrival may be another)
                await asyncio.sleep(0.01)

    def get_prompt(self):
        return [TextBlock(text=f"opened with {self.task_spec['together']}")]

    @tool
    def press(self, params: Digit) -> ToolOutput:
        """Press a digit."""
        return ToolOutput(blocks=[TextBlock(text="good")], reward=1.0)


class MixedSpecs(Environment):
    """Task specs whose values have no common type."""

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"value": 1}, {"value": "one"}, {"value": [1, None]}]

    def get_prompt(self):
        return [TextBlock(text="mixed")]

    @tool
    def done(self) -> ToolOutput:
        """End the episode."""
        return ToolOutput(blocks=[TextBlock(text="ok")], reward=1.0, finished=True)
