"""The client on a server by the standard's letter: JSON `/create_session`, 410 after a deletion, 404 for an unknown tool."""

from collections.abc import Iterator
from typing import Any

import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient
from ors_gym.protocol import Split, text_of
from tests.servers.standard import Mutant, Refusal, Standard, standard_server


@pytest.fixture
def base_url() -> Iterator[str]:
    with standard_server() as base_url:
        yield base_url


async def test_everything_works(base_url: str) -> None:
    async with AsyncORSClient(base_url) as client:
        assert await client.health()
        discovery = await client.environment().discover()
        assert discovery.env_name == "playground"
        assert discovery.splits[2] == Split(name="hard", type="validation")
        assert discovery.num_tasks == {"train": 6, "test": 4, "hard": 9}
        environment = client.environment("second")
        assert await environment.get_task("test", 3) == {"number": 3, "split": "test"}
        assert [task["number"] for task in await environment.get_task_range("hard", 2, -5)] == [2, 3]
        assert len(await environment.list_tasks("train")) == 6
        async with environment.session(split="hard", index=7, secrets={"key": "value"}) as session:
            assert text_of(await session.get_prompt()) == "Play with the number 7."
            assert [tool.name for tool in await session.list_tools()] == ["echo", "add", "look", "crash", "finish", "hint"]
            assert (await session.call_tool("add", {"amount": 3})).metadata == {"total": 3}
            long = "  spaces and ünïcödé \u2028 " * 2000
            assert text_of((await session.call_tool("echo", {"text": long})).blocks) == long
            await session.ping()
            assert (await session.call_tool("finish")).finished


async def test_an_unknown_tool_is_http_404_and_the_policys_fault(base_url: str) -> None:
    async with AsyncORSClient(base_url) as client:
        async with client.environment().session(split="train", index=0) as session:
            with pytest.raises(errors.ToolCallRejected, match="Tool 'nope' not found"):
                await session.call_tool("nope")
            with pytest.raises(errors.ToolCallRejected, match="takes"):
                await session.call_tool("add", {"amounts": 3})
            with pytest.raises(errors.ToolFailed, match="The tool crashed"):
                await session.call_tool("crash")
            assert (await session.call_tool("look")).reward == 0.5
            await session.call_tool("finish")
            with pytest.raises(errors.ToolCallRejected, match="The episode is over"):
                await session.call_tool("look")


async def test_410_after_a_deletion_is_a_lost_session(base_url: str) -> None:
    async with AsyncORSClient(base_url) as client:
        async with client.environment().session(split="train", index=0) as session:
            await session.get_prompt()
            live = session._live
            assert live is not None
            await client._core.http.exchange(live.call("POST", "delete"))
            with pytest.raises(errors.SessionLost, match="HTTP 410: Session deleted"):
                await session.call_tool("look")


async def test_404_on_the_deletion_of_an_unknown_session_is_as_good_as_200(base_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncORSClient(base_url) as client:
        async with client.environment().session(split="train", index=0) as session:
            live = session._live
            assert live is not None
            await client._core.http.exchange(live.call("POST", "delete"))
    assert caplog.records == []


class OtherNames(Standard):
    """The names of one task and of a range on the standard's page about tasks and splits."""

    def route(self, method: str, path: str, sid: str | None, body: dict[str, Any]) -> tuple[str, Any]:
        head, _, name = path.rpartition("/")
        if name in ("task", "task_range"):
            raise Refusal(404, "Not found")
        return super().route(method, f"{head}/{name.removeprefix('get_')}", sid, body)


async def test_get_task_and_get_task_range_where_the_server_has_those() -> None:
    with standard_server(Mutant("other names", "", server=OtherNames)) as base_url:
        async with AsyncORSClient(base_url) as client:
            environment = client.environment("playground")
            assert await environment.get_task("test", 3) == {"number": 3, "split": "test"}
            assert [task["number"] for task in await environment.get_task_range("test", 1)] == [1, 2, 3]


async def test_what_is_refused_under_both_names_is_refused_in_the_words_of_the_first(base_url: str) -> None:
    async with AsyncORSClient(base_url) as client:
        with pytest.raises(errors.RequestRejected, match="Invalid index"):
            await client.environment("playground").get_task("test", 99)
        with pytest.raises(errors.NotFound, match="'nope' not recognized"):
            await client.environment("nope").get_task("test", 0)
