"""`ors-gym check`: does this server keep the Open Reward Standard?"""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ors_gym.cli._console import console, one_line_errors, print_json, server_text

if TYPE_CHECKING:
    from ors_gym.conformance import Report

_STYLES = {"pass": "green", "deviation": "yellow", "violation": "bold red", "not testable": "dim"}


def check(
    base_url: Annotated[str, typer.Argument(metavar="URL", help="The server's base URL.")],
    env_name: Annotated[str | None, typer.Option("--env", help="The environment to use; the first one by default.")] = None,
    call_tools: Annotated[
        bool | None,
        typer.Option("--call-tools/--no-call-tools", help="Open sessions and call tools. By default on this machine only."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on deviations too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    api_key: Annotated[str | None, typer.Option(help="Sent to the server as X-API-Key.")] = None,
) -> None:
    """Look at every requirement of the standard, one row each.

    Exit code 0: no violation (with --strict: no deviation either). 1: the server cannot be reached. 2: there are some.
    """
    from ors_gym.conformance import check_server

    with one_line_errors():
        report = check_server(base_url, env_name, call_tools=call_tools, headers={"X-API-Key": api_key} if api_key else None)
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)
    failing = ("deviation", "violation") if strict else ("violation",)
    if report.worst in failing:
        raise typer.Exit(2)


def _print(report: "Report") -> None:
    for endpoint, rows in groupby(report, key=lambda row: row.endpoint):
        table = Table(title=Text(endpoint, style="bold"), title_justify="left", expand=True)
        table.add_column("requirement", no_wrap=True)
        table.add_column("the standard says", ratio=1)
        table.add_column("the server", ratio=1, overflow="fold")
        table.add_column("verdict", no_wrap=True)
        for row in rows:
            says = Text.assemble(row.says, (f"\n{row.page}", "dim"))
            table.add_row(row.id, says, server_text(row.observed, limit=300), Text(row.verdict, style=_STYLES[row.verdict]))
        console.print(table)
    summary = Text.assemble("environment ", (report.env_name, "bold"), f", {len(report)} requirements: ")
    summary.append_text(
        Text(", ").join(Text(f"{count} {verdict}", style=_STYLES[verdict]) for verdict, count in report.counts.items() if count)
    )
    console.print(summary)
