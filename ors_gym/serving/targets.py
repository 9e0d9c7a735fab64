"""What to serve, by name: `module:Class`, `path.py:Class`, `gym:ID`, `reasoning_gym:NAME`, or an environment class."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl

import gymnasium as gym
from ors import Environment


class TargetError(ValueError):
    """A target that does not name an environment; the message says what is wrong with it."""


def load_target(target: str | type[Any]) -> type[Environment]:
    """The ORS environment class that a target names.

    Args:
        target: `module:Class`, `path.py:Class`, `gym:ID` (a Gymnasium id), `reasoning_gym:NAME` (a dataset), or the class itself.
            The middle two take keyword arguments as a query, JSON where it reads as such:
            `gym:FrozenLake-v1?is_slippery=false&map_name=8x8`.

    Raises:
        TargetError: There is no such module, file, class or id, or the class is not an ORS environment.
    """
    if not isinstance(target, str):
        return _checked(target, repr(target))
    prefix, separator, rest = target.partition(":")
    if not separator or not rest:
        raise TargetError(f"{target!r} is not a target; use module:Class, path.py:Class, gym:ID or reasoning_gym:NAME")
    if prefix in ("gym", "reasoning_gym"):
        return _load_made(prefix, rest, target)
    return _load_class(target)


def _load_made(kind: str, call: str, target: str) -> type[Environment]:
    name, _, query = call.partition("?")
    options = {key: _json_or_text(value) for key, value in parse_qsl(query, keep_blank_values=True)}
    try:
        if kind == "gym":
            from ors_gym.serving._gymnasium import gymnasium_environment

            return gymnasium_environment(name, **options)
        from ors_gym.serving._reasoning_gym import reasoning_gym_environment

        return reasoning_gym_environment(name, **options)
    except (gym.error.Error, TypeError, ValueError) as error:
        raise TargetError(f"{target!r}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name != "reasoning_gym":
            raise
        raise TargetError(f'{target!r} needs reasoning-gym: pip install "ors-gym[reasoning-gym]"') from None


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _load_class(target: str) -> type[Environment]:
    place, _, name = target.rpartition(":")
    module = _load_file(Path(place), target) if place.endswith(".py") else _load_module(place, target)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            classes = sorted(key for key, value in vars(module).items() if _is_environment(value))
            raise TargetError(f"{target!r}: {place} has no {name!r}; its environments are {classes}")
        found = getattr(found, part)
    return _checked(found, repr(target))


def _load_module(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(f"{target!r}: there is no module {error.name!r} to import; for a file, write path.py:Class") from None


def _load_file(path: Path, target: str) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"{target!r}: there is no file {path.resolve()}")
    path = path.resolve()
    if str(path.parent) not in sys.path:  # so that the file can import its neighbours, as it can when Python runs it
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"ors_gym_target_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _is_environment(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Environment) and value is not Environment


def _checked(value: Any, shown: str) -> type[Environment]:
    if not _is_environment(value):
        bases = [f"{base.__module__}.{base.__qualname__}" for base in getattr(value, "__mro__", ())]
        hint = (
            "; it derives from openreward's Environment, this server runs on ors" if any("openreward" in b for b in bases) else ""
        )
        raise TargetError(f"{shown} is not a subclass of ors.Environment{hint}")
    environment: type[Environment] = value
    return environment
