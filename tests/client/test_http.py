"""How requests leave: base URLs and prefixes, proxies, TLS, authentication, keys, cookies, redirects."""

import asyncio
import gzip
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import trustme

from ors_gym import errors
from ors_gym.client import AsyncORSClient, Retry, Timeout
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


async def play(client: AsyncORSClient) -> None:
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
        assert (await session.call_tool("submit", {"answer": "right"})).reward == 1.0


# ── base URLs ──


@pytest.mark.parametrize("slash", ["", "/", "//"])
async def test_a_path_prefix_is_kept(connect: Connect, slash: str) -> None:
    with FaultServer(prefix="/deployments/my%20env") as server:
        client = connect(server.base_url + slash)
        await play(client)
        assert await client.list_environments() == ("fault",)
    assert {request.path.rpartition("/")[0] for request in server.requests} == {
        "/deployments/my%20env",
        "/deployments/my%20env/fault",
    }


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "localhost:8080",
        "ftp://host",
        "http://",
        "http://host?x=1",
        "http://host#x",
        "http://[",
        "file:///etc",
        "http://h:99999",
    ],
)
def test_a_base_url_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        AsyncORSClient(base_url)
    with pytest.raises(ValueError):
        AsyncORSClient([])


@pytest.mark.parametrize("base_url", [None, 8080, b"http://host", ["http://host", 8080]])
def test_a_base_url_of_another_type_is_refused(base_url: Any) -> None:
    with pytest.raises(TypeError, match="base_url is a URL as a str"):
        AsyncORSClient(base_url)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 5}, r"timeout is an ors_gym.Timeout\(...\), not 5"),
        ({"timeout": None}, r"timeout is an ors_gym.Timeout\(...\), not None"),
        ({"retry": 3}, r"retry is an ors_gym.Retry\(...\), not 3"),
        ({"auth": "token"}, "auth is a pair for HTTP Basic, or an httpx.Auth, not a str"),
        ({"max_sessions": 1.5}, "float"),
        ({"max_response_bytes": 1.5}, "float"),
    ],
)
def test_an_option_of_another_type_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        AsyncORSClient("http://host", **options)


@pytest.mark.parametrize("option", ["max_sessions", "max_response_bytes", "keepalive"])
def test_a_number_out_of_its_range_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        AsyncORSClient("http://host", **{option: 0})


async def test_a_sessions_timeout_of_another_type_is_refused(server: FaultServer, connect: Connect) -> None:
    environment = connect(server.base_url).environment("fault")
    with pytest.raises(TypeError, match="timeout is an"):
        environment.session(split="train", index=0, timeout=5)  # type: ignore[arg-type]


async def test_credentials_in_the_url_are_sent_and_never_shown(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url.replace("//", "//user:pa55word@"))
    await client.health()
    assert server.requests[0].headers["authorization"] == "Basic dXNlcjpwYTU1d29yZA=="
    assert "pa55word" not in repr(client) + client.base_url
    server.stop_listening()
    with pytest.raises(errors.ConnectionFailed) as failed:
        await client.health()
    assert "pa55word" not in str(failed.value)


# ── proxies and TLS ──


