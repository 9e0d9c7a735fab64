"""`ChatAgent` against an OpenAI-compatible endpoint that says what the test has it say."""

import asyncio
import json
import pickle
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from ors_gym.client import AsyncORSClient
from ors_gym.episode import Episode
from ors_gym.rollout import ChatAgent, ChatFailed, Tasks, collect_episodes, run_episode
from ors_gym.secrets import EnvSecret
from ors_gym.tasks import TaskRef
from tests.servers.environments import PNG
from tests.servers.sdk_server import SDKServer


class Endpoint:
    """Answers `/v1/chat/completions` with what is in `answers`, and keeps the requests."""

    def __init__(self) -> None:
        self.answers: deque[web.Response] = deque()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.base_url = ""

    async def complete(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        return self.answers.popleft() if len(self.answers) > 1 else _copy(self.answers[0])

    def says(self, content: str | None = None, *calls: tuple[str, str], usage: bool = True) -> None:
        """One more answer: a text and calls, each a name and the JSON text of its arguments."""
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = [
                {"id": f"abc{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for number, (name, arguments) in enumerate(calls)
            ]
        body: dict[str, Any] = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }
        if usage:
            body["usage"] = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        self.answers.append(web.json_response(body))

    def fails(self, status: int, message: str = "no", **headers: str) -> None:
        """One more answer: an error."""
        self.answers.append(web.json_response({"error": {"message": message}}, status=status, headers=headers))

    def agent(self, **options: Any) -> ChatAgent:
        return ChatAgent("m", base_url=self.base_url, **options)


def _copy(response: web.Response) -> web.Response:
    return web.Response(body=response.body, status=response.status, headers=response.headers)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield endpoint
    await runner.cleanup()


async def _run(agent: ChatAgent, server: SDKServer, env_name: str, index: int = 0, **options: Any) -> Episode:
    async with AsyncORSClient(server.base_url) as client, agent:
        return await run_episode(agent, client.environment(env_name), TaskRef("train", index), **options)


async def test_a_tool_call_is_the_action_and_its_output_goes_back(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.says("Two first.", ("add", '{"amount": 2}'))
    endpoint.says(None, ("add", '{"amount": 1}'))
    episode = await _run(endpoint.agent(system_prompt="Count."), real_server, "counter")
    assert (episode.terminated, episode.rewards) == (True, [0.2, 0.1])
    assert episode.metadata["agent"] == {"prompt_tokens": 22, "completion_tokens": 10}
    first, second = endpoint.requests
    assert first["model"] == "m"
    assert first["messages"] == [{"role": "system", "content": "Count."}, {"role": "user", "content": "Count to 3."}]
    assert first["tools"][0]["function"]["name"] == "add"
    assert first["tools"][0]["function"]["parameters"]["properties"]["amount"]["maximum"] == 5
    said, output = second["messages"][2:]
    assert (said["role"], said["content"]) == ("assistant", "Two first.")
    assert (said["tool_calls"][0]["function"]["name"], json.loads(said["tool_calls"][0]["function"]["arguments"])) == (
        "add",
        {"amount": 2},
    )
    assert (output["role"], output["content"], output["tool_call_id"]) == (
        "tool",
        "The total is 2 of 3.",
        said["tool_calls"][0]["id"],
    )


async def test_parallel_calls_run_in_order_and_each_is_answered(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.says(None, ("add", '{"amount": 1}'), ("add", '{"amount": 2}'))
    endpoint.says(None, ("add", '{"amount": 5}'), ("add", '{"amount": 5}'))
    episode = await _run(endpoint.agent(), real_server, "counter", index=5)
    assert [step.call.input["amount"] for step in episode.steps if step.call] == [1, 2, 5]
    assert (episode.terminated, episode.rewards) == (True, [0.1, 0.2, 0.5])
    prompt, said, one, two = endpoint.requests[1]["messages"]
    assert [message["role"] for message in (prompt, said, one, two)] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in said["tool_calls"]] == [one["tool_call_id"], two["tool_call_id"]]
    assert [one["content"], two["content"]] == ["The total is 1 of 8.", "The total is 3 of 8."]


async def test_malformed_arguments_come_back_as_a_reason_and_the_episode_goes_on(
    endpoint: Endpoint, real_server: SDKServer
) -> None:
    endpoint.says("Here:", ("add", '{"amount": '))
    endpoint.says(None, ("add", '["no object"]'))
    endpoint.says(None, ("fly", "{}"))
    endpoint.says(None, ("add", '{"amount": 9}'))
    endpoint.says(None, ("add", '{"amount": 3}'))
    episode = await _run(endpoint.agent(), real_server, "counter")
    assert [bool(step.invalid_action) for step in episode.steps] == [True, True, True, True, False]
    assert (episode.terminated, episode.unscored, episode.rewards) == (True, False, [0.3])
    said, reason = endpoint.requests[1]["messages"][1:]
    assert (said["role"], "tool_calls" in said, reason["role"]) == ("assistant", False, "user")
    assert said["content"].startswith("Here:\n")
    assert '{\\"amount\\": ' in said["content"]
    assert "JSON" in reason["content"] or "json" in reason["content"]
    rejected = endpoint.requests[3]["messages"][-1]
    assert (rejected["role"], "fly" in rejected["content"]) == ("tool", True)


async def test_text_goes_to_the_text_tool(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.says("7")
    episode = await _run(endpoint.agent(), real_server, "arithmetic", index=3)
    assert (episode.rewards, episode.steps[0].call.name if episode.steps[0].call else "") == ([1.0], "submit")


async def test_calls_in_the_text_of_a_model_that_no_parser_read_are_calls(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.says('<tool_call>\n{"name": "submit", "arguments": {"answer": "7"}}\n</tool_call>')
    assert (await _run(endpoint.agent(), real_server, "arithmetic", index=3)).rewards == [1.0]


async def test_429s_and_5xxs_are_retried_after_what_the_endpoint_says(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.fails(429, **{"Retry-After": "0.01"})
    endpoint.fails(503, **{"Retry-After": "0.01"})
    endpoint.says(None, ("submit", '{"answer": "7"}'))
    episode = await _run(endpoint.agent(), real_server, "arithmetic", index=3)
    assert (episode.rewards, len(endpoint.requests)) == ([1.0], 3)


async def test_an_endpoint_that_stays_away_fails_the_episode_unscored(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.fails(429, "slow down", **{"Retry-After": "0.01"})
    async with endpoint.agent(max_retries=1) as agent:
        [episode] = await collect_episodes(agent, Tasks(real_server.base_url, "arithmetic", num_tasks=1), retries=1)
    assert (episode.unscored, episode.error_kind, episode.metadata["attempt"]) == (True, "infrastructure", 1)
    assert "'m'" in episode.error
    assert "slow down" in episode.error
    assert len(endpoint.requests) == 4
    assert real_server.live_sessions() == []


async def test_a_refused_key_is_not_retried_and_not_shown(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.fails(401, "Incorrect API key provided: sk-very-secret")
    with pytest.raises(ChatFailed) as raised:
        await _run(endpoint.agent(api_key="sk-very-secret"), real_server, "arithmetic")
    assert len(endpoint.requests) == 1
    assert endpoint.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "Incorrect API key provided: [redacted]" in str(raised.value)
    assert "sk-very-secret" not in repr(raised.value) + repr(endpoint.agent(api_key="sk-very-secret"))


async def test_images_go_along_in_a_users_message(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.says(None, ("image", "{}"), ("no_reward", "{}"))
    endpoint.says(None, ("finish", "{}"))
    await _run(endpoint.agent(), real_server, "faulty")
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    assert endpoint.requests[0]["messages"][0]["content"] == [{"type": "text", "text": "Do as you like."}, picture]
    said, image, nothing, after = endpoint.requests[1]["messages"][1:]
    assert [said["role"], image["role"], nothing["role"], after["role"]] == ["assistant", "tool", "tool", "user"]
    assert (image["content"], nothing["content"]) == ("Red:", "Nothing.")
    assert after["content"] == [picture]


async def test_options_go_along_and_an_endpoint_need_not_count(endpoint: Endpoint, real_server: SDKServer) -> None:
    endpoint.says(None, ("submit", '{"answer": "7"}'), usage=False)
    agent = endpoint.agent(options={"temperature": 0.25, "max_tokens": 9, "tool_choice": "required"})
    episode = await _run(agent, real_server, "arithmetic")
    assert [endpoint.requests[0][name] for name in ("temperature", "max_tokens", "tool_choice")] == [0.25, 9, "required"]
    assert episode.metadata == {}


async def test_a_key_of_the_environment_does_not_go_to_an_endpoint_that_is_given(
    endpoint: Endpoint, real_server: SDKServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai-only")
    monkeypatch.setenv("MY_KEY", "sk-mine")
    endpoint.says(None, ("submit", '{"answer": "7"}'))
    await _run(endpoint.agent(), real_server, "arithmetic")
    await _run(endpoint.agent(api_key=EnvSecret("MY_KEY")), real_server, "arithmetic")
    assert "sk-for-openai-only" not in str(endpoint.headers)
    assert endpoint.headers[1]["Authorization"] == "Bearer sk-mine"


async def test_one_agent_serves_many_conversations_and_other_loops(endpoint: Endpoint, ors_server: SDKServer) -> None:
    endpoint.says(None, ("submit", '{"answer": "7"}'))
    agent = endpoint.agent()
    async with agent:
        episodes = await collect_episodes(agent, Tasks(ors_server.base_url, "arithmetic", num_tasks=20))
    assert [episode.rewards for episode in episodes] == [[float(index == 3)] for index in range(20)]
    assert await asyncio.to_thread(asyncio.run, _run(agent, ors_server, "arithmetic", 3)) is not None
    assert pickle.loads(pickle.dumps(agent)).model == "m"


async def test_an_answer_without_a_choice_is_a_failure(endpoint: Endpoint, ors_server: SDKServer) -> None:
    endpoint.answers.append(web.json_response({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": []}))
    with pytest.raises(ChatFailed, match="without a choice"):
        await _run(endpoint.agent(), ors_server, "arithmetic")


def test_the_repr_names_what_makes_a_difference() -> None:
    agent = ChatAgent("m", base_url="http://x", api_key="k", system_prompt="Be good.", options={"temperature": 0.5})
    assert repr(agent) == "ChatAgent('m', system_prompt='Be good.', temperature=0.5)"
