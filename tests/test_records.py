"""Episodes as JSONL: what is written, what survives, and what a crash leaves."""

import base64
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ors_gym.episode import Episode, Step
from ors_gym.errors import RecordError
from ors_gym.protocol import ImageBlock, TextBlock, ToolCall, ToolSpec, UnknownBlock
from ors_gym.records import (
    Record,
    RecordWriter,
    jsonable,
    load_records,
    read_records,
    write_records,
)
from ors_gym.secrets import Redactor
from ors_gym.tasks import TaskRef

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n pixels").decode()


def _full_episode() -> Episode:
    return Episode(
        task=TaskRef("train", 17),
        env_name="arithmetic",
        session_id="s-1",
        prompt=(TextBlock(text="What is 2+2?"), ImageBlock(data=PNG, mimeType="image/png", detail={"alt": "two"})),
        tools=(ToolSpec(name="submit", description="An answer.", input_schema={"type": "object"}),),
        steps=[
            Step(
                action='{"name": "submit"}',
                call=ToolCall(name="submit", input={"answer": "4", "nested": [1, {"a": None}]}),
                blocks=(TextBlock(text="right"), ImageBlock(data=PNG, mimeType="image/png")),
                reward=1.0,
                finished=True,
                metadata={"seen": True},
                started_at=10.5,
                elapsed=0.25,
            ),
            Step(action="?", invalid_action="no tool call"),
        ],
        terminated=True,
        started_at=10.0,
        ended_at=11.0,
        metadata={"group": 3},
        id="e1",
    )


def test_an_episode_comes_back_as_it_was(tmp_path: Path) -> None:
    write_records(tmp_path, [_full_episode()])
    assert load_records(tmp_path) == [_full_episode()]


def test_a_line_by_its_fields(tmp_path: Path) -> None:
    path = write_records(tmp_path / "run", [_full_episode()])
    assert path == tmp_path / "run" / "episodes.jsonl"
    [line] = path.read_text().splitlines()
    fields = json.loads(line)
    assert (fields["format"], fields["version"], fields["id"]) == ("ors-gym/episode", 1, "e1")
    assert fields["task"] == {"split": "train", "index": 17}
    assert fields["reward"] == 1.0
    assert fields["steps"][0]["call"] == {"name": "submit", "input": {"answer": "4", "nested": [1, {"a": None}]}}
    assert fields["prompt"][1] == {
        "type": "image",
        "image": "images/16d0f8f62c521eb56e8b1b4547dee4471b7dbc5f6f0d9f0bc35e81fde419b46f.png",
        "mimeType": "image/png",
        "detail": {"alt": "two"},
    }


def test_the_reward_is_reduced_as_the_run_asked(tmp_path: Path) -> None:
    lost = Episode(TaskRef("train", 1), truncated=True, error="gone", error_kind="infrastructure", steps=[Step("a", reward=1.0)])
    write_records(tmp_path, [_full_episode(), lost], reward=lambda episode: 0.5)
    assert [record.reward for record in read_records(tmp_path)] == [0.5, None]
    assert [record.unscored for record in read_records(tmp_path)] == [False, True]


