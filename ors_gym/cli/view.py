"""`ors-gym view`: a run's episodes as one HTML file, and a picture of it."""

import re
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, overload

import typer
from rich.text import Text

from ors_gym.cli._console import console, one_line_errors, plain
from ors_gym.episode import Episode
from ors_gym.errors import RecordError
from ors_gym.records import Record, read_records, records_file
from ors_gym.rewards import RewardReduction


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or its file of episodes.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file; by default view.html beside the records.")] = None,
    reward: Annotated[
        Literal["recorded", "sum", "last", "mean", "max"],
        typer.Option(help="How an episode's rewards become one: as the run did it, or so."),
    ] = "recorded",
    png: Annotated[Path | None, typer.Option("--png", help="Also draw a picture of the page, with Chromium.")] = None,
    show: Annotated[str, typer.Option(help="What the picture shows: list, episode:3, group:2.")] = "list",
    size: Annotated[str, typer.Option(help="The picture's width and height.")] = "1280x800",
    dark: Annotated[bool, typer.Option("--dark", help="The picture in dark colours.")] = False,
    open_it: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open it in a browser; by default from a terminal.")
    ] = None,
) -> None:
    """Show a run's episodes in a browser: tables, plots, and every prompt, call, output, image, reward and error.

    The page is one file that needs no network. Texts over 20 kB and large images stand cut in it; the whole ones are linked.
    """
    from ors_gym.cli.viewer import take_picture, write_page

    address, window = _address(show), _window(size)
    with one_line_errors():
        try:
            episodes = RecordedEpisodes(run)
        except FileNotFoundError as error:
            raise RecordError(f"there are no records at {records_file(run)}: name a run's folder or its episodes.jsonl") from error
        if not episodes:
            raise RecordError(f"{episodes.path} holds no episode yet")
        reduction: RewardReduction = episodes.recorded_reward if reward == "recorded" else reward
        page = write_page(episodes, out or episodes.path.with_name("view.html"), title=_title(run), reward=reduction)
        if png is not None:
            take_picture(page.path, png, size=window, address=address, dark=dark)
    facts = f"{page.num_episodes:,} episodes in {page.num_groups:,} groups, {page.size / 1e6:,.1f} MB"
    console.print(Text.assemble((plain(str(page.path)), "bold"), f"  {facts}"), soft_wrap=True)
    if png is not None:
        console.print(Text(plain(str(png)), style="bold"), soft_wrap=True)
    if open_it or (open_it is None and png is None and sys.stdout.isatty()):
        webbrowser.open(page.path.resolve().as_uri())


class RecordedEpisodes(Sequence[Episode]):
    """The episodes of a file of records. The records are held; an episode, with its images, is made when it is asked for.

    A run that was resumed ran its failed episodes again: of those only the last is here.

    Args:
        run: The file, or the run's folder.

    Raises:
        FileNotFoundError: There is no such file.
        RecordError: A line before the last is no record.
    """

    def __init__(self, run: Path) -> None:
        self.path = records_file(run)
        records = list(read_records(self.path))
        last = {_place(record): number for number, record in enumerate(records)}
        self._records = [record for number, record in enumerate(records) if not record.unscored or last[_place(record)] == number]

        self._rewards = {record.id: record.reward for record in self._records}

    def recorded_reward(self, episode: Episode) -> float | None:
        """An episode's reward as its run reduced it."""
        return self._rewards[episode.id]

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> Episode: ...
    @overload
    def __getitem__(self, place: slice) -> list[Episode]: ...
    def __getitem__(self, place: int | slice) -> Episode | list[Episode]:
        if isinstance(place, slice):
            return [record.to_episode(self.path.parent) for record in self._records[place]]
        return self._records[place].to_episode(self.path.parent)


def _place(record: Record) -> tuple[str, ...]:
    """Which episode of its run it is; one whose owner did not note that is one of its own."""
    group, rollout = record.metadata.get("group"), record.metadata.get("rollout")
    if group is None or rollout is None:
        return (record.id,)
    return record.env_name, record.task.model_dump_json(), str(group), str(rollout)


def _title(run: Path) -> str:
    """The run's name: its folder and the folder above, as people call it."""
    folder = records_file(run).resolve().parent
    return "/".join(folder.parts[-2:])


def _address(show: str) -> str:
    """What a picture shows, as the page's address of it."""
    if show == "list":
        return "#/"
    match = re.fullmatch(r"(episode|group):([1-9]\d*)", show)
    if match is None:
        raise typer.BadParameter(f"{show!r} is none of list, episode:NUMBER, group:NUMBER", param_hint="--show")
    return f"#/{match[1]}/{match[2]}"


def _window(size: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{1,3})x([1-9]\d{1,4})", size)
    if match is None:
        raise typer.BadParameter(f"{size!r} is no WIDTHxHEIGHT in pixels, for instance 1280x800", param_hint="--size")
    return int(match[1]), int(match[2])
