"""`ors-gym info` against real servers."""

import json
import subprocess
import sys


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ors_gym.cli", *arguments], capture_output=True, text=True, timeout=60)


def test_info_shows_splits_tools_and_a_prompt(real_server) -> None:
    result = _run("info", real_server.base_url, "--env", "arithmetic")
    assert result.returncode == 0, result.stderr
    for expected in ("arithmetic", "train", "20", "submit", "answer", "train/0"):
        assert expected in result.stdout


def test_info_as_json(real_server) -> None:
    result = _run("info", real_server.base_url, "--env", "arithmetic", "--json")
    shown = json.loads(result.stdout)
    assert shown["env_name"] == "arithmetic"
    assert {split["name"]: split["num_tasks"] for split in shown["splits"]} == {"train": 20, "test": 5}
    assert {tool["name"] for tool in shown["tools"]} >= {"submit"}
    assert shown["sample"]["prompt"][0]["type"] == "text"


def test_an_unreachable_server_is_one_line_and_exit_code_1() -> None:
    result = _run("info", "http://127.0.0.1:9")
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "127.0.0.1:9" in result.stderr


def test_an_unknown_environment_names_it(real_server) -> None:
    result = _run("info", real_server.base_url, "--env", "nowhere")
    assert result.returncode == 1
    assert "has no environment 'nowhere'; it has" in result.stderr
    assert "Traceback" not in result.stderr


def test_help_teaches() -> None:
    result = _run("--help")
    assert result.returncode == 0
    assert "info" in result.stdout


def test_a_url_that_is_none_is_one_line() -> None:
    result = _run("info", "nonsense")
    assert result.returncode == 1
    assert result.stderr.startswith("error: base_url must look like")
    assert "Traceback" not in result.stderr
