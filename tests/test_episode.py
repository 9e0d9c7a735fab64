"""The ledger of one episode."""

import pytest

from ors_gym.episode import Episode, Step
from ors_gym.protocol import TextBlock, ToolCall
from ors_gym.tasks import TaskRef


def _episode(*steps: Step, **fields: object) -> Episode:
    return Episode(TaskRef("train", 0), "museum", steps=list(steps), **fields)  # type: ignore[arg-type]


def test_steps_without_a_reward_are_left_out_of_the_rewards() -> None:
    episode = _episode(Step("a", reward=0.5), Step("b"), Step("c", reward=0.0))
    assert episode.rewards == [0.5, 0.0]
    assert episode.num_steps == 3


def test_invalid_actions_are_counted() -> None:
    assert _episode(Step("a", invalid_action="no"), Step("b")).num_invalid_actions == 1


@pytest.mark.parametrize(
    ("fields", "outcome", "ended", "unscored"),
    [
        ({}, "running", False, False),
        ({"terminated": True}, "finished", True, False),
        ({"truncated": True}, "truncated", True, False),
        ({"truncated": True, "error": "e", "error_kind": "environment"}, "environment failed", True, True),
        ({"truncated": True, "error": "e", "error_kind": "infrastructure"}, "infrastructure failed", True, True),
    ],
)
def test_the_outcome_says_how_it_stands(fields: dict[str, object], outcome: str, ended: bool, unscored: bool) -> None:
    episode = _episode(**fields)
    assert (episode.outcome, episode.ended, episode.unscored) == (outcome, ended, unscored)


def test_times_are_of_the_whole_and_of_the_environment() -> None:
    episode = _episode(Step("a", elapsed=0.5), Step("b", elapsed=1.0), started_at=100.0, ended_at=103.0)
    assert episode.elapsed == 3.0
    assert episode.environment_seconds == 1.5
    assert _episode().elapsed >= 0.0


def test_every_episode_has_an_id_of_its_own() -> None:
    assert _episode().id != _episode().id


def test_a_notebook_shows_it_escaped() -> None:
    step = Step("a", ToolCall(name="<b>"), (TextBlock(text="<script>"),), reward=1.0, finished=True)
    shown = _episode(step, error="<i>", error_kind="environment")._repr_html_()
    assert all(tag in shown for tag in ("&lt;b&gt;", "&lt;script&gt;", "&lt;i&gt;"))
    assert not any(tag in shown for tag in ("<script>", "<i>"))


@pytest.mark.parametrize(
    ("episode", "shown"),
    [
        (_episode(), "<Episode 'museum train/0': running after 0 steps, reward 0>"),
        (_episode(Step("a", reward=0.5), terminated=True), "<Episode 'museum train/0': finished after 1 step, reward 0.5>"),
        (
            _episode(Step("a", reward=1.0), Step("b"), truncated=True, error="lost", error_kind="infrastructure"),
            "<Episode 'museum train/0': infrastructure failed after 2 steps, unscored>",
        ),
        (Episode(TaskRef("\x1b[2J", 0), truncated=True), r"<Episode '\x1b[2J/0': truncated after 0 steps, reward 0>"),
    ],
)
def test_its_repr_is_a_short_line_however_much_was_said(episode: Episode, shown: str) -> None:
    episode.prompt = (TextBlock(text="long " * 1000),)
    assert repr(episode) == shown
