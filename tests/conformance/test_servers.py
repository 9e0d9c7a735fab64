"""What the check says of three servers: the two SDKs, and the one written from the letter of the standard.

The first two differ from the standard in known ways. Each is found, and nothing else is called a violation.
"""

from collections.abc import Iterator

import pytest

from ors_gym.conformance import Report, Verdict, check_server
from tests.servers.sdk_server import SDKServer
from tests.servers.standard import standard_server

NEVER_TESTABLE = {"session-expires", "task-tools-complete"}

BOTH_SDKS = {
    # 308 to the first environment, where the standard has 404
    "tools-unknown-environment",
    "splits-unknown-environment",
    "tasks-unknown-environment",
    "num-tasks-unknown-environment",
    "task-unknown-environment",
    "range-unknown-environment",
    # 422, where the standard has 400
    "tasks-without-split",
    "tasks-malformed-body",
    "num-tasks-without-split",
    "task-without-index",
    "task-index-type",
    "create-without-task",
    "create-with-both-task-sources",
    "create-with-split-alone",
    "create-wrong-type",
    "create-unknown-field",
    "create-malformed-body",
    "call-without-input",
    "call-malformed-body",
    # a list in `detail`, with the request in it
    "refusals-have-a-detail",
    "secrets-are-not-echoed",
    # 200 for what is not there to delete, and 404 for what is gone
    "delete-unknown-session",
    "delete-twice",
    "prompt-after-delete",
    "task-tools-after-delete",
    "call-after-delete",
    "create-after-delete",
    # ok:false, where the standard has a status or the event error
    "call-unknown-tool",
    "call-invalid-input",
    # no task_id on a first call
    "call-own-task-id",
}


@pytest.fixture(scope="module")
def ors_report(ors_server: SDKServer) -> Report:
    return check_server(ors_server.base_url, "faulty", call_timeout=1.0)


@pytest.fixture(scope="module")
def openreward_report(openreward_server: SDKServer) -> Report:
    return check_server(openreward_server.base_url, "faulty", call_timeout=1.0)


@pytest.fixture(scope="module")
def standard_report() -> Iterator[Report]:
    with standard_server() as base_url:
        yield check_server(base_url)


def ids(report: Report, verdict: Verdict) -> set[str]:
    return {row.id for row in report.with_verdict(verdict)}


def test_the_server_by_the_letter_passes_everything_that_can_be_tested(standard_report: Report) -> None:
    assert standard_report.worst == "pass"
    assert ids(standard_report, "not testable") == NEVER_TESTABLE
    assert standard_report.counts["pass"] == len(standard_report) - 2


def test_there_are_at_least_sixty_requirements(standard_report: Report) -> None:
    assert len(standard_report) >= 140
    assert len({row.id for row in standard_report}) == len(standard_report)
    assert all(row.says and row.page and row.observed and row.endpoint for row in standard_report)


def test_the_deviations_of_the_reference_sdk_are_found_and_nothing_else(ors_report: Report) -> None:
    assert ids(ors_report, "violation") == set()
    assert ids(ors_report, "deviation") == BOTH_SDKS | {"call-after-finished"}


def test_the_deviations_of_openreward_are_found_and_nothing_else(openreward_report: Report) -> None:
    assert ids(openreward_report, "violation") == {"create-with-secrets", "create-with-empty-secrets"}
    assert ids(openreward_report, "deviation") == BOTH_SDKS | {"tools-fields", "task-fields", "range-fields"}


@pytest.mark.parametrize(
    ("row", "by_the_letter", "by_the_sdks"),
    [
        ("create-session-gives-an-id", "JSON, as the reference", "an event stream, as the Quick Start"),
        ("call-chunks", "bytes", "characters"),
        ("call-resume-unknown", "takes it for the id of a first call", "unknown task_id"),
        ("task-path", "/task", "/task"),
        ("range-path", "/task_range", "/task_range"),
        ("range-beyond-the-end", "the server cuts it", "the server cuts it"),
        ("call-error-channel", "the event `error`", "the event `error`"),
    ],
)
def test_where_the_standard_says_two_things_both_pass_and_the_report_says_which(
    row: str, by_the_letter: str, by_the_sdks: str, standard_report: Report, ors_report: Report, openreward_report: Report
) -> None:
    assert standard_report[row].verdict == ors_report[row].verdict == openreward_report[row].verdict == "pass"
    assert by_the_letter in standard_report[row].observed
    assert by_the_sdks in ors_report[row].observed
    assert by_the_sdks in openreward_report[row].observed


def test_a_tool_that_takes_too_long_is_skipped_and_that_is_said(ors_report: Report) -> None:
    assert "skipped slow: the call of 'slow' took more than 1 s" in ors_report["call-every-tool"].observed


def test_every_session_is_closed(real_server: SDKServer) -> None:
    check_server(real_server.base_url, "counter")

    assert real_server.live_sessions() == []
