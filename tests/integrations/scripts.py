"""The training scripts of `integrations/`, run as a user runs them."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INTEGRATIONS = Path(__file__).parents[2] / "integrations"


@dataclass(frozen=True)
class Outcome:
    """What a script printed, and the picture that it drew."""

    before: float
    after: float
    output: str
    curve: bytes


def run_script(script: str, out: Path, *arguments: str) -> Outcome:
    """Run a script to its end.

    Raises:
        AssertionError: It failed, or printed no rewards.
    """
    command = [sys.executable, INTEGRATIONS / script, "--out", out, *arguments]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    assert finished.returncode == 0, finished.stdout[-5000:]
    rewards = re.search(r"^reward before: ([-.\d]+), after: ([-.\d]+)", finished.stdout, re.MULTILINE)
    assert rewards, finished.stdout[-5000:]
    return Outcome(float(rewards[1]), float(rewards[2]), finished.stdout, (out / "curve.png").read_bytes())


SMALL = ["--env", "counter", "--split", "train", "--seed", "3", "--total-steps", "64"]
"""A few steps on an environment that the scripts do not know."""

VECTOR = ["--num-envs", "4", "--eval-episodes", "4"]
