"""`ors-gym eval` on real servers: what it prints, what it keeps, and how it is interrupted."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ors_gym.cli import app
from ors_gym.records import load_records
from ors_gym.rollout import Results
from tests.servers.sdk_server import SDKServer

AGENTS = """
import asyncio
from ors_gym.protocol import ToolCall

def knows(conversation):
    return ToolCall(name="submit", input={"answer": str(2 * conversation.task.index + 1)})

class Waits:
    async def act(self, conversation):
        if conversation.task.index >= 3:
            print("waiting", flush=True)
            await asyncio.Event().wait()
        return ToolCall(name="submit", input={"answer": "0"})

def tells(conversation):
    return ToolCall(name="whoami")

def breaks(conversation):
    return ToolCall(name="boom")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ors_gym.cli", "eval", *arguments]


def _run(folder: Path, *arguments: str) -> Result:
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, ["eval", *arguments])


def test_a_table_and_the_runs_files(real_server: SDKServer, folder: Path) -> None:
    run = ("--env", "arithmetic", "--split", "test", "--k", "2", "--agent", "agents:knows", "--out", "runs/a")
    result = _run(folder, real_server.base_url, *run, "--max-concurrency", "4")
    assert result.exit_code == 0, result.stderr
    assert "agents:knows on arithmetic" in result.stdout
    assert "0.000 [0.000, 0.000]" in result.stdout
    assert "pass@2" in result.stdout
    assert "10 episodes in runs/a" in result.stdout
    assert len(load_records(folder / "runs" / "a")) == 10
    assert json.loads((folder / "runs" / "a" / "results.json").read_text())["overall"]["num_episodes"] == 10
    again = _run(folder, real_server.base_url, *run)
    assert "10 of them there already" in again.stdout


def test_the_random_agent_by_default_in_a_folder_of_its_own(real_server: SDKServer, folder: Path) -> None:
    result = _run(folder, real_server.base_url, "--env", "arithmetic", "--num-tasks", "2", "--max-steps", "3")
    assert result.exit_code == 0, result.stderr
    [run] = (folder / "runs").iterdir()
    assert run.name.startswith("arithmetic-")
    assert Results.load(run).config["agent"] == "RandomAgent(0)"


def test_json_for_programs(real_server: SDKServer, folder: Path) -> None:
    result = _run(folder, real_server.base_url, "--env", "arithmetic", "--num-tasks", "2", "--agent", "agents:knows", "--json")
    assert json.loads(result.stdout)["overall"]["mean_reward"] == 1.0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_keeps_what_is_done_and_says_how_to_go_on(
    ors_server: SDKServer, folder: Path, number: signal.Signals, code: int
) -> None:
    arguments = (ors_server.base_url, "--env", "arithmetic", "--num-tasks", "5", "--agent", "agents:Waits", "--out", "my run")
    with _waiting(folder, *arguments) as process:
        for _ in range(1 if number == signal.SIGINT else 5):
            process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in stderr
    assert "what is done is kept in my run" in stderr
    assert f"ors-gym eval {ors_server.base_url} --env arithmetic --num-tasks 5 --agent agents:Waits --out 'my run'" in stderr
    assert len(load_records(folder / "my run")) == 3
    assert ors_server.live_sessions() == []


def test_under_nohup_a_closed_terminal_ends_nothing(ors_server: SDKServer, folder: Path) -> None:
    arguments = (ors_server.base_url, "--env", "arithmetic", "--num-tasks", "5", "--agent", "agents:Waits", "--out", "run")
    with _waiting(folder, *arguments, before=["nohup"]) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143


@contextlib.contextmanager
def _waiting(folder: Path, *arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """The command with the agent that waits, at the time when it has ended three episodes of five."""
    command = [*before, *_command(*arguments)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == "waiting\n"
        while len(load_records(Path(folder, arguments[-1]))) < 3:
            pass
        yield process


def test_runs_side_by_side(real_server: SDKServer, folder: Path) -> None:
    for name, agent in [("good", "agents:knows"), ("random", "random")]:
        _run(folder, real_server.base_url, "--env", "arithmetic", "--agent", agent, "--max-steps", "1", "--out", name)
    result = _run(folder, "--compare", "good", "random")
    assert result.exit_code == 0, result.stderr
    assert "random − good" in result.stdout
    assert "-1.000" in result.stdout
    tests = json.loads(_run(folder, "--compare", "good", "random", "--json").stdout)["tests"]
    assert (tests["random"]["num_tasks"], tests["random"]["p_value"] < 0.01) == (20, True)


def test_secrets_are_named_by_their_variable(real_server: SDKServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret-value")
    options = ("--env", "faulty", "--num-tasks", "1", "--agent", "agents:tells", "--max-steps", "1", "--out", "run")
    result = _run(folder, real_server.base_url, *options, "--secret", "token=MY_TOKEN")
    assert result.exit_code == 0, result.stderr
    record = (folder / "run" / "episodes.jsonl").read_text()
    assert '"token":"[redacted]"' in record
    assert "s3cret-value" not in record + result.stdout + result.stderr


def test_nothing_scored_is_an_error_with_its_reasons(real_server: SDKServer, folder: Path) -> None:
    result = _run(folder, real_server.base_url, "--env", "faulty", "--num-tasks", "2", "--agent", "agents:breaks", "--retries", "0")
    assert result.exit_code == 1
    assert "boom went the tool" in result.stdout
    assert "no episode was scored" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://127.0.0.1:9"], "127.0.0.1:9"),
        (["URL", "--env", "nowhere"], "nowhere"),
        (["URL", "--env", "arithmetic", "--split", "nowhere"], "nowhere"),
        (["URL", "--agent", "nobody"], "--agent is random, openai:MODEL or module:function"),
        (["URL", "--agent", "no_such_module:agent"], "no_such_module"),
        (["URL", "--agent", "agents:nobody"], "has no 'nobody'"),
        (["URL", "--agent", "agents:asyncio"], "an agent has an `async act(conversation)`"),
        (["URL", "--env", "arithmetic", "--out", "agents.py"], "agents.py: File exists"),
        (["URL", "--env", "arithmetic", "--out", "agents.py/run"], "agents.py/run: Not a directory"),
        (["URL", "--secret", "token"], "NAME=VARIABLE"),
        (["URL", "--env", "arithmetic", "--secret", "token=NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
        (["URL", "--env", "arithmetic", "--reward", "total"], "total"),
        (["--compare", "a", "b"], "a is no run's folder"),
        (["--compare", "a"], "at least two"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(ors_server: SDKServer, folder: Path, arguments: list[str], words: str) -> None:
    result = _run(folder, *(ors_server.base_url if argument == "URL" else argument for argument in arguments))
    assert result.exit_code == 1, result.stdout
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, value) for option in ("--success", "--temperature") for value in ("nan", "inf", "-inf", "much")),
        ("--temperature", "-1"),
        *((option, value) for option in ("--k", "--num-tasks", "--max-steps", "--max-concurrency") for value in ("0", "nan")),
        ("--retries", "-1"),
        ("--seed", "-1"),
        ("--max-tokens", "0"),
    ],
)
def test_a_number_out_of_its_range_is_explained(folder: Path, option: str, value: str) -> None:
    result = _run(folder, "http://127.0.0.1:9", option, value)
    assert result.exit_code == 2
    assert option in result.stderr
