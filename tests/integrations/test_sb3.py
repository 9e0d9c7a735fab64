"""SB3's PPO learns on a served environment, and runs on any that has finite tools."""

from pathlib import Path

import pytest

from tests.integrations.scripts import SMALL, VECTOR, run_script
from tests.servers.sdk_server import SDKServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_it_learns_from_chance_to_nine_tenths_of_the_best_reward(tmp_path: Path) -> None:
    outcome = run_script("sb3/train.py", tmp_path, "--seed", "0")

    assert outcome.before <= 0.25
    assert outcome.after >= 0.9
    assert outcome.curve.startswith(b"\x89PNG")


def test_it_runs_on_another_server(tmp_path: Path, ors_server: SDKServer) -> None:
    outcome = run_script("sb3/train.py", tmp_path, "--base-url", ors_server.base_url, *SMALL, *VECTOR)

    assert "6 calls" in outcome.output


def test_maskable_ppo_learns_too(tmp_path: Path) -> None:
    outcome = run_script("sb3/train.py", tmp_path, "--algorithm", "maskable-ppo", "--total-steps", "3072")

    assert outcome.after > outcome.before + 0.2
