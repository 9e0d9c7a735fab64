"""`ors-gym view`: the page in a real Chromium, with hostile contents among the cases."""

import base64
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ors_gym.cli.viewer import browser_flags, find_browser, page, write_page
from ors_gym.cli.viewer.attachments import thumbnail
from ors_gym.episode import Episode, Step
from ors_gym.protocol import ImageBlock, TextBlock, ToolCall, ToolSpec, UnknownBlock
from ors_gym.records import write_records
from ors_gym.tasks import TaskRef

HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror='window.hurt=1'>\"'`${window.hurt=1}<!--\u2028\u202e&lt;"
SUBMIT = ToolSpec(name="submit", description="Hand in the answer.", input_schema={"type": "object", "properties": {"answer": {}}})


def episode(index: int = 0, reward: float | None = 1.0, *, split: str = "train", **changes: object) -> Episode:
    """An episode of one call that ended."""
    call = ToolCall(name="submit", input={"answer": f"{index + 2}"})
    step = Step({"name": "submit"}, call, (TextBlock(text=f"judged {index}"),), reward, True, started_at=1000.5, elapsed=0.25)
    fields = {"terminated": True, "started_at": 1000.0, "ended_at": 1002.0, "env_name": "sums", "id": f"id-{index}"} | changes
    steps = fields.pop("steps", [step])
    prompt = fields.pop("prompt", (TextBlock(text=f"What is {index}+2?"),))
    return Episode(TaskRef(split, index), prompt=prompt, tools=(SUBMIT,), steps=steps, **fields)


def output(*blocks: object, **fields: object) -> Episode:
    """An episode with a step that gave these blocks."""
    return episode(steps=[Step({}, ToolCall(name="look", input={}), blocks, **fields)])


def png(width: int, height: int, *, noise: bool = False) -> bytes:
    pixels = (
        np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        if noise
        else np.zeros((height, width, 3), np.uint8)
    )
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "PNG")
    return packed.getvalue()


