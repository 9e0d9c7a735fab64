"""Two thousand episodes at once on two servers, one of which dies in the middle."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ors_gym.episode import Episode
from ors_gym.protocol import ToolCall
from ors_gym.records import read_records
from ors_gym.rollout import Conversation, RandomAgent, Results, evaluate
from ors_gym.serving import LocalServer

_ENVIRONMENT = ["ors_gym.serving.largest_digit:LargestDigit"]


@pytest.fixture
def two_servers() -> Iterator[list[LocalServer]]:
    servers = [LocalServer(_ENVIRONMENT), LocalServer(_ENVIRONMENT)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.close()


async def test_a_server_that_dies_half_way_costs_its_episodes_and_no_others(two_servers: list[LocalServer], tmp_path: Path) -> None:
    urls = [server.base_url for server in two_servers]
    done, waiting = 0, 0
    killed = asyncio.Event()
    restarting: asyncio.Task[None] | None = None

    async def agent(conversation: Conversation) -> ToolCall:
        """Half-way, a hundred sessions wait until one of the servers is dead."""
        nonlocal waiting, restarting
        if done >= 1_000 and not killed.is_set():
            waiting += 1
            if waiting == 100:
                restarting = asyncio.create_task(restart())
            await killed.wait()
        return await RandomAgent().act(conversation)

    async def restart() -> None:
        port = int(urls[1].rpartition(":")[2])
        os.kill(two_servers[1].pid, signal.SIGKILL)
        await asyncio.to_thread(two_servers[1].close)
        killed.set()
        two_servers[1] = LocalServer(_ENVIRONMENT, port=port)
        await asyncio.to_thread(two_servers[1].start)

    def on_episode(episode: Episode) -> None:
        nonlocal done
        done += 1

    async def run() -> Results:
        return await evaluate(
            agent,
            urls,
            "train",
            env_name="largest_digit",
            num_tasks=500,
            k=4,
            max_concurrency=256,
            retries=0,
            out=tmp_path,
            on_episode=on_episode,
        )

    first = await run()
    assert restarting is not None
    await restarting
    assert done == 2_000
    assert {(outcome.group, outcome.rollout) for outcome in first.outcomes} == {(g, n) for g in range(500) for n in range(4)}
    assert first.overall.num_scored + first.overall.num_unscored == 2_000
    assert 0 < first.overall.num_unscored <= 256
    assert {outcome.error_kind for outcome in first.outcomes if outcome.reward is None} == {"infrastructure"}
    assert sum(1 for _ in read_records(tmp_path)) == 2_000

    second = await run()
    assert second.num_resumed == first.overall.num_scored
    assert (second.overall.num_scored, second.overall.num_unscored) == (2_000, 0)
    assert len({record.id for record in read_records(tmp_path)}) == 2_000