@pytest.mark.parametrize("configured", ["argument", "environment"])
async def test_an_http_proxy_is_asked(
    server: FaultServer, connect: Connect, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if configured == "environment":
        monkeypatch.setenv("HTTP_PROXY", server.base_url)
        monkeypatch.setenv("http_proxy", server.base_url)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        client = connect("http://ors.invalid:8080/prefix")
    else:
        client = connect("http://ors.invalid:8080", proxy=server.base_url)
    server.script("health", Fault(body=b"{}"))
    assert await client.health()
    assert server.requests[0].target.startswith("http://ors.invalid:8080/")


@pytest.mark.filterwarnings("ignore:BasicAuth is deprecated", "ignore:The 'proxy_auth' parameter")
async def test_an_http_proxy_gets_its_credentials(server: FaultServer, connect: Connect) -> None:
    client = connect("http://ors.invalid", proxy=server.base_url.replace("//", "//user:pr0xy-pass@"))
    server.script("health", Fault(body=b"{}"), Fault(status=407))
    assert await client.health()
    assert server.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpwcjB4eS1wYXNz"


async def test_environment_variables_are_left_alone_where_they_are_not_trusted(
    server: FaultServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await connect(server.base_url, trust_env=False).health()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure_server(authority: trustme.CA) -> Iterator[FaultServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    with FaultServer(tls=context) as server:
        yield server


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_tls_with_an_authority_of_ones_own(secure_server: FaultServer, connect: Connect, authority: trustme.CA) -> None:
    await play(connect(secure_server.base_url, verify=trusting(authority)))
    assert secure_server.sessions == set()


async def test_tls_unverified(secure_server: FaultServer, connect: Connect) -> None:
    await play(connect(secure_server.base_url, verify=False))


async def test_an_unknown_certificate_is_refused_at_once(secure_server: FaultServer, connect: Connect) -> None:
    client = connect(secure_server.base_url)
    with pytest.raises(errors.ConnectionFailed, match=r"no TLS connection: .*certificate"):
        await client.health()
    assert client.stats().requests == 1


async def test_an_authority_named_by_the_environment(
    secure_server: FaultServer, connect: Connect, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        await play(connect(secure_server.base_url))


@asynccontextmanager
async def tunnel() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that connects, as HTTPS needs it. Gives its URL and the heads of the requests it got."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        host, _, port = head.split(" ")[1].partition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pipe(reader, there_writer), pipe(there_reader, writer))

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://user:pr0xy-pass@127.0.0.1:{proxy.sockets[0].getsockname()[1]}", heads
    finally:
        proxy.close()


@pytest.mark.filterwarnings("ignore:BasicAuth is deprecated", "ignore:The 'proxy_auth' parameter")
async def test_an_https_server_behind_a_proxy_with_credentials(secure_server: FaultServer, authority: trustme.CA) -> None:
    async with tunnel() as (proxy, heads):
        async with AsyncORSClient(secure_server.base_url, verify=trusting(authority), proxy=proxy) as client:
            await play(client)
            assert "pr0xy-pass" not in repr(client)
        assert heads[0].startswith(f"CONNECT 127.0.0.1:{httpx.URL(secure_server.base_url).port} ")
        assert "Proxy-Authorization: Basic" in heads[0]


# ── authentication ──


async def test_a_pair_is_http_basic(server: FaultServer, connect: Connect) -> None:
    await play(connect(server.base_url, auth=("Aladdin", "open sesame")))
    assert {request.headers["authorization"] for request in server.requests} == {"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}


class Renewing(httpx.Auth):
    """A token that is refused the first time and then renewed, as flows do."""

    requires_response_body = True

    def __init__(self) -> None:
        self.token = "old"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self.token}"
        response = yield request
        if response.status_code == 401:
            self.token = response.json()["new"]
            request.headers["Authorization"] = f"Bearer {self.token}"
            yield request


async def test_an_authentication_flow_is_driven(server: FaultServer, connect: Connect) -> None:
    server.script("create_session", Fault(status=401, body=b'{"new": "fresh"}'))
    await play(connect(server.base_url, auth=Renewing()))
    sent = [(request.endpoint, request.headers["authorization"]) for request in server.requests]
    assert sent[:3] == [("create_session", "Bearer old"), ("create_session", "Bearer fresh"), ("create", "Bearer fresh")]
    assert len(server.calls) == 1


async def test_a_flow_that_asks_elsewhere_goes_by_the_way_of_that_place(
    server: FaultServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FromIssuer(httpx.Auth):
        def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
            response = yield httpx.Request("GET", f"{issuer.base_url}/health")
            request.headers["Authorization"] = f"Bearer {response.status_code}"
            yield request

    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, server.base_url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    with FaultServer() as issuer:
        client = connect("http://ors.invalid", auth=FromIssuer())
        server.script("health", Fault(body=b"{}"))
        assert await client.health()
    assert [request.target for request in issuer.requests] == ["/health"]
    assert [request.target for request in server.requests] == ["http://ors.invalid/health"]
    assert server.requests[0].headers["authorization"] == "Bearer 200"


@pytest.mark.parametrize(("header", "sent"), [({}, "Basic dTpw"), ({"Authorization": "Bearer x"}, "Bearer x")])
async def test_a_flow_may_ask_a_url_with_a_password(
    server: FaultServer, connect: Connect, header: dict[str, str], sent: str
) -> None:
    class FromIssuer(httpx.Auth):
        def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
            yield httpx.Request("GET", issuer.base_url.replace("://", "://u:p@") + "/health", headers=header)
            yield request

    with FaultServer() as issuer:
        assert await connect(server.base_url, auth=FromIssuer()).health()
        assert issuer.requests[0].headers["authorization"] == sent


class Reading(httpx.Auth):
    """A flow that looks into each answer, as far as it likes."""

    def __init__(self, most: int | None) -> None:
        self.most = most

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        response = yield request
        if self.most is None:
            await response.aread()
        else:
            async for _ in response.aiter_raw():
                break


@pytest.mark.parametrize("most", [None, 1])
async def test_what_a_flow_has_read_the_client_has_too(server: FaultServer, connect: Connect, most: int | None) -> None:
    server.decide = lambda request: Fault(packet=7)
    await play(connect(server.base_url, auth=Reading(most)))


async def test_a_flow_is_not_given_what_would_have_to_be_unpacked(server: FaultServer, connect: Connect) -> None:
    packed = gzip.compress(b"0" * 10_000_000)
    client = connect(server.base_url, auth=Reading(None), max_response_bytes=100_000)
    server.script("list_environments", Fault(body=packed, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(errors.ProtocolError, match="gzip"):
        await client.list_environments()
    assert client.stats().bytes_received == len(packed)


async def test_a_flow_that_fails_before_anything_was_sent_costs_no_result(server: FaultServer, connect: Connect) -> None:
    class Expiring(httpx.Auth):
        def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
            if request.url.path.endswith("/call"):
                raise RuntimeError("t0ken is gone")
            yield request

    async with connect(server.base_url, auth=Expiring()).environment("fault").session(split="train", index=0) as session:
        with pytest.raises(errors.ProtocolError, match="its authentication raised RuntimeError") as failed:
            await session.call_tool("submit", {"answer": "right"})
    assert "t0ken" not in str(failed.value)
    assert server.calls == []


async def test_a_flow_that_fails_at_an_answer_is_a_failure_like_any_other(
    server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(httpx.Auth):
        def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
            yield request
            if failing:
                raise KeyError("t0ken")

    failing = False
    async with connect(server.base_url, auth=Failing()).environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
        failing = True
        with pytest.raises(errors.ResultLost, match="its authentication raised KeyError") as lost:
            await session.call_tool("submit", {"answer": "right"})
    assert "t0ken" not in str(lost.value)
    assert len(server.calls) == 1
    assert "may be left on its server" in caplog.text


@pytest.mark.parametrize(
    ("auth", "answers"),
    [
        (Reading(None), [Fault(stall=b"\r\n\r\n")]),
        (None, [Fault(status=307, headers={"Location": "/delete", "Content-Length": "9"}, stall=b"\r\n\r\n"), Fault(stall=0)]),
    ],
    ids=["a flow that reads", "a redirect"],
)
async def test_a_deletion_that_stalls_ends_by_its_limit(
    server: FaultServer, connect: Connect, auth: httpx.Auth | None, answers: list[Fault]
) -> None:
    client = connect(server.base_url, auth=auth, timeout=Timeout(request=1.5), retry=Retry(attempts=1))
    session = client.environment("fault").session(split="train", index=0)
    await session.start()
    server.script("delete", *answers)
    async with asyncio.timeout(10):
        await session.aclose()
    assert client.stats().in_flight == 0


async def test_digest_authentication(server: FaultServer, connect: Connect) -> None:
    challenge = 'Digest realm="ors", nonce="abc", qop="auth", algorithm=MD5'
    server.script("health", Fault(status=401, headers={"WWW-Authenticate": challenge}))
    assert await connect(server.base_url, auth=httpx.DigestAuth("user", "password")).health()
    assert 'username="user", realm="ors", nonce="abc"' in server.requests[1].headers["authorization"]


async def test_an_api_key_is_a_header_of_every_request_and_no_secret_of_a_session(server: FaultServer, connect: Connect) -> None:
    await play(connect(server.base_url, api_key="k3y"))
    assert {request.headers["x-api-key"] for request in server.requests} == {"k3y"}
    assert "secrets" not in server.received("create")[0].json()


@pytest.mark.parametrize(
    ("base_url", "sent"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.8.9.10:1", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("https://example.com", True),
        ("http://example.com", False),
        ("http://10.0.0.1", False),
        ("http://localhost.example.com", False),
        (["https://example.com", "http://example.com"], False),
    ],
)
def test_a_key_from_the_environment_goes_to_https_and_loopback_only(
    base_url: Any, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORS_API_KEY", "k3y")
    assert ("X-API-Key" in AsyncORSClient(base_url)._core.headers) is sent
    assert AsyncORSClient(base_url, api_key="mine")._core.headers["X-API-Key"] == "mine"


def test_a_key_from_the_environment_goes_in_clear_to_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORS_API_KEY", "k3y")
    for base_url, sent in (("http://127.0.0.1:1", False), ("https://example.com", True)):
        assert ("X-API-Key" in AsyncORSClient(base_url, proxy="http://proxy.example")._core.headers) is sent


async def test_headers_are_sent_with_every_request(server: FaultServer, connect: Connect) -> None:
    await play(connect(server.base_url, headers={"X-Deployment": "owner/name", "User-Agent": "mine"}))
    assert {(request.headers["x-deployment"], request.headers["user-agent"]) for request in server.requests} == {
        ("owner/name", "mine")
    }


@pytest.mark.parametrize("headers", [{"X": "a\r\nEvil: 1"}, {"X\r\nEvil": "1"}, {"X": "a\0"}, {"": "x"}, {"X": "ü"}])
def test_a_header_that_could_forge_another_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        AsyncORSClient("http://localhost", headers=headers)


# ── cookies ──


async def test_cookies_belong_to_a_session(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    server.script("create_session", *(Fault(headers={"Set-Cookie": f"node={name}; Path=/; HttpOnly"}) for name in "ab"))
    environment = client.environment("fault")
    async with environment.session(split="train", index=0) as first, environment.session(split="train", index=1) as second:
        await asyncio.gather(first.get_prompt(), second.get_prompt(), first.ping(), second.ping(), environment.list_tools())
    cookies: dict[str, set[str | None]] = {}
    for request in server.requests:
        cookies.setdefault(request.session_id, set()).add(request.headers.get("cookie"))
    assert cookies == {str(first.session_id): {"node=a"}, str(second.session_id): {"node=b"}, "": {None}}


async def test_a_cookie_of_the_users_own_stays(server: FaultServer, connect: Connect) -> None:
    server.script("create_session", Fault(headers={"Set-Cookie": "node=a"}))
    await play(connect(server.base_url, headers={"Cookie": "login=yes"}))
    assert [request.headers["cookie"] for request in server.requests[:2]] == ["login=yes", "login=yes; node=a"]


async def test_cookies_do_not_pile_up(server: FaultServer, connect: Connect) -> None:
    server.decide = lambda request: Fault(headers={"Set-Cookie": f"c{len(server.requests)}={'x' * 50}"})
    async with connect(server.base_url).environment("fault").session(split="train", index=0) as session:
        for _ in range(100):
            await session.ping()
        server.decide = lambda request: Fault(headers={"Set-Cookie": "c5=changed"})
        await session.ping()
    cookies = server.requests[-1].headers["cookie"]
    assert len(cookies) < 4000
    assert "c5=changed;" in cookies


@pytest.mark.parametrize("auth", [None, httpx.DigestAuth("user", "password")], ids=["plain", "with a flow"])
@pytest.mark.parametrize("value", ["\xff", "\xe9t\xe9", "\xc3\xa9", "a b", '"a;b', ""])
async def test_headers_of_any_bytes_cost_nothing(
    server: FaultServer, connect: Connect, value: str, auth: httpx.Auth | None
) -> None:
    server.decide = lambda request: Fault(headers={"Set-Cookie": f"node={value}", "X-Backend-State": value, "Retry-After": value})
    await play(connect(server.base_url, auth=auth))


@pytest.mark.parametrize("value", ["\x01", "a\x7fb", "\x00"])
async def test_headers_with_control_characters_are_an_error_at_most(server: FaultServer, connect: Connect, value: str) -> None:
    server.decide = lambda request: Fault(headers={"Set-Cookie": f"node={value}"})
    with suppress(errors.ORSError):
        await play(connect(server.base_url))


@pytest.mark.parametrize("target", ["\xff", "http://\xff/", "//[", "/\xe9"])
async def test_a_redirect_to_any_bytes_is_followed_or_refused(server: FaultServer, connect: Connect, target: str) -> None:
    server.script("health", Fault(status=307, headers={"Location": target}))
    with suppress(errors.ORSError):
        await connect(server.base_url).health()


# ── connections ──


async def test_an_episode_uses_one_connection(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    for _ in range(3):
        await play(client)
    assert server.connections == 1


async def test_256_slow_calls_run_all_at_once(connect: Connect) -> None:
    running = most = 0
    everybody = asyncio.Event()

    async def wait(input: dict[str, Any]) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 256:
            everybody.set()
        await everybody.wait()
        return {"blocks": [], "reward": 1.0}

    with FaultServer(tools={"wait": wait}) as server:
        environment = connect(server.base_url).environment("fault")

        async def episode() -> float | None:
            async with environment.session(split="train", index=0) as session:
                return (await session.call_tool("wait")).reward

        assert await asyncio.gather(*(episode() for _ in range(256))) == [1.0] * 256
    assert most == 256


# ── redirects ──


async def test_a_redirect_on_the_same_origin_keeps_method_and_body(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    server.script("num_tasks", Fault(status=308, headers={"Location": "/fault/num_tasks"}))
    server.script("tools", Fault(status=302, headers={"Location": f"{server.base_url}/fault/tools"}))
    assert await client.environment("other").num_tasks("train") == 10
    assert len(await client.environment("other").list_tools()) == 4
    assert server.requests[1].method == "POST"
    assert server.requests[1].json() == {"split": "train"}


async def test_a_redirect_to_another_origin_is_refused_and_nothing_leaves_for_it(server: FaultServer, connect: Connect) -> None:
    with FaultServer() as elsewhere:
        client = connect(server.base_url, api_key="k3y")
        locations = [f"{elsewhere.base_url}/health", elsewhere.base_url.replace("http:", "") + "/health", "https://127.0.0.1/x"]
        for location in locations:
            server.script("health", Fault(status=308, headers={"Location": location}))
            with pytest.raises(errors.ProtocolError, match="redirect to another origin"):
                await client.health()
            async with client.environment("fault").session(split="train", index=0, secrets={"a": "b"}) as session:
                await session.get_prompt()
                server.script("call", Fault(status=307, headers={"Location": location}))
                with pytest.raises(errors.ProtocolError, match="another origin"):
                    await session.call_tool("echo", {"text": "?"})
    assert elsewhere.requests == []


@pytest.mark.parametrize("location", ["http://[", "http://a b/", "javascript:alert(1)", "http://127.0.0.1:99999999/", "\x00"])
async def test_a_redirect_to_nowhere_is_a_protocol_error(server: FaultServer, connect: Connect, location: str) -> None:
    server.script("health", Fault(status=308, headers={"Location": location}))
    with pytest.raises(errors.ProtocolError):
        await connect(server.base_url).health()


async def test_an_endless_redirect_ends(server: FaultServer, connect: Connect) -> None:
    server.decide = lambda request: Fault(status=308, headers={"Location": "/health"})
    with pytest.raises(errors.ProtocolError, match="redirected more than 5 times"):
        await connect(server.base_url).health()
    assert len(server.requests) == 6


async def test_a_redirect_that_would_turn_a_call_into_a_get_is_refused(server: FaultServer, connect: Connect) -> None:
    async with connect(server.base_url).environment("fault").session(split="train", index=0) as session:
        server.script("call", Fault(status=303, headers={"Location": "/health"}))
        with pytest.raises(errors.ProtocolError, match="turn a POST into a GET"):
            await session.call_tool("echo", {"text": "?"})


async def test_running_out_of_file_descriptors_names_the_remedy(server: FaultServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with AsyncORSClient(server.base_url, retry=Retry(attempts=1)) as client:
        environment = client.environment("fault")
        sessions = [environment.session(split="train", index=0) for _ in range(50)]
        await asyncio.gather(*(session.start() for session in sessions[:1]))
        with socket.socket() as probe:
            resource.setrlimit(resource.RLIMIT_NOFILE, (probe.fileno() + 2, hard))
        try:
            outcomes = await asyncio.gather(*(session.start() for session in sessions[1:]), return_exceptions=True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert failures
    assert all(isinstance(failure, errors.ConnectionFailed) and "ulimit -n" in str(failure) for failure in failures)


def test_a_forked_child_leaves_its_parents_tls_connections_alone(secure_server: FaultServer) -> None:
    source = f"""
import gc, os, sys
from ors_gym.client import ORSClient
client = ORSClient({secure_server.base_url!r}, verify=False)
session = client.environment("fault").session(split="train", index=0)
session.start()
session.get_prompt()
for _ in range(3):
    if (child := os.fork()) == 0:
        session.close()
        del session, client
        gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert session.call_tool("echo", {{"text": "hello"}}).reward == 0.0
session.close()
client.close()
"""
    # From 3.12 on Python warns of a fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", source]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert secure_server.connections == 1
    assert secure_server.sessions == set()
