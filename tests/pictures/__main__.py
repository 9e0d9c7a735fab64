"""Plays the bakery with an agent of mixed abilities, and takes pictures of the viewer."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ors_gym.cli.viewer import take_picture, write_page
from ors_gym.episode import Episode
from ors_gym.records import write_records
from ors_gym.rollout import Conversation, Tasks, collect_groups
from ors_gym.serving import LocalServer
from tests.pictures.bakery import Bakery

FOLDER = Path(__file__).parents[2] / "notebooks" / "pictures"
PICTURES = {
    "viewer-list.png": {"size": (1280, 860), "address": "#/"},
    "viewer-list-dark.png": {"size": (1280, 860), "address": "#/", "dark": True},
    "viewer-group.png": {"size": (1280, 860), "address": "#/group/4"},
    "viewer-episode.png": {"size": (1280, 860), "address": "#/episode/28"},
    "viewer-list-800.png": {"size": (800, 860), "address": "#/"},
    "viewer-group-800.png": {"size": (800, 860), "address": "#/group/4"},
    "viewer-episode-800.png": {"size": (800, 860), "address": "#/episode/28"},
}


def agent(conversation: Conversation) -> Any:
    """Calculates, now and then wrongly, and submits; some of its calls are refused, and once in a while it divides by zero."""
    episode = conversation.episode
    rng = np.random.default_rng([episode.metadata["group"], episode.metadata["rollout"], conversation.turn])
    task = Bakery.list_tasks("train")[conversation.task.index or 0]
    total = task["trays"] * task["rows"] * task["columns"]
    skill = 0.25 + 0.7 * ((5 * episode.metadata["group"]) % 9) / 8
    if rng.random() < 0.06:
        return {"name": "submit", "input": {"answer": f"about {total // 2}"}}
    if conversation.turn == 0 and rng.random() < 0.7:
        parts = 0 if rng.random() < 0.04 else task["parts"]
        return {"name": "calculate", "input": {"expression": f"{task['trays']} * {task['rows']} * {task['columns']} / {parts}"}}
    left = total - total // task["parts"]
    answer = left if rng.random() < skill else left - 1 if rng.random() < 0.3 else total
    return {"name": "submit", "input": {"answer": int(answer)}}


async def episodes(base_url: str) -> list[Episode]:
    """Eight episodes of each task of the training split."""
    groups = await collect_groups(agent, Tasks(base_url, "bakery", split="train"), group_size=8, retries=0)
    return [episode for group in groups for episode in group.episodes]


def main() -> None:
    """Make every picture."""
    with LocalServer([Bakery]) as server, tempfile.TemporaryDirectory() as folder:
        played = asyncio.run(episodes(server.base_url))
        write_records(folder, played)
        page = write_page(played, Path(folder) / "view.html", title="runs/bakery", reward="sum")
        for name, options in PICTURES.items():
            take_picture(page.path, FOLDER / name, **options)


if __name__ == "__main__":
    main()
