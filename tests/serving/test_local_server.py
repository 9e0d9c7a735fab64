"""A local server comes up, serves, and goes down with its process."""

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import httpx
import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from ors_gym.errors import ServerStartFailed
from ors_gym.serving import LocalServer
from tests.servers.sdk_server import SDKServer

LARGEST_DIGIT = "ors_gym.serving.largest_digit:LargestDigit"


def wait_until_gone(pid: int) -> None:
    psutil.wait_procs([psutil.Process(pid)], timeout=20) if psutil.pid_exists(pid) else None
    assert not psutil.pid_exists(pid)


def test_both_sdks_serve_the_same_environments(real_server: SDKServer) -> None:
    names = httpx.get(f"{real_server.base_url}/list_environments").json()

    assert names == ["arithmetic", "counter", "faulty", "tasktools", "brokensetup"]
    assert real_server.live_sessions() == []


def test_a_server_is_healthy_inside_its_with_block_and_gone_after_it() -> None:
    with LocalServer([LARGEST_DIGIT]) as server:
        assert httpx.get(f"{server.base_url}/health").status_code == 200
        assert server.base_url.startswith("http://127.0.0.1:")
        assert server.env_names == ("largest_digit",)
        pid = server.pid

    assert not psutil.pid_exists(pid)
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url


def test_starting_and_closing_twice_is_fine_and_a_closed_server_starts_again() -> None:
    server = LocalServer([LARGEST_DIGIT])
    first = server.start().pid
    assert server.start().pid == first
    server.close()
    server.close()

    assert server.start().pid != first
    server.close()


def test_a_close_that_is_interrupted_stops_the_server_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    server = LocalServer(["tests.servers.environments:Arithmetic"]).start()
    process = psutil.Process(server.pid)
    interrupted = threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT))

    def wait_with_ctrl_c(*args: Any, **options: Any) -> None:
        interrupted.start()
        threading.Event().wait(60)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(subprocess.Popen, "wait", wait_with_ctrl_c)
        server.close()

    assert not server.running
    process.wait(30)
    with server:
        assert httpx.get(f"{server.base_url}/health").status_code == 200


def test_several_targets_and_workers_serve_the_same_environments_on_ports_of_their_own() -> None:
    targets = ["tests.servers.environments:Counter", "tests/servers/environments.py:Arithmetic", LARGEST_DIGIT]
    with LocalServer(targets, workers=2) as server:
        answers = [httpx.get(f"{base_url}/list_environments").json() for base_url in server.base_urls]

        assert answers == [["counter", "arithmetic", "largest_digit"]] * 2
        assert len(set(server.base_urls)) == len(set(server.pids)) == 2


def test_a_server_starts_in_a_thread_and_outlives_it() -> None:
    server = LocalServer([LARGEST_DIGIT])
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()

    assert httpx.get(f"{server.base_url}/health").status_code == 200
    server.close()


def test_a_dropped_server_is_stopped_when_it_is_collected() -> None:
    server = LocalServer([LARGEST_DIGIT]).start()
    pid = server.pid
    del server

    assert not psutil.pid_exists(pid)


