"""The background loop of a process."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading

import pytest

from ors_gym.portal import portal


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_a_coroutine_runs_and_its_result_comes_back() -> None:
    assert portal().call(double, 21) == 42
    assert portal().call(double, number=1) == 2


def test_there_is_one_portal_a_process_in_a_daemon_thread() -> None:
    assert portal() is portal()
    threads = [thread for thread in threading.enumerate() if thread.name == "ors-gym-portal"]
    assert len(threads) == 1
    assert threads[0].daemon


def test_an_exception_comes_back_as_it_is() -> None:
    async def fail() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        portal().call(fail)


async def test_inside_a_running_loop() -> None:
    assert portal().call(double, 4) == 8
    assert portal().loop is not asyncio.get_running_loop()


def test_submit_gives_a_future() -> None:
    assert [future.result() for future in [portal().submit(double, number) for number in range(10)]] == list(range(0, 20, 2))


def test_context_variables_come_along() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")

    async def read() -> str:
        return variable.get()

    assert portal().call(read) == "mine"


def test_cancelling_a_future_waits_for_the_cleanup() -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.set()

    future = portal().submit(work)
    begun.wait()
    assert future.cancel()
    with pytest.raises(asyncio.CancelledError):
        future.result()
    assert cleaned.is_set()
    assert not future.cancel()


def test_a_future_that_is_cancelled_before_it_began() -> None:
    future = portal().submit(asyncio.sleep, 60)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        future.result(timeout=10)


def test_ctrl_c_cancels_the_coroutine_and_waits_for_its_cleanup() -> None:
    events: list[str] = []

    async def work() -> None:
        main.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            events.append("cleaned up")

    main = threading.Event()

    def interrupt() -> None:
        main.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        portal().call(work)
    thread.join()
    assert events == ["cleaned up"]


def test_a_call_on_the_portals_own_thread_is_refused_rather_than_hung() -> None:
    async def nested() -> int:
        return portal().call(double, 1)

    with pytest.raises(RuntimeError, match="on the portal's own thread"):
        portal().call(nested)


def test_a_forked_child_has_a_portal_of_its_own() -> None:
    parents = portal()
    if (child := os.fork()) == 0:
        own = portal()
        os._exit(0 if own is not parents and own.call(double, 3) == 6 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert portal() is parents
    assert parents.call(double, 3) == 6


def test_a_connection_that_a_forked_child_closes_still_serves_its_parent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        return await asyncio.open_connection(*server.sockets[0].getsockname())

    async def echo() -> bytes:
        writer.write(b"hello\n")
        return await asyncio.wait_for(reader.readline(), 10)

    reader, writer = portal().call(connect)
    if (child := os.fork()) == 0:
        writer.transport._loop._remove_reader(writer.transport._sock_fd)  # type: ignore[attr-defined]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert portal().call(echo) == b"hello\n"
    portal().loop.call_soon_threadsafe(writer.close)


def run_script(source: str) -> str:
    """The standard output of a script that ends by itself, without a word on standard error."""
    script = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert script.stderr == ""
    return script.stdout


def test_a_finalizer_that_calls_at_interpreter_exit_is_served() -> None:
    source = """
import asyncio, sys
from ors_gym.portal import portal

async def double(number):
    await asyncio.sleep(0)
    return 2 * number

class Owner:
    def __init__(self):
        self.portal = portal()
        self.portal.call(double, 1)

    def __del__(self):
        sys.stdout.write(str(self.portal.call(double, 21)))

owner = Owner()
"""
    assert run_script(source) == "42"


def test_what_still_runs_at_interpreter_exit_is_cancelled_with_its_cleanup() -> None:
    source = """
import asyncio, threading
from ors_gym.portal import portal

begun = threading.Event()

async def work():
    begun.set()
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0)
        print("cleaned up")

portal().submit(work)
begun.wait()
print("the end")
"""
    assert run_script(source).splitlines() == ["the end", "cleaned up"]


def test_a_loop_that_is_held_up_at_interpreter_exit_holds_up_nobody() -> None:
    source = """
import sys, time
import ors_gym.portal

async def hold_up():
    time.sleep(600)

async def nothing():
    pass

class Owner:
    def __del__(self):
        try:
            portal.call(nothing)
        except RuntimeError as error:
            sys.stdout.write(str(error))

ors_gym.portal._EXIT_SECONDS = 0.1
portal = ors_gym.portal.portal()
portal.submit(hold_up)
sys.modules["owner"] = Owner()  # the running coroutine keeps what this module has
"""
    assert run_script(source) == "the interpreter exits, and the portal's event loop is held up"
