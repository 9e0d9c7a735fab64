"""One episode — create_session, create, prompt, one tool call, delete — with each client that is compared."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from ors_gym.client import AsyncORSClient

Episode = Callable[[], Awaitable[None]]

OURS, SDK, OPENREWARD, RAW = "ors-gym", "ors-sdk", "openreward", "raw aiohttp"


@asynccontextmanager
async def ours(base_url: str, env_name: str, tool: str, input: dict[str, Any]) -> AsyncIterator[Episode]:
    """This library's client."""
    async with AsyncORSClient(base_url) as client:
        environment = client.environment(env_name)

        async def episode() -> None:
            async with environment.session(split="train", index=0) as session:
                await session.get_prompt()
                output = await session.call_tool(tool, input)
                assert output.finished

        yield episode


@asynccontextmanager
async def sdk(base_url: str, env_name: str, tool: str, input: dict[str, Any]) -> AsyncIterator[Episode]:
    """The reference SDK's client."""
    from ors.client import AsyncORS
    from ors.client._types import Task

    environments = AsyncORS(base_url=base_url).environments
    environment = environments.get(env_name)
    task = Task(environment_name=env_name, task_spec={"question": "2 + 2", "answer": "4"})

    async def episode() -> None:
        async with environment.session(task=task) as session:
            await session.get_prompt()
            output = await session.call_tool(tool, input)
            assert output.finished

    async with AsyncExitStack() as stack:
        for client in environments._clients.values():
            stack.push_async_callback(client.close)
        yield episode


@asynccontextmanager
async def openreward(base_url: str, env_name: str, tool: str, input: dict[str, Any]) -> AsyncIterator[Episode]:
    """The hosted platform's client."""
    from openreward.api.environments.client import AsyncEnvironmentsAPI
    from openreward.api.environments.types import Task

    async with AsyncEnvironmentsAPI(base_url=base_url, api_key="") as environments:
        environment = environments.get(env_name, base_url=base_url)
        task = Task(server_name=env_name, environment_name=env_name, namespace=None, task_spec={"question": "2 + 2", "answer": "4"})

        async def episode() -> None:
            async with environment.session(task=task) as session:
                await session.get_prompt()
                output = await session.call_tool(tool, input)
                assert output.finished

        yield episode


@asynccontextmanager
async def raw(base_url: str, env_name: str, tool: str, input: dict[str, Any]) -> AsyncIterator[Episode]:
    """Plain aiohttp: the same requests, the same JSON and events parsed, and none of the care."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(base_url, connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as client:

        async def episode() -> None:
            async with client.post("/create_session") as response:
                sid = next(data for name, data in _events(await response.text()) if name == "task_id")
            headers = {"X-Session-ID": sid}
            create = {"env_name": env_name, "split": "train", "index": 0}
            async with client.post("/create", json=create, headers=headers) as response:
                await response.json()
            async with client.get(f"/{env_name}/prompt", headers=headers) as response:
                await response.json()
            call = {"name": tool, "input": input}
            async with client.post(f"/{env_name}/call", json=call, headers=headers) as response:
                data = "".join(data for name, data in _events(await response.text()) if name in ("chunk", "end"))
                assert json.loads(data)["output"]["finished"]
            async with client.post("/delete", headers=headers) as response:
                await response.json()

        yield episode


def _events(text: str) -> list[tuple[str, str]]:
    events = []
    for event in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line)
        if fields:
            events.append((fields.get("event", ""), fields.get("data", "")))
    return events


ALL = {OURS: ours, SDK: sdk, OPENREWARD: openreward, RAW: raw}
