"""Evaluation: the numbers by hand, what is kept, what a resumption does, and runs beside each other."""

import asyncio
import io
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ors_gym.client import AsyncORSClient
from ors_gym.episode import Episode, Step
from ors_gym.errors import RecordError
from ors_gym.protocol import ToolCall
from ors_gym.records import load_records, read_records
from ors_gym.rollout import (
    Conversation,
    Interval,
    Outcome,
    Progress,
    RandomAgent,
    Results,
    ScriptedAgent,
    Tasks,
    compare,
    evaluate,
    summarize,
)
from ors_gym.tasks import TaskRef
from tests.servers.sdk_server import SDKServer


def _outcome(index: int, rollout: int, reward: float | None, **fields: Any) -> Outcome:
    """An episode of two calls, one of them invalid; None is one that the infrastructure lost."""
    steps = [Step("a", ToolCall(name="look"), elapsed=0.5), Step("?", invalid_action="no call")]
    error = {"error": "gone", "error_kind": "infrastructure"} if reward is None else {}
    episode = Episode(
        TaskRef("test", index),
        "env",
        steps=steps,
        started_at=10.0,
        ended_at=12.0,
        metadata={"group": index, "rollout": rollout, "agent": {"prompt_tokens": 7, "completion_tokens": 3}},
        **error,
        **fields,
    )
    return Outcome.of(episode, reward)


def test_a_summary_worked_out_by_hand() -> None:
    outcomes = [
        *(_outcome(0, n, reward) for n, reward in enumerate([1.0, 0.0, 0.0, 0.0])),
        *(_outcome(1, n, reward) for n, reward in enumerate([1.0, 1.0, 0.5, None])),
        *(_outcome(2, n, None) for n in range(4)),
    ]
    summary = summarize(outcomes, success=0.99, k=4)
    assert (summary.num_tasks, summary.num_episodes, summary.num_scored, summary.num_unscored) == (3, 12, 7, 5)
    # tasks 0 and 1: means 1/4 and 2.5/3
    assert summary.mean_reward == pytest.approx((0.25 + 2.5 / 3) / 2)
    assert summary.reward_interval == Interval(0.25, pytest.approx(2.5 / 3))
    assert summary.success_rate == pytest.approx((1 / 4 + 2 / 3) / 2)
    # pass@2: 1 - C(3,2)/C(4,2) = 1/2 and 1 - C(1,2)/C(3,2) = 1; pass@4 on task 0 only, the other has three scored episodes
    assert summary.pass_at == {1: pytest.approx((1 / 4 + 2 / 3) / 2), 2: pytest.approx(0.75), 4: 1.0}
    # pass^2: 0 and C(2,2)/C(3,2) = 1/3
    assert summary.pass_hat == {1: pytest.approx((1 / 4 + 2 / 3) / 2), 2: pytest.approx(1 / 6), 4: 0.0}
    assert (summary.mean_steps, summary.invalid_action_rate) == (2.0, 0.5)
    assert summary.tool_calls == {"look": 12}
    assert summary.error_rates == {"environment": 0.0, "infrastructure": pytest.approx(5 / 12)}
    assert summary.errors == {"gone": 5}
    assert (summary.prompt_tokens, summary.completion_tokens) == (84, 36)
    assert (summary.seconds, summary.environment_seconds) == (2.0, 0.5)


def test_nothing_scored_is_none_and_not_zero() -> None:
    summary = summarize([_outcome(0, 0, None)], success=0.99, k=1)
    assert (summary.mean_reward, summary.reward_interval, summary.success_rate, summary.mean_steps) == (None, None, None, None)
    assert (summary.pass_at, summary.pass_hat) == ({}, {})


