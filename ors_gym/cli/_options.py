"""Options that several commands have."""

import math
import re

import typer

from ors_gym.secrets import EnvSecret


def finite(number: float | None) -> float | None:
    """An option's callback: refuses infinity and nan, which pass for numbers and are within every range."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


def secret_reference(option: str) -> tuple[str, EnvSecret]:
    """A secret's name and where it is, from `NAME=VARIABLE`.

    Raises:
        ValueError: It has another form, and the message does not show it, for it may be the secret; or the variable is not set.
    """
    name, equals, variable = option.partition("=")
    if not name or not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise ValueError("--secret takes NAME=VARIABLE, the name of an environment variable and not the secret itself")
    reference = EnvSecret(variable)
    try:
        reference.resolve()
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    return name, reference
