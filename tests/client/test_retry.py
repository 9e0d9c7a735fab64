"""What is tried again, when, and what never is."""

import email.utils
import time

import httpx
import pytest

from ors_gym import errors
from ors_gym.client import AsyncEnvironment, AsyncORSClient, Retry, Timeout, _limits
from ors_gym.client._limits import Attempts, retry_after
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_idempotent_requests_are_tried_again(server: FaultServer, environment: AsyncEnvironment, status: int) -> None:
    server.script("num_tasks", Fault(status=status), Fault(status=status))
    assert await environment.num_tasks("train") == 10
    assert len(server.received("num_tasks")) == 3
    assert environment.client.stats().retries == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500, 501])
async def test_other_statuses_are_not(server: FaultServer, environment: AsyncEnvironment, status: int) -> None:
    server.script("num_tasks", Fault(status=status, body=b'{"detail": "so there"}'))
    with pytest.raises(errors.ORSError, match=f"HTTP {status}: so there") as raised:
        await environment.num_tasks("train")
    assert len(server.received("num_tasks")) == 1
    kinds = {404: errors.NotFound, 500: errors.ServerError, 501: errors.ServerError}
    assert type(raised.value) is kinds.get(status, errors.RequestRejected)


@pytest.mark.parametrize("cut", [0, 20, b"num_tasks"])
async def test_broken_connections_are_tried_again(server: FaultServer, environment: AsyncEnvironment, cut: int | bytes) -> None:
    server.script("num_tasks", Fault(cut=cut), Fault(cut=cut))
    assert await environment.num_tasks("train") == 10


async def test_attempts_are_counted_and_the_last_failure_is_raised(server: FaultServer, environment: AsyncEnvironment) -> None:
    server.script("num_tasks", *[Fault(status=503, body=b"overloaded")] * 10)
    with pytest.raises(errors.ServerError, match=r"HTTP 503: overloaded \(given up after 4 tries in"):
        await environment.num_tasks("train")
    assert len(server.received("num_tasks")) == 4


async def test_one_attempt_never_retries(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, retry=Retry(attempts=1))
    server.script("health", Fault(status=503))
    with pytest.raises(errors.ServerError):
        await client.health()
    assert len(server.requests) == 1


async def test_a_pause_that_the_budget_does_not_have_is_not_begun(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, retry=Retry(total=5.0))
    server.script("health", Fault(status=429, headers={"Retry-After": "3600"}))
    with pytest.raises(errors.ServerError, match="HTTP 429"):
        await client.health()
    assert len(server.requests) == 1


async def test_a_server_that_is_down_is_a_connection_failure(server: FaultServer, client: AsyncORSClient) -> None:
    server.stop_listening()
    with pytest.raises(errors.ConnectionFailed, match="cannot connect") as raised:
        await client.health()
    assert not isinstance(raised.value, TimeoutError)
    assert client.stats().requests == 4


async def test_a_server_that_comes_back_is_found_again(server: FaultServer, client: AsyncORSClient) -> None:
    await client.health()
    server.drop_connections()
    assert await client.health()


async def test_starting_is_ridden_out_within_the_setup_budget_and_costs_no_attempt(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, retry=Retry(attempts=2, backoff=0.01))
    starting = Fault(status=503, headers={"X-Backend-State": "starting", "Retry-After": "0"}, body=b'{"detail": "not yet"}')
    server.script("prompt", *[starting] * 8)
    async with client.environment("fault").session(split="train", index=0) as session:
        await session.get_prompt()
    assert len(server.received("prompt")) == 9


async def test_starting_for_longer_than_the_setup_budget_is_an_error(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, timeout=Timeout(setup=0.5))
    starting = Fault(status=503, headers={"X-Backend-State": "starting", "Retry-After": "5"}, body=b'{"detail": "not yet"}')
    server.decide = lambda request: starting if request.endpoint == "prompt" else None
    async with client.environment("fault").session(split="train", index=0) as session:
        with pytest.raises(errors.InfrastructureError, match="not yet"):
            await session.get_prompt()


async def test_a_server_that_says_at_once_again_and_again_is_given_pauses_all_the_same(
    server: FaultServer, connect: Connect
) -> None:
    client = connect(server.base_url, retry=Retry(backoff=0.2), timeout=Timeout(setup=1.0))
    server.decide = lambda request: Fault(status=429, headers={"Retry-After": "0"})
    with pytest.raises(errors.ServerError, match="HTTP 429"):
        await client.environment("fault").session(split="train", index=0).start()
    assert len(server.requests) < 20


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    assert retry_after(httpx.Headers({"Retry-After": "7"})) == 7.0
    assert retry_after(httpx.Headers({"Retry-After": "0.5"})) == 0.5
    in_a_minute = retry_after(httpx.Headers({"Retry-After": email.utils.formatdate(time.time() + 60, usegmt=True)}))
    assert in_a_minute is not None
    assert 55 < in_a_minute <= 60
    assert retry_after(httpx.Headers({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})) == 0.0


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "1e999", "Wed, 99 Oct 2015", "\x00"])
def test_a_retry_after_that_says_nothing_is_ignored(value: str) -> None:
    assert retry_after(httpx.Headers({"Retry-After": value})) is None


def test_a_negative_retry_after_is_at_once() -> None:
    assert retry_after(httpx.Headers({"Retry-After": "-5"})) == 0.0


@pytest.mark.parametrize("options", [{"attempts": 0}, {"total": -1.0}, {"backoff": float("nan")}, {"max_backoff": -1.0}])
def test_a_policy_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Retry"):
        Retry(**options)  # type: ignore[arg-type]


class _Waits:
    """Notes the pauses of `Attempts`, whose time and chance are the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chance: float = 1.0) -> None:
        self.pauses: list[float] = []
        self.now = 0.0
        monkeypatch.setattr(_limits.random, "uniform", lambda low, high: low + chance * (high - low))
        monkeypatch.setattr(_limits.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(_limits.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


async def test_pauses_grow_up_to_a_cap_and_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    for chance in (1.0, 0.5):
        waits = _Waits(monkeypatch, chance)
        attempts = Attempts(Retry(attempts=7, total=1000.0, backoff=1.0, max_backoff=10.0), None)
        for _ in range(6):
            await attempts.pause(errors.ServerError("busy"))
        assert waits.pauses == [chance * bound for bound in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0)]


async def test_no_attempt_is_begun_after_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = _Waits(monkeypatch)
    attempts = Attempts(Retry(attempts=100, total=10.0, backoff=1.0, max_backoff=100.0), None)
    with pytest.raises(errors.ServerError, match=r"given up after 4 tries in 7\.0 s"):
        for _ in range(100):
            await attempts.pause(errors.ServerError("busy"))
    assert waits.pauses == [1.0, 2.0, 4.0]
