"""`AsyncORSEnv`: sessions become episodes."""

import asyncio
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from ors_gym.client import AsyncORSClient, Timeout
from ors_gym.env import AsyncORSEnv, InfoDict
from ors_gym.errors import ConnectionFailed, RequestRejected, SessionClosed, SessionSetupFailed
from ors_gym.protocol import TextBlock, ToolCall
from ors_gym.secrets import EnvSecret
from ors_gym.tasks import TaskRef
from ors_gym.testing import Fault, FaultServer
from tests.env.conftest import ADD_5, RIGHT

EIGHT = {"split": "train", "index": 5}  # "Count to 8."


async def test_an_episode_runs_from_the_prompt_to_finished(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "counter")

    observation, info = await env.reset(options=EIGHT)
    assert observation == "Count to 8."
    assert info["task"] == {"split": "train", "index": 5}
    assert info["blocks"][0]["text"] == "Count to 8."

    observation, reward, terminated, truncated, info = await env.step(ADD_5)
    assert (observation, reward, terminated, truncated) == ("The total is 5 of 8.", 0.5, False, False)
    assert info["metadata"] == {"total": 5}

    observation, reward, terminated, truncated, info = await env.step({"name": "add", "input": {"amount": 3}})
    assert (observation, reward, terminated, truncated) == ("The total is 8 of 8.", 0.3, True, False)
    assert info["finished"] is True
    assert real_server.live_sessions() == []


async def test_the_ledger_has_every_action_output_and_reward(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "counter")
    await env.reset(options=EIGHT)
    await env.step(ADD_5)
    await env.step('{"name": "add", "input": {"amount": 4}}')

    episode = env.episode
    assert episode.task == TaskRef("train", 5)
    assert episode.env_name == "counter"
    assert episode.session_id
    assert [block.text for block in episode.prompt] == ["Count to 8."]
    assert [tool.name for tool in episode.tools] == ["add"]
    assert [step.action for step in episode.steps] == [ADD_5, '{"name": "add", "input": {"amount": 4}}']
    assert [step.call for step in episode.steps] == [
        ToolCall(name="add", input={"amount": 5}),
        ToolCall(name="add", input={"amount": 4}),
    ]
    assert episode.rewards == [0.5, 0.4]
    assert (episode.terminated, episode.truncated, episode.error) == (True, False, "")
    assert episode.ended_at is not None
    assert episode.started_at <= episode.steps[0].started_at <= episode.ended_at


@pytest.mark.parametrize(
    "action",
    [
        ToolCall(name="add", input={"amount": 5}),
        {"name": "add", "input": {"amount": 5}},
        {"name": "add", "arguments": {"amount": 5}},
        {"name": "add", "arguments": '{"amount": 5}'},
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"amount": 5}'}}],
        },
        '{"name": "add", "input": {"amount": 5}}',
        'I think:\n```json\n{"name": "add", "arguments": {"amount": 5}}\n```',
        '<tool_call>\n{"name": "add", "arguments": {"amount": 5}}\n</tool_call>',
    ],
)
async def test_every_form_of_an_action_is_the_same_call(open_engine: Any, ors_server: Any, action: Any) -> None:
    env = await open_engine(ors_server, "counter")
    await env.reset(options=EIGHT)
    observation, reward, *_ = await env.step(action)
    assert (observation, reward) == ("The total is 5 of 8.", 0.5)


async def test_several_calls_in_one_action_run_in_order_until_finished(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "counter")
    await env.reset(options=EIGHT)
    observation, reward, terminated, _, _ = await env.step([{"name": "add", "input": {"amount": n}} for n in (1, 2, 5, 4)])
    assert observation == "The total is 1 of 8.\nThe total is 3 of 8.\nThe total is 8 of 8."
    assert reward == pytest.approx(0.8)
    assert terminated
    assert [step.call.input["amount"] for step in env.episode.steps] == [1, 2, 5]


