"""What the scripts here train on when they are given no server: a support desk, small enough to be learnt in a minute.

A shift is eight tickets. Each is to be routed to one of four teams, as urgent or not, or discarded as spam: nine possible calls, of
which one is right, and only the ticket's words tell which. It takes both reading and choosing to be better than chance.
"""

import random
from typing import Any, Literal

from ors import Environment, TextBlock, ToolOutput, tool
from pydantic import BaseModel

TICKETS_A_SHIFT = 8

PROBLEMS = {
    "shipping": [
        "the parcel has not arrived",
        "tracking says delivered, but nothing is here",
        "the box came to the wrong address",
        "the courier left the package in the rain",
    ],
    "billing": [
        "I was charged twice this month",
        "the invoice shows the wrong amount",
        "my refund is missing",
        "the discount was not taken off the bill",
    ],
    "account": [
        "I cannot log in any more",
        "the password reset mail never comes",
        "please change my user name",
        "someone else uses my profile",
    ],
    "technical": [
        "the app crashes when I open it",
        "the screen stays black after the update",
        "exporting a report gives error 500",
        "the printer is not found by the software",
    ],
}
SPAM = [
    "you have won a free cruise",
    "buy cheap watches now",
    "double your crypto overnight",
    "claim your inheritance of ten million",
]
URGENT = ["I need this solved today.", "This is an emergency!", "We lose money every hour."]
CALM = ["No hurry.", "Whenever you find the time.", "Just so you know."]
GREETINGS = ["Hello,", "Dear team,", "Hi there,", "Good morning,", "To whom it may concern,"]


def make_ticket(rng: random.Random) -> dict[str, Any]:
    """A ticket: its text, and what should be done with it."""
    greeting, kind = rng.choice(GREETINGS), rng.choice([*PROBLEMS, "spam"])
    if kind == "spam":
        return {"text": f"{greeting} {rng.choice(SPAM)}! {rng.choice(URGENT + CALM)}", "team": "", "urgent": False}
    urgent = rng.random() < 0.5
    return {
        "text": f"{greeting} {rng.choice(PROBLEMS[kind])}. {rng.choice(URGENT if urgent else CALM)}",
        "team": kind,
        "urgent": urgent,
    }


def make_shift(split: str, index: int) -> dict[str, Any]:
    """The task at a place in a split."""
    rng = random.Random(f"{split}/{index}")
    return {"tickets": [make_ticket(rng) for _ in range(TICKETS_A_SHIFT)]}


SPLITS = {
    "train": [make_shift("train", index) for index in range(1000)],
    "test": [make_shift("test", index) for index in range(100)],
}


class Route(BaseModel):
    """The input of `route`."""

    team: Literal["shipping", "billing", "account", "technical"]
    urgent: bool


class SupportDesk(Environment):
    """Eight tickets a shift; a ticket that is handled right is worth an eighth, so that a perfect shift is worth 1."""

    def __init__(self, task_spec: dict[str, Any], secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.handled = 0

    @classmethod
    def name(cls) -> str:
        return "support_desk"

    @classmethod
    def list_splits(cls) -> list[str]:
        return list(SPLITS)

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return SPLITS[split]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self.task_spec["tickets"][0]["text"])]

    @tool
    def route(self, params: Route) -> ToolOutput:
        """Send the ticket to a team."""
        return self._handle(params.team, params.urgent)

    @tool
    def discard(self) -> ToolOutput:
        """Throw the ticket away as spam."""
        return self._handle("", False)

    def _handle(self, team: str, urgent: bool) -> ToolOutput:
        tickets = self.task_spec["tickets"]
        right = (team, urgent) == (tickets[self.handled]["team"], tickets[self.handled]["urgent"])
        self.handled += 1
        over = self.handled == len(tickets)
        text = "The shift is over." if over else tickets[self.handled]["text"]
        return ToolOutput(blocks=[TextBlock(text=text)], reward=right / len(tickets), finished=over)