def image(data: bytes, mime_type: str = "image/png") -> ImageBlock:
    return ImageBlock(data=base64.b64encode(data).decode(), mimeType=mime_type)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    if find_browser() is None:
        pytest.skip("Chromium is not installed, and the viewer's tests drive one: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [flag for flag in browser_flags() if flag != "--headless"]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        yield browser
        browser.close()


class Viewed:
    """A page that was written, opened, and watched for errors and requests."""

    def __init__(self, browser, path: Path, episodes: list[Episode], **options: object) -> None:
        self.written = write_page(episodes, path, **{"title": "a run", **options})
        self.tab = browser.new_page(viewport={"width": 1280, "height": 800})
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.go("#/")

    def go(self, address: str, ready: str = "main:visible") -> None:
        self.tab.goto(self.written.path.as_uri() + address)
        self.tab.wait_for_selector(ready)

    def episode(self, number: int = 1) -> str:
        """The text of an episode's page."""
        self.go(f"#/episode/{number}", "main.episode")
        return self.text("main.episode")

    def text(self, selector: str) -> str:
        return self.tab.inner_text(selector)

    def column(self, name: str) -> list[str]:
        """What stands in a column of the table, from the top."""
        place = [heading.lower() for heading in self.tab.locator("thead th").all_inner_texts()].index(name.lower())
        return self.tab.locator(f"tbody tr:not(.spacer) td:nth-child({place + 1})").all_inner_texts()


@pytest.fixture
def view(browser, tmp_path: Path):
    opened: list[Viewed] = []

    def open_page(*episodes: Episode, **options: object) -> Viewed:
        opened.append(Viewed(browser, tmp_path / "view.html", list(episodes), **options))
        return opened[-1]

    yield open_page
    for viewed in opened:
        assert viewed.errors == []
        assert {url.split(":")[0] for url in viewed.requests} <= {"file", "data"}
        viewed.tab.close()


def test_groups_are_listed_with_their_mean_rewards(view) -> None:
    viewed = view(episode(0, 1.0), episode(0, 0.5), episode(1, 0.0), episode(1, 0.25))
    assert viewed.column("Task") == ["train/0", "train/1"]
    assert viewed.column("Mean reward") == ["0.75", "0.125"]
    assert viewed.column("Prompt") == ["What is 0+2?", "What is 1+2?"]


def test_the_figures_are_over_what_the_filter_leaves(view) -> None:
    viewed = view(
        episode(0, 1.0),
        episode(1, 0.5),
        episode(2, 0.0, error="gone", error_kind="infrastructure", terminated=False, truncated=True),
    )
    assert viewed.text(".figures div:nth-child(1) dd") == "0.75"
    assert viewed.text(".figures div:nth-child(4) dd") == "1"
    viewed.tab.fill("input[type=search]", "train/1")
    assert viewed.text(".figures div:nth-child(1) dd") == "0.5"
    assert viewed.text(".counts") == "1 of 3 episodes"


def test_without_groups_the_episodes_are_listed(view) -> None:
    viewed = view(episode(0, 1.0), episode(1, 0.5))
    assert viewed.column("Task") == ["train/0", "train/1"]
    assert viewed.column("Outcome") == ["finished", "finished"]
    assert viewed.column("Time") == ["2 s", "2 s"]


def test_rows_sort_by_number_and_the_unscored_stand_last(view) -> None:
    lost = episode(3, 5.0, error="gone", error_kind="infrastructure", terminated=False, truncated=True)
    viewed = view(episode(0, 0.5), episode(10, 10.0), lost, episode(2, 2.0))
    viewed.tab.click("th:has-text('Reward') button")
    assert viewed.column("Reward") == ["10", "2", "0.5", "–"]
    viewed.tab.click("th:has-text('Reward') button")
    assert viewed.column("Reward") == ["0.5", "2", "10", "–"]
    viewed.tab.click("th:has-text('Task') button")
    assert viewed.column("Task") == ["train/0", "train/2", "train/3", "train/10"]


def test_filters_by_text_outcome_split_and_reward(view) -> None:
    lost = episode(1, 0.5, error="the session is gone", error_kind="infrastructure", terminated=False, truncated=True)
    confused = episode(3, 0.0, steps=[Step("hm", None, invalid_action="no tool call")], terminated=False, truncated=True)
    viewed = view(episode(0, 1.0), lost, episode(2, 0.25, split="test"), confused)
    for typed, left in (("GONE", ["train/1"]), ("test/2", ["test/2"]), ("what 3+2", ["train/3"]), ("nowhere", [])):
        viewed.tab.fill("input[type=search]", typed)
        assert viewed.column("Task") == left
    viewed.tab.fill("input[type=search]", "")
    for chosen, left in (("unscored", ["train/1"]), ("invalid", ["train/3"]), ("finished", ["train/0", "test/2"])):
        viewed.tab.select_option("select[aria-label=Outcome]", chosen)
        assert viewed.column("Task") == left
    viewed.tab.select_option("select[aria-label=Outcome]", "all")
    viewed.tab.select_option("select[aria-label=Split]", "test")
    assert viewed.column("Task") == ["test/2"]
    viewed.tab.select_option("select[aria-label=Split]", "")
    viewed.tab.fill("input[aria-label='Lowest reward']", "0.2")
    viewed.tab.fill("input[aria-label='Highest reward']", "0.9")
    assert viewed.column("Task") == ["test/2"]
    viewed.tab.fill("input[aria-label='Lowest reward']", "-")
    assert viewed.column("Task") == ["test/2", "train/3"]


def test_a_click_leads_to_the_group_and_on_to_the_episode_and_back(view) -> None:
    viewed = view(episode(0, 1.0), episode(0, 0.0), episode(1, 0.0))
    viewed.tab.fill("input[type=search]", "train/0")
    viewed.tab.click("tbody tr:not(.spacer) .prompt")
    viewed.tab.wait_for_selector("main.group")
    assert viewed.tab.locator(".column").count() == 2
    assert viewed.text(".column:nth-child(1) .facts div:nth-child(2) dd") == "+0.71"
    assert viewed.text(".column:nth-child(2) .facts div:nth-child(2) dd") == "\u22120.71"
    viewed.tab.click(".column:nth-child(2) > header a")
    viewed.tab.wait_for_selector("main.episode")
    assert "Episode 2" in viewed.text(".crumbs")
    viewed.tab.keyboard.press("Escape")
    viewed.tab.wait_for_selector("main.list:visible")
    assert viewed.tab.input_value("input[type=search]") == "train/0"


def test_an_episode_shows_prompt_calls_outputs_rewards_errors_and_times(view) -> None:
    steps = [
        Step("I guess 4", None, (TextBlock(text="Call a tool."),), invalid_action="no tool call in the text"),
        Step({}, ToolCall(name="look", input={"at": "table"}), (TextBlock(text="A cup."),), 0.5, metadata={"seen": 1}, elapsed=1.5),
        Step({}, ToolCall(name="take", input={}), error="the tool raised: too hot", error_kind="environment", elapsed=0.02),
    ]
    failed = episode(
        steps=steps,
        error="the tool raised: too hot",
        error_kind="environment",
        terminated=False,
        truncated=True,
        metadata={"seed": 7},
    )
    shown = view(failed).episode()
    for expected in (
        "What is 0+2?", "I guess 4", "Call a tool.", "no tool call in the text", "look", "table", "A cup.", "reward 0.5", "1.5 s",
        "take", "too hot", "20 ms", "environment failed", "submit", "seed", "7", "1970-01-01 00:16:40 UTC", "id-0",
    ):  # fmt: skip
        assert expected in shown


def test_a_group_shows_its_episodes_side_by_side_with_one_prompt(view) -> None:
    viewed = view(*(episode(0, reward) for reward in (1.0, 0.0, 0.5)))
    viewed.go("#/group/1", "main.group")
    boxes = [viewed.tab.locator(".column").nth(place).bounding_box() for place in range(3)]
    assert boxes[0]["y"] == boxes[1]["y"] == boxes[2]["y"]
    assert boxes[0]["x"] < boxes[1]["x"] < boxes[2]["x"]
    assert viewed.text("main.group").count("What is 0+2?") == 1


def test_several_groups_of_one_task_are_told_apart(view) -> None:
    viewed = view(*(episode(0, reward, metadata={"group": group}) for group in (4, 9) for reward in (0.0, 1.0)))
    assert viewed.column("Task") == ["train/0 · group 4", "train/0 · group 9"]


def test_plots_of_rewards_steps_and_the_run(view) -> None:
    viewed = view(*(episode(index, float(index % 2)) for index in range(6)))
    assert viewed.tab.locator(".chart figcaption b").all_inner_texts() == ["Reward", "Steps", "Reward over the run"]
    assert viewed.tab.get_attribute(".chart:nth-child(1) svg", "aria-label") == "Reward: 0: 3; 1: 3"
    assert viewed.tab.get_attribute(".chart:nth-child(2) svg", "aria-label") == "Steps: 1: 6"


def test_hostile_text_is_text_everywhere(view) -> None:
    block = UnknownBlock(type=HOSTILE, more=HOSTILE)
    steps = [
        Step(HOSTILE, None, (TextBlock(text=HOSTILE),), invalid_action=HOSTILE),
        Step(
            {},
            ToolCall(name=HOSTILE, input={HOSTILE: HOSTILE, "__proto__": HOSTILE}),
            (block,),
            metadata={HOSTILE: HOSTILE},
            error=HOSTILE,
        ),
        Step({}, ToolCall(name="look", input={}), (ImageBlock(data=HOSTILE, mimeType=HOSTILE), image(HOSTILE.encode(), HOSTILE))),
    ]
    tool = ToolSpec(name=HOSTILE, description=HOSTILE, input_schema={HOSTILE: HOSTILE})
    hostile = Episode(
        TaskRef(task_spec={HOSTILE: HOSTILE}), HOSTILE, HOSTILE, (TextBlock(text=HOSTILE),), (tool,), steps, truncated=True,
        error=HOSTILE, error_kind="environment", metadata={"group": HOSTILE, HOSTILE: HOSTILE}, id=HOSTILE,
    )  # fmt: skip
    viewed = view(hostile, hostile, episode(1), title=f"{HOSTILE}\0$index")
    for address in ("#/", "#/group/1", "#/episode/1"):
        viewed.go(address, "main:visible h1, main.list:visible")
        assert viewed.tab.evaluate("window.hurt") is None
        assert viewed.tab.locator("#app script, #app [onerror]").count() == 0
    assert viewed.tab.locator("pre", has_text=HOSTILE[:40]).count() >= 8
    assert viewed.tab.locator("body > *").count() == viewed.tab.locator("body > #app, body > script, body > noscript").count()


def test_a_script_that_got_in_would_not_run(view) -> None:
    viewed = view(episode())
    viewed.tab.evaluate("document.body.append(Object.assign(document.createElement('script'), { text: 'window.hurt = 1' }))")
    assert viewed.tab.evaluate("window.hurt") is None


def test_what_no_browser_parses_is_shown_all_the_same(view) -> None:
    values = {
        "large": 12345678901234567890,
        "none": float("nan"),
        "lone": "a\ud800b",
        "deep": {"list": [1, {"x": None}]},
        "empty": "",
    }
    shown = view(episode(steps=[Step({}, ToolCall(name="look", input={"at": 1}), metadata=values)]))
    shown.episode()
    shown.tab.click(".step details summary")
    text = shown.text(".step details")
    assert "12345678901234567890" in text
    assert "NaN" in text
    assert "a\ud800b" in text


def test_a_text_is_cut_at_20_kb_and_the_whole_is_beside_the_page(view) -> None:
    exact, long = "é" * 10_000, "é" * 10_001
    viewed = view(output(TextBlock(text=exact), TextBlock(text=long)))
    viewed.episode()
    assert [len(text) for text in viewed.tab.locator(".came pre").all_inner_texts()] == [10_000, 10_000]
    assert viewed.tab.locator(".came .cut").all_inner_texts() == ["the first 20 kB of 20 kB · whole text"]
    beside = viewed.written.path.parent / viewed.tab.get_attribute(".came .whole", "href")
    assert beside.read_text("utf-8-sig") == long


def test_a_large_input_is_cut_too(view) -> None:
    viewed = view(episode(steps=[Step({}, ToolCall(name="write", input={"path": "a.py", "text": "x" * 30_000}))]))
    viewed.episode()
    assert viewed.tab.locator(".step .values pre").all_inner_texts() == ["a.py", "x" * 19_996]


def test_a_large_image_is_a_thumbnail_with_a_link_to_the_whole(view) -> None:
    whole = png(900, 600, noise=True)
    viewed = view(output(image(whole)))
    viewed.episode()
    source = viewed.tab.get_attribute(".image img", "src")
    assert len(base64.b64decode(source.split(",")[1])) <= 64_000
    assert viewed.tab.evaluate("document.querySelector('.image img').decode().then(() => true)")
    assert "900 × 600" in viewed.text(".image figcaption")
    link = viewed.tab.get_attribute(".image .whole", "href")
    assert (viewed.written.path.parent / link).read_bytes() == whole


def test_a_small_image_is_drawn_as_it_is(view) -> None:
    small = png(8, 6)
    viewed = view(output(image(small)))
    viewed.episode()
    assert viewed.tab.get_attribute(".image img", "src") == f"data:image/png;base64,{base64.b64encode(small).decode()}"
    assert viewed.tab.locator(".image .whole").count() == 0


@pytest.mark.parametrize(
    "data", [b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", b"<html>", b"\x89PNG\r\n\x1a\nbroken"]
)
def test_what_is_no_image_is_named_and_never_opens_as_a_page(view, data: bytes) -> None:
    viewed = view(output(image(data, "image/svg+xml")))
    viewed.episode()
    assert viewed.tab.locator(".image img").count() == 0
    link = viewed.tab.get_attribute(".image .whole", "href")
    assert link.endswith((".bin", ".png"))
    assert (viewed.written.path.parent / link).read_bytes() == data


def test_a_small_file_of_many_pixels_is_drawn_small() -> None:
    bomb = png(5000, 5000)
    assert len(bomb) < 100_000
    small = thumbnail(bomb, 64_000)
    assert small is not None
    assert small.mime_type == "image/webp"
    assert (small.width, small.height) == (5000, 5000)


def test_images_of_the_records_are_linked_and_not_copied(browser, tmp_path: Path) -> None:
    whole = png(600, 400, noise=True)
    write_records(tmp_path, [output(image(whole))])
    viewed = Viewed(browser, tmp_path / "view.html", [output(image(whole))])
    viewed.episode()
    assert viewed.tab.get_attribute(".image .whole", "href").startswith("images/")
    assert not (tmp_path / "view_files").exists()


def test_a_page_over_its_budget_is_cut_further_and_says_so(view, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "budget", lambda num_episodes: 1_000_000 + 60_000)
    texts = np.random.default_rng(0).integers(0x4E00, 0x9FFF, (30, 6000))
    viewed = view(*(episode(place, prompt=(TextBlock(text="".join(map(chr, text))),)) for place, text in enumerate(texts)))
    assert viewed.written.size < 1_060_000
    assert "cut at 600 bytes" in viewed.text("footer") or "cut at 1.2 kB" in viewed.text("footer")
    assert "of 18 kB" in viewed.episode()


def test_steps_that_do_not_fit_are_counted(view, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LEVELS", page.LEVELS[-1:])
    steps = [Step({}, ToolCall(name="count", input={"to": place})) for place in range(1, 101)]
    shown = view(episode(steps=steps)).episode()
    assert "94 steps left out" in shown
    assert "100" in shown


def test_thousands_of_rows_scroll_and_only_those_in_sight_are_in_the_page(view) -> None:
    viewed = view(*(episode(index, float(index)) for index in range(3000)))
    assert len(viewed.column("Task")) < 100
    viewed.tab.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    viewed.tab.wait_for_selector("td:has-text('train/2999')")
    assert len(viewed.column("Task")) < 100


def test_a_large_group_shows_more_when_asked(view) -> None:
    viewed = view(*(episode(0, float(place)) for place in range(20)))
    viewed.go("#/group/1", "main.group")
    assert viewed.tab.locator(".column").count() == 16
    viewed.tab.click("text=Show more of 4")
    viewed.tab.wait_for_selector(".column:nth-child(20)")


def test_an_address_of_nothing_shows_the_list(view) -> None:
    viewed = view(episode())
    viewed.go("#/episode/99")
    assert viewed.tab.is_visible("main.list")


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_nothing_reaches_over_the_side(view, width: int) -> None:
    long = "long" * 400
    step = Step(long, ToolCall(name=long, input={long: long}), (TextBlock(text=long), image(png(900, 90))), invalid_action=long)
    changes = {
        "prompt": (TextBlock(text=long),),
        "steps": [step],
        "env_name": long,
        "split": long,
        "metadata": {long: long, "note": "x" * 80},
    }
    viewed = view(*(episode(index, **changes) for index in (0, 0, 1)), title=long)
    viewed.tab.set_viewport_size({"width": width, "height": 700})
    for address in ("#/", "#/group/1", "#/episode/1"):
        viewed.go(address)
        assert viewed.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_turns(view) -> None:
    viewed = view(episode())
    ground = "getComputedStyle(document.body).backgroundColor"
    before = viewed.tab.evaluate(ground)
    viewed.tab.click(".theme")
    assert viewed.tab.evaluate(ground) != before


def _run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ors_gym.cli", "view", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_view_writes_the_page_beside_the_records(tmp_path: Path) -> None:
    write_records(tmp_path / "run", [episode(0), episode(1)])
    result = _run(tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert str(tmp_path / "run" / "view.html") in result.stdout
    assert "2 episodes in 2 groups" in result.stdout
    assert (tmp_path / "run" / "view.html").read_bytes().startswith(b"<!doctype html>")


def test_rewards_are_those_that_the_run_recorded_unless_asked_otherwise(browser, tmp_path: Path) -> None:
    steps = [Step({}, ToolCall(name="look", input={}), reward=reward) for reward in (0.25, 0.5)]
    write_records(tmp_path, [episode(steps=steps)], reward="max")
    for options, shown in (((), "0.5"), (("--reward", "sum"), "0.75")):
        assert _run(tmp_path, *options).returncode == 0
        tab = browser.new_page()
        tab.goto((tmp_path / "view.html").as_uri())
        assert tab.inner_text(".figures div:nth-child(1) dd") == shown
        tab.close()


def test_a_file_that_is_being_written_can_be_viewed(tmp_path: Path) -> None:
    file = write_records(tmp_path, [episode(0)])
    with file.open("a") as torn:
        torn.write('{"format":"ors-gym/epi')
    result = _run(file, "--out", tmp_path / "now.html")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "now.html").is_file()


def test_a_failed_episode_that_was_run_again_is_left_out(tmp_path: Path) -> None:
    place = {"group": 0, "rollout": 1}
    failed = {"error": "gone", "error_kind": "infrastructure", "terminated": False, "truncated": True}
    write_records(tmp_path, [episode(0, metadata=place, **failed), episode(1, **failed), episode(0, metadata=place)])
    result = _run(tmp_path)
    assert "2 episodes in 2 groups" in result.stdout


@pytest.mark.parametrize("content", [None, "", "not a record\n"])
def test_what_cannot_be_viewed_is_one_line_and_exit_code_1(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "episodes.jsonl").write_text(content)
    result = _run(tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "episodes.jsonl" in result.stderr


def test_a_page_that_cannot_be_written_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    write_records(tmp_path, [episode(0)])
    result = _run(tmp_path, "--out", tmp_path)
    assert result.returncode == 1
    assert result.stderr == f"error: {tmp_path}: Is a directory\n"


def test_a_picture_needs_a_browser_and_says_so(tmp_path: Path) -> None:
    write_records(tmp_path, [episode(0)])
    result = _run(tmp_path, "--png", tmp_path / "view.png", PATH="", CHROMIUM="")
    assert result.returncode == 1
    assert "apt-get install chromium" in result.stderr


def test_a_browser_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_records(tmp_path, [episode(0)])
    result = _run(tmp_path, "--png", tmp_path / "view.png", CHROMIUM="/nowhere/chromium")
    assert result.returncode == 1
    assert "/nowhere/chromium" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_picture_of_an_episode(browser, tmp_path: Path) -> None:
    write_records(tmp_path, [episode(0), episode(1)])
    result = _run(tmp_path, "--png", tmp_path / "view.png", "--show", "episode:2", "--size", "800x600")
    assert result.returncode == 0, result.stderr
    with Image.open(tmp_path / "view.png") as picture:
        assert picture.size == (800, 600)
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24)) > 20


@pytest.mark.parametrize("option", [("--show", "episode:0"), ("--show", "everything"), ("--size", "wide")])
def test_an_unknown_option_says_what_is_known(tmp_path: Path, option: tuple[str, str]) -> None:
    write_records(tmp_path, [episode(0)])
    result = _run(tmp_path, *option)
    assert result.returncode == 2
    assert option[0] in result.stderr
