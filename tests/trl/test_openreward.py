"""Scripts written for TRL's own adapter move over by their import, and what its users run into is mended.

One test for each of its shortcomings; those on schemas, names and control flow are also in `test_environment.py`.
"""

import inspect
from pathlib import Path
from typing import Any

import pytest
from trl.experimental.openreward import OpenRewardSpec as TRLSpec

from ors_gym.trl import OpenRewardSpec, ORSSpec
from tests.trl.test_environment import begin, score, sessions_open, tools_of, wait_until
from tests.trl.test_rewards import reward, said
from tests.trl.tiny import PRESSES, logged, make_trainer


def test_it_is_the_same_class_and_takes_the_same_arguments() -> None:
    assert OpenRewardSpec is ORSSpec
    theirs, ours = (inspect.signature(spec).parameters for spec in (TRLSpec, OpenRewardSpec))
    assert set(theirs) <= set(ours)


def test_a_script_for_the_other_adapter_runs(base_url: str, tmp_path: Path) -> None:
    spec = OpenRewardSpec(
        base_url,
        num_tasks=8,
        split="train",
        api_key=None,
        secrets={"openai_api_key": "x"},
        env_name="copy",
        include_metadata=True,
        discover_task_tools=True,
        task_tools_discovery_index=0,
    )
    kwargs = {
        "train_dataset": spec.train_dataset,
        "environment_factory": spec.environment_factory,
        "reward_funcs": spec.reward_funcs,
    }
    trainer = make_trainer(tmp_path, kwargs, allowed=PRESSES, max_tool_calling_iterations=1)
    trainer.train()
    assert len(logged(trainer, "reward")) == 1
    spec.close()


def test_schemas_are_verbatim_and_no_argument_is_made_up(base_url: str) -> None:
    with ORSSpec(base_url, "odd") as spec:
        search = tools_of(begin(spec))["search"]
        assert search["function"]["parameters"]["properties"]["tags"]["items"]["properties"] == {"name": {"type": "string"}}
        assert search(**{"from": "a"}) == '{"search": {"from": "a"}}'


def test_any_name_of_a_tool_or_of_a_parameter_works(base_url: str) -> None:
    with ORSSpec(base_url, "odd") as spec:
        tools = tools_of(begin(spec))
        assert [tools[name]() for name in ("with-hyphen", "reset", "get_reward")] == [
            '{"with-hyphen": {}}', '{"reset": {}}', '{"get_reward": {}}',
        ]  # fmt: skip
        assert tools["search"](**{"from": "a", "self": 1}) == '{"search": {"from": "a", "self": 1}}'


def test_nothing_is_built_by_exec() -> None:
    sources = "".join(path.read_text() for path in Path(inspect.getfile(ORSSpec)).parent.glob("*.py"))
    assert "exec(" not in sources
    assert "eval(" not in sources


def test_every_reward_counts(base_url: str) -> None:
    with ORSSpec(base_url, "counter", indices=[7]) as spec:
        environment = begin(spec, index=7)
        for amount in (1, 2, 3):
            tools_of(environment)["add"](amount=amount)
        assert score(spec, environment, index=7) == [pytest.approx(0.6)]


def test_images_are_kept_for_models_that_see_and_named_for_others(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        environment = begin(spec)
        assert tools_of(environment)["image"]() == "Red:\n[image: image/png, 4x3]"
        spec._facts.sees_images = True
        text, image = tools_of(environment)["image"]()
        assert text == {"type": "text", "text": "Red:"}
        assert (image["type"], image["image"].size, image["image"].getpixel((0, 0))) == ("image", (4, 3), (255, 0, 0))


def test_a_lost_connection_is_no_text_of_a_tool_but_an_unscored_rollout(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        lost = begin(spec)
        tools_of(lost)["echo"](text="x")
        session = lost._live._env._session
        portal_call(session.aclose)
        tools_of(lost)["finish"]()
        assert score(spec, lost) == [None]


def test_calls_after_finished_do_not_reach_the_server(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        environment = begin(spec)
        for _ in range(3):
            tools_of(environment)["finish"]()
        assert score(spec, environment) == [1.0]


def test_no_session_outlives_the_training(base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "code") as spec:
        make_trainer(tmp_path, spec.trainer_kwargs("environment"), allowed=PRESSES, max_tool_calling_iterations=1).train()
        wait_until(lambda: sessions_open(spec) == 0)


def test_sessions_are_kept_alive_between_calls(base_url: str) -> None:
    with ORSSpec(base_url, "faulty", keepalive=0.05) as spec:
        tools_of(begin(spec))["echo"](text="x")
        requests = spec.source.environment.client.stats().requests
        wait_until(lambda: spec.source.environment.client.stats().requests >= requests + 2)


def test_each_task_offers_its_own_tools(base_url: str) -> None:
    with ORSSpec(base_url, "tasktools") as spec:
        factories = spec.environment_factory
        assert [len(tools_of(factories[key]())) for key in spec.train_dataset["environment"]] == [1, 2, 3]


def test_task_specs_of_mixed_types_make_a_dataset(base_url: str) -> None:
    with ORSSpec(base_url, "mixedspecs") as spec:
        assert spec.train_dataset["ors_task_spec"][:] == ['{"value": 1}', '{"value": "one"}', '{"value": [1, null]}']


def test_several_environments_train_in_one_run(base_url: str) -> None:
    mixed = ORSSpec.mixture({"a": ORSSpec(base_url, "copy"), "b": ORSSpec(base_url, "code")})
    assert len(mixed.environment_factory) == 2
    mixed.close()


def test_resets_run_at_once(base_url: str) -> None:
    with ORSSpec(base_url, "together", indices=[8]) as spec:
        environments = [spec.environment_factory() for _ in range(8)]
        for environment in environments:
            environment.reset(ors_split="train", ors_index=0)
        assert [tools_of(environment)["press"](digit=0) for environment in environments] == ["good"] * 8


def test_calls_of_different_rollouts_run_at_once(base_url: str) -> None:
    with ORSSpec(base_url, "faulty") as spec:
        reward(spec, [said("", ("slow", {"seconds": 0.2}))] * 16)
        steps = [step for group in spec.groups for episode in group.episodes for step in episode.steps]
    assert max(step.metadata["peak_in_flight"] for step in steps if step.metadata) >= 16


def portal_call(async_fn: Any) -> None:
    from ors_gym.portal import portal

    portal().call(async_fn)
