"""The viewer at 10,000 episodes, in Chromium: the page's size, and how long opening and filtering take."""

import base64
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ors_gym.cli.viewer import Page, browser_flags, find_browser, write_page
from ors_gym.episode import Episode, Step
from ors_gym.protocol import ImageBlock, TextBlock, ToolCall
from ors_gym.tasks import TaskRef
from tests.benchmarks.table import Table

NAME = "viewer"

MAX_BYTES, MAX_OPEN, MAX_FILTER = 100_000_000, 3.0, 0.3
QUERIES = ("train", "task 77", "reward", "nothing has this", "infrastructure", "submit 3", "")
REPEATS = 5
FIELDS = {"bytes": 1e-6, "limit": 1, "written": 1, "open": 1, "filter": 1e3, "episode": 1e3, "group": 1e3}

# From the keystroke's event to the frame after the one that it changed.
FILTER = """async (typed) => {
  const field = document.querySelector("input[type=search]");
  const start = performance.now();
  field.value = typed;
  field.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return (performance.now() - start) / 1000;
}"""


def run(quick: bool) -> list[Table]:
    """Pages of short episodes, and of episodes whose texts and images are all larger than a page may show."""
    if find_browser() is None:
        return [Table("Viewer: not measured", ("reason",), [["Chromium is not installed: apt-get install chromium"]])]
    num_episodes = 200 if quick else 10_000
    figures = {name: _measured(make, num_episodes, quick) for name, make in (("short", _short), ("large", _large))}
    targets = {
        "at most 100 MB": all(row["bytes"] <= MAX_BYTES for row in figures.values()),
        "opens in at most 3 s": all(row["open"] <= MAX_OPEN for row in figures.values()),
        "filters in at most 300 ms": all(row["filter"] <= MAX_FILTER for row in figures.values()),
    }
    columns = ("episodes", "MB", "cut at, B", "write, s", "open, s", "filter, ms", "episode, ms", "group, ms")
    rows = [[name, *(row[field] * scale for field, scale in FIELDS.items())] for name, row in figures.items()]
    note = "Opened: the table is drawn and the file read to its end. Medians of 5; of the filters, the slowest of 7."
    return [Table(f"Viewer: {num_episodes:,} episodes in Chromium", columns, rows, targets, note)]


def _measured(make: Callable[[int], Iterator[Episode]], num_episodes: int, quick: bool) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    repeats = 1 if quick else REPEATS
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        episodes = list(make(num_episodes))
        begun = time.perf_counter()
        page = write_page(episodes, Path(folder) / "view.html", title="benchmark")
        written = time.perf_counter() - begun
        del episodes
        flags = [flag for flag in browser_flags() if flag != "--headless"]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        opened = statistics.median(_open(browser, page)[1] for _ in range(repeats))
        tab, _ = _open(browser, page)
        filters = [statistics.median(tab.evaluate(FILTER, query) for _ in range(repeats)) for query in QUERIES]
        episode = statistics.median(_shown(tab, "episode", page.num_episodes * place // 7) for place in range(1, repeats + 1))
        group = statistics.median(_shown(tab, "group", page.num_groups * place // 7) for place in range(1, repeats + 1))
        browser.close()
        return {
            "bytes": page.size,
            "limit": page.limits.text,
            "written": written,
            "open": opened,
            "filter": max(filters),
            "episode": episode,
            "group": group,
        }


def _open(browser: Any, page: Page) -> tuple[Any, float]:
    """A tab with the page, and the seconds until its rows are there and it is read to the end."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    begun = time.perf_counter()
    tab.goto(page.path.as_uri(), wait_until="load")
    tab.wait_for_selector("tbody tr:not(.spacer)")
    return tab, time.perf_counter() - begun


def _shown(tab: Any, kind: str, place: int) -> float:
    begun = time.perf_counter()
    tab.evaluate(f"location.hash = '#/{kind}/{place + 1}'")
    tab.wait_for_selector(f"main.{kind}")
    return time.perf_counter() - begun


def _short(num_episodes: int) -> Iterator[Episode]:
    """Two calls an episode, with a sentence each."""
    rng = np.random.default_rng(0)
    for place in range(num_episodes):
        yield _episode(place, rng, [TextBlock(text=f"The total is {rng.integers(1000)}.")], num_steps=2)


def _large(num_episodes: int) -> Iterator[Episode]:
    """Six calls an episode, each with a text that does not compress well and an image that is over the limit."""
    rng = np.random.default_rng(0)
    alphabet = np.array(list("abcdefghijklmnopqrstuvwxyz    \n"))
    texts = ["".join(alphabet[rng.integers(len(alphabet), size=30_000)]) for _ in range(200)]
    images = [_image(rng) for _ in range(20)]
    for place in range(num_episodes):
        text = texts[rng.integers(len(texts))]
        cut = int(rng.integers(5_000))
        yield _episode(place, rng, [TextBlock(text=text[cut:]), images[place % len(images)]], num_steps=6)


def _episode(place: int, rng: np.random.Generator, blocks: Sequence[Any], num_steps: int) -> Episode:
    task, rollout = divmod(place, 8)
    failed = rng.random() < 0.03
    calls = [
        ToolCall(name="submit", input={"answer": str(number), "reason": "because"}) for number in rng.integers(100, size=num_steps)
    ]
    steps = [Step({}, call, tuple(blocks), float(rng.random()), started_at=1e9 + place, elapsed=0.1) for call in calls]
    return Episode(
        TaskRef("train", task),
        "benchmark",
        prompt=(TextBlock(text=f"This is task {task}. What is the answer, and why is it that and no other?"),),
        steps=steps,
        terminated=not failed,
        truncated=failed,
        error="the session is gone" if failed else "",
        error_kind="infrastructure" if failed else "",
        started_at=1e9 + place,
        ended_at=1e9 + place + 1,
        metadata={"group": task, "rollout": rollout, "attempt": 0},
    )


def _image(rng: np.random.Generator) -> ImageBlock:
    packed = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (160, 200, 3), dtype=np.uint8)).save(packed, "PNG")
    return ImageBlock(data=base64.b64encode(packed.getvalue()).decode(), mimeType="image/png")
