"""Tasks: all of a split, their number, one of them, and ranges of them."""

from typing import Any

from ors_gym.conformance._probe import UNKNOWN, Answer, Probe
from ors_gym.conformance._requirements import Finding, NotTestable, Registry, deviates, holds, passes, refused
from ors_gym.conformance.checks.discovery import DATA_TYPES, HTTP_API, extra, unknown_environment

registry = Registry()
requirement = registry.requirement

SPLITS_PAGE = "Tasks & Splits"
_TASKS = "POST /{env_name}/tasks"
_NUM_TASKS = "POST /{env_name}/num_tasks"
_TASK = "POST /{env_name}/task"
_RANGE = "POST /{env_name}/task_range"


@requirement(_TASKS, HTTP_API, "The answer is an object with the array `tasks`.")
async def tasks_shape(probe: Probe) -> Finding:
    return passes(f"{len(await probe.list_tasks())} tasks in {await probe.split()!r}")


@requirement(_TASKS, DATA_TYPES, "Each task is a JSON object.")
async def tasks_objects(probe: Probe) -> Finding:
    wrong = [task for task in await probe.tasks() if not isinstance(task, dict)]
    return holds(not wrong, f"not an object: {wrong[0]!r:.80}" if wrong else "all are")


@requirement(_TASKS, HTTP_API, "The answer names its environment in `env_name`.")
async def tasks_env_name(probe: Probe) -> Finding:
    await probe.tasks()
    body = (await probe.post(await probe.path("tasks"), {"split": await probe.split()})).object()
    return holds(body.get("env_name") == await probe.env_name(), f"env_name is {body.get('env_name')!r}")


@requirement(_TASKS, HTTP_API, "An unknown split is 400.")
async def tasks_unknown_split(probe: Probe) -> Finding:
    return refused(await probe.post(await probe.path("tasks"), {"split": UNKNOWN}), 400, tolerated=(404, 422))


@requirement(_TASKS, HTTP_API, "A body without `split` is 400.")
async def tasks_without_split(probe: Probe) -> Finding:
    return refused(await probe.post(await probe.path("tasks"), {}), 400, tolerated=(422,))


@requirement(_TASKS, HTTP_API, "A body that is not JSON is 400.")
async def tasks_malformed_body(probe: Probe) -> Finding:
    return refused(await probe.post(await probe.path("tasks"), raw=b'{"split": '), 400, tolerated=(422,))


@requirement(_TASKS, HTTP_API, "An unknown environment is 404, or redirected if the server has only one.")
async def tasks_unknown_environment(probe: Probe) -> Finding:
    return await unknown_environment(probe, await probe.post(f"/{UNKNOWN}/tasks", {"split": await probe.split()}))


@requirement(_NUM_TASKS, HTTP_API, "The answer has `num_tasks`, a whole number from 0.")
async def num_tasks_shape(probe: Probe) -> Finding:
    counts = {str(split["name"]): await probe.count_tasks(str(split["name"])) for split in await probe.splits()}
    return passes(f"{counts}")


@requirement(_NUM_TASKS, HTTP_API, "The number is that of the tasks that /tasks lists.")
async def num_tasks_agrees(probe: Probe) -> Finding:
    number, listed = await probe.num_tasks(await probe.split()), len(await probe.tasks())
    return holds(number == listed, f"num_tasks {number}, tasks {listed}")


@requirement(_NUM_TASKS, HTTP_API, "An unknown split is 400.")
async def num_tasks_unknown_split(probe: Probe) -> Finding:
    return refused(await probe.post(await probe.path("num_tasks"), {"split": UNKNOWN}), 400, tolerated=(404, 422))


@requirement(_NUM_TASKS, HTTP_API, "A body without `split` is 400.")
async def num_tasks_without_split(probe: Probe) -> Finding:
    return refused(await probe.post(await probe.path("num_tasks"), {}), 400, tolerated=(422,))


@requirement(_NUM_TASKS, HTTP_API, "An unknown environment is 404, or redirected if the server has only one.")
async def num_tasks_unknown_environment(probe: Probe) -> Finding:
    return await unknown_environment(probe, await probe.post(f"/{UNKNOWN}/num_tasks", {"split": await probe.split()}))


@requirement(_TASK, f"{HTTP_API}; {SPLITS_PAGE}", "One task is had by /task (one page) or /get_task (another).")
async def task_path(probe: Probe) -> Finding:
    return passes(f"the server follows the page with /{await probe.find_form('task')}")


@requirement(_TASK, HTTP_API, "The answer is an object with the object `task`.")
async def task_shape(probe: Probe) -> Finding:
    body = (await probe.task(0)).object()
    return holds(isinstance(body.get("task"), dict), f"task is {body.get('task')!r:.80}")


@requirement(_TASK, HTTP_API, "The answer has no fields but `task`.")
async def task_fields(probe: Probe) -> Finding:
    more = extra((await probe.task(0)).object(), {"task"})
    return deviates(f"more fields: {', '.join(more)}") if more else passes("no others")


@requirement(_TASK, HTTP_API, "Indices start at 0 and run in the order of /tasks, to the last.")
async def task_agrees(probe: Probe) -> Finding:
    tasks = await probe.tasks()
    for index in dict.fromkeys((0, len(tasks) - 1)):
        if (await probe.task(index)).object().get("task") != tasks[index]:
            return holds(False, f"task {index} is not the one that /tasks lists there")
    return passes(f"0 and {len(tasks) - 1} agree with /tasks")


