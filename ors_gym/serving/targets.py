"""What to serve, by name: `module:Class`, `path.py:Class`, `gym:ID`, `reasoning_gym:NAME`, or an environment class."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ors import Environment


class TargetError(ValueError):
    """A target that does not name an environment; the message says what is wrong with it."""


def load_target(target: str | type[Any]) -> type[Environment]:
    """The ORS environment class that a target names.

    Args:
        target: `module:Class`, `path.py:Class`, `gym:ID` (a Gymnasium id), `reasoning_gym:NAME` (a dataset), or the class itself.

    Raises:
        TargetError: There is no such module, file, class or id, or the class is not an ORS environment.
    """
    if not isinstance(target, str):
        return _checked(target, repr(target))
    prefix, separator, rest = target.partition(":")
    if not separator or not rest:
        raise TargetError(f"{target!r} is not a target; use module:Class, path.py:Class, gym:ID or reasoning_gym:NAME")
    if prefix == "gym":
        from ors_gym.serving.gymnasium_environment import gymnasium_environment

        return gymnasium_environment(rest)
    if prefix == "reasoning_gym":
        from ors_gym.serving.reasoning_gym_environment import reasoning_gym_environment

        return reasoning_gym_environment(rest)
    return _load_class(target)


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
