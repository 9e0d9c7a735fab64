"""How far a collection of episodes is: numbers for whoever wants them, and a line on the screen."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text


@dataclass(frozen=True)
class Progress:
    """A moment of a collection.

    Attributes:
        total: Episodes to collect, those that were done before included.
        done: Episodes that have ended; `failed` ones are among them.
        running: Episodes under way.
        failed: Episodes that ended unscored, after their retries.
        mean_reward: Of the scored ones; None before the first.
        episodes_per_second: Since the beginning of this collection.
        seconds_left: At that rate; None before the first has ended.
    """

    total: int
    done: int
    running: int
    failed: int
    mean_reward: float | None
    episodes_per_second: float
    seconds_left: float | None


ProgressCallback = Callable[[Progress], None]


@dataclass
class Tally:
    """Counts a collection's episodes as they begin and end, and tells the callback each time.

    Attributes:
        total, done, failed, running, scored, reward_sum: What `Progress` is made of.
        callback: Told after every change; None is nobody.
    """

    total: int
    callback: ProgressCallback | None = None
    done: int = 0
    failed: int = 0
    running: int = 0
    scored: int = 0
    reward_sum: float = 0.0
    _new: int = 0
    _started: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """An episode began."""
        self.running += 1
        self.tell()

    def end(self, reward: float | None) -> None:
        """An episode ended; None is unscored."""
        self.running = max(0, self.running - 1)
        self._new += 1
        self.add(reward)

    def add(self, reward: float | None) -> None:
        """An episode was done, now or before this collection."""
        self.done += 1
        if reward is None:
            self.failed += 1
        else:
            self.scored += 1
            self.reward_sum += reward
        self.tell()

    def progress(self) -> Progress:
        """This moment."""
        rate = self._new / max(time.monotonic() - self._started, 1e-9)
        return Progress(
            total=self.total,
            done=self.done,
            running=self.running,
            failed=self.failed,
            mean_reward=self.reward_sum / self.scored if self.scored else None,
            episodes_per_second=rate,
            seconds_left=(self.total - self.done) / rate if self._new else None,
        )

    def tell(self) -> None:
        """Tell the callback of this moment."""
        if self.callback is not None:
            self.callback(self.progress())


class ProgressLine:
    """A live bar, and below it: running, failed, mean reward so far, episodes a second, time left.

    It draws in terminals and in notebooks.

    Args:
        console: Where to draw; by default the standard output.

    >>> with ProgressLine(Console(quiet=True)) as line:
    ...     line(Progress(total=8, done=2, running=4, failed=0, mean_reward=0.5, episodes_per_second=1.0, seconds_left=6.0))
    """

    def __init__(self, console: Console | None = None) -> None:
        self._bar = RichProgress(TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bar.add_task("episodes", total=None)
        self._words = ""
        self._live = Live(console=console, get_renderable=self._shown, refresh_per_second=4)

    def __call__(self, progress: Progress) -> None:
        self._words = describe(progress)
        self._bar.update(self._task, total=progress.total, completed=progress.done)

    def _shown(self) -> RenderableType:
        return Group(self._bar, Text(self._words))

    def __enter__(self) -> "ProgressLine":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if not (self._live.console.is_terminal or self._live.console.is_jupyter):
            self._live.console.line()  # where nothing moves, the last line was left open


def describe(progress: Progress) -> str:
    """A moment in words.

    >>> describe(Progress(total=10, done=4, running=3, failed=1, mean_reward=0.5, episodes_per_second=2.0, seconds_left=3.0))
    '3 running · 1 failed · mean reward 0.500 · 2.0 episodes/s · 0:03 left'
    """
    reward = "–" if progress.mean_reward is None else f"{progress.mean_reward:.3f}"
    parts = [
        f"{progress.running} running",
        f"{progress.failed} failed",
        f"mean reward {reward}",
        f"{progress.episodes_per_second:.1f} episodes/s",
    ]
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(3.4), duration(3725)
    ('0:03', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