@requirement(_TASK, HTTP_API, "The same index gives the same task again.")
async def task_repeatable(probe: Probe) -> Finding:
    first, again = [(await probe.task(0)).object().get("task") for _ in range(2)]
    return holds(first == again, "the same twice" if first == again else "another task the second time")


@requirement(_TASK, HTTP_API, "An index beyond the last is 400.")
async def task_out_of_range(probe: Probe) -> Finding:
    return refused(await probe.task(await probe.num_tasks(await probe.split())), 400, tolerated=(404, 422))


@requirement(_TASK, HTTP_API, "An unknown split is 400.")
async def task_unknown_split(probe: Probe) -> Finding:
    path = await probe.path(await probe.form("task"))
    return refused(await probe.post(path, {"split": UNKNOWN, "index": 0}), 400, tolerated=(404, 422))


@requirement(_TASK, HTTP_API, "A body without `index` is 400.")
async def task_without_index(probe: Probe) -> Finding:
    path = await probe.path(await probe.form("task"))
    return refused(await probe.post(path, {"split": await probe.split()}), 400, tolerated=(422,))


@requirement(_TASK, DATA_TYPES, "An index that is no whole number is 400.")
async def task_index_type(probe: Probe) -> Finding:
    return refused(await probe.task("first"), 400, tolerated=(422,))


@requirement(_TASK, HTTP_API, "An unknown environment is 404, or redirected if the server has only one.")
async def task_unknown_environment(probe: Probe) -> Finding:
    body = {"split": await probe.split(), "index": 0}
    return await unknown_environment(probe, await probe.post(f"/{UNKNOWN}/{await probe.form('task')}", body))


@requirement(_RANGE, f"{HTTP_API}; {SPLITS_PAGE}", "Several tasks are had by /task_range (one page) or /get_task_range (another).")
async def range_path(probe: Probe) -> Finding:
    return passes(f"the server follows the page with /{await probe.find_form('task_range')}")


@requirement(_RANGE, HTTP_API, "The answer is an object with the array `tasks`, and no other fields.")
async def range_fields(probe: Probe) -> Finding:
    answer = await probe.task_range(start=0, stop=1)
    answer.array("tasks")
    more = extra(answer.object(), {"tasks"})
    return deviates(f"more fields: {', '.join(more)}") if more else passes("no others")


@requirement(_RANGE, HTTP_API, "`start` is inclusive and `stop` exclusive.")
async def range_half_open(probe: Probe) -> Finding:
    return await _slice(probe, 1, 3)


@requirement(_RANGE, HTTP_API, "Without `start` and `stop` it is the whole split.")
async def range_whole(probe: Probe) -> Finding:
    return await _slice(probe, None, None)


@requirement(_RANGE, HTTP_API, "Without `start` it begins at 0.")
async def range_open_start(probe: Probe) -> Finding:
    return await _slice(probe, None, 2)


@requirement(_RANGE, HTTP_API, "Without `stop` it goes to the end.")
async def range_open_stop(probe: Probe) -> Finding:
    return await _slice(probe, 1, None)


@requirement(_RANGE, HTTP_API, "A negative `start` counts from the end.")
async def range_negative_start(probe: Probe) -> Finding:
    return await _slice(probe, -2, None)


@requirement(_RANGE, HTTP_API, "A negative `stop` counts from the end.")
async def range_negative_stop(probe: Probe) -> Finding:
    return await _slice(probe, 0, -1)


@requirement(_RANGE, HTTP_API, "A range that holds nothing is an empty array.")
async def range_empty(probe: Probe) -> Finding:
    return await _slice(probe, 1, 1)


@requirement(
    _RANGE,
    HTTP_API,
    "A `stop` beyond the end is cut, as in a slice, or 400, as an index range that is not valid: both are written.",
)
async def range_beyond_the_end(probe: Probe) -> Finding:
    stop = len(await probe.tasks()) + 5
    answer = await probe.task_range(start=0, stop=stop)
    if answer.status in (400, 422):
        return passes(f"the server refuses it: {answer.summary}")
    listed = answer.array("tasks")
    return holds(listed == await probe.tasks(), f"the server cuts it: {len(listed)} tasks")


@requirement(_RANGE, HTTP_API, "An unknown split is 400.")
async def range_unknown_split(probe: Probe) -> Finding:
    path = await probe.path(await probe.form("task_range"))
    return refused(await probe.post(path, {"split": UNKNOWN, "start": 0, "stop": 1}), 400, tolerated=(404, 422))


@requirement(_RANGE, HTTP_API, "An unknown environment is 404, or redirected if the server has only one.")
async def range_unknown_environment(probe: Probe) -> Finding:
    path = f"/{UNKNOWN}/{await probe.form('task_range')}"
    return await unknown_environment(probe, await probe.post(path, {"split": await probe.split()}))


async def _slice(probe: Probe, start: int | None, stop: int | None) -> Finding:
    tasks = await probe.tasks()
    if len(tasks) < 3:
        raise NotTestable("no split has three tasks")
    bounds = {name: value for name, value in (("start", start), ("stop", stop)) if value is not None}
    answer: Answer = await probe.task_range(**bounds)
    listed: list[Any] = answer.array("tasks")
    expected = tasks[slice(start, stop)]
    shown = ", ".join(f"{name}={value}" for name, value in bounds.items()) or "no bounds"
    return holds(
        listed == expected, f"{shown}: {len(listed)} tasks" + ("" if listed == expected else f", not these {len(expected)}")
    )
