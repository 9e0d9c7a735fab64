"""`ors-gym check`: a row a requirement, JSON for programs, and exit codes by the worst verdict."""

import json

import pytest
from typer.testing import CliRunner

from ors_gym.cli import app
from ors_gym.cli._console import console
from tests.conformance.mutants import MUTANTS
from tests.servers.sdk_server import SDKServer
from tests.servers.standard import standard_server

NAMELESS = next(mutant for mutant in MUTANTS if mutant.caught_by == "tasks-env-name")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which no cell of the table is folded, whatever COLUMNS was when the console was made."""
    monkeypatch.setattr(console, "width", 200)


def check(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *arguments])
    return result.exit_code, result.output


def test_a_server_by_the_letter_is_exit_code_0_even_when_strict() -> None:
    with standard_server() as base_url:
        code, output = check(base_url, "--strict", "--no-call-tools")

    assert code == 0
    assert "GET /health" in output
    assert "health-status" in output
    assert "A running server answers 200." in output
    assert "HTTP API Reference" in output
    assert "environment playground" in output


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 2)])
def test_deviations_fail_only_when_strict(ors_server: SDKServer, options: tuple[str, ...], code: int) -> None:
    assert check(ors_server.base_url, "--env", "counter", "--no-call-tools", *options)[0] == code


def test_a_violation_is_exit_code_2() -> None:
    with standard_server(NAMELESS) as base_url:
        code, output = check(base_url, "--no-call-tools")

    assert code == 2
    assert "1 violation" in output


def test_json_has_the_rows() -> None:
    with standard_server(NAMELESS) as base_url:
        code, output = check(base_url, "--json")
    report = json.loads(output)

    assert code == 2
    assert report["rows"][0]["id"] == "health-status"
    assert [row["id"] for row in report["rows"] if row["verdict"] == "violation"] == ["tasks-env-name"]
    assert report["counts"]["violation"] == 1
    assert len(report["rows"]) >= 60


def test_the_requirements_stand_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 80)
    with standard_server() as base_url:
        _, output = check(base_url, "--no-call-tools")
        ids = [row["id"] for row in json.loads(check(base_url, "--no-call-tools", "--json")[1])["rows"]]

    assert [row_id for row_id in ids if f" {row_id} " not in output] == []


@pytest.mark.parametrize(("url", "message"), [("http://127.0.0.1:9", "cannot reach http://127.0.0.1:9")])
def test_a_server_that_is_not_there_is_one_line_and_exit_code_1(url: str, message: str) -> None:
    code, output = check(url)

    assert code == 1
    assert message in output
    assert len(output.strip().splitlines()) == 1