@pytest.mark.parametrize(("k", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_pass_at_the_powers_of_two_and_k(k: int, expected: list[int]) -> None:
    outcomes = [_outcome(0, n, 1.0) for n in range(k)]
    assert list(summarize(outcomes, success=0.5, k=k).pass_at) == expected


def _answers(*right: int) -> Any:
    """An agent that answers a task of `arithmetic` rightly in as many rollouts as are given for its index."""

    def agent(conversation: Conversation) -> ToolCall:
        index = conversation.task.index or 0
        answer = 2 * index + 1 if conversation.episode.metadata["rollout"] < right[index] else 0
        return ToolCall(name="submit", input={"answer": str(answer)})

    return agent


async def test_an_evaluation_counts_and_keeps(real_server: SDKServer, tmp_path: Path) -> None:
    results = await evaluate(_answers(0, 1, 4), real_server.base_url, env_name="arithmetic", num_tasks=3, k=4, out=tmp_path / "run")
    overall = results.overall
    assert (overall.num_tasks, overall.num_episodes, overall.num_unscored) == (3, 12, 0)
    assert overall.mean_reward == pytest.approx(5 / 12)
    assert overall.pass_at == {1: pytest.approx(5 / 12), 2: pytest.approx(0.5), 4: pytest.approx(2 / 3)}
    assert overall.pass_hat == {1: pytest.approx(5 / 12), 2: pytest.approx(1 / 3), 4: pytest.approx(1 / 3)}
    assert overall.tool_calls == {"submit": 12}
    assert results.rewards["arithmetic/train/1"] == [1.0, 0.0, 0.0, 0.0]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "episodes.jsonl", "results.json"]
    kept = json.loads((tmp_path / "run" / "results.json").read_text())
    assert kept["overall"]["mean_reward"] == pytest.approx(5 / 12)
    assert kept["rewards"] == results.rewards
    assert len(load_records(tmp_path / "run")) == 12
    loaded = Results.load(tmp_path / "run")
    assert (loaded.overall, loaded.by_split) == (overall, results.by_split)
    assert real_server.live_sessions() == []


async def test_results_by_split_and_by_a_key_of_the_tasks_or_of_the_output(real_server: SDKServer) -> None:
    agent = ScriptedAgent([{"name": "add", "input": {"amount": 5}}] * 2)
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment("counter")
        results = await evaluate(agent, environment, ["train", "hard"], num_tasks=4, by="target")
        outputs = await evaluate(agent, environment, ["train", "hard"], num_tasks=4, by="total")
    assert {split: summary.mean_reward for split, summary in results.by_split.items()} == {"hard": 1.0, "train": 0.625}
    assert {value: summary.num_episodes for value, summary in results.by_value.items()} == dict.fromkeys(
        ["20", "21", "22", "23", "3", "4", "5", "6"], 1
    )
    assert {value: summary.num_episodes for value, summary in outputs.by_value.items()} == {"10": 5, "5": 3}


async def test_unscored_episodes_are_counted_apart(real_server: SDKServer) -> None:
    agent = ScriptedAgent({f"train/{n}": [{"name": "boom" if n < 2 else "finish", "input": {}}] for n in range(5)})
    results = await evaluate(agent, real_server.base_url, "train", env_name="faulty", num_tasks=5, retries=0)
    assert (results.overall.num_unscored, results.overall.mean_reward, results.overall.success_rate) == (2, 1.0, 1.0)
    assert results.overall.error_rates == {"environment": 0.4, "infrastructure": 0.0}
    [(reason, times)] = results.overall.errors.items()
    assert ("boom went the tool" in reason, times) == (True, 2)


async def test_a_resumed_run_skips_what_is_scored_and_tries_what_failed_again(real_server: SDKServer, tmp_path: Path) -> None:
    acted: list[int | None] = []
    broken = True

    def agent(conversation: Conversation) -> ToolCall:
        acted.append(conversation.task.index)
        return ToolCall(name="boom" if broken and conversation.task.index == 1 else "finish")

    async def run(**more: Any) -> Results:
        return await evaluate(agent, real_server.base_url, env_name="faulty", num_tasks=3, out=tmp_path, retries=0, **more)

    first = await run()
    assert (first.overall.num_scored, first.num_resumed) == (2, 0)
    acted.clear()
    broken = False
    seen: list[Progress] = []
    second = await run(progress=seen.append)
    assert acted == [1]
    assert (second.overall.num_scored, second.overall.num_episodes, second.num_resumed) == (3, 3, 2)
    assert (seen[0].total, seen[0].done, seen[-1].done) == (3, 2, 3)
    assert sorted(record.task.index or 0 for record in read_records(tmp_path)) == [0, 1, 2]
    acted.clear()
    third = await run()
    assert (acted, third.num_resumed, third.overall) == ([], 3, second.overall)


async def test_an_interrupted_run_loses_only_what_was_running(real_server: SDKServer, tmp_path: Path) -> None:
    enough = asyncio.Event()
    done = 0

    async def agent(conversation: Conversation) -> ToolCall:
        if (conversation.task.index or 0) >= 6 and not resumed:
            await asyncio.Event().wait()
        return ToolCall(name="submit", input={"answer": "1"})

    def on_episode(episode: Episode) -> None:
        nonlocal done
        done += 1
        if done == 6:
            enough.set()

    async def run() -> Results:
        return await evaluate(agent, real_server.base_url, env_name="arithmetic", num_tasks=10, out=tmp_path, on_episode=on_episode)

    resumed = False
    running = asyncio.create_task(run())
    await asyncio.wait_for(enough.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(load_records(tmp_path)) == 6
    assert Results.load(tmp_path).overall.num_episodes == 6
    resumed = True
    results = await run()
    assert (results.num_resumed, results.overall.num_episodes) == (6, 10)
    assert real_server.live_sessions() == []


async def test_a_torn_line_is_run_again(real_server: SDKServer, tmp_path: Path) -> None:
    agent = ScriptedAgent([{"name": "finish", "input": {}}])
    run = {"env_name": "faulty", "num_tasks": 3, "out": tmp_path}
    await evaluate(agent, real_server.base_url, **run)
    records = tmp_path / "episodes.jsonl"
    records.write_bytes(records.read_bytes()[:-100])
    results = await evaluate(agent, real_server.base_url, **run)
    assert (results.num_resumed, results.overall.num_episodes) == (2, 3)
    assert len(load_records(tmp_path)) == 3


async def test_another_configuration_is_refused_and_the_difference_named(real_server: SDKServer, tmp_path: Path) -> None:
    async def run(agent: Any = RandomAgent(0), split: str = "train", **more: Any) -> None:
        arguments = {"env_name": "arithmetic", "num_tasks": 2, "k": 1, "out": tmp_path, "max_steps": 3, **more}
        await evaluate(agent, real_server.base_url, split, **arguments)

    await run()
    before = (tmp_path / "episodes.jsonl").read_bytes()
    for more, difference in [
        ({"k": 2}, "k: 1 there, 2 here"),
        ({"agent": RandomAgent(1)}, r"agent: 'RandomAgent\(0\)' there, 'RandomAgent\(1\)' here"),
        ({"split": "test"}, r"splits: \['train'\] there, \['test'\] here"),
        ({"num_tasks": 3}, "num_tasks: 2 there, 3 here"),
        ({"max_steps": 4}, "options: {'max_steps': 3} there, {'max_steps': 4} here"),
        ({"reward": "last"}, "reward: 'sum' there, 'last' here"),
    ]:
        with pytest.raises(ValueError, match=difference):
            await run(**more)
    with pytest.raises(FileExistsError, match="holds a run"):
        await run(resume=False)
    assert (tmp_path / "episodes.jsonl").read_bytes() == before


async def test_episodes_without_a_configuration_are_left_alone(ors_server: SDKServer, tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"no config\.json"):
        await evaluate(RandomAgent(), ors_server.base_url, env_name="arithmetic", out=tmp_path)


async def test_two_evaluations_do_not_share_a_folder(ors_server: SDKServer, tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waits(conversation: Conversation) -> ToolCall:
        begun.set()
        await go_on.wait()
        return ToolCall(name="submit", input={"answer": "41"})

    run = {"env_name": "arithmetic", "split": "test", "num_tasks": 1, "out": tmp_path}
    first = asyncio.create_task(evaluate(waits, ors_server.base_url, **run))
    await begun.wait()
    with pytest.raises(ValueError, match="another evaluation is writing to"):
        await evaluate(waits, ors_server.base_url, **run)
    go_on.set()
    assert (await first).overall.num_scored == 1
    assert (await evaluate(waits, ors_server.base_url, **run)).num_resumed == 1


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"{}"])
async def test_a_configuration_that_is_none_is_named(ors_server: SDKServer, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RecordError, match=r"config\.json is no run's configuration"):
        Results.load(tmp_path)
    with pytest.raises(RecordError, match=r"config\.json is no run's configuration"):
        await evaluate(RandomAgent(), ors_server.base_url, env_name="arithmetic", num_tasks=1, out=tmp_path)


async def test_a_server_at_another_address_resumes_the_same_run(
    ors_server: SDKServer, openreward_server: SDKServer, tmp_path: Path
) -> None:
    agent = ScriptedAgent([{"name": "think", "input": {}}])
    for server, there in [(ors_server, 0), (openreward_server, 2)]:
        results = await evaluate(agent, server.base_url, env_name="arithmetic", num_tasks=2, out=tmp_path)
        assert results.num_resumed == there


async def test_nothing_in_a_runs_folder_holds_a_secret(real_server: SDKServer, tmp_path: Path) -> None:
    agent = ScriptedAgent([{"name": "whoami", "input": {}}, {"name": "finish", "input": {}}])
    tasks = Tasks(real_server.base_url, "faulty", num_tasks=1, secrets={"token": "s3cret-value"}, api_key="k3y-value")
    results = await evaluate(agent, tasks, out=tmp_path)
    assert results.overall.num_scored == 1
    written = _written(tmp_path)
    assert "[redacted]" in written
    assert "s3cret-value" not in written
    assert "k3y-value" not in written


def _written(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir() if path.is_file())


async def test_a_reward_function_is_asked_once_an_episode(real_server: SDKServer, tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def judge(episode: Episode) -> float:
        asked[episode.id] += 1
        return 0.75

    results = await evaluate(
        ScriptedAgent([]), real_server.base_url, env_name="arithmetic", num_tasks=2, reward=judge, out=tmp_path, success=0.7
    )
    assert (results.overall.mean_reward, results.overall.success_rate) == (0.75, 1.0)
    assert sorted(asked.values()) == [1, 1]
    assert [record.reward for record in read_records(tmp_path)] == [0.75, 0.75]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be"),
        ({"success": math.nan}, "success must be a finite number"),
        ({"indices": []}, "no task"),
        ({"split": "nowhere"}, "nowhere"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(ors_server: SDKServer, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await evaluate(RandomAgent(), ors_server.base_url, env_name="arithmetic", **arguments)


async def test_tasks_beside_a_choice_of_tasks_are_refused(ors_server: SDKServer) -> None:
    with pytest.raises(ValueError, match="leave out split"):
        await evaluate(RandomAgent(), Tasks(ors_server.base_url), "train")


def _results(name: str, *rewards: list[float | None], **config: Any) -> Results:
    outcomes = [_outcome(index, n, reward) for index, of_task in enumerate(rewards) for n, reward in enumerate(of_task)]
    return Results({"agent": name, "env_name": "env", "k": 1, "by": None, "success": 0.99, **config}, outcomes, name=name)


def test_runs_are_compared_on_the_tasks_that_both_have_scored() -> None:
    first = _results("first", [0.0], [0.0, 1.0], [0.5], [None], [1.0])
    second = _results("second", [1.0], [1.0], [1.0], [1.0], [None])
    comparison = compare(first, second)
    [test] = comparison.tests
    assert test is not None
    # tasks 0, 1, 2: differences 1, 0.5, 0.5; of the 8 assignments of signs two sum to 2 or -2
    assert (test.difference, test.num_tasks, test.p_value) == (pytest.approx(2 / 3), 3, 0.25)
    assert comparison.to_dict()["tests"]["second"]["p_value"] == 0.25
    assert "second − first" in _printed(comparison)
    assert "+0.667" in _printed(comparison)


def test_runs_without_a_task_in_common_say_so() -> None:
    comparison = compare(_results("a", [1.0]), _results("b", [None]))
    assert comparison.tests == [None]
    assert "no task in common" in _printed(comparison)


def test_runs_of_the_same_name_are_told_apart() -> None:
    comparison = compare(_results("run", [1.0]), _results("run", [0.0]))
    assert list(comparison.to_dict()["runs"]) == ["run (1)", "run (2)"]


def test_comparing_takes_two_runs_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least two"):
        compare(_results("a", [1.0]))
    with pytest.raises(FileNotFoundError, match="no run's folder"):
        compare(tmp_path, tmp_path)


def _printed(renderable: Any) -> str:
    shown = io.StringIO()
    Console(file=shown, width=160).print(renderable)
    return shown.getvalue()


def test_tables_show_the_numbers_and_obey_no_text_of_a_server() -> None:
    hostile = "[red]<script>alert(1)</script>\x1b[2J"
    episode = Episode(
        TaskRef(hostile, 0), hostile, error=hostile, error_kind="environment", steps=[Step("a", ToolCall(name=hostile))]
    )
    outcomes = [Outcome.of(episode, None), _outcome(1, 0, 1.0)]
    results = Results({"agent": hostile, "env_name": hostile, "k": 1, "by": None, "success": 0.99}, outcomes)
    text, page = _printed(results), results._repr_html_()
    assert "[red]<script>alert(1)</script>" in text
    assert "\x1b" not in text
    assert "1.000 [1.000, 1.000]" in text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "1.000 [1.000, 1.000]" in page
    assert "&lt;script&gt;" in compare(results, results)._repr_html_()
