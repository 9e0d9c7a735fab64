"""What a training leaves behind: records of every episode, groups, and numbers in the trainer's logs."""

from pathlib import Path
from typing import Any

import pytest

from ors_gym.records import read_records
from ors_gym.trl import ORSSpec
from tests.trl.tiny import PRESSES, logged, make_trainer


@pytest.mark.parametrize("mode", ["single_turn", "environment", "rollout"])
def test_every_episode_is_recorded_and_the_log_says_what_the_server_said(mode: Any, base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "copy", record=tmp_path / "run") as spec:
        trainer = make_trainer(tmp_path, spec.trainer_kwargs(mode), allowed=PRESSES, max_steps=3, per_device_train_batch_size=8)
        trainer.train()
        last = spec.groups
    records = list(read_records(tmp_path / "run"))
    assert len(records) == 24
    assert [record.metadata["step"] for record in records] == [0] * 8 + [1] * 8 + [2] * 8
    assert [record.metadata["group"] for record in records] == [number // 4 for number in range(24)]
    assert [record.metadata["rollout"] for record in records] == [0, 1, 2, 3] * 6
    by_step = [[record.steps[0].reward for record in records if record.metadata["step"] == step] for step in range(3)]
    assert logged(trainer, "reward") == [pytest.approx(sum(rewards) / 8) for rewards in by_step]
    assert [record.reward for record in records] == [record.metadata["reward"] for record in records]
    assert [record.metadata["advantage"] for record in records[-8:]] == [a for group in last for a in group.advantages()]
    assert [episode.id for group in last for episode in group.episodes] == [record.id for record in records[-8:]]
    assert logged(trainer, "ors/turns") == [1.0, 1.0, 1.0]


def test_no_record_holds_a_secret(base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "faulty", secrets={"key": "canary-7"}, record=tmp_path) as spec:
        spec.reward_funcs(["p"], ['{"name": "whoami"}'], ors_split=["train"], ors_index=[0])
        assert "canary-7" not in repr(spec.source.options)
    assert "whoami" in (tmp_path / "episodes.jsonl").read_text()
    assert "canary-7" not in (tmp_path / "episodes.jsonl").read_text()


def test_a_disk_that_cannot_be_written_does_not_end_the_training(
    base_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with ORSSpec(base_url, "arithmetic", record=tmp_path / "file" / "below") as spec:
        assert spec.reward_funcs(["p"], ["1"], ors_split=["train"], ors_index=[0]) == [1.0]
    assert "could not be recorded" in caplog.text


def test_ranks_after_the_first_write_files_of_their_own(base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with ORSSpec(base_url, "arithmetic", record=tmp_path) as spec:
        spec.reward_funcs(["p"], ["1"], ors_split=["train"], ors_index=[0])
    assert [path.name for path in tmp_path.iterdir()] == ["episodes.rank1.jsonl"]
