"""Which task, and which next: a pure function of seed, group and number."""

import pickle

import pytest

from ors_gym.tasks import TaskRef, TaskSampler


def test_a_task_is_named_by_split_and_index_or_by_itself() -> None:
    assert TaskRef("train", 17).key == "train/17"
    assert TaskRef(task_spec={"b": 1, "a": [2]}).key == TaskRef(task_spec={"a": [2], "b": 1}).key
    assert TaskRef(task_spec={"a": 1}).key != TaskRef(task_spec={"a": 2}).key


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"split": "train"},
        {"index": 1},
        {"split": "train", "index": 1, "task_spec": {}},
        {"split": "train", "task_spec": {}},
        {"split": "train", "index": -1},
        {"split": "train", "index": True},
    ],
)
def test_neither_form_or_both_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        TaskRef(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [TaskRef("train", 0), TaskRef(task_spec={"a": 1}), TaskRef("test", 3, env_name="math")])
def test_a_task_goes_through_its_dict_and_a_pickle(task: TaskRef) -> None:
    assert TaskRef.from_dict(task.to_dict()) == task
    assert pickle.loads(pickle.dumps(task)) == task
    assert hash(TaskRef.from_dict(task.to_dict())) == hash(task)


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ValueError, match=r"\['idx'\]"):
        TaskRef.from_dict({"split": "train", "idx": 3})


def test_tasks_can_be_counted_and_collected() -> None:
    assert len({TaskRef("train", 0), TaskRef("train", 0), TaskRef("train", 1), TaskRef(task_spec={"a": 1})}) == 3


def _indices(sampler: TaskSampler, count: int, seed: int = 0, group: int = 0) -> list[int | None]:
    return [sampler.task(seed=seed, n=n, group=group).index for n in range(count)]


def test_each_epoch_has_every_task_once_in_an_order_of_its_own() -> None:
    indices = _indices(TaskSampler("train", 50), 100)
    assert sorted(indices[:50]) == sorted(indices[50:]) == list(range(50))
    assert indices[:50] != indices[50:]


def test_a_seed_is_a_sequence() -> None:
    assert _indices(TaskSampler("train", 50), 50, seed=1) == _indices(TaskSampler("train", 50), 50, seed=1)
    assert _indices(TaskSampler("train", 50), 50, seed=1) != _indices(TaskSampler("train", 50), 50, seed=2)


def test_groups_share_an_epoch_without_repetition() -> None:
    sampler = TaskSampler("train", 12, num_groups=4)
    drawn = [_indices(sampler, 3, group=group) for group in range(4)]
    assert sorted(index for indices in drawn for index in indices) == list(range(12))


def test_more_groups_than_tasks_go_on_into_the_next_epoch() -> None:
    sampler = TaskSampler("train", 3, num_groups=5)
    first_round = [sampler.task(seed=0, n=0, group=group).index for group in range(5)]
    assert sorted(first_round[:3]) == [0, 1, 2]


def test_tasks_can_be_drawn_from_some_indices() -> None:
    assert sorted(_indices(TaskSampler("train", [3, 8, 9]), 3)) == [3, 8, 9]


@pytest.mark.parametrize("indices", [0, []])
def test_no_tasks_are_refused(indices: int | list[int]) -> None:
    with pytest.raises(ValueError, match="no task to draw"):
        TaskSampler("train", indices)


def test_no_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="num_groups"):
        TaskSampler("train", 3, num_groups=0)
