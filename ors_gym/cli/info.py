"""`ors-gym info`: what an ORS server offers."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table

from ors_gym.cli._console import blocks_text, console, one_line_errors, print_json, server_text, tools_table
from ors_gym.client import AsyncEnvironment, AsyncORSClient, Discovery
from ors_gym.errors import NotFound, ORSError
from ors_gym.protocol import Blocks, Task


@dataclass(frozen=True)
class _Sample:
    split: str
    task: Task
    prompt: Blocks
    error: str = ""


def info(
    base_url: Annotated[str, typer.Argument(metavar="URL", help="The server's base URL, for instance http://localhost:8080.")],
    env_name: Annotated[str | None, typer.Option("--env", help="The environment to show; the first one by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show a server's environments, and one environment's splits, tools, and first task with its prompt.

    The prompt needs a session: one is opened on the first task, and closed.
    """
    with one_line_errors():
        names, discovery, sample = asyncio.run(_ask(base_url, env_name))
    if as_json:
        print_json(_as_json(base_url, names, discovery, sample))
    else:
        _print(base_url, names, discovery, sample)


async def _ask(base_url: str, env_name: str | None) -> tuple[tuple[str, ...], Discovery, _Sample | None]:
    async with AsyncORSClient(base_url) as client:
        names = tuple(await client.list_environments())
        environment = client.environment(env_name)
        try:
            discovery = await environment.discover()
        except NotFound as error:
            raise NotFound(f"{base_url} has no environment {env_name!r}; it has {', '.join(names)}", status=error.status) from error
        return names, discovery, await _first_task(environment, discovery)


async def _first_task(environment: AsyncEnvironment, discovery: Discovery) -> _Sample | None:
    """The first task of the default split with its prompt; None where the split is empty."""
    split = discovery.split(None).name
    if discovery.num_tasks[split] == 0:
        return None
    task = await environment.get_task(split, 0)
    try:
        async with environment.session(split=split, index=0) as session:
            return _Sample(split, task, await session.get_prompt())
    except ORSError as error:
        return _Sample(split, task, (), str(error))


def _as_json(base_url: str, names: tuple[str, ...], discovery: Discovery, sample: _Sample | None) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "environments": list(names),
        "env_name": discovery.env_name,
        "splits": [
            {"name": split.name, "type": split.type, "num_tasks": discovery.num_tasks[split.name]} for split in discovery.splits
        ],
        "tools": [tool.model_dump() for tool in discovery.tools],
        "sample": None
        if sample is None
        else {
            "split": sample.split,
            "index": 0,
            "task": sample.task,
            "prompt": [block.model_dump() for block in sample.prompt],
            "error": sample.error,
        },
    }


def _print(base_url: str, names: tuple[str, ...], discovery: Discovery, sample: _Sample | None) -> None:
    listed = ", ".join(names)
    console.print(server_text(f"Environments at {base_url}: {listed}"))
    console.print(server_text(f"Splits of {discovery.env_name}", style="bold"))
    splits = Table()
    for heading in ("split", "type"):
        splits.add_column(heading)
    splits.add_column("tasks", justify="right")
    for split in discovery.splits:
        splits.add_row(server_text(split.name), split.type, f"{discovery.num_tasks[split.name]:,}")
    console.print(splits)
    console.print(server_text(f"Tools of {discovery.env_name}", style="bold"))
    console.print(tools_table(discovery.tools))

    if sample is None:
        console.print("The default split is empty: there is no task to show.")
        return
    heading = f"{sample.split}/0"
    console.print(Panel(server_text(repr(sample.task)), title=server_text(f"task {heading}"), title_align="left"))
    body = server_text(f"no prompt: {sample.error}") if sample.error else blocks_text(sample.prompt)
    console.print(Panel(body, title=server_text(f"prompt of {heading}"), title_align="left"))
