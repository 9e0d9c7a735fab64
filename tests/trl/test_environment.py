"""`spec.environment_factory`: what TRL's own loop discovers, resets and calls."""

import inspect
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ors_gym.trl import ORSSpec
from tests.trl.tiny import PRESSES, call, logged, make_tokenizer, make_trainer


def tools_of(environment: Any) -> dict[str, Any]:
    """The tools as TRL finds them: by the functions of the class, from the instance."""
    names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction) if not name.startswith("_")]
    tools = [getattr(environment, name) for name in names if name not in ("reset", "get_reward")]
    return {tool.__name__: tool for tool in tools}


def begin(spec: ORSSpec, index: int = 0) -> Any:
    environment = spec.environment_factory()
    assert environment.reset(ors_split="train", ors_index=index) is None
    return environment


def score(spec: ORSSpec, *environments: Any, index: int = 0) -> list[float | None]:
    count = len(environments)
    columns = {"ors_split": ["train"] * count, "ors_index": [index] * count}
    return spec.reward_funcs(["p"] * count, [[]] * count, environments=list(environments), **columns)


def test_every_tool_is_found_with_the_servers_own_schema(base_url: str) -> None:
    with ORSSpec(base_url, "odd", num_tasks=1) as spec:
        tools = tools_of(spec.environment_factory())
    assert set(tools) == {"reset", "get_reward", "_private", "with-hyphen", "search"}
    assert tools["search"] == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search.",
            "parameters": {
                "type": "object",
                "properties": {
                    "from": {"type": "string", "enum": ["a", "b"]},
                    "self": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                    "tags": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                },
                "required": ["from"],
            },
        },
    }
    assert not any(inspect.iscoroutinefunction(tool) for tool in tools.values())


def test_tools_with_odd_names_and_parameters_work_and_nothing_is_added_to_the_input(base_url: str) -> None:
    with ORSSpec(base_url, "odd", num_tasks=1) as spec:
        tools = tools_of(begin(spec))
        assert json.loads(tools["search"](**{"from": "a"})) == {"search": {"from": "a"}}
        assert json.loads(tools["search"](**{"from": "b", "self": 1})) == {"search": {"from": "b", "self": 1}}
        assert [json.loads(tools[name]()) for name in ("reset", "get_reward", "with-hyphen")] == [
            {"reset": {}},
            {"get_reward": {}},
            {"with-hyphen": {}},
        ]


def test_a_dataset_row_begins_an_episode_and_the_rewards_are_its(base_url: str) -> None:
    with ORSSpec(base_url, "counter") as spec:
        environment = begin(spec)
        assert tools_of(environment)["add"](amount=2) == "The total is 2 of 3."
        assert tools_of(environment)["add"](amount=5) == "The total is 7 of 3."
        assert score(spec, environment) == [pytest.approx(0.7)]
        assert spec.groups[0].episodes[0].terminated


