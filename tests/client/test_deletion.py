"""A session is deleted exactly once, however it ends; and never by a forked child."""

import asyncio
import gc
import itertools
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from ors_gym.client import AsyncEnvironment, AsyncORSClient, ORSClient, Retry, Timeout, _cleanup, _core
from ors_gym.errors import ORSError, SessionClosed
from ors_gym.portal import portal
from ors_gym.testing import Fault, FaultServer
from tests.client.conftest import Connect


def deletions(server: FaultServer) -> Counter[str]:
    return Counter(request.session_id for request in server.received("delete"))


def once_each(server: FaultServer) -> None:
    created = [request.session_id for request in server.received("create")]
    assert deletions(server) == Counter(created)
    assert server.sessions == set()


async def test_on_exit_and_on_an_exception(server: FaultServer, environment: AsyncEnvironment) -> None:
    async with environment.session(split="train", index=0):
        pass
    with pytest.raises(ZeroDivisionError):
        async with environment.session(split="train", index=0):
            raise ZeroDivisionError
    once_each(server)


async def test_closing_again_does_nothing(server: FaultServer, environment: AsyncEnvironment) -> None:
    session = environment.session(split="train", index=0)
    await session.start()
    await asyncio.gather(session.aclose(), session.aclose())
    await session.aclose()
    once_each(server)


async def test_a_session_that_was_never_started_is_closed_without_a_request(
    server: FaultServer, environment: AsyncEnvironment
) -> None:
    await environment.session(split="train", index=0).aclose()
    assert server.requests == []


async def test_by_the_client_when_it_closes(server: FaultServer, client: AsyncORSClient) -> None:
    for index in range(5):
        await client.environment("fault").session(split="train", index=index).start()
    await client.aclose()
    await client.aclose()
    assert len(deletions(server)) == 5
    once_each(server)


def open_session(client: AsyncORSClient) -> Coroutine[Any, Any, Any]:
    return client.environment("fault").session(split="train", index=0).start()


async def open_sessions(client: AsyncORSClient, count: int) -> None:
    await asyncio.gather(*(open_session(client) for _ in range(count)))


