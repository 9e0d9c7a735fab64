"""Environments that a tiny model can learn, and some that are odd, for the tests of `ors_gym.trl`."""

from ors import Environment, TextBlock, ToolOutput, tool
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