def test_an_image_is_stored_once(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.write(_full_episode())
    write_records(tmp_path, [_full_episode()])
    [image] = (tmp_path / "images").iterdir()
    assert image.read_bytes() == b"\x89PNG\r\n\x1a\n pixels"


@pytest.mark.parametrize("data", ["not base64!", "QQ", "QR==", "ZZZZ\n", "", "\ud800"])
def test_an_image_that_is_no_clean_base64_is_kept_as_it_came(tmp_path: Path, data: str) -> None:
    episode = Episode(TaskRef("train", 0), prompt=(ImageBlock(data=data, mimeType="image/png"),))
    write_records(tmp_path, [episode])
    assert load_records(tmp_path)[0].prompt == episode.prompt


def test_a_hostile_mime_type_chooses_no_file_name(tmp_path: Path) -> None:
    block = ImageBlock(data=PNG, mimeType="image/../../../evil\x00.html")
    write_records(tmp_path, [Episode(TaskRef("train", 0), prompt=(block,))])
    [image] = (tmp_path / "images").iterdir()
    assert image.suffix == ".bin"
    assert load_records(tmp_path)[0].prompt == (block,)


def test_a_record_that_points_outside_its_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private.png").write_bytes(b"x")
    record = {
        "format": "ors-gym/episode",
        "version": 1,
        "id": "e",
        "task": {"split": "train", "index": 0},
        "prompt": [{"type": "image", "mimeType": "image/png", "image": "images/../private.png"}],
    }
    (tmp_path / "episodes.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(RecordError, match="not a name in images/"):
        load_records(tmp_path)


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    write_records(tmp_path, [_full_episode()])
    [image] = (tmp_path / "images").iterdir()
    image.unlink()
    with pytest.raises(RecordError, match=image.name):
        load_records(tmp_path)
    assert [record.id for record in read_records(tmp_path)] == ["e1"]


def test_unknown_blocks_keep_their_fields(tmp_path: Path) -> None:
    block = UnknownBlock.model_validate({"type": "audio", "data": "AAAA", "rate": 8000, "image": None})
    write_records(tmp_path, [Episode(TaskRef("train", 0), prompt=(block,))])
    [restored] = load_records(tmp_path)[0].prompt
    assert (restored.type, restored.model_extra["data"], restored.model_extra["rate"]) == ("audio", "AAAA", 8000)


@given(st.text(st.characters(exclude_categories=[])), st.text(st.characters(exclude_categories=[])))
def test_any_text_survives_and_the_file_is_ascii(tmp_path_factory: pytest.TempPathFactory, first: str, second: str) -> None:
    folder = tmp_path_factory.mktemp("text")
    episode = Episode(
        TaskRef(task_spec={"q": first}),
        prompt=(TextBlock(text=first),),
        steps=[Step(second, metadata={first: second})],
        error=second,
    )
    path = write_records(folder, [episode])
    assert path.read_bytes().isascii()
    assert len(path.read_bytes().splitlines()) == 1
    assert load_records(folder) == [episode]


def test_lone_surrogates_and_line_separators_survive(tmp_path: Path) -> None:
    text = "\ud800 \udfff \u2028 \x85 \x0c \x00 \n"
    episode = Episode(TaskRef("train", 0), prompt=(TextBlock(text=text),), steps=[Step({text: text})], error=text)
    write_records(tmp_path, [episode])
    assert load_records(tmp_path) == [episode]


class _Message(BaseModel):
    role: str
    content: Any = None


@dataclass
class _Action:
    name: str
    weights: Any


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class _Unreadable(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("no")


def _cycle() -> list[Any]:
    loop: list[Any] = []
    loop.extend([loop, loop])
    return loop


def _deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (b"raw", "b'raw'"),
        ({1: {2}}, {"1": [2]}),
        (_Message(role="assistant", content=(1, 2)), {"role": "assistant", "content": [1, 2]}),
        (_Action("left", np.zeros(2)), {"name": "left", "weights": [0.0, 0.0]}),
        (_Unprintable(), "<_Unprintable, whose repr raised RuntimeError>"),
        (_Unreadable(a=1), "{'a': 1}"),
        ({None: 1, (1, 2): 2}, {"None": 1, "(1, 2)": 2}),
        (np.array(3), 3),
        (_cycle(), ["[[...], [...]]", "[[...], [...]]"]),
        ([10**5_000], ["<int, whose repr raised ValueError>"]),
    ],
)
def test_any_object_becomes_json(value: Any, expected: Any) -> None:
    assert jsonable(value) == expected
    assert json.dumps(jsonable(value), allow_nan=False)


def test_what_is_nested_too_deep_becomes_its_repr() -> None:
    assert json.loads(json.dumps(jsonable(_deep(100)))) == _deep(100)
    assert json.dumps(jsonable(_deep(5_000))).startswith("[" * 100 + '"')


def test_actions_of_any_kind_do_not_stop_the_writer(tmp_path: Path) -> None:
    actions = [np.zeros(3), _Unprintable(), _Action("a", None), object, {"b": b"\x00"}]
    write_records(tmp_path, [Episode(TaskRef("train", 0), steps=[Step(action) for action in actions])])
    [record] = read_records(tmp_path)
    assert [step.action for step in record.steps][0::2] == [[0.0, 0.0, 0.0], {"name": "a", "weights": None}, {"b": "b'\\x00'"}]


def test_secrets_are_not_written_wherever_a_server_repeats_them(tmp_path: Path) -> None:
    secret = 'sk-"quoted"-123'
    episode = Episode(
        TaskRef("sk-split", 0),
        prompt=(TextBlock(text=f"your key is {secret}"),),
        tools=(ToolSpec(name="t", description=secret),),
        steps=[Step({secret: [secret]}, ToolCall(name="t", input={"k": secret}), error=secret, metadata={"m": secret})],
        error=secret,
        metadata={"note": secret},
    )
    path = write_records(tmp_path, [episode], redactor=Redactor([secret]))
    assert "123" not in path.read_text()
    [restored] = load_records(tmp_path)
    assert restored.prompt == (TextBlock(text="your key is [redacted]"),)
    assert restored.task == TaskRef("sk-split", 0)


def test_a_torn_last_line_is_dropped_on_reading_and_cut_off_on_writing(tmp_path: Path) -> None:
    path = write_records(tmp_path, [_full_episode()])
    whole = path.read_bytes()
    for length in (1, 20, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole + whole[:length])
        assert [record.id for record in read_records(tmp_path)] == ["e1"]
        write_records(tmp_path, [_full_episode()])
        assert path.read_bytes() == whole + whole


def test_a_disk_that_was_full_costs_the_episodes_that_it_refused_and_no_other(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    whole = write_records(tmp_path, [_full_episode()]).read_bytes()
    with RecordWriter(tmp_path) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, unlimited[1]))
        try:
            for _ in range(2):
                with pytest.raises(OSError, match="too large"):
                    writer.write(_full_episode())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        writer.write(_full_episode())

    assert writer.path.read_bytes() == whole + whole


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_file_that_cannot_be_flushed_is_closed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.symlink_to("/dev/full")
    writer = RecordWriter(path)

    with pytest.raises(OSError, match="Invalid argument"):
        writer.close()
    writer.close()


