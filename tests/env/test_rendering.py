"""How an episode looks, whatever a server sent."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ors_gym.env import ORSEnv, rendering
from ors_gym.episode import Episode, Step
from ors_gym.protocol import ImageBlock, TextBlock, ToolCall
from ors_gym.tasks import TaskRef
from tests.env.conftest import ADD_5

HOSTILE = "\x1b[31mred\x1b[0m \x07 \u202etxet\u202c <script>alert(1)</script> [bold]markup[/bold] \ud800 漢\r\nnext"


def _png(width: int, height: int, colour: tuple[int, int, int]) -> str:
    data = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def _episode(*texts: str, image: str | None = None) -> Episode:
    blocks: Any = [TextBlock(text=text) for text in texts]
    if image is not None:
        blocks.append(ImageBlock(data=image, mimeType="image/png"))
    step = Step({"name": "look"}, ToolCall(name="look"), tuple(blocks), reward=0.5)
    return Episode(TaskRef("train", 3), "museum", "sid", (TextBlock(text="Look around."),), steps=[step])


def test_ansi_is_the_transcript_as_text() -> None:
    assert rendering.ansi(_episode("A vase.")) == (
        "museum · train/3 · running · reward 0.5\n── prompt\nLook around.\n── step 1: look {}\nA vase.\nreward 0.5"
    )


def test_every_outcome_of_a_step_is_told() -> None:
    episode = _episode()
    episode.steps = [
        Step("hm", invalid_action="no tool call in the text", blocks=(TextBlock(text="Error: no tool call in the text"),)),
        Step({}, ToolCall(name="wait")),
        Step({}, ToolCall(name="end"), reward=1.0, finished=True),
        Step({}, ToolCall(name="boom"), error="boom went the tool", error_kind="environment"),
    ]
    episode.truncated, episode.error, episode.error_kind = True, "boom went the tool", "environment"
    assert rendering.ansi(episode).splitlines() == [
        "museum · train/3 · environment failed · unscored",
        "── prompt",
        "Look around.",
        "── step 1: hm",
        "Error: no tool call in the text",
        "invalid action",
        "── step 2: wait {}",
        "no reward",
        "── step 3: end {}",
        "reward 1, finished",
        "── step 4: boom {}",
        "environment failed: boom went the tool",
    ]


def test_text_that_steers_a_terminal_is_shown_as_escapes() -> None:
    text = rendering.ansi(_episode(HOSTILE))
    assert "\\x1b[31mred\\x1b[0m \\x07 \\u202etxet\\u202c" in text
    assert "\\ud800 漢\nnext" in text
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    text.encode()


def test_the_terminal_gets_each_reset_and_step_as_it_happens(ors_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    env = ORSEnv(ors_server.base_url, "counter", render_mode="human")
    env.reset(options={"index": 5})
    assert "Count to 8." in capsys.readouterr().out
    env.step(ADD_5)
    shown = capsys.readouterr().out
    assert "The total is 5 of 8." in shown
    assert "Count to 8." not in shown
    env.step(ADD_5)
    assert "finished · reward 1" in capsys.readouterr().out
    assert env.render() is None
    env.close()


def test_the_terminal_is_not_steered_by_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    episode = _episode(HOSTILE)
    rendering.show_prompt(episode)
    rendering.show_steps(episode, 0)
    shown = capsys.readouterr().out
    assert "\\x1b[31mred" in shown
    assert "[bold]markup[/bold]" in shown
    assert "\x07" not in shown


def test_html_is_escaped(ors_server: Any) -> None:
    shown = rendering.html(_episode(HOSTILE), "museum")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<script" not in shown
    env = ORSEnv(ors_server.base_url, "counter")
    assert "no episode yet" in env._repr_html_()
    env.reset(options={"index": 5})
    assert "Count to 8." in env._repr_html_()
    env.close()


# rgb_array


@pytest.mark.parametrize(
    "episode",
    [
        None,
        _episode(),
        _episode("short"),
        _episode("word " * 5_000),
        _episode("x" * 20_000),
        _episode("\n" * 500),
        _episode(HOSTILE, image=_png(4, 3, (255, 0, 0))),
        _episode("wide", image=_png(3000, 40, (0, 255, 0))),
        _episode("tall", image=_png(1, 900, (0, 0, 255))),
        _episode("broken", image="bm90IGFuIGltYWdl"),
    ],
)
def test_every_frame_has_the_canvas_shape_and_something_on_it(episode: Episode | None) -> None:
    frame = rendering.rgb_array(episode)
    assert frame.shape == rendering.CANVAS == (600, 800, 3)
    assert frame.dtype == np.uint8
    assert frame.flags.writeable
    assert frame[60:].std() > 0 or episode is None


def test_an_image_is_drawn_in_its_colours() -> None:
    frame = rendering.rgb_array(_episode("Red:", image=_png(40, 30, (255, 0, 0))))
    red = (frame == [255, 0, 0]).all(axis=2)
    assert red.sum() >= 40 * 30


def test_a_frame_shows_the_end_of_a_long_episode() -> None:
    episode = _episode("Green:", image=_png(64, 64, (0, 255, 0)))
    episode.steps += [Step("text", ToolCall(name="say"), (TextBlock(text="line\n" * 40),))]
    assert not (rendering.rgb_array(episode) == [0, 255, 0]).all(axis=2).any()
    episode.steps += [Step("look", ToolCall(name="look"), (ImageBlock(data=_png(64, 64, (0, 0, 255)), mimeType="image/png"),))]
    assert (rendering.rgb_array(episode) == [0, 0, 255]).all(axis=2).any()


def test_lines_never_leave_the_canvas() -> None:
    frame = rendering.rgb_array(_episode("W" * 3_000, "word " * 400))
    assert (frame[60:, -10:] == frame[-1, -1]).all()
