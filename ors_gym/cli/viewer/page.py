"""The page: an index of every episode, the contents packed in chunks, and the script and style that show them."""

import base64
import gzip
import hashlib
import html
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from ors_gym._version import __version__
from ors_gym.cli.viewer.attachments import Attachments
from ors_gym.cli.viewer.content import Chunk, to_json
from ors_gym.cli.viewer.limits import LEVELS, Limits, budget
from ors_gym.episode import Episode
from ors_gym.groups import RolloutGroup
from ors_gym.protocol import JSONObject, text_of
from ors_gym.rewards import RewardReduction

_SCRIPTS = ("dom", "store", "marks", "charts", "list", "blocks", "episode", "group", "app")
_CHUNK = 256_000
"""Bytes of contents that are packed together: what a click unpacks."""

_SAMPLE = 200
"""Episodes by which the size of all is judged."""

_LABEL, _PREVIEW, _NOTE = 120, 160, 200
"""Characters of a task's name, of its prompt's beginning, and of an error or a note, in the index."""


@dataclass(frozen=True)
class Page:
    """A page that was written.

    Attributes:
        path: The HTML file.
        size: Its bytes.
        num_episodes, num_groups: What it shows.
        limits: What it cut.
    """

    path: Path
    size: int
    num_episodes: int
    num_groups: int
    limits: Limits