def test_a_last_line_that_only_lacks_its_line_break_is_kept(tmp_path: Path) -> None:
    path = write_records(tmp_path, [_full_episode()])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert len(load_records(tmp_path)) == 1
    write_records(tmp_path, [_full_episode()])
    assert path.read_bytes() == whole + whole


def test_a_file_that_is_only_a_torn_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(b'{"format": "ors-gym/epi' + b"x" * 200_000)
    assert load_records(tmp_path) == []
    write_records(tmp_path, [_full_episode()])
    assert len(load_records(tmp_path)) == 1


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = write_records(tmp_path, [_full_episode()])
    whole = path.read_bytes()
    path.write_bytes(whole + b"{broken\n" + whole)
    with pytest.raises(RecordError, match=r"episodes\.jsonl, line 2"):
        load_records(tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"format": "ors-gym/episode", "version": 2, "id": "e", "task": {}}', "version 2"),
        ('{"rows": []}', "not a record"),
        ("[]", "not a record"),
        ('{"format": "ors-gym/episode", "version": 1, "task": {}}', "id: Field required"),
        ('{"format": "ors-gym/episode", "version": 1, "id": "e", "task": {}}', "split and index"),
    ],
)
def test_what_is_no_record_of_this_version_is_refused_with_the_reason(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "episodes.jsonl").write_text(line + "\n")
    with pytest.raises(RecordError, match=reason):
        load_records(tmp_path)


def test_unknown_fields_of_the_same_version_are_passed_over(tmp_path: Path) -> None:
    line = {"format": "ors-gym/episode", "version": 1, "id": "e", "task": {"split": "train", "index": 0, "new": 1}, "new": []}
    (tmp_path / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    assert load_records(tmp_path)[0].task == TaskRef("train", 0)


def test_a_reader_sees_each_episode_while_the_file_is_being_written(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        for count in (1, 2, 3):
            writer.write(_full_episode())
            assert len(load_records(tmp_path)) == count


def test_a_writer_that_is_killed_loses_nothing_that_it_wrote(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from ors_gym.episode import Episode\n"
        "from ors_gym.records import RecordWriter\n"
        "from ors_gym.tasks import TaskRef\n"
        "writer = RecordWriter(sys.argv[1])\n"
        "for index in range(5): writer.write(Episode(TaskRef('train', index)))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    assert [episode.task.index for episode in load_records(tmp_path)] == [0, 1, 2, 3, 4]


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda index: writer.write(Episode(TaskRef("train", index), prompt=_full_episode().prompt)), range(200)))
    assert sorted(episode.task.index or 0 for episode in load_records(tmp_path)) == list(range(200))
    assert len(list((tmp_path / "images").iterdir())) == 1


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(_full_episode())


def test_a_missing_file_is_a_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_records(tmp_path)


def test_the_schema_is_published_with_its_meaning() -> None:
    schema = Record.model_json_schema()
    assert "one episode" in schema["description"]
    assert set(schema["required"]) == {"id", "task"}


def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    write_records(tmp_path, [_full_episode()])
    load_records(tmp_path)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before