@pytest.mark.parametrize(
    "action", ["garbage", "", {"no": "name"}, None, 42, b"bytes", ["nested", ["list"]], '{"name": "add", "input": 3}']
)
async def test_garbage_is_answered_with_the_reason_and_the_episode_goes_on(open_engine: Any, ors_server: Any, action: Any) -> None:
    env = await open_engine(ors_server, "counter")
    await env.reset(options=EIGHT)
    observation, reward, terminated, truncated, info = await env.step(action)
    assert observation.startswith("Error: ")
    assert info["invalid_action"] in observation
    assert (reward, terminated, truncated, info["error"], info["reward_missing"]) == (0.0, False, False, "", False)
    assert (await env.step(ADD_5))[0] == "The total is 5 of 8."
    assert env.episode.num_invalid_actions == 1


@pytest.mark.parametrize("action", [{"name": "nothing_like_it", "input": {}}, {"name": "add", "input": {"amount": "many"}}])
async def test_a_call_that_is_rejected_is_the_policys_mistake(open_engine: Any, real_server: Any, action: Any) -> None:
    env = await open_engine(real_server, "counter")
    await env.reset(options=EIGHT)
    observation, reward, terminated, truncated, info = await env.step(action)
    assert info["invalid_action"]
    assert observation == f"Error: {info['invalid_action']}"
    assert (reward, terminated, truncated, info["error"]) == (0.0, False, False, "")
    assert (await env.step(ADD_5))[1] == 0.5


