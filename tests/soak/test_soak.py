"""A week in a minute: 200 sessions at once on a server that drops, delays and refuses at random.

`pytest tests/soak --soak-seconds 3600` for longer.
"""

import asyncio
import gc
import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil
import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient, Retry, Timeout
from ors_gym.protocol import text_of

SESSIONS = 200


@dataclass
class Ledger:
    """What the client's side saw: for each call, its result or its error."""

    results: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    failed_starts: Counter[str] = field(default_factory=Counter)


async def play(client: AsyncORSClient, ledger: Ledger, ids: "itertools.count[int]", deadline: float) -> None:
    environment = client.environment("fault")
    while time.monotonic() < deadline:
        try:
            async with environment.session(split="train", index=0) as session:
                for _ in range(5):
                    call = f"call-{next(ids)}"
                    try:
                        output = await session.call_tool("count", {"id": call})
                    except errors.ORSError as error:
                        ledger.failures[call] = type(error).__name__
                        if isinstance(error, errors.SessionLost):
                            break
                    else:
                        ledger.results[call] += 1
                        if text_of(output.blocks).strip() != call:
                            ledger.wrong.append(call)
        except errors.ORSError as error:
            ledger.failed_starts[type(error).__name__] += 1


def resident() -> int:
    gc.collect()
    size: int = psutil.Process().memory_info().rss
    return size


@pytest.mark.timeout(7200)
async def test_nothing_is_lost_unreported_run_twice_or_left_behind(pytestconfig: pytest.Config) -> None:
    seconds: float = pytestconfig.getoption("--soak-seconds")
    command = [sys.executable, "-m", "tests.soak._server"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert process.stdin is not None
    assert process.stdout is not None
    ledger, ids = Ledger(), itertools.count()
    retry = Retry(attempts=12, total=60.0, backoff=0.02, max_backoff=0.5)
    memory: list[int] = []
    try:
        base_url = process.stdout.readline().strip()
        async with AsyncORSClient(base_url, retry=retry, timeout=Timeout(silence=10.0, setup=60.0), keepalive=2.0) as client:
            begun = time.monotonic()
            players = [asyncio.create_task(play(client, ledger, ids, begun + seconds)) for _ in range(SESSIONS)]
            for part in range(1, 5):
                await asyncio.sleep(max(begun + seconds * part / 4 - time.monotonic(), 0))
                memory.append(resident())
            await asyncio.gather(*players)
            stats = client.stats()
        process.stdin.write("report\n")
        process.stdin.flush()
        report = json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)

    runs: dict[str, int] = report["runs"]
    calls = next(ids)
    assert calls > 5 * seconds
    assert report["faults"]["drop"] > 0
    assert max(runs.values()) == 1, "a tool ran twice"
    assert max(ledger.results.values()) == 1, "a result was delivered twice"
    assert ledger.wrong == [], "a result went to another call"
    assert set(ledger.results) <= set(runs), "a result came from nowhere"
    assert len(ledger.results) + len(ledger.failures) == calls, "a loss was not reported"
    assert report["sessions"] == 0, "a session was left on the server"
    assert set(ledger.failures.values()) <= {"ResultLost", "SessionLost", "ServerError", "ConnectionFailed"}
    assert len(ledger.results) > 0.8 * calls
    assert (stats.sessions_open, stats.in_flight) == (0, 0)
    assert stats.resumes > 0
    in_the_ledger = 250 * len(runs) / 2  # bytes, of half of the calls
    assert memory[-1] - memory[1] < 15e6 + in_the_ledger, f"memory grows: {memory}"
