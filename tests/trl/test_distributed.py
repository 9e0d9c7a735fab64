"""Two processes on a CPU, started as users start them: every mode trains, however unequal the ranks' rollouts are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ors_gym.records import read_records

ROOT = Path(__file__).parents[2]


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["single_turn", "environment", "rollout", "pipeline"])
def test_ranks_train_together(mode: str, base_url: str, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    quiet = ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command = [*launch, *quiet, "-m", "tests.trl.run_distributed", mode, base_url, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRL_EXPERIMENTAL_SILENCE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FACTS ")).removeprefix("FACTS "))
    assert facts["world_size"] == 2
    assert facts["weights"][0] == facts["weights"][1]
    assert [len(turns) for turns in facts["turns"]] == [8, 8]
    rewards = [record.reward for name in ("episodes", "episodes.rank1") for record in read_records(tmp_path / f"{name}.jsonl")]
    assert len(rewards) == 48
    assert sum(facts["reward"]) / 3 == pytest.approx(sum(rewards) / 48)
