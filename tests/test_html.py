"""The pieces of HTML that notebooks show."""

from html.parser import HTMLParser

import pytest

from ors_gym import _html
from ors_gym.episode import Episode, Step
from ors_gym.protocol import ImageBlock, Prompt, TextBlock, ToolCall, ToolOutput, Tools, ToolSpec, UnknownBlock
from ors_gym.tasks import TaskRef

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\ud800\u202e"


class _Tags(HTMLParser):
    """The tags and attributes that a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.attributes: set[str] = set()
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize(
    "markup",
    [
        _html.text(HOSTILE),
        _html.json_text({HOSTILE: [HOSTILE, object()]}),
        _html.image("aGk=", f"image/png{HOSTILE}"),
        _html.image(f'aGk=" onerror=alert(1) x="{HOSTILE}', "image/png"),
        _html.table([HOSTILE], [[HOSTILE, 1.5, None]]),
        _html.folded(HOSTILE, HOSTILE),
        _html.box(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),
        _html.element("b", HOSTILE, title=HOSTILE),
    ],
)
def test_text_becomes_no_element_and_no_handler(markup: str) -> None:
    tags = _Tags(markup)
    assert not {"script", "img"} & set(tags.seen)
    assert tags.attributes <= {"style", "title", "open"}
    markup.encode()


def test_markup_is_not_escaped_again() -> None:
    assert _html.element("p", _html.element("b", "<")) == "<p><b>&lt;</b></p>"


def test_an_image_is_drawn() -> None:
    assert 'src="data:image/png;base64,aGk="' in _html.image("aGk=", "image/png")


def test_a_long_text_is_cut_and_says_so() -> None:
    markup = _html.text("\u00e9" * 20_007)
    assert markup.count("\u00e9") == 20_000
    assert "7 more characters" in markup


HOSTILE_TEXT = HOSTILE.replace("\ud800", "")


def test_what_a_server_sends_is_shown_as_text() -> None:
    output = ToolOutput(
        blocks=(
            TextBlock(text=HOSTILE_TEXT),
            ImageBlock(data=HOSTILE_TEXT, mimeType=HOSTILE_TEXT),
            UnknownBlock(type=HOSTILE_TEXT),
        ),
        reward=0.5,
        metadata={HOSTILE: HOSTILE},
    )
    tool = ToolSpec(name=HOSTILE_TEXT, description=HOSTILE_TEXT, input_schema={HOSTILE: HOSTILE})
    step = Step(action=HOSTILE, blocks=output.blocks, invalid_action=HOSTILE, error=HOSTILE)
    episode = Episode(TaskRef(HOSTILE, 0), env_name=HOSTILE, prompt=Prompt(output.blocks), steps=[step], error=HOSTILE)
    for shown in (output, tool, Tools((tool,)), step, episode, episode.prompt):
        tags = _Tags(shown._repr_html_())
        assert not {"script", "img"} & set(tags.seen), type(shown)
        assert tags.attributes <= {"style", "open"}


def test_an_episode_shows_its_prompt_its_calls_and_its_reward() -> None:
    step = Step({"name": "submit"}, ToolCall(name="submit", input={"answer": "72"}), (TextBlock(text="Right."),), 1.0, True)
    episode = Episode(TaskRef("train", 17), env_name="gsm8k", prompt=(TextBlock(text="How many?"),), steps=[step], terminated=True)
    shown = episode._repr_html_()
    for expected in ("gsm8k train/17", "How many?", "submit", "&quot;72&quot;", "Right.", "reward 1", "finished"):
        assert expected in shown


def test_an_unscored_episode_shows_no_reward() -> None:
    step = Step({"name": "submit"}, reward=1.0)
    episode = Episode(TaskRef("train", 0), steps=[step], truncated=True, error="the session is gone", error_kind="infrastructure")
    assert "reward –" in episode._repr_html_()
    assert "infrastructure failed" in episode._repr_html_()
