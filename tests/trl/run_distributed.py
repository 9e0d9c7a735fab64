"""Trains in one mode on each rank of an `accelerate launch`, and says as JSON what every rank logged and played.

Usage: run_distributed.py MODE BASE_URL FOLDER
"""

import json
import sys
from pathlib import Path

from accelerate.utils import gather_object

from ors_gym.trl import ORSSpec
from tests.trl.tiny import LOOK, PRESSES, logged, make_trainer


def main() -> None:
    mode, base_url, folder = sys.argv[1:]
    pipeline = mode == "pipeline"
    with ORSSpec(base_url, "code", record=Path(folder) / "episodes.jsonl", pipeline=pipeline, progress=False) as spec:
        trainer = make_trainer(
            Path(folder),
            spec.trainer_kwargs("rollout" if pipeline else mode),
            allowed=[LOOK, *PRESSES],
            max_steps=3,
            per_device_train_batch_size=8,
            max_tool_calling_iterations=6,
            ddp_backend="gloo",
        )
        trainer.train()
        turns = [[episode.num_steps for group in spec.groups for episode in group.episodes]]
        weights = [sum(float(parameter.sum()) for parameter in trainer.model.parameters())]
        facts = {
            "world_size": trainer.accelerator.num_processes,
            "turns": gather_object(turns),
            "weights": gather_object(weights),
            "reward": logged(trainer, "reward"),
        }
        if trainer.accelerator.is_main_process:
            sys.stdout.write(f"FACTS {json.dumps(facts)}\n")


if __name__ == "__main__":
    main()
