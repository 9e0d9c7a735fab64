"""Options that several commands have."""

import re

from ors_gym.secrets import EnvSecret


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
