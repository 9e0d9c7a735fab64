"""The synchronous faces: in threads, in a running loop, after a fork, interruptible."""

import asyncio
import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ors_gym import errors
from ors_gym.client import AsyncORSClient, Environment, ORSClient, Session, Timeout
from ors_gym.protocol import text_of
from ors_gym.tasks import TaskRef
from ors_gym.testing import FaultServer


def play(environment: Environment, index: int = 0) -> float | None:
    with environment.session(split="train", index=index) as session:
        session.get_prompt()
        return session.call_tool("submit", {"answer": "right"}).reward


def test_the_same_methods_as_the_asynchronous_ones(server: FaultServer) -> None:
    with ORSClient(server.base_url) as client:
        assert client.health()
        assert client.base_url == f"{server.base_url}/"
        assert client.list_environments() == ("fault",)
        environment = client.environment()
        assert environment.env_name is None
        discovery = environment.discover()
        assert (environment.env_name, discovery.num_tasks) == ("fault", {"train": 10, "test": 5})
        assert [split.name for split in environment.list_splits()] == ["train", "test"]
        assert len(environment.list_tools()) == 4
        assert environment.num_tasks("test") == 5
        assert environment.get_task("train", 3) == {"number": 3}
        assert environment.get_task_range("train", 8) == ({"number": 8}, {"number": 9})
        assert len(environment.list_tasks("train")) == 10
        with environment.session(task=TaskRef("train", 2)) as session:
            assert (session.env_name, session.task) == ("fault", TaskRef("train", 2))
            assert text_of(session.get_prompt()) == "What is right?"
            assert len(session.list_tools()) == 4
            session.ping()
            assert session.call_tool("submit", {"answer": "right"}).reward == 1.0
            assert session.session_id in repr(session)
            assert client.stats().sessions_open == 1
        assert environment.client is client
    with pytest.raises(errors.SessionClosed):
        client.health()


def test_every_public_method_has_its_synchronous_counterpart() -> None:
    from ors_gym.client import AsyncEnvironment, AsyncSession

    for asynchronous, synchronous in ((AsyncORSClient, ORSClient), (AsyncEnvironment, Environment), (AsyncSession, Session)):
        names = {name for name in dir(asynchronous) if not name.startswith("_")} - {"aclose", "resolve", "describe"}
        assert names <= {name for name in dir(synchronous) if not name.startswith("_")}


def test_from_several_threads_at_once(server: FaultServer) -> None:
    with ORSClient(server.base_url) as client, ThreadPoolExecutor(16) as threads:
        environment = client.environment("fault")
        rewards = list(threads.map(lambda index: play(environment, index % 10), range(64)))
    assert rewards == [1.0] * 64
    assert server.sessions == set()


async def test_inside_a_running_loop(server: FaultServer) -> None:
    with ORSClient(server.base_url) as client:
        assert play(client.environment("fault")) == 1.0


def test_an_error_reaches_the_caller_with_its_class(server: FaultServer) -> None:
    with ORSClient(server.base_url, timeout=Timeout(tool_call=0.1)) as client:
        with client.environment("fault").session(split="train", index=0) as session:
            with pytest.raises(errors.ToolFailed, match="the tool failed"):
                session.call_tool("fail")
            with pytest.raises(errors.TimeoutExceeded):
                session.call_tool("slow", {"seconds": 10})


def test_a_session_of_one_thread_is_used_in_another(server: FaultServer) -> None:
    with ORSClient(server.base_url) as client, client.environment("fault").session(split="train", index=0) as session:
        rewards: list[float | None] = []
        thread = threading.Thread(target=lambda: rewards.append(session.call_tool("submit", {"answer": "right"}).reward))
        thread.start()
        thread.join()
    assert rewards == [1.0]


def test_keepalive_goes_on_while_the_caller_computes(server: FaultServer) -> None:
    with ORSClient(server.base_url, keepalive=0.1) as client, client.environment("fault").session(split="train", index=0):
        server.wait_for("ping", 3)