async def test_invalid_actions_cost_what_the_caller_says_also_in_the_ledger(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter", invalid_action_reward=-0.25)
    await env.reset(options=EIGHT)
    _, reward, *_ = await env.step("garbage")
    assert reward == -0.25
    assert env.episode.rewards == [-0.25]


async def test_a_missing_reward_is_zero_and_said_to_be_missing(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "faulty")
    await env.reset()
    for tool in ("no_reward", "nan_reward"):
        _, reward, _, _, info = await env.step({"name": tool, "input": {}})
        assert reward == 0.0
        assert type(reward) is float
        assert info["reward_missing"] is True
    _, _, _, _, info = await env.step({"name": "echo", "input": {"text": "a"}})
    assert info["reward_missing"] is False
    assert env.episode.rewards == [0.0]


async def test_a_tool_that_raises_ends_the_episode_unscored(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "faulty")
    await env.reset()
    _, reward, terminated, truncated, info = await env.step({"name": "boom", "input": {}})
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "boom went the tool" in info["error"]
    assert (info["error_kind"], info["unscored"]) == ("environment", True)
    assert env.episode.unscored
    assert real_server.live_sessions() == []


async def test_a_tool_that_raises_can_be_an_observation_instead(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "faulty", on_tool_error="observe")
    await env.reset()
    observation, _, terminated, truncated, info = await env.step({"name": "boom", "input": {}})
    assert "boom went the tool" in observation
    assert (terminated, truncated, info["unscored"], info["error_kind"]) == (False, False, False, "environment")
    assert (await env.step({"name": "echo", "input": {"text": "still here"}}))[0] == "still here"
    assert not env.episode.unscored


async def test_a_lost_session_truncates_the_episode_unscored(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server)
    await env.reset()
    fault_server.forget_sessions()
    observation, reward, terminated, truncated, info = await env.step(RIGHT)
    assert (observation, reward, terminated, truncated) == ("", 0.0, False, True)
    assert (info["error_kind"], info["unscored"]) == ("infrastructure", True)


async def test_a_tool_call_that_takes_too_long_truncates_the_episode_unscored(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server, timeout=Timeout(tool_call=0.2))
    await env.reset()
    _, _, terminated, truncated, info = await env.step({"name": "slow", "input": {"seconds": 60}})
    assert (terminated, truncated, info["error_kind"]) == (False, True, "infrastructure")
    assert "tool_call" in info["error"]
    assert fault_server.sessions == set()


async def test_max_steps_truncates_and_closes_the_session_invalid_actions_counted(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "counter", max_steps=2)
    await env.reset(options=EIGHT)
    assert (await env.step("garbage"))[2:4] == (False, False)
    assert (await env.step({"name": "add", "input": {"amount": 1}}))[2:4] == (False, True)
    assert not env.episode.unscored
    assert real_server.live_sessions() == []


async def test_max_steps_also_ends_within_an_action_and_finished_goes_before_it(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter", max_steps=2)
    await env.reset(options=EIGHT)
    *_, terminated, truncated, _ = await env.step([{"name": "add", "input": {"amount": 1}}] * 3)
    assert (terminated, truncated, env.episode.num_steps) == (False, True, 2)
    await env.reset(options=EIGHT)
    *_, terminated, truncated, _ = await env.step([ADD_5, ADD_5])
    assert (terminated, truncated) == (True, False)


async def test_a_step_without_an_episode_needs_a_reset(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "arithmetic")
    with pytest.raises(ResetNeeded, match="call reset"):
        await env.step("anything")
    await env.reset()
    await env.step({"name": "submit", "input": {"answer": "1"}})
    with pytest.raises(ResetNeeded, match="has ended"):
        await env.step("anything")


async def test_after_close_there_is_neither_step_nor_reset(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "arithmetic")
    await env.reset()
    await env.close()
    await env.close()
    assert ors_server.live_sessions() == []
    assert (env.episode.truncated, env.episode.unscored) == (True, False)
    with pytest.raises(SessionClosed):
        await env.step("anything")
    with pytest.raises(SessionClosed):
        await env.reset()


async def test_a_reset_closes_the_session_before(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "counter")
    await env.reset()
    first = env.episode
    await env.reset()
    assert first.truncated
    assert len(real_server.live_sessions()) == 1


async def test_a_step_that_is_cancelled_closes_the_session_and_leaves_the_episode_unscored(
    fault_server: FaultServer, open_engine: Any
) -> None:
    env = await open_engine(fault_server)
    await env.reset()
    step = asyncio.create_task(env.step({"name": "slow", "input": {"seconds": 60}}))
    await asyncio.to_thread(fault_server.wait_for, "call")
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert fault_server.sessions == set()
    assert (env.episode.truncated, env.episode.error_kind) == (True, "infrastructure")
    assert env.episode.steps[0].call.name == "slow"
    with pytest.raises(ResetNeeded):
        await env.step(RIGHT)


async def test_a_reset_that_is_cancelled_leaves_no_session(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server)
    fault_server.script("prompt", Fault(delay=60))
    reset = asyncio.create_task(env.reset())
    await asyncio.to_thread(fault_server.wait_for, "prompt")
    reset.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reset
    assert fault_server.sessions == set()


async def test_calls_that_overlap_take_turns(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter")
    await asyncio.gather(*(env.reset(options=EIGHT) for _ in range(3)))
    assert ors_server.live_sessions() == [env.episode.session_id]

    steps = await asyncio.gather(*(env.step(ADD_5) for _ in range(3)), return_exceptions=True)
    assert [step[:4] for step in steps[:2]] == [
        ("The total is 5 of 8.", 0.5, False, False),
        ("The total is 10 of 8.", 0.5, True, False),
    ]
    assert isinstance(steps[2], ResetNeeded)
    assert env.episode.outcome == "finished"


async def test_a_reset_during_a_step_begins_when_the_step_has_ended(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "faulty")
    await env.reset()
    step = asyncio.create_task(env.step({"name": "slow", "input": {"seconds": 0.1}}))
    await asyncio.sleep(0)
    await env.reset()
    assert (await step)[:2] == ("That took 0.1 s.", 0.5)
    assert (await env.step({"name": "finish", "input": {}}))[1:4] == (1.0, True, False)


async def test_a_close_during_a_reset_leaves_no_session(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server)
    fault_server.script("prompt", Fault(delay=0.2))
    reset = asyncio.create_task(env.reset())
    await asyncio.to_thread(fault_server.wait_for, "prompt")
    await env.close()
    with pytest.raises(SessionClosed, match="this environment is closed"):
        await reset
    assert fault_server.sessions == set()


async def test_a_reset_that_fails_is_tried_again_in_fresh_sessions(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server)
    fault_server.script("prompt", Fault(status=500), Fault(status=500))
    observation, _ = await env.reset()
    assert observation == "What is right?"
    assert len({request.session_id for request in fault_server.received("prompt")}) == 3
    assert len(fault_server.sessions) == 1


async def test_a_reset_that_keeps_failing_raises_and_leaves_an_unscored_episode(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "brokensetup", reset_retries=1)
    with pytest.raises(SessionSetupFailed):
        await env.reset(options={"index": 1})
    assert env.episode.task == TaskRef("train", 1)
    assert (env.episode.ended, env.episode.unscored, env.episode.error_kind) == (True, True, "environment")
    assert env.episode.ended_at is not None
    assert ors_server.live_sessions() == []
    assert (await env.reset(options={"index": 0}))[0] == "It works."


async def test_a_mistaken_request_is_not_tried_again(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server)
    fault_server.script("create", Fault(status=400, body=b'{"detail": "no such index"}'))
    with pytest.raises(RequestRejected):
        await env.reset(options={"index": 99})
    assert len(fault_server.received("create")) == 1


async def test_a_server_that_is_gone_fails_the_reset(fault_server: FaultServer, open_engine: Any) -> None:
    from ors_gym.client import Retry

    env = await open_engine(fault_server, client={"retry": Retry(attempts=1)}, reset_retries=0)
    fault_server.stop_listening()
    with pytest.raises(ConnectionFailed):
        await env.reset()
    assert env.episode.error_kind == "infrastructure"


# Tasks


async def _sequence(env: AsyncORSEnv, count: int, seed: int | None = None) -> list[int]:
    tasks = [(await env.reset(seed=seed))[1]["task"]["index"]]
    return tasks + [(await env.reset())[1]["task"]["index"] for _ in range(count - 1)]


async def test_the_same_seed_gives_the_same_tasks_and_an_epoch_repeats_none(open_engine: Any, ors_server: Any) -> None:
    one, other = await open_engine(ors_server, "counter"), await open_engine(ors_server, "counter")
    sequence = await _sequence(one, 16, seed=7)
    assert sequence == await _sequence(other, 16, seed=7) == await _sequence(one, 16, seed=7)
    assert sorted(sequence[:8]) == sorted(sequence[8:]) == list(range(8))
    assert sequence[:8] != await _sequence(one, 8, seed=8)


async def test_unseeded_environments_draw_different_sequences(open_engine: Any, ors_server: Any) -> None:
    one, other = await open_engine(ors_server, "arithmetic"), await open_engine(ors_server, "arithmetic")
    assert await _sequence(one, 10) != await _sequence(other, 10)


async def test_a_named_task_does_not_disturb_the_sequence(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter")
    sequence = await _sequence(env, 8, seed=7)
    await env.reset(seed=7)
    for options in ({"index": 3}, {"split": "hard"}, {"task_spec": {"target": 2}}):
        await env.reset(options=options)
    assert [(await env.reset())[1]["task"]["index"] for _ in range(7)] == sequence[1:]


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({"split": "hard", "index": 2}, "Count to 22."),
        ({"index": 2}, "Count to 5."),
        ({"index": np.int64(2)}, "Count to 5."),
        ({"task_spec": {"target": 77}}, "Count to 77."),
        ({"task": TaskRef("hard", 0)}, "Count to 20."),
        ({"task": {"split": "hard", "index": 1}}, "Count to 21."),
    ],
)
async def test_options_name_the_task(open_engine: Any, real_server: Any, options: dict[str, Any], prompt: str) -> None:
    env = await open_engine(real_server, "counter")
    given = dict(options)
    assert (await env.reset(options=options))[0] == prompt
    assert options == given


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"indx": 3}, "unknown options of reset: indx"),
        ({"index": 1, "task_spec": {}}, "in one way"),
        ({"split": "train", "task": TaskRef("train", 0)}, "in one way"),
        ({"split": "nothing"}, "has no split 'nothing'; it has 'train', 'hard'"),
        ({"index": -1}, "index must be an int >= 0"),
        ({"task": TaskRef("train", 0, env_name="other")}, "is of environment 'other', not of 'counter'"),
    ],
)
async def test_mistaken_options_are_refused_before_any_request(
    open_engine: Any, ors_server: Any, options: dict[str, Any], message: str
) -> None:
    env = await open_engine(ors_server, "counter")
    with pytest.raises(ValueError, match=message):
        await env.reset(options=options)
    assert ors_server.live_sessions() == []


