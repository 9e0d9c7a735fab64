"""No secret and no key appears in a repr, a log record at any level, or an exception; observations are left alone."""

import asyncio
import base64
import json
import logging
import pickle
import traceback

import httpx
import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient, ORSClient
from ors_gym.protocol import text_of
from ors_gym.testing import Fault, FaultServer, Request
from tests.client.conftest import Connect

CANARY = 'cänary "s3cret" /+='
API_KEY = "canary-api-key-1f2e3d"
PASSWORD = "canary-password-4c5b6a"
TOKEN = "canary-bearer-7z8y9x"


def forms(secret: str) -> list[str]:
    return [secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], base64.b64encode(secret.encode()).decode()]


def assert_clean(text: str) -> None:
    for secret in (CANARY, API_KEY, PASSWORD, TOKEN):
        for form in forms(secret):
            assert form not in text, f"{form!r} is in {text!r}"


def echo(request: Request) -> Fault | None:
    """What a real server does with a body that it does not like: it sends it back, and here the headers too."""
    if request.endpoint in ("create_session", "version"):
        return None
    everything = {
        "detail": [{"loc": ["body"], "msg": f"bad: {request.body.decode()} {request.headers}", "input": str(request.headers)}]
    }
    return Fault(status=422 if request.endpoint == "create" else 500, body=json.dumps(everything).encode())


async def test_a_server_that_echoes_everything(server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "ors_gym")
    client = connect(
        server.base_url, api_key=API_KEY, auth=("user", PASSWORD), headers={"X-Auth-Token": TOKEN, "Cookie": f"session={TOKEN}"}
    )
    environment = client.environment("fault")
    seen: list[str] = [repr(client), repr(environment)]
    session = environment.session(split="train", index=0, secrets={"key": CANARY, "other": (CANARY, ["example.com"])})
    async with session:
        await session.get_prompt()
        server.decide = echo
        for use in (session.list_tools, session.ping, lambda: session.call_tool("echo", {"text": "?"})):
            with pytest.raises(errors.ORSError) as raised:
                await use()
            seen += show(raised.value)
        server.decide = None
        server.script(
            "call",
            Fault(
                body=f"event: error\ndata: {json.dumps(CANARY)} {API_KEY}\n\n".encode(),
                headers={"Content-Type": "text/event-stream"},
            ),
        )
        with pytest.raises(errors.ToolFailed) as failed:
            await session.call_tool("echo", {"text": "?"})
        seen += show(failed.value)
        seen.append(repr(session))
        server.script("delete", Fault(status=500, body=json.dumps({"detail": [CANARY, API_KEY, PASSWORD, TOKEN]}).encode()))
    server.decide = echo
    with pytest.raises(errors.RequestRejected) as refused:
        await environment.session(split="train", index=0, secrets={"key": CANARY}).start()
    seen += show(refused.value)
    assert "[redacted]" in str(refused.value)
    seen += [record.getMessage() for record in caplog.records]
    assert any("may be left on its server" in text for text in seen)
    for text in seen:
        assert_clean(text)


def show(error: errors.ORSError) -> list[str]:
    """Everything that is printed of an exception, its pickle and its causes included."""
    chain = "".join(traceback.format_exception(error))
    return [str(error), repr(error), error.detail, str(error.__dict__), repr(pickle.loads(pickle.dumps(error))), chain]


async def test_secrets_in_the_header_form_are_redacted_too(server: FaultServer, connect: Connect) -> None:
    server.script("version", Fault(body=b'{"version": "0.1", "build_sha": null}'))
    server.decide = echo
    client = connect(server.base_url)
    with pytest.raises(errors.RequestRejected) as refused:
        await client.environment("fault").session(split="train", index=0, secrets={"key": CANARY}).start()
    header = server.received("create")[0].headers["x-secrets"]
    assert json.loads(base64.b64decode(header)) == {"key": {"value": CANARY, "allowed_domains": []}}
    assert header not in str(refused.value)
    assert_clean(str(refused.value))


async def test_observations_are_left_alone(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, api_key=API_KEY)
    async with client.environment("fault").session(split="train", index=0, secrets={"key": CANARY}) as session:
        output = await session.call_tool("echo", {"text": f"{CANARY} {API_KEY}"})
    assert text_of(output.blocks) == f"{CANARY} {API_KEY}"


async def test_event_hooks_see_no_secret(server: FaultServer, connect: Connect) -> None:
    traces: list[object] = []
    client = connect(
        server.base_url.replace("//", f"//user:{PASSWORD}@"),
        api_key=API_KEY,
        event_hooks={"request": [traces.append], "response": [traces.append]},
    )
    server.decide = echo
    with pytest.raises(errors.ORSError):
        await client.environment("fault").session(split="train", index=0, secrets={"key": CANARY}).start()
    assert traces
    assert_clean(repr(traces))