def script(server: FaultServer, source: str) -> str:
    prelude = f"""
import os, sys
from ors_gym.client import ORSClient
URL = {server.base_url!r}
def play(environment):
    with environment.session(split="train", index=0) as session:
        session.get_prompt()
        return session.call_tool("submit", {{"answer": "right"}}).reward
"""
    result = subprocess.run([sys.executable, "-c", prelude + textwrap.dedent(source)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_after_a_fork_in_parent_and_child(server: FaultServer) -> None:
    output = script(
        server,
        """
        client = ORSClient(URL)
        environment = client.environment("fault")
        session = environment.session(split="train", index=0)
        session.start()
        print(play(environment), flush=True)
        for _ in range(3):
            if (child := os.fork()) == 0:
                try:
                    session.call_tool("echo", {"text": "?"})
                except Exception as error:
                    print(type(error).__name__, flush=True)
                print(play(environment), play(ORSClient(URL).environment()), flush=True)
                client.close()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print(play(environment), session.call_tool("submit", {"answer": "right"}).reward, flush=True)
        session.close()
        client.close()
        """,
    )
    assert output.split("\n") == ["1.0", *["SessionClosed", "1.0 1.0", "1.0 1.0"] * 3, ""]
    assert server.sessions == set()


def test_a_fork_while_another_thread_is_in_a_call(server: FaultServer) -> None:
    output = script(
        server,
        """
        import threading
        client = ORSClient(URL)
        session = client.environment("fault").session(split="train", index=0)
        session.start()
        thread = threading.Thread(target=lambda: print(session.call_tool("slow", {"seconds": 1}).reward, flush=True))
        thread.start()
        children = []
        for _ in range(5):
            if (child := os.fork()) == 0:
                assert play(client.environment("fault")) == 1.0
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
        thread.join()
        session.close()
        client.close()
        """,
    )
    assert output == "0.0\n"
    assert server.sessions == set()


def test_a_call_imports_nothing_that_a_fork_could_leave_half_imported(server: FaultServer) -> None:
    output = script(
        server,
        """
        client = ORSClient(URL)
        before = set(sys.modules)
        assert play(client.environment("fault")) == 1.0
        client.close()
        print(sorted(set(sys.modules) - before))
        """,
    )
    assert output == "[]\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_in_the_processes_of_multiprocessing(server: FaultServer, method: str, tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "script.py")
    with open(path, "w") as file:
        file.write(
            textwrap.dedent(f"""
            import multiprocessing, sys
            from ors_gym.client import ORSClient
            def work(index):
                with ORSClient({server.base_url!r}) as client:
                    with client.environment("fault").session(split="train", index=index) as session:
                        return session.call_tool("submit", {{"answer": "right"}}).reward
            if __name__ == "__main__":
                assert work(0) == 1.0
                with multiprocessing.get_context({method!r}).Pool(2) as pool:
                    print(pool.map(work, range(4)), work(1))
            """)
        )
    result = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert result.stdout == "[1.0, 1.0, 1.0, 1.0] 1.0\n", result.stderr
    assert server.sessions == set()


def test_in_the_workers_of_a_torch_data_loader(server: FaultServer) -> None:
    pytest.importorskip("torch")
    output = script(
        server,
        """
        import torch
        torch.set_num_threads(1)
        environment = ORSClient(URL).environment("fault")
        class Rewards(torch.utils.data.Dataset):
            def __len__(self): return 6
            def __getitem__(self, index): return play(environment)
        batches = torch.utils.data.DataLoader(Rewards(), batch_size=3, num_workers=2)
        print(play(environment), [batch.tolist() for batch in batches], play(environment))
        """,
    )
    assert output == "1.0 [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]] 1.0\n"
    assert server.sessions == set()


def test_in_a_jupyter_kernel(server: FaultServer) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    source = f"""
from ors_gym.client import AsyncORSClient, ORSClient
with ORSClient({server.base_url!r}) as client, client.environment("fault").session(split="train", index=0) as session:
    print(session.call_tool("submit", {{"answer": "right"}}).reward)
async with AsyncORSClient({server.base_url!r}) as client, client.environment("fault").session(split="train", index=0) as session:
    print((await session.call_tool("submit", {{"answer": "right"}})).reward)
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    assert notebook.cells[0].outputs[0].text == "1.0\n1.0\n"
    assert server.sessions == set()


@pytest.mark.parametrize("kind", [ORSClient, AsyncORSClient])
@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_a_client_that_is_pickled_or_copied_says_what_to_do_instead(kind: Any, copied: Callable[[Any], Any]) -> None:
    client = kind("http://127.0.0.1:9")
    for connected in (client, client.environment("fault"), client.environment("fault").session(split="train", index=0)):
        with pytest.raises(TypeError, match="pass its base_url on and make one there"):
            copied(connected)


def test_a_client_of_another_loop_is_refused(server: FaultServer) -> None:
    client = AsyncORSClient(server.base_url)

    async def use() -> None:
        await client.health()

    asyncio.run(use())
    with pytest.raises(RuntimeError, match="belongs to another event loop"):
        asyncio.run(use())
