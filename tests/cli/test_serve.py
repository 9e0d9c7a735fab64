"""`ors-gym serve`: targets up, their URLs told, and down again at Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

COMMAND = [sys.executable, "-m", "ors_gym.cli", "serve"]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command, and the lines that it printed until it said that it serves."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if "Ctrl-C" in line:
                break
        yield process, lines
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_prints_the_url_and_the_environments_and_stops_at_a_signal(number: signal.Signals, code: int) -> None:
    with serving("gym:FrozenLake-v1?render_mode=null", "tests.servers.environments:Arithmetic", "--port", "0") as (process, lines):
        (base_url,) = re.findall(r"http://127\.0\.0\.1:\d+", "\n".join(lines))
        assert httpx.get(f"{base_url}/list_environments").json() == ["frozenlake-v1", "arithmetic"]
        assert "environments: frozenlake-v1, arithmetic" in lines
        children = psutil.Process(process.pid).children()

        process.send_signal(number)

        assert process.wait(timeout=20) == code
        assert children
        assert psutil.wait_procs(children, timeout=20)[1] == []


def test_workers_print_the_list_that_base_url_takes() -> None:
    with serving("tests.servers.environments:Counter", "--port", "0", "--workers", "2") as (_, lines):
        (listed,) = [line for line in lines if line.startswith("base_url=")]
        base_urls = json.loads(listed.removeprefix("base_url="))

        assert len(base_urls) == 2
        assert [httpx.get(f"{base_url}/health").status_code for base_url in base_urls] == [200, 200]


def test_a_worker_that_ends_by_itself_ends_the_command() -> None:
    with serving("tests.servers.environments:Counter", "--port", "0") as (process, _):
        (child,) = psutil.Process(process.pid).children()
        child.kill()

        assert process.wait(timeout=20) == 1
        assert process.stdout is not None
        assert "a server process ended by itself" in process.stdout.read()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nonsense", "'nonsense' is not a target"),
        ("gym:Nope-v1", "'gym:Nope-v1': Environment `Nope` doesn't exist"),
        ("reasoning_gym:nope", "reasoning-gym has no dataset 'nope'"),
        ("no_such_module:Env", "there is no module 'no_such_module'"),
    ],
)
def test_a_target_that_does_not_load_is_one_line_and_exit_code_1(target: str, message: str) -> None:
    result = subprocess.run([*COMMAND, target, "--port", "0"], capture_output=True, text=True, timeout=60)

    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--port", "65536"), 2, "65535"),
        (("--port", "65535", "--workers", "2"), 1, "leave room for 2 up to 65535"),
        (("--log-level", "loud"), 1, "log_level is one of"),
    ],
)
def test_an_option_that_makes_no_sense_is_explained(options: tuple[str, ...], code: int, message: str) -> None:
    result = subprocess.run([*COMMAND, "gym:CartPole-v1", *options], capture_output=True, text=True, timeout=60)

    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
