"""`ors-gym eval`: an agent's numbers on a server's tasks, and runs side by side."""

import asyncio
import importlib
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ors_gym.cli._console import console, errors, one_line_errors, plain, print_json
from ors_gym.cli._options import finite, secret_reference
from ors_gym.secrets import EnvSecret

if TYPE_CHECKING:
    from ors_gym.rollout import AgentLike, Results


def eval_(
    targets: Annotated[
        list[str], typer.Argument(metavar="URL…", help="The server's base URL, or several equal servers'. With --compare: runs.")
    ],
    env_name: Annotated[str | None, typer.Option("--env", help="The environment; the server's first by default.")] = None,
    split: Annotated[list[str] | None, typer.Option("--split", help="The split; repeat it for several.")] = None,
    agent: Annotated[str, typer.Option("--agent", metavar="random|openai:MODEL|module:function", help="Who acts.")] = "random",
    k: Annotated[int, typer.Option("--k", min=1, help="Episodes a task.")] = 1,
    num_tasks: Annotated[int | None, typer.Option("--num-tasks", min=1, help="At most so many tasks of a split.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Tool calls in an episode.")] = None,
    max_concurrency: Annotated[int, typer.Option("--max-concurrency", min=1, help="Episodes at once.")] = 64,
    retries: Annotated[int, typer.Option("--retries", min=0, help="How often a failed episode is tried again.")] = 1,
    success: Annotated[
        float, typer.Option("--success", callback=finite, help="The reward from which an episode is a success.")
    ] = 0.99,
    reward: Annotated[str, typer.Option("--reward", metavar="sum|last|mean|max", help="An episode's reward.")] = "sum",
    by: Annotated[str | None, typer.Option("--by", metavar="KEY", help="Show results by this key of the tasks too.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random agent.")] = 0,
    agent_url: Annotated[
        str | None, typer.Option("--agent-url", metavar="URL", help="The endpoint of an openai: agent, instead of OPENAI_BASE_URL.")
    ] = None,
    agent_key: Annotated[
        str | None, typer.Option("--agent-key", metavar="VARIABLE", help="The environment variable with that endpoint's key.")
    ] = None,
    system_prompt: Annotated[str | None, typer.Option("--system-prompt", help="Of an openai: agent.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0, callback=finite, help="Of an openai: agent.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="Of an answer of an openai: agent.")] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="NAME=VARIABLE", help="A secret for the environment, by the variable that holds it."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run's folder; runs/ENV-TIME by default.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Put runs side by side: ors-gym eval --compare RUN RUN…")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, for programs.")] = False,
) -> None:
    """Evaluate an agent: mean reward with its 95% interval, success rate, pass@k, and what went wrong.

    Every episode is kept in the run's folder as it ends. The same command goes on from there, and retries what failed.
    """
    with one_line_errors(), _usage_errors():
        if compare:
            _show_comparison(targets, as_json)
            return
        folder = out or _new_folder(env_name)
        options: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
        if secret:
            options["secrets"] = dict(map(secret_reference, secret))
        chat = {"temperature": temperature, "max_tokens": max_tokens}
        acting = _agent(agent, seed, agent_url, agent_key, system_prompt, {n: v for n, v in chat.items() if v is not None})
        try:
            results = asyncio.run(
                _evaluate(
                    acting,
                    targets,
                    split,
                    env_name=env_name,
                    k=k,
                    num_tasks=num_tasks,
                    by=by,
                    success=success,
                    reward=reward,
                    max_concurrency=max_concurrency,
                    retries=retries,
                    out=folder,
                    agent_name=None if agent == "random" or agent.startswith("openai:") else agent,
                    **options,
                )
            )
        except KeyboardInterrupt:
            errors.print(Text(f"stopped; what is done is kept in {folder}. To go on:\n  {_command(out, folder)}"), soft_wrap=True)
            raise typer.Exit(130) from None
    if as_json:
        print_json(results.to_dict())
    else:
        console.print(results)
        there = f", {results.num_resumed:,} of them there already" if results.num_resumed else ""
        from ors_gym.rollout.progress import duration

        took = duration(results.seconds or 0.0)
        console.print(Text(f"{len(results.outcomes):,} episodes in {folder}{there}; this took {took}"), soft_wrap=True)
    if results.overall.num_scored == 0:
        errors.print("error: no episode was scored", style="bold red")
        raise typer.Exit(1)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What a user can mend is one line too: a variable that is not set, a missing package."""
    try:
        yield
    except ImportError as error:
        raise ValueError(str(error)) from error
    except KeyError as error:
        raise ValueError(error.args[0]) from error


async def _evaluate(agent: "AgentLike", targets: Sequence[str], split: Sequence[str] | None, **options: Any) -> "Results":
    from ors_gym.rollout import ChatAgent, ProgressLine, evaluate

    try:
        with ProgressLine(errors) as line:
            target = targets[0] if len(targets) == 1 else targets
            return await evaluate(agent, target, split or None, progress=line, **options)
    finally:
        if isinstance(agent, ChatAgent):
            await agent.aclose()


def _show_comparison(runs: Sequence[str], as_json: bool) -> None:
    from ors_gym.rollout import compare

    comparison = compare(*runs)
    if as_json:
        print_json(comparison.to_dict())
    else:
        console.print(comparison)


def _agent(
    name: str,
    seed: int,
    url: str | None,
    key: str | None,
    system_prompt: str | None,
    chat_options: dict[str, Any],
) -> "AgentLike":
    """The agent that the command line names."""
    from ors_gym.rollout import ChatAgent, RandomAgent

    if name == "random":
        return RandomAgent(seed)
    kind, colon, rest = name.partition(":")
    if kind == "openai" and rest:
        api_key = None if key is None else EnvSecret(key)
        return ChatAgent(rest, base_url=url, api_key=api_key, system_prompt=system_prompt, options=chat_options)
    if not colon or not rest:
        raise ValueError(f"--agent is random, openai:MODEL or module:function, not {name!r}")
    return _imported(kind, rest)


def _imported(module_name: str, name: str) -> "AgentLike":
    """The function, agent, or class of agents in a module; a class is called without arguments."""
    from ors_gym.rollout.agents import as_agent

    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"--agent {module_name}:{name}: {error}") from error
    finally:
        sys.path.remove(os.getcwd())
    if not hasattr(module, name):
        raise ValueError(f"--agent {module_name}:{name}: the module has no {name!r}")
    found = getattr(module, name)
    try:
        return as_agent(found() if isinstance(found, type) else found)
    except TypeError as error:
        raise ValueError(f"--agent {module_name}:{name}: {error}") from error


def _new_folder(env_name: str | None) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", env_name or "eval").lstrip(".")
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _command(out: Path | None, folder: Path) -> str:
    """This command, with the folder that it has chosen."""
    command = ["ors-gym", *sys.argv[1:], *([] if out is not None else ["--out", str(folder)])]
    return plain(shlex.join(command))
