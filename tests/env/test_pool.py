"""`ORSEnvPool`: results in the order in which they are ready, each exactly once."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode

from ors_gym.client import ORSClient
from ors_gym.env import ORSEnvPool
from ors_gym.errors import RequestRejected
from ors_gym.tasks import TaskRef
from ors_gym.testing import Fault, FaultServer
from tests.env.conftest import ADD_5, RIGHT


def slow(seconds: float) -> dict[str, Any]:
    return {"name": "slow", "input": {"seconds": seconds}}


def echo(text: str) -> dict[str, Any]:
    return {"name": "echo", "input": {"text": text}}


@pytest.fixture
def open_pool() -> Iterator[Callable[..., ORSEnvPool]]:
    """Opens an `ORSEnvPool` on a server; closed after the test."""
    with ExitStack() as stack:

        def open_pool(num_envs: int, server: Any, env_name: str | None = None, **options: Any) -> ORSEnvPool:
            pool = ORSEnvPool(num_envs, server.base_url, env_name, **options)
            stack.callback(pool.close)
            return pool

        yield open_pool


def test_a_pool_plays_episodes(open_pool: Any, real_server: Any) -> None:
    pool = open_pool(4, real_server, "counter")
    pool.async_reset(options={"tasks": [TaskRef("train", 2)] * 3 + [TaskRef("train", 7)]})
    batch = pool.recv(min_size=4, timeout=60)
    assert sorted(batch.env_ids.tolist()) == [0, 1, 2, 3]
    assert dict(zip(batch.env_ids.tolist(), batch.observations, strict=True))[3] == "Count to 10."

    pool.send([ADD_5] * 4, batch.env_ids)
    batch = pool.recv(min_size=4, timeout=60)
    assert batch.rewards.tolist() == [0.5] * 4
    assert batch.rewards.dtype == np.float64
    assert dict(zip(batch.env_ids.tolist(), batch.terminations.tolist(), strict=True)) == {0: True, 1: True, 2: True, 3: False}
    assert batch.truncations.tolist() == [False] * 4
    assert batch.infos["metadata"].tolist() == [{"total": 5}] * 4
    observations, rewards, terminations, truncations, infos, env_ids = batch
    assert len(observations) == len(rewards) == len(terminations) == len(truncations) == len(infos["task"]) == len(env_ids)
    pool.close()
    assert real_server.live_sessions() == []


def test_a_slow_environment_holds_up_no_other(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(4, fault_server)
    pool.async_reset(seed=0)
    pool.recv(min_size=4, timeout=60)
    pool.send([slow(60), echo("a"), echo("b"), echo("c")], [0, 1, 2, 3])
    for _ in range(3):
        batch = pool.recv(min_size=3, timeout=60)
        assert sorted(batch.env_ids.tolist()) == [1, 2, 3]
        pool.send([echo("again")] * 3, batch.env_ids)
    assert pool.num_in_flight == 4


def test_results_come_in_the_order_in_which_they_are_ready_each_once() -> None:
    gates = {name: threading.Event() for name in "abc"}

    async def wait(given: dict[str, Any]) -> dict[str, Any]:
        await asyncio.to_thread(gates[given["gate"]].wait, 60)
        return {"blocks": [{"type": "text", "text": given["gate"]}], "reward": 0.0, "finished": False}

    with FaultServer(tools={"wait": wait}) as server:
        pool = ORSEnvPool(3, server.base_url)
        pool.async_reset(seed=0)
        pool.recv(min_size=3, timeout=60)
        pool.send([{"name": "wait", "input": {"gate": gate}} for gate in "abc"], [0, 1, 2])
        order = []
        for gate in "cab":
            gates[gate].set()
            batch = pool.recv(timeout=60)
            order.append((batch.env_ids.tolist(), batch.observations))
        assert order == [([2], ("c",)), ([0], ("a",)), ([1], ("b",))]
        with pytest.raises(RuntimeError, match="nothing is in flight"):
            pool.recv()
        pool.close()


def test_sizes_bound_a_batch_and_min_size_is_no_more_than_is_in_flight(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(5, fault_server)
    pool.async_reset(seed=0)
    first = pool.recv(min_size=2, max_size=2, timeout=60)
    assert len(first.env_ids) == 2
    second = pool.recv(min_size=99, timeout=60)
    assert len(second.env_ids) == 3
    assert sorted([*first.env_ids.tolist(), *second.env_ids.tolist()]) == [0, 1, 2, 3, 4]
    for sizes in ({"min_size": 0}, {"min_size": 3, "max_size": 2}):
        with pytest.raises(ValueError, match="min_size"):
            pool.recv(**sizes)


def test_a_time_out_loses_nothing(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(2, fault_server)
    pool.async_reset(seed=0)
    pool.recv(min_size=2, timeout=60)
    pool.send([slow(0.3), echo("quick")], [0, 1])
    with pytest.raises(TimeoutError, match="nothing is lost"):
        pool.recv(min_size=2, timeout=0.01)
    assert sorted(pool.recv(min_size=2, timeout=60).env_ids.tolist()) == [0, 1]


def test_an_environment_whose_result_was_not_received_takes_no_action(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(3, fault_server)
    pool.async_reset(seed=0)
    batch = pool.recv(min_size=3, timeout=60)
    pool.send([echo("a")], [1])
    for call in (lambda: pool.send([RIGHT, RIGHT], [0, 1]), pool.async_reset):
        with pytest.raises(RuntimeError, match=r"environments \[1\] were not received"):
            call()
    assert pool.recv(timeout=60).observations == ("a",)
    pool.send([RIGHT] * 3, batch.env_ids)
    assert pool.recv(min_size=3, timeout=60).rewards.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("actions", "env_ids", "error", "message"),
    [
        ([RIGHT], [0, 1], ValueError, "2 env_ids, and 1 actions"),
        ([RIGHT, RIGHT], [0, 0], ValueError, "twice"),
        ([RIGHT], [7], ValueError, "0 to 1"),
        ([RIGHT], [-1], ValueError, "0 to 1"),
        ([RIGHT], [0.5], ValueError, "sequence of ints"),
        (["a"], 0, ValueError, "sequence of ints"),
        ("ab", [0, 1], TypeError, "one for each"),
        ({"name": "submit", "input": {}}, [0, 1], TypeError, "one for each"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    fault_server: FaultServer, open_pool: Any, actions: Any, env_ids: Any, error: type[Exception], message: str
) -> None:
    pool = open_pool(2, fault_server)
    pool.async_reset(seed=0)
    pool.recv(min_size=2, timeout=60)
    with pytest.raises(error, match=message):
        pool.send(actions, env_ids)
    assert pool.num_in_flight == 0


def test_an_environment_that_was_never_reset_takes_no_action(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(3, fault_server)
    pool.async_reset(seed=0, env_ids=[0, 2])
    assert sorted(pool.recv(min_size=3, timeout=60).env_ids.tolist()) == [0, 2]
    with pytest.raises(ResetNeeded, match=r"\[1\] were never reset"):
        pool.send([RIGHT, RIGHT], [0, 1])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_ended_episodes_are_followed_as_the_mode_says(fault_server: FaultServer, open_pool: Any, mode: AutoresetMode) -> None:
    pool = open_pool(2, fault_server, autoreset_mode=mode)
    assert pool.metadata["autoreset_mode"] is mode
    pool.async_reset(seed=0)
    pool.recv(min_size=2, timeout=60)
    pool.send([RIGHT, RIGHT], [0, 1])
    batch = pool.recv(min_size=2, timeout=60)
    assert batch.terminations.tolist() == [True, True]
    if mode is AutoresetMode.SAME_STEP:
        assert batch.observations == ("What is right?",) * 2
        assert batch.infos["final_info"]["finished"].tolist() == [True, True]
    elif mode is AutoresetMode.NEXT_STEP:
        pool.send(["ignored", "ignored"], batch.env_ids)
        batch = pool.recv(min_size=2, timeout=60)
        assert batch.observations == ("What is right?",) * 2
        assert (batch.rewards.tolist(), batch.terminations.tolist()) == ([0.0, 0.0], [False, False])
    else:
        with pytest.raises(ResetNeeded, match=r"async_reset\(env_ids=\[0\]\)"):
            pool.send([RIGHT], [0])
        pool.async_reset(env_ids=[0])
        assert pool.recv(timeout=60).observations == ("What is right?",)


def test_dead_environments_come_back_truncated_and_cost_the_others_nothing(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(8, fault_server)
    pool.async_reset(seed=0)
    pool.recv(min_size=8, timeout=60)
    fault_server.sessions.difference_update({pool.episodes[i].session_id for i in (2, 5)})
    pool.send([RIGHT] * 8, range(8))
    batch = pool.recv(min_size=8, timeout=60)
    results = dict(zip(batch.env_ids.tolist(), batch.truncations.tolist(), strict=True))
    assert results == {i: i in (2, 5) for i in range(8)}
    assert sorted(batch.rewards.tolist()) == [0.0, 0.0] + [1.0] * 6
    assert sorted(batch.env_ids[batch.infos["unscored"]].tolist()) == [2, 5]


def test_groups_have_the_same_tasks(open_pool: Any, ors_server: Any) -> None:
    pool = open_pool(4, ors_server, "arithmetic", group_size=2)
    pool.async_reset(seed=5)
    batch = pool.recv(min_size=4, timeout=60)
    tasks = {i: task["index"] for i, task in zip(batch.env_ids.tolist(), batch.infos["task"], strict=True)}
    assert tasks[0] == tasks[1] != tasks[2] == tasks[3]


def test_a_mistaken_request_is_raised_alone(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(3, fault_server)
    fault_server.decide = lambda request: (
        Fault(status=400, body=b'{"detail": "no"}') if request.endpoint == "create" and b'"index":9' in request.body else None
    )
    pool.async_reset(options={"tasks": [TaskRef("train", 0), TaskRef("train", 9), TaskRef("train", 1)]})
    received: list[int] = []
    refused: list[str] = []
    while pool.num_in_flight:
        try:
            received += pool.recv(timeout=60).env_ids.tolist()
        except RequestRejected as error:
            refused += error.__notes__
    assert sorted(received) == [0, 2]
    assert refused == ["in environment 1 of 3"]


def test_several_threads_share_the_results(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(16, fault_server)
    pool.async_reset(seed=0)
    received: list[int] = []

    def receive() -> None:
        for _ in range(4):
            received.extend(pool.recv(min_size=1, max_size=1, timeout=60).env_ids.tolist())

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(received) == list(range(16))


async def test_an_event_loop_can_await_it(ors_server: Any) -> None:
    pool = ORSEnvPool(2, ors_server.base_url, "counter")
    pool.async_reset(options={"index": 5})
    batch = await pool.arecv(min_size=2, timeout=60)
    assert batch.observations == ("Count to 8.", "Count to 8.")
    with pytest.raises(RuntimeError, match="nothing is in flight"):
        await pool.arecv()
    pool.close()


async def test_awaiting_times_out_and_is_cancelled_without_loss(fault_server: FaultServer) -> None:
    pool = ORSEnvPool(2, fault_server.base_url)
    pool.async_reset(seed=0)
    await pool.arecv(min_size=2, timeout=60)
    pool.send([slow(0.3), echo("quick")], [0, 1])
    with pytest.raises(TimeoutError, match="nothing is lost"):
        await pool.arecv(min_size=2, timeout=0.01)
    receiving = asyncio.create_task(pool.arecv(min_size=2))
    await asyncio.sleep(0)
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert sorted((await pool.arecv(min_size=2, timeout=60)).env_ids.tolist()) == [0, 1]
    pool.close()


async def test_it_is_an_async_iterator_until_nothing_is_in_flight(fault_server: FaultServer) -> None:
    pool = ORSEnvPool(4, fault_server.base_url)
    pool.async_reset(seed=0)
    ended: list[int] = []
    async for batch in pool:
        ended += batch.env_ids[batch.terminations].tolist()
        running = batch.env_ids[~batch.terminations]
        pool.send([RIGHT] * len(running), running)
    assert sorted(ended) == [0, 1, 2, 3]
    pool.close()


def test_close_ends_what_is_in_flight_wakes_who_waits_and_again_does_nothing(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(2, fault_server)
    pool.async_reset(seed=0)
    pool.recv(min_size=2, timeout=60)
    pool.send([slow(60), slow(60)], [0, 1])
    fault_server.wait_for("call", 2)
    outcome: list[BaseException] = []

    def receive() -> None:
        try:
            pool.recv()
        except ClosedEnvironmentError as error:
            outcome.append(error)

    receiver = threading.Thread(target=receive)
    receiver.start()
    pool.close()
    pool.close()
    receiver.join(timeout=60)
    assert len(outcome) == 1
    assert fault_server.sessions == set()
    for call in (pool.recv, pool.async_reset, lambda: pool.send([RIGHT], [0])):
        with pytest.raises(ClosedEnvironmentError):
            call()


def test_a_forked_child_leaves_it_alone(fault_server: FaultServer, open_pool: Any) -> None:
    pool = open_pool(2, fault_server)
    pool.async_reset(seed=0)
    pool.recv(min_size=2, timeout=60)
    child = os.fork()
    if child == 0:
        try:
            pool.send([RIGHT], [0])
        except RuntimeError:
            pool.close()
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    pool.send([RIGHT, RIGHT], [0, 1])
    assert pool.recv(min_size=2, timeout=60).rewards.tolist() == [1.0, 1.0]


def test_a_client_with_too_few_sessions_is_refused(ors_server: Any) -> None:
    with ORSClient(ors_server.base_url, max_sessions=3) as client, pytest.raises(ValueError, match="max_sessions=3"):
        ORSEnvPool(4, ors_server.base_url, "counter", client=client)


def test_no_more_run_at_once_than_max_concurrency(open_pool: Any, ors_server: Any) -> None:
    pool = open_pool(6, ors_server, "faulty", max_concurrency=2)
    pool.async_reset(seed=0)
    pool.recv(min_size=6, timeout=60)
    pool.send([{"name": "counts", "input": {}}] * 6, range(6))
    assert len(pool.recv(min_size=6, timeout=60).env_ids) == 6
    with pytest.raises(ValueError, match="max_concurrency"):
        ORSEnvPool(2, ors_server.base_url, "counter", max_concurrency=0)
