"""The bundled environment: say the largest of three digits. Small enough for a tiny model to learn in seconds."""

import random

from ors import Environment, TextBlock, ToolOutput, tool
from pydantic import BaseModel, Field

_NUM_TRAIN = 900


def _shuffled_numbers() -> list[str]:
    numbers = [f"{number:03d}" for number in range(1000)]
    random.Random(0).shuffle(numbers)
    return numbers


_NUMBERS = _shuffled_numbers()
_SPLITS = {"train": _NUMBERS[:_NUM_TRAIN], "test": _NUMBERS[_NUM_TRAIN:]}


class Answer(BaseModel):
    """The input of `submit`."""

    answer: str = Field(description="The largest of the three digits.")


class LargestDigit(Environment):
    """A thousand tasks, the strings 000 to 999: 900 in `train` and 100 in `test`, kept apart by a fixed shuffle.

    The prompt is the three digits and `=`. The episode is one call of `submit`, with reward 1.0 for the largest digit and
    0.0 for anything else.

    >>> environment = LargestDigit(task_spec={"digits": "274"})
    >>> environment.get_prompt()[0].text, environment.submit(Answer(answer="7")).reward
    ('274=', 1.0)
    """

    @classmethod
    def name(cls) -> str:
        return "largest_digit"

    @classmethod
    def list_splits(cls) -> list[str]:  # type: ignore[override]  # the SDK caches its own with functools
        return list(_SPLITS)

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return [{"digits": digits} for digits in _SPLITS[split]]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"{self.task_spec['digits']}=")]

    @tool
    def submit(self, params: Answer) -> ToolOutput:
        """Submit the largest of the three digits. This ends the episode."""
        correct = params.answer.strip() == max(str(self.task_spec["digits"]))
        return ToolOutput(
            blocks=[TextBlock(text="Correct." if correct else "Wrong.")],
            reward=1.0 if correct else 0.0,
            finished=True,
        )
