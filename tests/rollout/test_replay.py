"""`ReplayServer`: what was recorded comes again, and where the agent leaves it, it says so."""

from pathlib import Path
from typing import Any

import pytest

from ors_gym.client import AsyncORSClient, ORSClient, Retry
from ors_gym.episode import Episode, Step
from ors_gym.errors import ConnectionFailed, RequestRejected, SessionLost, ToolCallRejected, ToolFailed
from ors_gym.protocol import TextBlock, ToolCall, ToolSpec
from ors_gym.records import write_records
from ors_gym.rollout import RandomAgent, ReplayServer, ScriptedAgent, Tasks, collect_episodes, collect_groups
from ors_gym.tasks import TaskRef
from tests.servers.sdk_server import SDKServer


def _call(name: str, input: dict[str, Any] | None = None, **fields: Any) -> Step:
    call = ToolCall(name=name, input=input or {})
    return Step(call, call, **fields)


def _episode(*steps: Step, task: TaskRef = TaskRef("train", 0), **fields: Any) -> Episode:
    tools = (ToolSpec(name="look"), ToolSpec(name="go", input_schema={"type": "object"}))
    return Episode(task, "maze", "s", (TextBlock(text="Where?"),), tools, list(steps), **fields)


def _told(episode: Episode) -> Any:
    """What an episode says of itself, without ids and times."""
    steps = [
        (step.call, step.blocks, step.reward, step.finished, step.metadata or {}, step.invalid_action) for step in episode.steps
    ]
    return episode.task, episode.prompt, [tool.name for tool in episode.tools], steps, episode.terminated, episode.truncated


@pytest.mark.parametrize("env_name", ["arithmetic", "counter", "tasktools"])
async def test_an_agent_meets_on_the_replay_what_it_met_on_the_server(
    real_server: SDKServer, tmp_path: Path, env_name: str
) -> None:
    agent, options = RandomAgent(4), {"group_size": 2, "max_steps": 4}
    recorded = await collect_groups(agent, Tasks(real_server.base_url, env_name, num_tasks=3), **options)
    write_records(tmp_path, [episode for group in recorded for episode in group.episodes])
    with ReplayServer(tmp_path) as server:
        replayed = await collect_groups(agent, Tasks(server.base_url, env_name, num_tasks=3), **options)
    assert [group.rewards for group in replayed] == [group.rewards for group in recorded]
    assert [_told(e) for group in replayed for e in group.episodes] == [_told(e) for group in recorded for e in group.episodes]


async def test_images_and_metadata_come_again(real_server: SDKServer, tmp_path: Path) -> None:
    agent = ScriptedAgent([{"name": "image", "input": {}}, {"name": "no_reward", "input": {}}, {"name": "finish", "input": {}}])
    recorded = await collect_episodes(agent, Tasks(real_server.base_url, "faulty", num_tasks=1))
    write_records(tmp_path, recorded)
    with ReplayServer(tmp_path) as server:
        replayed = await collect_episodes(agent, Tasks(server.base_url, "faulty", num_tasks=1))
    assert _told(replayed[0]) == _told(recorded[0])


async def test_what_the_environment_offers_is_what_was_recorded() -> None:
    episodes = [_episode(), _episode(task=TaskRef("test", 4)), _episode(task=TaskRef("hard", 0))]
    with ReplayServer(episodes) as server:
        async with AsyncORSClient(server.base_url) as client:
            assert await client.list_environments() == ("maze",)
            assert await client.health()
            environment = client.environment("maze")
            discovery = await environment.discover()
            assert [(split.name, split.type) for split in discovery.splits] == [
                ("train", "train"),
                ("test", "test"),
                ("hard", "validation"),
            ]
            assert dict(discovery.num_tasks) == {"train": 1, "test": 5, "hard": 1}
            assert [tool.name for tool in discovery.tools] == ["look", "go"]
            assert await environment.get_task("test", 4) == {"split": "test", "index": 4}
            assert len(await environment.list_tasks("test")) == 5
            assert await environment.get_task_range("test", 1, 3) == ({"split": "test", "index": 1}, {"split": "test", "index": 2})