def test_by_the_client_when_it_closes_after_its_loop(
    server: FaultServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    gc.collect()  # what earlier tests left
    caplog.clear()
    capfd.readouterr()
    client = AsyncORSClient(server.base_url)
    asyncio.run(open_session(client))
    asyncio.run(client.aclose())
    asyncio.run(client.aclose())
    once_each(server)
    del client
    gc.collect()
    assert (caplog.text, capfd.readouterr().err) == ("", "")


def test_by_the_session_when_it_closes_after_its_loop(server: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
    client = AsyncORSClient(server.base_url)
    session = client.environment("fault").session(split="train", index=0)
    asyncio.run(session.start())
    asyncio.run(session.aclose())
    once_each(server)
    assert [record for record in caplog.records if record.name.startswith("ors_gym")] == []
    asyncio.run(client.aclose())
    once_each(server)


def test_by_the_client_when_it_closes_from_another_loop(server: FaultServer) -> None:
    client = AsyncORSClient(server.base_url)
    portal().call(open_session, client)
    asyncio.run(client.aclose())
    once_each(server)
    with pytest.raises(SessionClosed):
        portal().call(client.health)


def test_a_client_whose_loop_stands_still_is_closed_there(server: FaultServer) -> None:
    client = AsyncORSClient(server.base_url)
    with asyncio.Runner() as own:
        own.run(open_session(client))
        with pytest.raises(RuntimeError, match="belongs to another event loop, which does not run now; close it there"):
            asyncio.run(client.aclose())
        assert len(server.sessions) == 1
        own.run(client.aclose())
    once_each(server)


async def test_by_a_client_that_closes_in_the_middle_of_its_creation(server: FaultServer, client: AsyncORSClient) -> None:
    server.script("create", Fault(delay=0.2))
    starting = asyncio.create_task(client.environment("fault").session(split="train", index=0).start())
    await asyncio.to_thread(server.wait_for, "create")
    await client.aclose()
    await asyncio.gather(starting, return_exceptions=True)
    once_each(server)


async def test_none_is_created_once_the_client_closes(server: FaultServer, client: AsyncORSClient) -> None:
    server.script("create_session", Fault(delay=0.2))
    starting = asyncio.create_task(client.environment("fault").session(split="train", index=0).start())
    await asyncio.to_thread(server.wait_for, "create_session")
    closing = asyncio.create_task(client.aclose())
    with pytest.raises(ORSError):
        await starting
    await closing
    assert server.received("create") == []


async def test_the_deletion_is_tried_again(server: FaultServer, environment: AsyncEnvironment) -> None:
    server.script("delete", Fault(status=503), Fault(raw=b""))
    async with environment.session(split="train", index=0):
        pass
    assert server.sessions == set()


@pytest.mark.parametrize("status", [404, 410])
async def test_a_session_that_is_gone_already_is_as_good_as_deleted(
    server: FaultServer, environment: AsyncEnvironment, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.script("delete", Fault(status=status))
    async with environment.session(split="train", index=0):
        pass
    assert caplog.records == []


async def test_a_deletion_that_fails_is_logged_and_raises_nothing(
    server: FaultServer, environment: AsyncEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    server.script("delete", Fault(status=500, body=b'{"detail": "teardown failed"}'))
    async with environment.session(split="train", index=0):
        pass
    assert "teardown failed" in caplog.text


async def test_a_deletion_that_is_put_off_again_and_again_ends_by_the_budget_of_retries(
    server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    environment = connect(server.base_url, retry=Retry(total=0.5)).environment("fault")
    async with asyncio.timeout(20):
        async with environment.session(split="train", index=0):
            server.script("delete", *[Fault(status=503, headers={"X-Backend-State": "starting"})] * 50)
    assert "may be left on its server" in caplog.text


async def test_a_creation_that_never_ends_is_not_waited_for_without_end(
    server: FaultServer, environment: AsyncEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "_CREATE_GRACE", 0.2)
    server.script("create", Fault(stall=0))
    starting = asyncio.create_task(environment.session(split="train", index=0).start())
    await asyncio.to_thread(server.wait_for, "create")
    starting.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert len(server.received("delete")) == 1


async def test_closing_gives_deletions_that_failed_another_try_and_is_over_in_time(
    server: FaultServer, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_core, "_CLOSE_SECONDS", 0.5)
    client = connect(server.base_url, retry=Retry(attempts=1))
    server.script("delete", Fault(status=503))
    async with client.environment("fault").session(split="train", index=0):
        pass
    assert len(server.sessions) == 1
    hanging = client.environment("fault").session(split="train", index=1)
    await hanging.start()
    server.decide = lambda request: Fault(stall=0) if request.session_id == hanging.session_id else None
    async with asyncio.timeout(20):
        await client.aclose()
    assert server.sessions == set()
    assert f"session {hanging.session_id} may be left on its server until that times it out: no answer within 0.5 s" in caplog.text


def test_many_without_a_loop(server: FaultServer) -> None:
    client = AsyncORSClient(server.base_url)
    asyncio.run(open_sessions(client, 100))
    server.decide = lambda request: Fault(delay=0.3)  # half a minute, one after another
    client._core.delete_without_loop()
    once_each(server)


def test_those_for_which_no_time_is_left_are_counted(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_cleanup, "_LAST_RESORT_SECONDS", 1.0)
    client = AsyncORSClient(server.base_url)
    asyncio.run(open_sessions(client, 50))
    server.decide = lambda request: Fault(stall=0)
    client._core.delete_without_loop()
    assert "34 more sessions may be left" in caplog.text


async def test_a_deletion_that_is_not_answered_ends_at_the_limit_of_a_request(
    server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(server.base_url, timeout=Timeout(request=0.2))
    server.script("delete", Fault(stall=0))
    async with client.environment("fault").session(split="train", index=0):
        pass
    assert "took longer than Timeout(request=0.2)" in caplog.text
    assert client.stats().in_flight == 0


class CancelledAt:
    """Awaits a coroutine, and cancels the task at the coroutine's n-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], suspension: int) -> None:
        self._coroutine = coroutine
        self._suspension = suspension

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._coroutine.__await__()
        error: BaseException | None = None
        for number in itertools.count():
            try:
                awaited = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            error = None
            if number == self._suspension:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield awaited
            except BaseException as raised:
                error = raised


async def test_on_cancellation_at_any_await(server: FaultServer, client: AsyncORSClient) -> None:
    environment = client.environment("fault")

    async def episode() -> None:
        async with environment.session(split="train", index=0) as session:
            await session.get_prompt()
            await session.call_tool("echo", {"text": "hello"})

    server.decide = lambda request: Fault(packet=50)  # so that answers are awaited in several places

    async def cancelled(suspension: int) -> None:
        await CancelledAt(episode(), suspension)

    for suspension in itertools.count():
        (outcome,) = await asyncio.gather(asyncio.create_task(cancelled(suspension)), return_exceptions=True)
        if outcome is None:
            break
        assert isinstance(outcome, asyncio.CancelledError)
    assert suspension >= 5
    await client.aclose()
    once_each(server)


@pytest.mark.parametrize("endpoint", ["create_session", "create", "prompt", "call", "delete"])
async def test_on_cancellation_while_a_request_is_under_way(
    server: FaultServer, environment: AsyncEnvironment, endpoint: str
) -> None:
    server.script(endpoint, Fault(delay=0.2))

    async def episode() -> None:
        async with environment.session(split="train", index=0) as session:
            await session.get_prompt()
            await session.call_tool("echo", {"text": "hello"})

    task = asyncio.create_task(episode())
    await asyncio.to_thread(server.wait_for, endpoint)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await environment.client.aclose()
    once_each(server)


async def test_a_cancelled_create_is_waited_for_so_that_nothing_appears_after_its_deletion(
    server: FaultServer, environment: AsyncEnvironment
) -> None:
    server.script("create", Fault(delay=0.3))
    task = asyncio.create_task(environment.session(split="train", index=0).start())
    await asyncio.to_thread(server.wait_for, "create")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.sessions == set()
    once_each(server)


async def test_cancelled_again_while_it_is_deleted(server: FaultServer, environment: AsyncEnvironment) -> None:
    server.script("delete", Fault(delay=0.2))
    session = environment.session(split="train", index=0)
    await session.start()
    closing = asyncio.create_task(session.aclose())
    await asyncio.to_thread(server.wait_for, "delete")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await environment.client.aclose()
    once_each(server)


def test_when_the_loop_goes_down_with_its_tasks(server: FaultServer) -> None:
    async def main() -> None:
        client = AsyncORSClient(server.base_url)
        environment = client.environment("fault")

        async def episode() -> None:
            async with environment.session(split="train", index=0) as session:
                await session.call_tool("slow", {"seconds": 60})

        tasks = [asyncio.create_task(episode()) for _ in range(5)]
        await asyncio.to_thread(server.wait_for, "call", 5)
        main.kept = (client, tasks)  # type: ignore[attr-defined]

    asyncio.run(main())
    once_each(server)


def test_when_the_loop_goes_down_in_the_middle_of_the_deletion(server: FaultServer) -> None:
    async def main() -> None:
        client = AsyncORSClient(server.base_url)
        session = client.environment("fault").session(split="train", index=0)
        await session.start()
        server.script("delete", Fault(delay=0.2))
        main.kept = (client, asyncio.create_task(session.aclose()))  # type: ignore[attr-defined]
        await asyncio.to_thread(server.wait_for, "delete")

    asyncio.run(main())
    once_each(server)


def test_a_client_that_is_collected_after_its_loop_warns_and_cleans_up(server: FaultServer) -> None:
    async def main() -> AsyncORSClient:
        client = AsyncORSClient(server.base_url)
        for index in range(3):
            await client.environment("fault").session(split="train", index=index).start()
        return client

    client = asyncio.run(main())
    with pytest.warns(ResourceWarning, match="collected with 3 open sessions"):
        del client
        gc.collect()
    server.wait_until(lambda: not server.sessions)
    once_each(server)


async def test_a_client_that_is_collected_on_its_loop_warns_and_cleans_up(server: FaultServer) -> None:
    client = AsyncORSClient(server.base_url)
    await client.environment("fault").session(split="train", index=0).start()
    with pytest.warns(ResourceWarning, match="collected with 1 open sessions"):
        del client
        gc.collect()
    await asyncio.to_thread(server.wait_until, lambda: not server.sessions)
    once_each(server)


def test_a_session_keeps_its_client(server: FaultServer) -> None:
    session = ORSClient(server.base_url).environment("fault").session(split="train", index=0)
    session.start()
    gc.collect()
    assert session.call_tool("echo", {"text": "here"}).reward == 0.0
    session.close()
    once_each(server)


def run_script(server: FaultServer, source: str, **options: object) -> "subprocess.Popen[str]":
    script = f"URL = {server.base_url!r}\n{textwrap.dedent(source)}"
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


SYNCHRONOUS = """
    from ors_gym.client import ORSClient
    client = ORSClient(URL)
    session = client.environment("fault").session(split="train", index=0)
    session.start()
"""
ASYNCHRONOUS = """
    import asyncio
    from ors_gym.client import AsyncORSClient
    async def main():
        global client
        client = AsyncORSClient(URL)
        await client.environment("fault").session(split="train", index=0).start()
    asyncio.run(main())
"""


@pytest.mark.parametrize("source", [SYNCHRONOUS, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("end", ["", "import sys; sys.exit(3)", "raise ZeroDivisionError"], ids=["end", "exit", "exception"])
def test_at_interpreter_exit(server: FaultServer, source: str, end: str) -> None:
    process = run_script(server, textwrap.dedent(source) + end)
    process.communicate(timeout=30)
    once_each(server)
    assert len(deletions(server)) == 1


INTERRUPTED = """
    import asyncio, sys
    from ors_gym.client import AsyncORSClient, ORSClient
    def synchronous():
        with ORSClient(URL) as client, client.environment("fault").session(split="train", index=0) as session:
            session.call_tool("slow", {"seconds": 60})
    async def asynchronous():
        async with AsyncORSClient(URL) as client, client.environment("fault").session(split="train", index=0) as session:
            await session.call_tool("slow", {"seconds": 60})
    try:
        {run}
    except KeyboardInterrupt:
        sys.exit(7)
"""


@pytest.mark.parametrize("run", ["synchronous()", "asyncio.run(asynchronous())"])
def test_on_ctrl_c_during_a_long_tool_call(server: FaultServer, run: str) -> None:
    process = run_script(server, INTERRUPTED.replace("{run}", run))
    server.wait_for("call", timeout=30)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 7
    once_each(server)


def test_never_by_a_forked_child(server: FaultServer) -> None:
    process = run_script(
        server,
        """
        import gc, os, sys
        from ors_gym.client import ORSClient
        client = ORSClient(URL)
        session = client.environment("fault").session(split="train", index=0)
        session.start()
        if (child := os.fork()) == 0:
            session.close()
            del session, client
            gc.collect()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(session.call_tool("echo", {"text": "the parent's"}).blocks[0].text)
        os._exit(0)
        """,
    )
    output, errors = process.communicate(timeout=30)
    assert output.strip() == "the parent's", errors
    assert len(server.sessions) == 1
    assert server.received("delete") == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_at_the_end_of_a_process_of_multiprocessing(server: FaultServer, tmp_path: Path, method: str) -> None:
    source = f"""
import multiprocessing
from ors_gym.client import ORSClient

def leave():
    global client
    client = ORSClient({server.base_url!r})
    client.environment("fault").session(split="train", index=0).start()

if __name__ == "__main__":
    ORSClient({server.base_url!r}).health()
    process = multiprocessing.get_context({method!r}).Process(target=leave)
    process.start()
    process.join()
    print(process.exitcode)
"""
    (tmp_path / "script.py").write_text(source)
    result = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120)
    assert result.stdout == "0\n", result.stderr
    assert len(server.received("delete")) == 1
    assert server.sessions == set()


async def test_a_session_that_is_closed_while_it_is_started_does_not_stay(server: FaultServer, connect: Connect) -> None:
    client = connect(server.base_url, max_sessions=1)
    environment = client.environment("fault")
    session = environment.session(split="train", index=0)
    server.script("create", Fault(delay=0.2))
    starting = asyncio.ensure_future(session.start())
    await asyncio.sleep(0.1)
    await session.aclose()
    with pytest.raises(SessionClosed, match="while it was started"):
        await starting
    assert server.sessions == set()
    async with environment.session(split="train", index=0):
        """Its slot is free again."""


@pytest.mark.parametrize("stall", [b'{"num', b"event: end"], ids=["a body", "an event stream"])
async def test_who_reads_an_answer_when_the_client_closes_is_told(server: FaultServer, connect: Connect, stall: bytes) -> None:
    client = connect(server.base_url)
    environment = client.environment("fault")
    session = await environment.session(split="train", index=0).start()
    await session.get_prompt()
    endpoint = "num_tasks" if stall.startswith(b"{") else "call"
    server.script(endpoint, Fault(stall=stall))
    reading = asyncio.create_task(
        environment.num_tasks("train") if endpoint == "num_tasks" else session.call_tool("echo", {"text": "?"})
    )
    await asyncio.to_thread(server.wait_for, endpoint)
    await asyncio.sleep(0.2)
    async with asyncio.timeout(20):
        await client.aclose()
        with pytest.raises(SessionClosed, match="closed"):
            await reading
    assert client.stats().in_flight == 0


@pytest.mark.parametrize("status", [404, 410])
async def test_a_request_that_meets_the_deletion_is_no_loss(server: FaultServer, connect: Connect, status: int) -> None:
    client = connect(server.base_url)
    session = await client.environment("fault").session(split="train", index=0).start()
    server.script("prompt", Fault(delay=0.3, status=status))
    asking = asyncio.create_task(session.get_prompt())
    await asyncio.to_thread(server.wait_for, "prompt")
    await session.aclose()
    with pytest.raises(SessionClosed, match="was closed meanwhile"):
        await asking
    assert client.stats().losses == 0