async def test_a_filter_narrows_the_tasks(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "counter", task_filter=lambda task: task["target"] % 2 == 0)
    assert sorted(await _sequence(env, 4, seed=0)) == [1, 3, 5, 7]  # targets 4, 6, 8, 10


async def test_a_filter_that_leaves_nothing_says_so(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter", task_filter=lambda task: False)
    with pytest.raises(ValueError, match="has no task to draw"):
        await env.reset()


async def test_the_split_is_the_first_of_type_train_or_the_one_that_is_named(open_engine: Any, ors_server: Any) -> None:
    assert (await (await open_engine(ors_server, "counter")).reset())[1]["task"]["split"] == "train"
    assert (await (await open_engine(ors_server, "counter", split="hard")).reset())[1]["task"]["split"] == "hard"
    with pytest.raises(ValueError, match="has no split 'easy'"):
        await open_engine(ors_server, "counter", split="easy")


# What the policy is given


async def test_the_tools_of_a_task_arrive_with_it(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "tasktools")
    assert [tool.name for tool in env.tools] == ["say"]
    for index, names in enumerate((["say"], ["say", "hint"], ["say", "hint", "solve"])):
        _, info = await env.reset(options={"index": index})
        assert [tool["name"] for tool in info["tools"]] == names
        assert [tool.name for tool in env.tools] == names
    observation, *_ = await env.step({"name": "solve", "input": {"text": "x"}})
    assert observation == "Solved."


async def test_a_tool_that_no_list_has_can_be_called(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "faulty")
    await env.reset()
    observation, reward, *_ = await env.step({"name": "hidden", "input": {}})
    assert (observation, reward) == ("You found me.", 0.25)


async def test_every_info_has_the_same_keys_with_the_same_types(open_engine: Any, real_server: Any) -> None:
    env = await open_engine(real_server, "faulty", on_tool_error="observe")
    infos = [(await env.reset())[1]]
    for name in ("image", "no_reward", "counts", "boom", "not_there"):
        infos.append((await env.step({"name": name, "input": {}}))[4])
    infos.append((await env.step("\ud800"))[4])
    infos.append(env.failure_info(RuntimeError("oh")))
    types = {name: type(value) for name, value in infos[0].items()}
    assert list(types) == list(InfoDict.__annotations__)
    assert {
        "task": dict,
        "tools": list,
        "blocks": list,
        "metadata": dict,
        "finished": bool,
        "reward_missing": bool,
        "unscored": bool,
        "invalid_action": str,
        "error": str,
        "error_kind": str,
        "elapsed": float,
    } == types
    assert all({name: type(value) for name, value in info.items()} == types for info in infos)


async def test_infos_share_nothing_that_can_be_changed(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter")
    _, info = await env.reset(options={"task_spec": {"target": 9, "nested": {"a": [1]}}})
    info["tools"][0]["input_schema"]["properties"].clear()
    info["task"]["task_spec"]["nested"]["a"].append(2)
    *_, info = await env.step(ADD_5)
    assert list(info["tools"][0]["input_schema"]["properties"]) == ["amount"]
    assert info["task"]["task_spec"]["nested"]["a"] == [1]
    info["metadata"]["total"] = 99
    assert env.episode.steps[0].metadata == {"total": 5}


async def test_observations_come_in_the_format_that_was_asked_for(open_engine: Any, real_server: Any) -> None:
    texts = await open_engine(real_server, "faulty")
    await texts.reset()
    observation, *_ = await texts.step({"name": "image", "input": {}})
    assert observation == "Red:\n[image: image/png, 4x3]"

    blocks = await open_engine(real_server, "faulty", observation_format="blocks")
    await blocks.reset()
    observation, *_ = await blocks.step({"name": "image", "input": {}})
    assert [block["type"] for block in observation] == ["text", "image"]
    assert observation in blocks.observation_space

    both = await open_engine(real_server, "faulty", observation_format="multimodal")
    await both.reset()
    observation, *_ = await both.step({"name": "image", "input": {}})
    assert observation["images"][0].shape == (3, 4, 3)
    assert observation["images"][0][0, 0].tolist() == [255, 0, 0]
    assert observation in both.observation_space


async def test_a_long_observation_is_cut_to_its_limit(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "faulty", max_observation_length=500)
    await env.reset()
    observation, *_ = await env.step({"name": "big", "input": {"size": 10_000}})
    assert 400 < len(observation) <= 500
    assert observation in env.observation_space
    assert len(env.episode.steps[0].blocks[0].text) == 10_000


async def test_plain_text_goes_to_the_text_tool(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "arithmetic", action_format="text")
    await env.reset(options={"index": 0})
    observation, reward, *_ = await env.step("1")
    assert (observation, reward) == ("Correct!", 1.0)


async def test_with_the_text_format_json_is_text_too(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "faulty", action_format="text", text_tool="echo")
    await env.reset()
    assert (await env.step('{"name": "boom", "input": {}}'))[0] == '{"name": "boom", "input": {}}'


async def test_the_text_format_needs_a_text_tool(open_engine: Any, ors_server: Any) -> None:
    with pytest.raises(ValueError, match="text_tool="):
        await open_engine(ors_server, "counter", action_format="text")


async def test_a_shared_tool_that_takes_no_text_is_refused_at_once(open_engine: Any, ors_server: Any) -> None:
    with pytest.raises(ValueError, match="text_tool='think' is none of the tools with one required string parameter: 'submit'"):
        await open_engine(ors_server, "arithmetic", text_tool="think")
    with pytest.raises(ValueError, match=r"text_tool='add' is none of .*: there are none"):
        await open_engine(ors_server, "counter", text_tool="add")


@pytest.mark.parametrize("text_tool", ["nope", "hint", ""])
async def test_a_tool_that_the_task_has_not_for_text_is_refused_when_its_tools_are_known(
    open_engine: Any, ors_server: Any, text_tool: str
) -> None:
    env = await open_engine(ors_server, "tasktools", text_tool=text_tool)
    with pytest.raises(ValueError, match=f"text_tool='{text_tool}' is none of the tools .*: 'say', 'solve'"):
        await env.reset(options={"index": 2})
    assert env.episode.truncated
    assert ors_server.live_sessions() == []
    with pytest.raises(ResetNeeded):
        await env.step("please")


async def test_a_tasks_own_tool_takes_text_where_it_is_named(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "tasktools", text_tool="solve")
    await env.reset(options={"index": 2})
    assert (await env.step("please"))[:2] == ("Solved.", 1.0)


async def test_secrets_reach_the_environment(open_engine: Any, real_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORS_GYM_TEST_KEY", "from the environment")
    env = await open_engine(real_server, "faulty", secrets={"a": "plain", "b": EnvSecret("ORS_GYM_TEST_KEY")})
    await env.reset()
    *_, info = await env.step({"name": "whoami", "input": {}})
    assert info["metadata"]["secrets"] == {"a": "plain", "b": "from the environment"}
    await env.reset(options={"secrets": {"c": "of this episode"}})
    *_, info = await env.step({"name": "whoami", "input": {}})
    assert info["metadata"]["secrets"] == {"c": "of this episode"}
    await env.reset()
    *_, info = await env.step({"name": "whoami", "input": {}})
    assert sorted(info["metadata"]["secrets"]) == ["a", "b"]


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 0},
        {"max_steps": 1.5},
        {"reset_retries": -1},
        {"max_observation_length": -1},
        {"max_observation_length": 1.5},
        {"invalid_action_reward": float("nan")},
        {"timeout": 5},
        {"on_tool_error": "ignore"},
        {"render_mode": "gif"},
        {"action_format": "xml"},
        {"observation_format": "xml"},
    ],
)
async def test_options_out_of_their_range_are_refused(open_engine: Any, ors_server: Any, options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        env = await open_engine(ors_server, "counter", **options)
        await env.reset()


async def test_it_makes_no_request_until_the_first_reset(fault_server: FaultServer) -> None:
    async with AsyncORSClient(fault_server.base_url) as client:
        environment = client.environment("fault")
        discovery = await environment.discover()
        asked = len(fault_server.requests)
        env = AsyncORSEnv(environment, discovery)
        assert [tool.name for tool in env.tools][:1] == ["submit"]
        assert len(fault_server.requests) == asked
        await env.close()


# Sessions ahead


async def test_with_prefetch_the_next_session_is_open_before_the_next_reset(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server, prefetch=True)
    first = (await env.reset(seed=3))[1]["task"]
    await asyncio.to_thread(fault_server.wait_for, "prompt", 2)
    await env.step(RIGHT)
    second = (await env.reset())[1]["task"]
    await env.close()
    assert fault_server.sessions == set()
    without = await open_engine(fault_server)
    assert [(await without.reset(seed=3))[1]["task"], (await without.reset())[1]["task"]] == [first, second]


async def test_a_session_ahead_that_is_not_wanted_is_closed(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server, prefetch=True)
    await env.reset(seed=3)
    await asyncio.to_thread(fault_server.wait_for, "prompt", 2)
    await env.reset(options={"index": 0})
    assert fault_server.sessions == {env.episode.session_id}


@pytest.mark.parametrize("method", ["reset", "close"])
async def test_a_session_ahead_is_closed_if_the_call_that_wants_or_discards_it_is_cancelled_at_any_await(
    fault_server: FaultServer, open_engine: Any, method: str
) -> None:
    for awaits in range(1, 12):
        env = await open_engine(fault_server, prefetch=True)
        await env.reset(seed=3)
        ahead = env._opener._ahead.opening
        await asyncio.wait((ahead,))
        call = asyncio.create_task(getattr(env, method)())
        for _ in range(awaits):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        await env.close()
        # A deletion whose caller was cancelled goes on by itself.
        await asyncio.to_thread(fault_server.wait_until, lambda: not fault_server.sessions)
        assert fault_server.sessions == set()


async def test_a_session_ahead_that_failed_is_opened_anew(fault_server: FaultServer, open_engine: Any) -> None:
    env = await open_engine(fault_server, prefetch=True)
    fault_server.script("prompt", None, Fault(status=500))
    await env.reset(seed=3)
    await asyncio.to_thread(fault_server.wait_for, "prompt", 2)
    observation, _ = await env.reset()
    assert observation == "What is right?"


async def test_a_refusal_is_text_that_the_ledger_keeps(open_engine: Any, ors_server: Any) -> None:
    env = await open_engine(ors_server, "counter")
    await env.reset(options=EIGHT)
    await env.step("garbage")
    step = env.episode.steps[0]
    assert step.call is None
    assert step.action == "garbage"
    assert step.blocks == (TextBlock(text=f"Error: {step.invalid_action}"),)
