"""The client against both SDKs' servers, each in a process of its own: what users do, and nothing left behind."""

import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient
from ors_gym.protocol import Split, TextBlock, text_of
from tests.servers.sdk_server import SDKServer


async def test_discovery_tells_names_splits_counts_and_tools(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        assert await client.health()
        assert await client.list_environments() == ("arithmetic", "counter", "faulty", "tasktools", "brokensetup")
        discovery = await client.environment("counter").discover()
    assert discovery.env_name == "counter"
    assert discovery.splits == (Split(name="train", type="train"), Split(name="hard", type="test"))
    assert discovery.num_tasks == {"train": 8, "hard": 4}
    assert [tool.name for tool in discovery.tools] == ["add"]
    assert discovery.split().name == "train"
    assert discovery.split("hard").type == "test"
    with pytest.raises(ValueError, match="no split 'test'; it has 'train', 'hard'"):
        discovery.split("test")


async def test_without_a_name_the_first_environment_is_meant(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment()
        assert environment.env_name is None
        async with environment.session(split="test", index=0) as session:
            assert session.env_name == "arithmetic"
            assert text_of(await session.get_prompt()) == "What is 20 + 21?"


async def test_tasks_are_read_by_index_range_and_split(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment("arithmetic")
        assert await environment.num_tasks("train") == 20
        assert await environment.get_task("train", 3) == {"question": "3 + 4", "answer": "7"}
        assert await environment.get_task_range("train", -2) == (
            {"question": "18 + 19", "answer": "37"},
            {"question": "19 + 20", "answer": "39"},
        )
        assert len(await environment.list_tasks("test")) == 5


async def test_an_episode_is_played_and_its_session_deleted(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("counter").session(split="train", index=0) as session:
            assert session.session_id in real_server.live_sessions()
            first = await session.call_tool("add", {"amount": 2})
            last = await session.call_tool("add", {"amount": 1})
        assert (first.reward, first.finished, first.metadata) == (0.2, False, {"total": 2})
        assert (last.reward, last.finished, text_of(last.blocks)) == (0.1, True, "The total is 3 of 3.")
        assert session.session_id not in real_server.live_sessions()


async def test_the_second_environments_session_runs_on_its_own_task(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("counter").session(split="hard", index=1) as session:
            assert text_of(await session.get_prompt()) == "Count to 21."


async def test_a_task_of_ones_own_reaches_the_environment(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("arithmetic").session(task_spec={"question": "6 * 7", "answer": "42"}) as session:
            assert await session.get_prompt() == (TextBlock(text="What is 6 * 7?"),)
            assert (await session.call_tool("submit", {"answer": "42"})).reward == 1.0


async def test_secrets_arrive_in_whichever_form_the_server_takes(real_server: SDKServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "from-the-environment")
    secrets = {"plain": "a b:ü", "limited": ("x", ["example.com"]), "named": {"env": "MY_KEY"}}
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("faulty").session(split="train", index=0, secrets=secrets) as session:
            received = (await session.call_tool("whoami")).metadata
    assert received == {"secrets": {"plain": "a b:ü", "limited": "x", "named": "from-the-environment"}, "task": {"number": 0}}


async def test_the_tools_of_a_task_are_listed(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment("tasktools")
        async with environment.session(split="train", index=2) as session:
            assert [tool.name for tool in await session.list_tools()] == ["say", "hint", "solve"]
        assert [tool.name for tool in await environment.list_tools()] == ["say"]


async def test_three_kinds_of_tool_failure_are_told_apart(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("faulty").session(split="train", index=0) as session:
            with pytest.raises(errors.ToolFailed, match="boom went the tool") as failed:
                await session.call_tool("boom")
            with pytest.raises(errors.ToolCallRejected, match="'nope' is not a valid tool"):
                await session.call_tool("nope")
            with pytest.raises(errors.ToolCallRejected, match="validation error"):
                await session.call_tool("echo", {"word": "?"})
            assert (await session.call_tool("echo", {"text": "still here"})).blocks == (TextBlock(text="still here"),)
    assert failed.value.detail == "boom went the tool"


async def test_a_tool_that_is_not_listed_can_be_called(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("faulty").session(split="train", index=0) as session:
            assert (await session.call_tool("hidden")).reward == 0.25


async def test_a_setup_that_raises_is_reported_in_the_servers_words(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        environment = client.environment("brokensetup")
        with pytest.raises(errors.SessionSetupFailed, match="this task cannot be set up"):
            async with environment.session(split="train", index=1) as session:
                await session.call_tool("done")
        async with environment.session(split="train", index=0) as session:
            assert (await session.call_tool("done")).finished
    assert real_server.live_sessions() == []


async def test_what_does_not_exist_is_refused(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        with pytest.raises(errors.NotFound):
            await client.environment("nope").list_tools()
        with pytest.raises(errors.NotFound, match="unknown environment 'nope'"):
            await client.environment("nope").session(split="train", index=0).start()
        with pytest.raises(errors.RequestRejected, match="Invalid split"):
            await client.environment("arithmetic").session(split="nope", index=0).start()
        with pytest.raises(errors.RequestRejected, match="Invalid index"):
            await client.environment("arithmetic").session(split="train", index=99).start()
        assert client.stats().sessions_open == 0


@pytest.mark.parametrize("size", [0, 1, 4000, 4096, 40_000, 1_000_000])
async def test_text_of_every_size_survives(real_server: SDKServer, size: int) -> None:
    unit = "line of text,  two spaces,   three \u2028\u0085\x0b\r\n\té漢🎲"
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("faulty").session(split="train", index=0) as session:
            output = await session.call_tool("big", {"size": size})
    assert text_of(output.blocks) == (unit * (size // len(unit) + 1))[:size]


async def test_a_reward_that_is_not_a_number_is_none(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("faulty").session(split="train", index=0) as session:
            assert (await session.call_tool("nan_reward")).reward is None


async def test_an_episode_takes_one_connection_and_five_requests(real_server: SDKServer) -> None:
    async with AsyncORSClient(real_server.base_url) as client:
        async with client.environment("arithmetic").session(split="train", index=0) as session:
            await session.get_prompt()
            await session.call_tool("submit", {"answer": "1"})
        assert client.stats().requests == 5