@pytest.mark.parametrize(
    "secrets",
    [{"key": 5}, {"key": (CANARY,)}, {"key": {"env": "X", "value": CANARY}}, {"key": [CANARY, 1, 2]}, {"key": (CANARY, 5)}],
)
def test_a_secret_of_no_known_form_is_refused_without_being_shown(secrets: dict[str, object]) -> None:
    environment = ORSClient("http://localhost").environment("fault")
    with pytest.raises(TypeError) as refused:
        environment.session(split="train", index=0, secrets=secrets)  # type: ignore[arg-type]
    assert_clean(str(refused.value))


def test_a_proxys_password_is_a_secret() -> None:
    client = AsyncORSClient("http://localhost", proxy=f"http://user:{PASSWORD}@proxy")
    assert client._core.redactor.redact(f"407 for {PASSWORD}") == "407 for [redacted]"
    client = AsyncORSClient("http://localhost", proxy=httpx.Proxy("http://proxy", auth=("user", PASSWORD)))
    assert client._core.redactor.redact(f"407 for {PASSWORD}") == "407 for [redacted]"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(body=b"{", headers={"Content-Encoding": API_KEY}),
        Fault(raw=f"HTTP/1.1 2x0 {API_KEY}\r\n\r\n".encode()),
        Fault(raw=f"HTTP/1.1 200 OK\r\n{API_KEY}\0: a\r\n\r\n".encode()),
        Fault(raw=f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{API_KEY}\r\n".encode()),
        Fault(status=307, headers={"Location": f"http://{API_KEY}.example/"}),
        Fault(status=500, body=b"x" * 65_530 + API_KEY.encode()),
        Fault(status=500, body=(API_KEY.encode() + b" ") * 9_000),
    ],
    ids=["encoding", "status line", "header", "chunk", "redirect", "cut", "many"],
)
async def test_what_breaks_http_is_redacted_too(
    server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    caplog.set_level(logging.DEBUG)
    client = connect(server.base_url, api_key=API_KEY)
    server.script("splits", *[fault] * 10)
    with pytest.raises(errors.ORSError) as raised:
        await client.environment("fault").list_splits()
    for text in [*show(raised.value), repr(raised.value.__cause__), *(record.getMessage() for record in caplog.records)]:
        assert_clean(text)


async def test_a_long_secret_is_redacted_before_the_message_is_cut(server: FaultServer, connect: Connect) -> None:
    secret = "".join(chr(65 + number % 26) for number in range(9_000))
    async with connect(server.base_url).environment("fault").session(split="train", index=0, secrets={"key": secret}) as session:
        server.script("prompt", Fault(status=500, body=b"bad secret: " + secret.encode()))
        with pytest.raises(errors.SessionSetupFailed, match=r"bad secret: \[redacted\]$"):
            await session.get_prompt()


async def test_names_from_a_server_are_redacted(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, api_key=API_KEY)
    server.script(
        "list_environments", Fault(body=json.dumps([f"../{API_KEY}"]).encode()), Fault(body=json.dumps([API_KEY]).encode())
    )
    environment = client.environment()
    with pytest.raises(errors.ProtocolError) as raised:
        await environment.resolve()
    await environment.resolve()
    server.script("create_session", Fault(body=json.dumps({"sid": API_KEY}).encode()))
    session = await client.environment("fault").session(split="train", index=0).start()
    for text in [*show(raised.value), repr(environment), repr(environment.session(split="train", index=0)), repr(session)]:
        assert_clean(text)


def test_nor_by_the_deletions_at_the_end(server: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
    client = AsyncORSClient(server.base_url, api_key=API_KEY)
    asyncio.run(_leave_open(client))
    server.script("delete", Fault(raw=f"HTTP/1.1 2x0 {API_KEY}\r\n\r\n".encode()))
    client._core.delete_without_loop()
    assert "could not be deleted" in caplog.text
    assert_clean(caplog.text)


async def _leave_open(client: AsyncORSClient) -> None:
    await client.environment("fault").session(split="train", index=0).start()


async def test_the_secret_of_one_session_in_the_answer_to_another(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url).environment("fault")
    async with (
        environment.session(split="train", index=0) as other,
        environment.session(split="train", index=0, secrets={"key": CANARY}),
    ):
        leak = Fault(status=500, body=json.dumps({"detail": CANARY}).encode())
        server.script("prompt", leak)
        server.script("splits", leak)
        for use in (other.get_prompt, environment.list_splits):
            with pytest.raises(errors.ORSError, match=r"\[redacted\]") as raised:
                await use()
            for text in show(raised.value):
                assert_clean(text)
