"""What a user calls has an example that runs: every doctest does, and here is where one must be."""

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pydantic
import pytest
from typing_extensions import is_protocol, is_typeddict

ROOMS = [
    "ors_gym",
    "ors_gym.client",
    "ors_gym.conformance",
    "ors_gym.env",
    "ors_gym.rollout",
    "ors_gym.serving",
    "ors_gym.spaces",
    "ors_gym.trl",
    "ors_gym.wrappers",
]


def public_names() -> Iterator[tuple[str, Any]]:
    """Every class and function of the rooms, once."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{value.__module__}.{name}"] = value
    yield from found.items()


def example(value: Any) -> str:
    """The docstring from its first prompt on, or nothing."""
    return "".join((inspect.getdoc(value) or "").partition(">>>")[1:])


def is_data(value: Any) -> bool:
    """Whether users read it, or implement it, rather than call it: data, exceptions, protocols."""
    if not inspect.isclass(value):
        return False
    read = dataclasses.is_dataclass(value) or issubclass(value, BaseException | pydantic.BaseModel | tuple)
    return read or is_typeddict(value) or is_protocol(value)


NAMES = dict(public_names())
PROTOCOLS = [value for value in NAMES.values() if is_protocol(value)]
PRIVATE = {
    name
    for module_name, module in list(sys.modules.items())
    for name, value in vars(module).items()
    if module_name.startswith("ors_gym.") and inspect.isclass(value)
    if value.__module__.startswith("ors_gym.") and value not in NAMES.values()
}


def explained_elsewhere(owner: type[Any], name: str, method: Any) -> bool:
    """Whether it is of an interface that another class or library explains; of `with`; or for the other rooms, by its types."""
    if any(name in vars(base) for base in (*owner.__mro__[1:], *PROTOCOLS)):
        return True
    if name in ("start", "close", "aclose"):
        return hasattr(owner, "__enter__") or hasattr(owner, "__aenter__")
    refers = re.search(r"See `\w+\.\w+`", inspect.getdoc(method) or "")
    return refers is not None or not PRIVATE.isdisjoint(re.findall(r"\w+", str(inspect.signature(method))))


METHODS = {
    f"{path}.{name}": (owner, name, getattr(owner, name))
    for path, owner in NAMES.items()
    if inspect.isclass(owner)
    for name, method in vars(owner).items()
    if not name.startswith("_") and isinstance(method, FunctionType | classmethod | staticmethod)
    if not explained_elsewhere(owner, name, getattr(owner, name))
}


@pytest.mark.parametrize("path", [path for path, value in NAMES.items() if not is_data(value)])
def test_what_users_make_or_call_has_an_example(path: str) -> None:
    assert example(NAMES[path])


@pytest.mark.parametrize("path", METHODS)
def test_a_method_has_an_example_or_is_in_that_of_its_class(path: str) -> None:
    owner, name, method = METHODS[path]

    assert example(method) or f".{name}(" in example(owner)
