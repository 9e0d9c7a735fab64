"""GRPO in TRL learns on served environments in each mode, and runs on others."""

from pathlib import Path

import pytest

from tests.integrations.scripts import run_script
from tests.servers.sdk_server import SDKServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SMALL = ["--split", "train", "--total-steps", "2", "--tasks-per-step", "2", "--group-size", "4", "--eval-tasks", "2"]


@pytest.mark.parametrize("script", ["single_turn", "environment", "rollout"])
def test_it_learns_from_chance_to_nine_tenths_of_the_best_reward(script: str, tmp_path: Path) -> None:
    outcome = run_script(f"trl/{script}.py", tmp_path, "--seed", "0")

    assert outcome.before <= 0.25
    assert outcome.after >= 0.9
    assert outcome.curve.startswith(b"\x89PNG")


@pytest.mark.parametrize("script", ["environment", "rollout"])
def test_many_turns_run_on_another_server(script: str, tmp_path: Path, ors_server: SDKServer) -> None:
    outcome = run_script(f"trl/{script}.py", tmp_path, "--base-url", ors_server.base_url, "--env", "counter", *SMALL)

    assert "6 calls" in outcome.output


def test_one_turn_runs_on_another_server(tmp_path: Path, ors_server: SDKServer) -> None:
    answers = ["--env", "arithmetic", "--max-completion-length", "2"]
    outcome = run_script("trl/single_turn.py", tmp_path, "--base-url", ors_server.base_url, *answers, *SMALL)

    assert outcome.curve.startswith(b"\x89PNG")