def test_a_class_of_a_module_that_only_this_process_has_is_served(tmp_path: Path) -> None:
    path = tmp_path / "only_here.py"
    path.write_text(SCRIPT.partition("server =")[0])
    spec = importlib.util.spec_from_file_location("only_here", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["only_here"] = module
    spec.loader.exec_module(module)

    with LocalServer([module.Scripted]) as server:
        assert server.env_names == ("scripted",)
    del sys.modules["only_here"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nonsense", "'nonsense' is not a target; use module:Class, path.py:Class, gym:ID or reasoning_gym:NAME"),
        ("no_such_module:Env", "there is no module 'no_such_module'"),
        ("no/such/file.py:Env", "there is no file"),
        (
            "tests.servers.environments:Nothing",
            "its environments are ['Arithmetic', 'BrokenSetup',",
        ),
        ("tests.servers.environments:Answer", "is not a subclass of ors.Environment"),
    ],
)
def test_a_target_that_does_not_load_says_why(target: str, message: str) -> None:
    with pytest.raises(ServerStartFailed) as caught:
        LocalServer([target]).start()

    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_failing_import_raises_with_the_servers_own_output(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("print('about to divide')\n1 / 0\n")

    with pytest.raises(ServerStartFailed, match="ZeroDivisionError") as caught:
        LocalServer([f"{tmp_path}/broken.py:Env"]).start()

    assert "about to divide" in caught.value.detail
    assert "broken.py" in caught.value.detail


def test_an_environment_class_without_tools_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text(
        textwrap.dedent("""
        from ors import Environment
        class Empty(Environment):
            def get_prompt(self): return []
            @classmethod
            def list_tasks(cls, split): return []
            @classmethod
            def list_splits(cls): return ["train"]
        """)
    )
    with pytest.raises(ServerStartFailed, match="'empty' has no tools"):
        LocalServer([f"{tmp_path}/empty.py:Empty"]).start()


def test_a_server_that_does_not_listen_in_time_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text("import threading\nthreading.Event().wait()\n")
    before = psutil.Process().children()

    with pytest.raises(ServerStartFailed, match="did not listen in time"):
        LocalServer([f"{tmp_path}/sleepy.py:Env"], start_timeout=1.0).start()

    assert psutil.Process().children() == before


def test_a_start_that_hangs_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    hangs = f"import os, threading\nopen({str(fifo)!r}, 'w').write(str(os.getpid()))\nthreading.Event().wait()\n"
    (tmp_path / "hangs.py").write_text(hangs)
    target = f"{tmp_path}/hangs.py:Env"
    process = subprocess.Popen(
        [sys.executable, "-c", f"from ors_gym.serving import LocalServer; LocalServer([{target!r}]).start()"]
    )
    server_pid = int(fifo.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)

    wait_until_gone(server_pid)


def test_an_environment_finds_nothing_on_standard_input(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text("import sys\nraise ValueError(f'read {sys.stdin.read()!r}')\n")

    with pytest.raises(ServerStartFailed, match="read ''"):
        LocalServer([f"{tmp_path}/reads.py:Env"]).start()


def test_a_taken_port_is_named() -> None:
    with LocalServer([LARGEST_DIGIT]) as server:
        port = int(server.base_url.rpartition(":")[2])
        with pytest.raises(ServerStartFailed, match=f"cannot listen on 127.0.0.1:{port}"):
            LocalServer([LARGEST_DIGIT], port=port).start()


@pytest.mark.parametrize(
    ("targets", "options", "error"),
    [
        ("a:B", {}, TypeError),
        ([], {}, ValueError),
        (["a:B"], {"workers": 0}, ValueError),
        (["a:B"], {"port": 65536}, ValueError),
        (["a:B"], {"port": -1}, ValueError),
        (["a:B"], {"log_level": "loud"}, ValueError),
    ],
)
def test_misuse_is_refused_before_anything_starts(targets: list[str], options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        LocalServer(targets, **options)


SCRIPT = """
import os, sys, threading, httpx
from ors import Environment, TextBlock, ToolOutput, tool
from ors_gym.serving import LocalServer
from pydantic import BaseModel

GREETING = "Hello from the script."

class Word(BaseModel):
    word: str

class Scripted(Environment):
    @classmethod
    def list_splits(cls): return ["train"]
    @classmethod
    def list_tasks(cls, split): return [{"n": 1}]
    def get_prompt(self): return [TextBlock(text=GREETING)]
    @tool
    def say(self, params: Word) -> ToolOutput:
        \"\"\"Say a word.\"\"\"
        return ToolOutput(blocks=[TextBlock(text=params.word)], reward=1.0, finished=True)

server = LocalServer([Scripted]).start()
tools = httpx.get(server.base_url + "/scripted/tools").json()["tools"]
print(server.pid, tools[0]["name"], *tools[0]["input_schema"]["properties"], flush=True)
"""


def start_script(end: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT + end], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, *words = process.stdout.readline().split()
    assert words == ["say", "word"]
    return process, int(pid)


def test_a_class_of_the_main_script_is_served_and_ends_with_it() -> None:
    process, server_pid = start_script("")

    assert process.wait(timeout=20) == 0
    wait_until_gone(server_pid)


FORK = """
child = os.fork()
if child == 0:
    threading.Event().wait(30)
    os._exit(0)
print(child, flush=True)
"""


@pytest.mark.parametrize("child", ["", FORK], ids=["alone", "with a forked child that lives on"])
def test_a_server_goes_down_when_its_parent_is_killed(child: str) -> None:
    process, server_pid = start_script(child + "threading.Event().wait()")
    forked = [int(process.stdout.readline())] if child and process.stdout else []
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)

    wait_until_gone(server_pid)
    for pid in forked:
        os.kill(pid, signal.SIGKILL)


def test_a_forked_child_that_ends_leaves_the_server_alone() -> None:
    process, server_pid = start_script(
        "child = os.fork()\n"
        "if child == 0: server.close(); sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(httpx.get(server.base_url + '/health').status_code, flush=True)\n"
    )

    assert process.communicate(timeout=20)[0] == "200\n"
    wait_until_gone(server_pid)


def test_a_class_of_a_notebook_cell_is_served_and_ends_with_the_kernel() -> None:
    cell = SCRIPT.replace("print(", "print('pid', ")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])

    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()

    words = notebook.cells[0].outputs[0].text.split()
    assert words[2:] == ["say", "word"]
    wait_until_gone(int(words[1]))


def test_a_tool_that_holds_the_event_loop_does_not_hold_up_the_end(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(
        textwrap.dedent("""
        import subprocess, threading
        from ors import Environment, TextBlock, ToolOutput, tool
        class Stuck(Environment):
            @classmethod
            def list_splits(cls): return ["train"]
            @classmethod
            def list_tasks(cls, split): return [{}]
            def get_prompt(self):
                child = subprocess.Popen(["sleep", "600"])
                print(child.pid, flush=True)
                threading.Event().wait()
            @tool
            def nothing(self) -> ToolOutput:
                return ToolOutput(blocks=[])
        """)
    )
    server = LocalServer([f"{tmp_path}/stuck.py:Stuck"]).start()
    pid = server.pid
    headers = {"X-Session-ID": "stuck"}
    httpx.post(f"{server.base_url}/create", json={"task_spec": {}}, headers=headers)
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{server.base_url}/stuck/prompt", headers=headers, timeout=1.0)
    child = int(server.output)

    server.close()

    assert not psutil.pid_exists(pid)
    wait_until_gone(child)
