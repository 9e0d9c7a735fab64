"""What the scripts here train on when they are given no server: a parcel desk, where one must look before one answers.

A customer asks for a parcel. `track` tells where a customer's parcel is, worth a quarter if it is the first call and about the
right customer; `answer` ends the episode, worth three quarters if it is right. No prompt says where a parcel is: it takes two turns
that read, the customer's name in the prompt, and the place in what `track` returned.
"""

import random
from typing import Literal, get_args

from ors import Environment, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel

Customer = Literal["Ada", "Ben", "Cleo"]
Place = Literal["Athens", "Bergen", "Cairo", "Delhi"]

CUSTOMERS: tuple[str, ...] = get_args(Customer)
PLACES: tuple[str, ...] = get_args(Place)


def make_task(split: str, index: int) -> dict[str, str]:
    """The task at a place in a split: who asks, and where each customer's parcel is."""
    rng = random.Random(f"{split}/{index}")
    return {"asks": rng.choice(CUSTOMERS), **{customer: rng.choice(PLACES) for customer in CUSTOMERS}}


SPLITS = {
    "train": [make_task("train", index) for index in range(256)],
    "test": [make_task("test", index) for index in range(64)],
}


class Track(BaseModel):
    """The input of `track`."""

    customer: Customer


class Answer(BaseModel):
    """The input of `answer`."""

    place: Place


class ParcelDesk(Environment):
    """Two kinds of calls, seven in all. Random calls get 0.2 of the reward."""

    tracked = False

    @classmethod
    def name(cls) -> str:
        return "parcel_desk"

    @classmethod
    def list_splits(cls) -> list[Split]:
        return [Split(name="train", type="train"), Split(name="test", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return SPLITS[split]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"Where is the parcel of {self.task_spec['asks']}?")]

    @tool
    def track(self, params: Track) -> ToolOutput:
        """Ask the carrier where a customer's parcel is."""
        reward = 0.25 if params.customer == self.task_spec["asks"] and not self.tracked else 0.0
        self.tracked = True
        return ToolOutput(blocks=[TextBlock(text=f"It is in {self.task_spec[params.customer]}.")], reward=reward)

    @tool
    def answer(self, params: Answer) -> ToolOutput:
        """Tell the customer where the parcel is. This ends the episode."""
        right = params.place == self.task_spec[self.task_spec["asks"]]
        text = "Thank you!" if right else "It was not there."
        return ToolOutput(blocks=[TextBlock(text=text)], reward=0.75 * right, finished=True)
