"""What may stand in an `EnvSpec`, a pickle or a copy: references to secrets, and no secret and no connection.

Gymnasium prints, stores and writes the keyword arguments of `gym.make`.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ors_gym.client import Retry, Timeout
from ors_gym.secrets import EnvSecret, resolve_secrets

_CONNECTIONS = ("client", "auth", "event_hooks")
_SECRET_HEADERS = ("authorization", "cookie", "key", "token", "secret", "password")


def plain_secrets(arguments: Mapping[str, Any]) -> list[str]:
    """The arguments of an environment that hold a secret itself, by name; never the secret."""
    held = [f"secrets[{name!r}]" for name, secret in (arguments.get("secrets") or {}).items() if not _is_reference(secret)]
    held += [
        f"headers[{name!r}]"
        for name, value in (arguments.get("headers") or {}).items()
        if any(word in name.lower() for word in _SECRET_HEADERS) and not _is_reference(value)
    ]
    if arguments.get("api_key") is not None and not _is_reference(arguments["api_key"]):
        held.append("api_key")
    urls = arguments.get("base_url") or ()
    if any(urlsplit(url).password for url in ([urls] if isinstance(urls, str) else urls)):
        held.append("base_url")
    return held


def check_spec(arguments: Mapping[str, Any]) -> None:
    """Refuses what must not stand in an `EnvSpec`.

    Raises:
        ValueError: An argument holds a secret itself, or a connection; the message names it and never shows it.
    """
    if held := plain_secrets(arguments):
        raise ValueError(
            f"{', '.join(held)} would be printed and stored by Gymnasium with the environment's spec: pass "
            'ors_gym.EnvSecret("NAME_OF_AN_ENVIRONMENT_VARIABLE") instead, or construct ors_gym.ORSEnv or ORSVectorEnv directly'
        )
    if given := [name for name in _CONNECTIONS if arguments.get(name) is not None]:
        names = ", ".join(given)
        raise ValueError(f"{names} cannot stand in an environment's spec; construct ors_gym.ORSEnv or ORSVectorEnv directly")


def constructor_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a spec, which may have gone through JSON, as a constructor takes them: references resolved."""
    resolved = dict(arguments)
    for name, kind in (("timeout", Timeout), ("retry", Retry)):
        if isinstance(resolved.get(name), Mapping):
            resolved[name] = kind(**resolved[name])
    if resolved.get("api_key") is not None:
        resolved["api_key"] = _value(resolved["api_key"])
    if resolved.get("headers"):
        resolved["headers"] = {name: _value(value) for name, value in resolved["headers"].items()}
    return resolved


def _is_reference(secret: Any) -> bool:
    match secret:
        case EnvSecret() | {"env": str()} | (EnvSecret(), _):
            return True
    return False


def _value(given: Any) -> str:
    return next(iter(resolve_secrets({"value": given}).values())).value