def write_page(episodes: Sequence[Episode], path: Path, *, title: str, reward: RewardReduction = "sum") -> Page:
    """Write episodes as one self-contained HTML file; texts and images that it cuts go, whole, to a folder beside it.

    Everything a server or a policy said reaches the page as packed JSON and becomes text nodes there; a content security policy
    admits this page's own script and style and nothing else.

    Args:
        episodes: At least one.
        path: The HTML file; it is replaced if it exists. The folder beside it has its name and `_files`.
        title: The page's name.
        reward: How an episode's rewards become one.

    Returns:
        What was written.

    Raises:
        ValueError: There is no episode.
    """
    if not episodes:
        raise ValueError("there is no episode to show")
    groups = _groups(episodes)
    index = _index(episodes, groups, title=title, reward=reward)
    attachments = Attachments(path)
    room = budget(len(episodes)) - len(to_json(index).encode("utf-8", "backslashreplace")) - 1_000_000
    limits, starts, chunks = _packed_within(episodes, attachments, room)
    page = _assembled({**index, "chunks": starts, "limits": str(limits)}, chunks, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(page)
    partial.replace(path)
    return Page(path, len(page), len(episodes), len(groups), limits)


def _groups(episodes: Sequence[Episode]) -> list[list[int]]:
    """The places of the episodes of each group: one task of one environment, and one `group` if their owner noted that."""
    members: dict[tuple[str, str, str], list[int]] = {}
    for place, episode in enumerate(episodes):
        members.setdefault(_group_key(episode), []).append(place)
    return list(members.values())


def _group_key(episode: Episode) -> tuple[str, str, str]:
    return (episode.env_name, episode.task.key, str(episode.metadata.get("group", "")))


def _index(episodes: Sequence[Episode], groups: Sequence[Sequence[int]], *, title: str, reward: RewardReduction) -> JSONObject:
    """What the tables, plots and filters need of every episode, a column for each thing."""
    rows: list[JSONObject] = [{}] * len(episodes)
    entries: list[JSONObject] = []
    for places in groups:
        group = RolloutGroup(episodes[places[0]].task, [episodes[place] for place in places], reward)
        worths = zip(places, group.episodes, group.rewards, group.advantages(), strict=True)
        for place, episode, worth, advantage in worths:
            rows[place] = {"group": len(entries), "reward": worth, "advantage": advantage, **_row(episode)}
        entries.append(_group_entry(group.episodes[0]))
    _name_apart(entries)
    environments = sorted({entry["env"] for entry in entries if entry["env"]})
    return {
        "title": title,
        "version": __version__,
        "environments": _line(", ".join(environments), _NOTE),
        "reward": reward if isinstance(reward, str) else "",
        "groups": entries,
        "episodes": {name: [row[name] for row in rows] for name in rows[0]},
    }


def _row(episode: Episode) -> JSONObject:
    scalars = (f"{name}={value}" for name, value in episode.metadata.items() if isinstance(value, str | int | float))
    tools = dict.fromkeys(step.call.name for step in episode.steps if step.call is not None)
    return {
        "steps": episode.num_steps,
        "invalid": episode.num_invalid_actions,
        "outcome": episode.error_kind or episode.outcome,
        "seconds": round(_seconds(episode), 4),
        "started": round(episode.started_at, 3),
        "tools": _line(" ".join(tools), _NOTE),
        "note": _line(" ".join(scalars), _NOTE),
        "error": _line(episode.error, _NOTE),
    }


def _seconds(episode: Episode) -> float:
    """How long it took; of one that was cut off, until its last step's end."""
    ended = episode.ended_at
    if ended is None:
        ended = max((step.started_at + step.elapsed for step in episode.steps), default=episode.started_at)
    return max(0.0, ended - episode.started_at)


def _group_entry(episode: Episode) -> JSONObject:
    return {
        "label": _line(episode.task.key, _LABEL),
        "number": _line(str(episode.metadata.get("group", "")), _LABEL),
        "env": _line(episode.env_name, _LABEL),
        "split": _line(episode.task.split or "", _LABEL),
        "preview": _line(text_of(episode.prompt)[: 8 * _PREVIEW], _PREVIEW),
    }


def _name_apart(entries: Sequence[JSONObject]) -> None:
    """Where one task has several groups, their labels say which."""
    times = Counter((entry["env"], entry["label"]) for entry in entries)
    for entry in entries:
        number = entry.pop("number")
        if times[entry["env"], entry["label"]] > 1:
            entry["label"] = f"{entry['label']} · group {number}"


def _line(text: str, length: int) -> str:
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _packed_within(episodes: Sequence[Episode], attachments: Attachments, room: int) -> tuple[Limits, list[int], list[bytes]]:
    """The contents under the first limits that keep them within `room` bytes: those, each chunk's first episode, the chunks."""
    for limits in LEVELS:
        last = limits is LEVELS[-1]
        if not last and _estimated(episodes, limits, attachments) > room:
            continue
        starts: list[int] = []
        chunks: list[bytes] = []
        size = 0
        for start, chunk in _packed(episodes, limits, attachments):
            starts.append(start)
            chunks.append(chunk)
            size += len(chunk)
            if size > room and not last:
                break
        else:
            break
    return limits, starts, chunks


def _estimated(episodes: Sequence[Episode], limits: Limits, attachments: Attachments) -> float:
    """The bytes of all contents, to judge by some of them."""
    sample = [episodes[place] for place in range(0, len(episodes), max(1, len(episodes) // _SAMPLE))]
    return sum(len(chunk) for _, chunk in _packed(sample, limits, attachments)) * len(episodes) / len(sample)


def _packed(episodes: Sequence[Episode], limits: Limits, attachments: Attachments) -> Iterator[tuple[int, bytes]]:
    start, chunk = 0, Chunk(limits, attachments)
    for place, episode in enumerate(episodes):
        chunk.add(episode)
        if chunk.size >= _CHUNK or place == len(episodes) - 1:
            yield start, base64.b64encode(gzip.compress(chunk.json().encode("utf-8", "backslashreplace"), 6, mtime=0))
            start, chunk = place + 1, Chunk(limits, attachments)


def _assembled(index: JSONObject, chunks: Sequence[bytes], title: str) -> bytes:
    files = resources.files(__package__).joinpath("static")
    script = f'"use strict";\n(() => {{\n{"".join(files.joinpath(f"{name}.js").read_text("utf-8") for name in _SCRIPTS)}}})();\n'
    style = files.joinpath("viewer.css").read_text("utf-8")
    before, after = (Template(part) for part in files.joinpath("page.html").read_text("utf-8").split("$chunks"))
    head = before.substitute(
        policy=(
            f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        title=html.escape(title),
        style=style,
        script=script,
        index=to_json(index).replace("<", "\\u003c"),
    )
    packed = (b'<script type="text/plain" id="chunk-%d">%b</script>\n' % numbered for numbered in enumerate(chunks))
    return b"".join([head.encode("utf-8", "backslashreplace"), *packed, after.substitute().encode()])


def _digest(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
