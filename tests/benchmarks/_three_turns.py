"""The environment of the TRL benchmark: a tool that takes 50 ms, and three turns."""

import asyncio

from ors import Environment, TextBlock, ToolOutput, tool
from pydantic import BaseModel, Field

TURNS = 3
TOOL_SECONDS = 0.05


class Digit(BaseModel):
    digit: int = Field(ge=0, le=3)


class ThreeTurns(Environment):
    """Press a digit three times; each that is 1 is worth a third. It does not mind calls after the end, as most do not."""

    presses = 0

    @classmethod
    def list_splits(cls) -> list[str]:  # type: ignore[override]  # the SDK caches its own with functools
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        return [{"number": number} for number in range(32)]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="press then press")]

    @tool
    async def press(self, params: Digit) -> ToolOutput:
        """Press a digit."""
        await asyncio.sleep(TOOL_SECONDS)
        self.presses += 1
        reward = (params.digit == 1) / TURNS
        return ToolOutput(blocks=[TextBlock(text="good")], reward=reward, finished=self.presses >= TURNS)