def test_failures_come_as_they_came() -> None:
    episode = _episode(
        _call("go", {"to": "x"}, invalid_action="there is no x"),
        Step("?", invalid_action="not a call"),
        _call("look", error="the lamp\nbroke", error_kind="environment"),
        _call("go", {"to": "y"}, error="the server died", error_kind="infrastructure"),
    )
    with ReplayServer([episode]) as server, ORSClient(server.base_url) as client:
        with client.environment("maze").session(split="train", index=0) as session:
            with pytest.raises(ToolCallRejected, match="there is no x"):
                session.call_tool("go", {"to": "x"})
            with pytest.raises(ToolFailed, match="the lamp\nbroke"):
                session.call_tool("look")
            with pytest.raises(SessionLost):
                session.call_tool("go", {"to": "y"})


def test_leaving_the_recorded_path_says_what_was_recorded_there() -> None:
    episodes = [_episode(_call("look", reward=0.5)), _episode(_call("go", {"to": "x"}), _call("look"))]
    with ReplayServer(episodes) as server, ORSClient(server.base_url) as client:
        environment = client.environment("maze")
        with environment.session(split="train", index=0) as session:
            with pytest.raises(ToolFailed) as raised:
                session.call_tool("go", {"to": "y"})
            assert 'go({"to": "y"}) is not what was recorded' in str(raised.value)
            assert 'call 1 was go({"to": "x"}); or call 1 was look({})' in str(raised.value)
            with pytest.raises(ToolFailed, match="is not what was recorded"):
                session.call_tool("look")
        with environment.session(split="train", index=0) as session:
            session.call_tool("look")
            with pytest.raises(ToolFailed, match="the episode ended after 1 calls"):
                session.call_tool("look")


def test_sessions_go_through_the_rollouts_of_a_task_and_change_where_the_agent_does() -> None:
    left = _episode(_call("go", {"to": "left"}), _call("look", reward=1.0))
    right = _episode(_call("go", {"to": "right"}), _call("look", reward=2.0))
    both = _episode(_call("look", reward=3.0))
    with ReplayServer([left, right, both]) as server, ORSClient(server.base_url) as client:
        environment = client.environment("maze")
        for way, reward in [("right", 2.0), ("left", 1.0), ("left", 1.0)]:
            with environment.session(split="train", index=0) as session:
                session.call_tool("go", {"to": way})
                assert session.call_tool("look").reward == reward


def test_tasks_by_their_spec_and_tasks_that_were_not_recorded() -> None:
    with (
        ReplayServer([_episode(_call("look"), task=TaskRef(task_spec={"seed": 3}))]) as server,
        ORSClient(server.base_url) as client,
    ):
        environment = client.environment("maze")
        with environment.session(task_spec={"seed": 3}) as session:
            assert session.get_prompt() == (TextBlock(text="Where?"),)
        with pytest.raises(RequestRejected, match="no episode of the task spec/"), environment.session(task_spec={"seed": 4}):
            pass


async def test_an_agent_that_strays_has_an_unscored_episode_with_the_reason(real_server: SDKServer) -> None:
    tasks = Tasks(real_server.base_url, "counter", num_tasks=1)
    recorded = await collect_episodes(ScriptedAgent([{"name": "add", "input": {"amount": 2}}] * 2), tasks)
    with ReplayServer(recorded) as server:
        strayed = ScriptedAgent([{"name": "add", "input": {"amount": 1}}])
        [episode] = await collect_episodes(strayed, Tasks(server.base_url, "counter", num_tasks=1), retries=0)
    assert (episode.unscored, episode.error_kind) == (True, "environment")
    assert 'call 1 was add({"amount": 2})' in episode.error


async def test_its_life() -> None:
    server = ReplayServer([_episode()])
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url
    url = server.start().base_url
    assert server.start().base_url == url
    server.close()
    server.close()
    async with AsyncORSClient(url, retry=Retry(attempts=1)) as client:
        with pytest.raises(ConnectionFailed):
            await client.health()
    with pytest.raises(ValueError, match="no episode"):
        ReplayServer([])
