"""Agents that need no model, alone and against a real server."""

import io
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ors_gym.client import AsyncORSClient
from ors_gym.env import InfoDict
from ors_gym.episode import Episode
from ors_gym.protocol import TextBlock, ToolCall, ToolSpec
from ors_gym.rollout import (
    Agent,
    Conversation,
    HumanAgent,
    RandomAgent,
    ScriptedAgent,
    as_agent,
    run_episode,
)
from ors_gym.schemas import SchemaError, validate
from ors_gym.tasks import TaskRef
from tests.servers.sdk_server import SDKServer

ADD = ToolSpec(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"amount": {"type": "integer", "minimum": 0, "maximum": 5}, "note": {"type": "string"}},
        "required": ["amount"],
    },
)
BIG = ToolSpec(
    name="big",
    input_schema={"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10**9}}, "required": ["n"]},
)
THINK = ToolSpec(name="think")
IMPOSSIBLE = ToolSpec(name="never", input_schema={"type": "object", "not": {}})


def _conversation(*tools: ToolSpec, turn: int = 0, index: int = 0, observation: str = "Go.", **metadata: Any) -> Conversation:
    episode = Episode(TaskRef("train", index), prompt=(TextBlock(text=observation),), tools=tools, metadata=metadata)
    info: InfoDict = {}  # type: ignore[typeddict-item]
    return Conversation(episode, observation, info, turn)


async def test_random_calls_are_valid() -> None:
    names = set()
    for turn in range(100):
        call = await RandomAgent(3).act(_conversation(ADD, THINK, turn=turn))
        names.add(call.name)
        tool = {"add": ADD, "think": THINK}[call.name]
        assert call.input == {} if tool.input_schema is None else validate(tool.input_schema, call.input) == []
    assert names == {"add", "think"}


async def test_random_calls_depend_on_seed_task_rollout_and_turn_only() -> None:
    async def call(seed: int = 0, **where: int) -> ToolCall:
        return await RandomAgent(seed).act(_conversation(BIG, **where))

    assert await call() == await call()
    different = [
        await call(seed=seed, turn=turn, index=index, rollout=rollout)
        for seed, turn, index, rollout in itertools.product((0, 1), repeat=4)
    ]
    assert len({str(c.input) for c in different}) == 16


async def test_a_tool_that_cannot_be_sampled_is_passed_over() -> None:
    assert (await RandomAgent().act(_conversation(IMPOSSIBLE, THINK))).name == "think"
    with pytest.raises(SchemaError, match="never"):
        await RandomAgent().act(_conversation(IMPOSSIBLE))
    with pytest.raises(SchemaError, match="none"):
        await RandomAgent().act(_conversation())


async def test_a_script_is_played_turn_by_turn_and_then_ends() -> None:
    agent = ScriptedAgent(["a", "b"])
    assert [await agent.act(_conversation(turn=turn)) for turn in range(4)] == ["a", "b", None, None]


async def test_scripts_by_task() -> None:
    agent = ScriptedAgent({"train/0": ["a"], "train/1": ["b"]})
    assert [await agent.act(_conversation(index=index)) for index in (0, 1)] == ["a", "b"]
    with pytest.raises(LookupError, match="train/2"):
        await agent.act(_conversation(index=2))


class _Player:
    """A person: the lines that they type, and what they were shown."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []
        self.shown = io.StringIO()
        self.agent = HumanAgent(self._ask, Console(file=self.shown, width=200))

    def _ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


async def test_a_person_is_asked_for_a_tool_and_each_parameter_until_they_are_valid() -> None:
    player = _Player("fly", "1", "nine", "9", "4", "")
    call = await player.agent.act(_conversation(ADD, THINK))
    assert call == ToolCall(name="add", input={"amount": 4})
    assert player.prompts == [
        "tool: ",
        "tool: ",
        "  amount (integer): ",
        "  amount (integer): ",
        "  amount (integer): ",
        "  note (string, optional): ",
    ]
    shown = player.shown.getvalue()
    assert "1. add  Add." in shown
    assert "'fly' is none of them" in shown
    assert shown.count("amount:") == 2


async def test_a_person_ends_an_episode_by_ending_the_input() -> None:
    assert await _Player().agent.act(_conversation(ADD)) is None
    assert await _Player("add").agent.act(_conversation(ADD)) is None


async def test_what_a_server_says_cannot_drive_the_persons_terminal() -> None:
    player = _Player("think")
    await player.agent.act(_conversation(THINK, observation="[bold]x[/bold] \x1b[2J\x07"))
    assert "[bold]x[/bold] \\x1b[2J\\x07" in player.shown.getvalue()
    assert "\x1b" not in player.shown.getvalue()


async def test_functions_and_coroutine_functions_are_agents() -> None:
    async def later(conversation: Conversation) -> str:
        return f"turn {conversation.turn}"

    assert await as_agent(lambda conversation: conversation.turn + 1).act(_conversation(turn=1)) == 2
    assert await as_agent(later).act(_conversation(turn=1)) == "turn 1"
    assert repr(as_agent(later)).endswith("later")


def test_what_is_no_agent_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"RandomAgent is a class.*RandomAgent\(\.\.\.\)"):
        as_agent(RandomAgent)
    with pytest.raises(TypeError, match="async act"):
        as_agent("random")  # type: ignore[arg-type]
    assert isinstance(RandomAgent(), Agent)


def test_agents_pickle() -> None:
    for agent in (RandomAgent(4), ScriptedAgent([1])):
        assert repr(pickle.loads(pickle.dumps(agent))) == repr(agent)


async def test_an_episode_by_a_script(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        agent = ScriptedAgent([{"name": "think", "input": {}}, '{"name": "submit", "input": {"answer": "7"}}'])
        episode = await run_episode(agent, client.environment("arithmetic"), TaskRef("train", 3), metadata={"note": 1})
    assert (episode.terminated, episode.truncated, episode.rewards) == (True, False, [1.0])
    assert [step.call.name for step in episode.steps if step.call] == ["think", "submit"]
    assert episode.metadata == {"note": 1}
    assert episode.session_id not in real_server.live_sessions()


async def test_an_agent_that_gives_up_leaves_a_scored_truncated_episode(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        episode = await run_episode(ScriptedAgent([]), client.environment("counter"), TaskRef("train", 0))
    assert (episode.terminated, episode.truncated, episode.unscored, episode.num_steps) == (False, True, False, 0)
    assert episode.ended_at is not None
    assert episode.session_id not in real_server.live_sessions()


async def test_what_an_agent_raises_in_a_single_episode_is_raised(real_server: SDKServer) -> None:
    sessions = []

    def broken(conversation: Conversation) -> None:
        sessions.append(conversation.episode.session_id)
        raise ZeroDivisionError("a bug")

    async with AsyncORSClient(real_server.base_url) as client:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await run_episode(broken, client.environment("arithmetic"), TaskRef("train", 3))
        assert sessions[0] not in real_server.live_sessions()


async def test_a_tool_that_raises_is_in_the_episode(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment("faulty")
        episode = await run_episode(ScriptedAgent([{"name": "boom", "input": {}}] * 3), environment, TaskRef("train", 3))
        observed = await run_episode(
            ScriptedAgent([{"name": "boom", "input": {}}, {"name": "finish", "input": {}}]),
            environment,
            TaskRef("train", 3),
            on_tool_error="observe",
        )
    assert (episode.error_kind, episode.num_steps, episode.truncated) == ("environment", 1, True)
    assert "boom went the tool" in episode.error
    assert (observed.error_kind, observed.terminated, observed.rewards) == ("", True, [1.0])


async def test_a_session_that_cannot_be_set_up_is_in_the_episode(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        episode = await run_episode(
            RandomAgent(), client.environment("brokensetup"), TaskRef("train", 1), metadata={"group": 2}, reset_retries=0
        )
    assert (episode.error_kind, episode.truncated, episode.num_steps) == ("environment", True, 0)
    assert episode.metadata == {"group": 2}
    assert episode.ended_at is not None


async def test_the_conversation_tells_what_has_happened(real_server: SDKServer) -> None:
    seen: list[Conversation] = []

    def agent(conversation: Conversation) -> dict[str, Any]:
        seen.append(conversation)
        conversation.report(prompt_tokens=10, completion_tokens=np.int64(2))
        return {"name": "add", "input": {"amount": 2}}

    async with AsyncORSClient(real_server.base_url) as client:
        episode = await run_episode(agent, client.environment("counter"), TaskRef("train", 0))
    assert [conversation.turn for conversation in seen] == [0, 1]
    assert [conversation.observation for conversation in seen] == ["Count to 3.", "The total is 2 of 3."]
    assert [tool.name for tool in seen[0].tools] == ["add"]
    assert seen[0].task == TaskRef("train", 0)
    roles = [message["role"] for message in seen[1].messages("Be brief.")]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert episode.metadata == {"agent": {"prompt_tokens": 20, "completion_tokens": 4}}
