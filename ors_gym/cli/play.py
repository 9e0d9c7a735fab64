"""`ors-gym play`: a person plays an episode in the terminal."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from ors_gym.cli._console import console, one_line_errors, server_text
from ors_gym.cli._images import drawn
from ors_gym.cli._options import secret_reference
from ors_gym.episode import Episode, Step
from ors_gym.protocol import Block, ImageBlock, JSONObject, TextBlock
from ors_gym.records import RecordWriter, store_image
from ors_gym.secrets import EnvSecret, Redactor

if TYPE_CHECKING:
    from ors_gym.env import ORSEnv

_TEXT_LIMIT = 20_000


def play(
    base_url: Annotated[str, typer.Argument(metavar="URL", help="The server's base URL, for instance http://localhost:8080.")],
    env_name: Annotated[str | None, typer.Option("--env", help="The environment; the server's first by default.")] = None,
    split: Annotated[str | None, typer.Option(help="The split; the first of type train by default.")] = None,
    index: Annotated[int | None, typer.Option(min=0, help="The task's number in the split; a random one by default.")] = None,
    task_spec: Annotated[str | None, typer.Option(help="A task of your own instead, as a JSON object.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Makes the choice of the task repeatable.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Tool calls after which the episode is cut.")] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VARIABLE: give the environment a secret from an environment variable. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder that keeps the record and the images.")] = Path("runs/play"),
) -> None:
    """Play one episode by hand: read the prompt, choose tools, and type their parameters, checked against the schema.

    Ctrl-D or Ctrl-C ends the episode. What happened is kept either way, for `ors-gym view`.
    """
    from ors_gym.env import ORSEnv

    secrets = _secrets(secret or [])
    options = _options(split, index, task_spec)
    with one_line_errors():
        env = ORSEnv(base_url, env_name, split=split, max_steps=max_steps, secrets=secrets)
        redactor = Redactor(reference.resolve() for reference in secrets.values())
        with closing(env), RecordWriter(out, redactor=redactor) as writer:
            try:
                env.reset(seed=seed, options=options)
                stopped = _play(env, _Table(out))
            finally:
                if env.episode is not None:
                    writer.write(env.episode)
    assert env.episode is not None
    console.print(_ending(env.episode))
    console.print(Text(f"The record: {writer.path}"), soft_wrap=True)
    if stopped:
        raise typer.Exit(130)


def _play(env: "ORSEnv", table: "_Table") -> bool:
    """Turns until the environment or the person ends it, and its end; whether it was by Ctrl-C.

    A terminal that closes gives the end of input first and its signal an instant later: that may come while the episode is closed.
    """
    from ors_gym.rollout import HumanAgent

    episode = env.episode
    assert episode is not None
    player = HumanAgent(console=console)
    try:
        try:
            table.show_prompt(episode)
            while not episode.ended:
                call = player.choose(episode.tools)
                if call is None:
                    break
                env.step(call)
                table.show_step(episode)
        finally:
            env.close()
    except KeyboardInterrupt:
        return True
    return False


class _Table:
    """What lies before the player.

    Args:
        folder: Where images are kept, so that another program can show them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def show_prompt(self, episode: Episode) -> None:
        title = f"{episode.env_name} {episode.task.key}"
        self._show(title, self._blocks(episode.prompt), "Ctrl-D ends the episode")

    def show_step(self, episode: Episode) -> None:
        step = episode.steps[-1]
        body = self._blocks(step.blocks) or [Text("no output", style="dim")]
        if step.error:
            body.append(server_text(step.error, style="red"))
        name = step.call.name if step.call is not None else "no call"
        self._show(f"{len(episode.steps)}. {name}", body, f"{_reward(step)} · so far {sum(episode.rewards):g}")

    def _show(self, title: str, body: Sequence[RenderableType], subtitle: str) -> None:
        heading = Text.assemble(" ", server_text(title, limit=200, style="bold"), " ")
        console.print(Panel(Group(*body), title=heading, title_align="left", subtitle=f" {subtitle} ", subtitle_align="right"))

    def _blocks(self, blocks: Sequence[Block]) -> list[RenderableType]:
        return [shown for block in blocks for shown in self._block(block)]

    def _block(self, block: Block) -> list[RenderableType]:
        match block:
            case TextBlock():
                return [server_text(block.text, limit=_TEXT_LIMIT)]
            case ImageBlock():
                return self._image(block)
            case _:
                return [server_text(f"[a block of type {block.type}] {json.dumps(block.model_dump(), default=repr)}", style="dim")]

    def _image(self, block: ImageBlock) -> list[RenderableType]:
        try:
            data = base64.b64decode(block.data, validate=True)
        except (binascii.Error, ValueError):
            return [server_text(f"[{block.mimeType}: not readable]", style="dim")]
        picture = drawn(data, console)
        path = store_image(self._folder, data, block.mimeType)
        line = server_text(f"[{block.mimeType}, {len(data):,} bytes: {path}]", style="dim")
        return [line] if picture is None else [picture, line]


def _reward(step: Step) -> str:
    if step.invalid_action:
        return "rejected"
    return "no reward" if step.reward is None else f"reward {step.reward:g}"


def _ending(episode: Episode) -> Text:
    reward = "unscored" if episode.unscored else f"reward {sum(episode.rewards):g}"
    text = Text.assemble((episode.outcome, "bold"), f" after {episode.num_steps} step{'s' * (episode.num_steps != 1)}: {reward}")
    if episode.error:
        text.append("\n").append_text(server_text(episode.error, style="red"))
    return text


def _options(split: str | None, index: int | None, task_spec: str | None) -> JSONObject:
    spec: Any = None
    if task_spec is not None:
        try:
            spec = json.loads(task_spec)
        except ValueError as error:
            raise typer.BadParameter(f"not JSON: {error}", param_hint="--task-spec") from error
        if not isinstance(spec, dict):
            raise typer.BadParameter("a JSON object is needed", param_hint="--task-spec")
        if split is not None or index is not None:
            raise typer.BadParameter("a task is named by --split and --index, or by --task-spec", param_hint="--task-spec")
    return {"split": split, "index": index, "task_spec": spec}


def _secrets(given: Sequence[str]) -> Mapping[str, EnvSecret]:
    try:
        return dict(map(secret_reference, given))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from error
