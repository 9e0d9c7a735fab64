"""`ors-gym play` at a real terminal, against real servers."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from ors_gym.records import load_records
from ors_gym.testing import FaultServer


class Player:
    """The command at a terminal of its own."""

    def __init__(self, out: Path, *arguments: str, **environment: str) -> None:
        self.out = out
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "ors_gym.cli", "play", "--out", str(out), *arguments],
            encoding="utf-8",
            timeout=60,
            dimensions=(50, 160),
            env={**os.environ, "TERM": "dumb", "COLUMNS": "160", **environment},
        )

    def expect(self, *texts: str) -> None:
        """Wait for these, one after another."""
        for text in texts:
            self.process.expect_exact(text)

    def answer(self, asked: str, typed: str) -> None:
        self.expect(asked)
        self.process.sendline(typed)

    def end(self) -> int:
        """Wait for the command's end; its exit code."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        return self.process.exitstatus

    def leave(self) -> None:
        """End the command, if it still runs, and wait until its session is deleted and it has ended."""
        if self.process.isalive():
            self.process.kill(signal.SIGTERM)
            self.end()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[object]:
    started: list[Player] = []

    def start(*arguments: str, **environment: str) -> Player:
        started.append(Player(tmp_path / "played", *arguments, **environment))
        return started[-1]

    yield start
    for player in started:
        player.leave()


@pytest.fixture
def playing(play, ors_server) -> Player:
    """A player who has made one call and is asked for the next."""
    player = play(ors_server.base_url, "--env", "arithmetic", "--index", "0")
    player.answer("tool: ", "think")
    player.expect("Go on.", "tool: ")
    return player


def test_a_person_plays_an_episode_and_its_record_is_kept(play, real_server) -> None:
    player = play(real_server.base_url, "--env", "arithmetic", "--split", "train", "--index", "3")
    player.expect("arithmetic train/3", "What is 3 + 4?")
    player.answer("tool: ", "think")
    player.expect("Go on.", "no reward", "so far 0")
    player.answer("tool: ", "submit")
    player.answer("answer (string): ", "7")
    player.expect("Correct!", "reward 1", "so far 1", "finished after 2 steps: reward 1", "episodes.jsonl")
    assert player.end() == 0
    [episode] = load_records(player.out)
    assert [step.call.name for step in episode.steps] == ["think", "submit"]
    assert episode.steps[1].call.input == {"answer": "7"}
    assert episode.rewards == [1.0]
    assert episode.terminated


def test_what_the_schema_does_not_allow_is_asked_for_again(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "counter", "--index", "0")
    player.answer("tool: ", "sbtract")
    player.expect("type a number or a name")
    player.answer("tool: ", "1")
    player.expect("How much to add.")
    player.answer("amount (integer): ", "many")
    player.answer("amount (integer): ", "9")
    player.expect("amount:")
    player.answer("amount (integer): ", "5")
    player.expect("The total is 5 of 3.", "reward 0.5", "finished after 1 step")
    assert player.end() == 0
    [episode] = load_records(player.out)
    assert episode.steps[0].call.input == {"amount": 5}


def test_images_are_drawn_and_kept_as_files(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "faulty", "--index", "0", TERM="xterm-256color", COLORTERM="truecolor")
    player.expect("Do as you like.", "▀", "image/png", "images/")
    player.answer("tool: ", "finish")
    assert player.end() == 0
    assert len(list((player.out / "images").glob("*.png"))) == 1


def test_the_end_of_input_ends_the_episode_and_keeps_it(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "arithmetic", "--index", "0")
    player.expect("tool: ")
    player.process.sendeof()
    player.expect("truncated after 0 steps: reward 0")
    assert player.end() == 0
    [episode] = load_records(player.out)
    assert episode.truncated


def test_ctrl_c_ends_the_episode_and_keeps_it(playing) -> None:
    playing.process.sendintr()
    playing.expect("truncated after 1 step: reward 0")
    assert playing.end() == 130
    [episode] = load_records(playing.out)
    assert episode.num_steps == 1


def test_kill_ends_the_episode_and_keeps_it(playing, ors_server) -> None:
    playing.process.kill(signal.SIGTERM)
    playing.expect("truncated after 1 step: reward 0")
    assert playing.end() == 143
    [episode] = load_records(playing.out)
    assert episode.num_steps == 1
    assert ors_server.live_sessions() == []


def test_a_closed_terminal_ends_the_episode_and_keeps_it(playing, ors_server) -> None:
    os.close(playing.process.fileno())
    assert playing.process.wait() == 129
    [episode] = load_records(playing.out)
    assert episode.num_steps == 1
    assert ors_server.live_sessions() == []


def test_a_tool_that_raises_ends_the_episode_unscored(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "faulty", "--index", "0")
    player.answer("tool: ", "boom")
    player.expect("boom went the tool", "environment failed after 1 step: unscored")
    assert player.end() == 0


def test_what_a_server_says_steers_no_terminal(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "faulty", "--index", "0")
    player.answer("tool: ", "echo")
    player.answer("text (string): ", "\x16\x1b[2Jgone")
    player.expect("\\x1b[2Jgone")


def test_secrets_go_to_the_environment_and_not_into_the_record(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "faulty", "--index", "0", "--secret", "token=PLAY_TOKEN", PLAY_TOKEN="s3cret-value")
    player.answer("tool: ", "whoami")
    player.answer("tool: ", "finish")
    assert player.end() == 0
    record = (player.out / "episodes.jsonl").read_text()
    assert "s3cret-value" not in record
    assert "[redacted]" in record


def test_a_task_of_ones_own(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "arithmetic", "--task-spec", '{"question": "20 + 22", "answer": "42"}')
    player.expect("What is 20 + 22?")
    player.answer("tool: ", "submit")
    player.answer("answer (string): ", "42")
    player.expect("Correct!")


def test_an_unreachable_server_is_one_line_and_exit_code_1(play) -> None:
    player = play("http://127.0.0.1:9")
    player.expect("error: ", "127.0.0.1:9")
    assert player.end() == 1


def test_a_folder_that_cannot_be_written_is_told_before_a_session_is_opened(play, tmp_path: Path) -> None:
    (tmp_path / "played").write_text("")
    with FaultServer() as server:
        player = play(server.base_url, "--out", str(tmp_path / "played" / "here"))
        player.expect("error: ", "Not a directory")
        assert player.end() == 1
        assert server.received("create") == []


def test_a_reset_that_fails_is_one_line_and_kept(play, ors_server) -> None:
    player = play(ors_server.base_url, "--env", "brokensetup", "--index", "1")
    player.expect("error: ", "this task cannot be set up")
    assert player.end() == 1
    [episode] = load_records(player.out)
    assert episode.unscored


@pytest.mark.parametrize(
    "option", [("--task-spec", "[1]"), ("--task-spec", "{"), ("--secret", "token"), ("--secret", "token=NOT_SET_ANYWHERE")]
)
def test_an_option_that_makes_no_sense_is_explained(play, option: tuple[str, str]) -> None:
    player = play("http://127.0.0.1:9", *option)
    player.expect(option[0])
    assert player.end() == 2
