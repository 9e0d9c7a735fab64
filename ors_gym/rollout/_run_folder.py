"""A run's folder: what was evaluated (`config.json`), the episodes so far, and the results."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ors_gym.errors import RecordError
from ors_gym.records import EPISODES_FILE, Record, read_records

logger = logging.getLogger("ors_gym.rollout")

CONFIG_FILE = "config.json"
RESULTS_FILE = "results.json"
_NEEDED = frozenset({"agent", "env_name", "k", "by", "success", "reward"})
_INFORMATIVE = frozenset({"target", "ors_gym"})
"""Fields of the configuration that may change between a run and its resumption."""


def read_config(folder: Path) -> dict[str, Any]:
    """A run's configuration.

    Raises:
        FileNotFoundError: The folder is no run's.
        RecordError: What is there is no configuration.
    """
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} is no run's folder: it has no {CONFIG_FILE}") from None
    except ValueError as error:
        raise RecordError(f"{path} is no run's configuration: {error}") from error
    if not isinstance(config, dict) or (missing := sorted(_NEEDED - config.keys())):
        raise RecordError(f"{path} is no run's configuration: {f'it lacks {missing}' if isinstance(config, dict) else 'no object'}")
    return config


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes the folder, where it is not there, and keeps every other evaluation out of it meanwhile, in this process or another.

    Raises:
        ValueError: Another evaluation has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":  # has no such lock
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another evaluation is writing to {folder}; wait until it ends, or choose another folder") from None
        except OSError as error:
            logger.info("%s cannot be locked against a second evaluation: %s", folder, error)
        yield
    finally:
        os.close(descriptor)


def begin(folder: Path, config: Mapping[str, Any], *, resume: bool) -> list[Record]:
    """Begin a run in a folder, or go on with the one that is there.

    Of a run that is there, the scored episodes are kept; those that failed are taken out of its file, to be run again.

    Returns:
        The records of the episodes that are done.

    Raises:
        FileExistsError: There is a run, and `resume` is False.
        ValueError: The run that is there has another configuration, or is none that can be resumed.
    """
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
