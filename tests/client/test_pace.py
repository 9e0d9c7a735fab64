"""How fast requests begin: a few in each iteration of the event loop, in their order."""

import asyncio
import time
from collections import Counter

import pytest

from ors_gym.client import RequestTrace, _pace
from ors_gym.client._pace import Pace
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


async def test_requests_that_come_at_once_begin_a_few_at_a_time(
    server: FaultServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pace, "_PER_SECOND", 0)
    iteration = 0
    begun: Counter[int] = Counter()

    def count() -> None:
        nonlocal iteration, handle
        iteration += 1
        handle = loop.call_soon(count)

    def begins(trace: RequestTrace) -> None:
        begun[iteration] += 1

    client = connect(server.base_url, event_hooks={"request": [begins]})
    server.script("health", *[Fault(delay=0.5)] * 100)
    loop = asyncio.get_running_loop()
    handle = loop.call_soon(count)
    asking = asyncio.gather(*(client.health() for _ in range(100)))
    await asyncio.sleep(0.3)
    assert client.stats().in_flight == 100  # it is no limit on these
    await asking
    handle.cancel()
    assert begun.total() == 100
    assert max(begun.values()) == 16


async def test_they_begin_in_their_order_and_one_that_is_cancelled_takes_no_turn() -> None:
    pace = Pace()
    begun: list[int] = []

    async def begin(number: int) -> None:
        await pace.turn()
        begun.append(number)

    first = [asyncio.create_task(begin(number)) for number in range(50)]
    await asyncio.sleep(0)
    assert begun == list(range(16))
    for task in first[16:26]:
        task.cancel()
    late = asyncio.create_task(begin(50))
    await asyncio.wait([*first, late])
    assert begun == [*range(16), *range(26, 51)]
    assert [task.cancelled() for task in first].count(True) == 10


async def test_more_begin_after_an_iteration_that_took_long() -> None:
    pace = Pace()
    begun: list[int] = []

    async def begin(number: int) -> None:
        await pace.turn()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(100)]
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251 - what else runs on the loop
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == list(range(100))
    await asyncio.wait(tasks)


async def test_where_all_who_waited_are_gone_the_next_begins_at_once() -> None:
    pace = Pace()
    tasks = [asyncio.create_task(pace.turn()) for _ in range(20)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(10):
        for _ in range(50):
            await pace.turn()


async def test_the_client_is_closed_while_requests_wait_for_their_turn(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url)
    await client.health()
    asked = [asyncio.create_task(client.health()) for _ in range(100)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await client.aclose()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert {str(outcome).partition(": ")[2] for outcome in outcomes if isinstance(outcome, Exception)} <= {
        "the client is closed",
        "the client was closed meanwhile",
    }
    assert client.stats().in_flight == 0
