"""A run's folder: what was evaluated (`config.json`), the episodes so far, and the results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ors_gym.records import EPISODES_FILE, Record, read_records

CONFIG_FILE = "config.json"
RESULTS_FILE = "results.json"
_INFORMATIVE = frozenset({"target", "ors_gym"})
"""Fields of the configuration that may change between a run and its resumption."""


def read_config(folder: Path) -> dict[str, Any]:
    """A run's configuration.

    Raises:
        FileNotFoundError: The folder is no run's.
    """
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG_FILE).read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} is no run's folder: it has no {CONFIG_FILE}") from None
    return config


def begin(folder: Path, config: Mapping[str, Any], *, resume: bool) -> list[Record]:
    """Begin a run in a folder, or go on with the one that is there.

    Of a run that is there, the scored episodes are kept; those that failed are taken out of its file, to be run again.

    Returns:
        The records of the episodes that are done.

    Raises:
        FileExistsError: There is a run, and `resume` is False.
        ValueError: The run that is there has another configuration, or is none that can be resumed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(config))
    if not (folder / CONFIG_FILE).exists():
        if (folder / EPISODES_FILE).exists():
            raise ValueError(f"{folder} has episodes but no {CONFIG_FILE}, so they cannot be resumed; choose another folder")
        replace(folder / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
        return []
    if not resume:
        raise FileExistsError(f"{folder} holds a run; resume it, or choose another folder")
    differences = _differences(read_config(folder), config)
    if differences:
        raise ValueError(
            f"{folder} holds a run with another configuration ({'; '.join(differences)}); "
            "run it as it was, or choose another folder"
        )
    return _keep_scored(folder / EPISODES_FILE)


def replace(path: Path, text: str) -> None:
    """Write a file as a whole: whoever reads it finds the old one or the new one."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Sequence[str]:
    names = sorted((there.keys() | here.keys()) - _INFORMATIVE)
    return [f"{name}: {there.get(name)!r} there, {here.get(name)!r} here" for name in names if there.get(name) != here.get(name)]


def _keep_scored(path: Path) -> list[Record]:
    if not path.exists():
        return []
    records = list(read_records(path))
    kept = [record for record in records if not record.unscored]
    if len(kept) < len(records):
        scored = {record.id for record in kept}
        lines = path.read_text(encoding="ascii").splitlines(keepends=True)[: len(records)]
        replace(path, "".join(line for line, record in zip(lines, records, strict=True) if record.id in scored))
    return kept
