"""`ors-gym demo`, with few steps, and interrupted."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ors_gym.records import load_records

pytestmark = pytest.mark.integration


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "ors_gym.cli", "demo", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_demo_leaves_its_curve_and_every_episode(tmp_path: Path) -> None:
    process = _start("--steps", "2", "--out", str(tmp_path))
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 0, output
    for shown in ("439=", "submit", "Correct.", "mean reward", "before", "after", "reward.png", "episodes.jsonl"):
        assert shown in output
    assert f"{tmp_path / 'reward.png'}\n" in output
    assert f"{tmp_path / 'episodes.jsonl'}\n" in output
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")
    episodes = load_records(tmp_path)
    assert len(episodes) == 2 * 64 + 2 * 400
    assert all(episode.ended and not episode.unscored for episode in episodes)


def test_ctrl_c_stops_the_demo_cleanly(tmp_path: Path) -> None:
    process = _start("--out", str(tmp_path))
    assert process.stdout is not None
    while "Correct." not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Stopped." in output
    assert "Traceback" not in output
