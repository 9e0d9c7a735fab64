"""`ors-gym serve`: ORS environments, Gymnasium environments and reasoning-gym datasets on an ORS server."""

import json
import logging
import time
from typing import Annotated

import typer
from rich.text import Text

from ors_gym.cli._console import console, errors, one_line_errors
from ors_gym.errors import ServerStartFailed


def serve(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET…", help="gym:ID, reasoning_gym:NAME, module:Class or path.py:Class. The first is the default."
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 is a free one. Further workers take the ports after it.")
    ] = 8080,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 opens the environments to the network.")
    ] = "127.0.0.1",
    workers: Annotated[int, typer.Option(min=1, help="How many server processes to run, each on a port of its own.")] = 1,
    log_level: Annotated[str, typer.Option(help="From which level on the server writes.")] = "ERROR",
) -> None:
    """Serve environments by the Open Reward Standard until Ctrl-C.

    gym: and reasoning_gym: targets take keyword arguments as a query: 'gym:FrozenLake-v1?is_slippery=false'.
    """
    from ors_gym.serving import LocalServer

    _show_output()
    with one_line_errors():
        server = LocalServer(targets, host=host, port=port, workers=workers, log_level=log_level)
        try:
            server.start()
        except ServerStartFailed as error:  # what the server wrote is on the terminal already
            raise ServerStartFailed(str(error).splitlines()[0]) from error
    try:
        _introduce(server.base_urls, server.env_names)
        while server.running:
            time.sleep(0.2)
        errors.print(Text("error: a server process ended by itself", style="bold red"))
        raise typer.Exit(1)
    except KeyboardInterrupt:
        console.print("stopping", style="dim")
    finally:
        server.close()


def _introduce(base_urls: tuple[str, ...], env_names: tuple[str, ...]) -> None:
    for base_url in base_urls:
        console.print(f"ORS server at [bold]{base_url}[/bold]", soft_wrap=True)
    console.print(f"environments: {', '.join(env_names)}", markup=False, soft_wrap=True)
    if len(base_urls) > 1:
        console.print(f"base_url={json.dumps(base_urls)}", markup=False, soft_wrap=True)
    console.print("Ctrl-C stops it.", style="dim")


def _show_output() -> None:
    """What the server writes goes to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("ors_gym.serving")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