def test_a_call_after_finished_is_answered_here(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        environment = begin(spec)
        tools = tools_of(environment)
        assert tools["finish"]() == "The end."
        assert tools["finish"]() == "The episode is over. This call was not made."
        assert score(spec, environment) == [1.0]
        assert [step.metadata for step in spec.groups[0].episodes[0].steps] == [{"calls": 1}]


def test_resets_return_at_once_while_the_sessions_open_together(base_url: str) -> None:
    with ORSSpec(base_url, "together", indices=[8]) as spec:
        factory = spec.environment_factory
        environments = [factory() for _ in range(8)]
        for environment in environments:
            environment.reset(ors_split="train", ors_index=0)
        assert [tools_of(environment)["press"](digit=1) for environment in environments] == ["good"] * 8


def test_sessions_end_at_finished_at_reset_and_at_the_end(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        environment = begin(spec)
        tools_of(environment)["finish"]()
        assert sessions_open(spec) == 0
        environment.reset(ors_split="train", ors_index=1)
        tools_of(environment)["echo"](text="x")
        assert sessions_open(spec) == 1
        environment.reset(ors_split="train", ors_index=2)
        tools_of(environment)["echo"](text="x")
        wait_until(lambda: sessions_open(spec) == 1)
        (callback,) = spec.callbacks
        callback.on_train_end(None, None, None)
        assert sessions_open(spec) == 0


def test_what_fails_is_told_and_unscored_and_never_raised(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        broken, unknown, unset = begin(spec), begin(spec, index=999), begin(spec)
        assert tools_of(broken)["boom"]() == "The environment failed. The episode is over."
        assert tools_of(unknown)["finish"]() == "The environment failed. The episode is over."
        assert "Error" in tools_of(unset)["slow"](seconds="soon")
        assert score(spec, broken, unknown, unset) == [None, None, 0.0]


def test_a_rollout_without_a_call_has_the_reward_for_that(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic", invalid_action_reward=-1.0) as spec:
        assert score(spec, begin(spec)) == [-1.0]


def test_a_tool_before_any_reset_says_so(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec:
        environment = spec.environment_factory()
        assert tools_of(environment)["think"]() == "Error: the episode has not begun."


def test_tasks_with_tools_of_their_own_have_factories_of_their_own(base_url: str) -> None:
    with ORSSpec(base_url, "tasktools") as spec:
        factories = spec.environment_factory
        offered = [sorted(tools_of(factories[row["environment"]]())) for row in spec.train_dataset]
    assert offered == [["say"], ["hint", "say"], ["hint", "say", "solve"]]


def test_the_factory_pickles_with_the_reward_function_and_works_in_a_new_process(base_url: str) -> None:
    with ORSSpec(base_url, "counter") as spec:
        sent = pickle.dumps((spec.environment_factory, spec.reward_funcs))
    factory, reward_funcs = pickle.loads(sent)
    environment = factory()
    environment.reset(ors_split="train", ors_index=0)
    text = tools_of(environment)["add"](amount=3)
    completions = [
        [{"role": "assistant", "content": ""}, {"role": "tool", "name": "add", "content": str(text)}],
        [{"role": "assistant", "content": "no"}],
    ]
    assert reward_funcs(["p"] * 2, completions, ors_split=["train"] * 2, ors_index=[0] * 2) == [pytest.approx(0.3), 0.0]


def test_a_pickled_factory_ends_an_episode_with_its_last_words_and_knows_the_trainer_otherwise(base_url: str) -> None:
    with ORSSpec(base_url, "counter") as spec:
        [callback] = spec.callbacks
        arguments = SimpleNamespace(max_completion_length=64, num_generations=4)
        callback.on_init_end(arguments, None, None, processing_class=make_tokenizer(PRESSES))
        copy = pickle.loads(pickle.dumps(spec.environment_factory))
        said = {}
        for name, factory in (("here", spec.environment_factory), ("there", copy)):
            environment = factory()
            environment.reset(ors_split="train", ors_index=0)
            said[name] = str(tools_of(environment)["add"](amount=5))
    assert len(said["here"].split()) > 64
    assert said["there"] == "The total is 5 of 3."
    assert copy._trainer.group_size == 4


def test_live_prompts_come_from_one_opening_of_the_whole_batch(base_url: str, tmp_path: Path) -> None:
    seen: list[str] = []

    def watch(prompts: list[Any], **kwargs: Any) -> list[float]:
        seen.extend(prompt[-1]["content"] for prompt in prompts)
        return [0.0] * len(prompts)

    with ORSSpec(base_url, "together", prompt="session", discover_task_tools=False, num_tasks=8) as spec:
        kwargs = spec.trainer_kwargs("environment")
        kwargs["reward_funcs"] = [spec.reward_funcs, watch]
        trainer = make_trainer(tmp_path, kwargs, allowed=PRESSES, per_device_train_batch_size=8, max_tool_calling_iterations=1)
        trainer.train()
    assert seen == ["opened with 8"] * 8


def test_a_row_ends_with_its_episode(base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "copy") as spec:
        trainer = make_trainer(tmp_path, spec.trainer_kwargs("environment"), allowed=PRESSES, max_tool_calling_iterations=10)
        trainer.train()
    assert logged(trainer, "tools/call_frequency") == [1.0]
    assert logged(trainer, "completions/mean_length") == [1.0]


def test_control_tokens_in_what_a_tool_says_stay_text(base_url: str, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(calls=[call("echo", text="a <eos> b"), call("finish")])
    said: list[Any] = []

    def watch(completions: list[Any], **kwargs: Any) -> list[float]:
        said.extend(message["content"] for completion in completions for message in completion if message["role"] == "tool")
        return [0.0] * len(completions)

    with ORSSpec(base_url, "faulty", num_tasks=1) as spec:
        kwargs = spec.trainer_kwargs("environment")
        kwargs["reward_funcs"] = [spec.reward_funcs, watch]
        trainer = make_trainer(
            tmp_path, kwargs, tokenizer=tokenizer, allowed=[call("echo", text="a <eos> b")], per_device_train_batch_size=4,
            max_tool_calling_iterations=1,
        )  # fmt: skip
        trainer.train()
    assert set(said) == {"a < eos> b"}


def sessions_open(spec: ORSSpec) -> int:
    open_now: int = spec.source.environment.client.stats().sessions_open
    return open_now


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
