"""ORS environments in Gymnasium's registry: "ors_gym/ORS-v0" for any of them, and one id for each environment of a server."""

import re
from typing import Any, ClassVar

import gymnasium as gym

from ors_gym.client import ORSClient
from ors_gym.env._specs import check_spec, constructor_arguments
from ors_gym.env.env import ORSEnv
from ors_gym.env.ors_vector import ORSVectorEnv

ENV_ID = "ors_gym/ORS-v0"

_ENTRY_POINT = "ors_gym.env.registration:make_env"
_VECTOR_ENTRY_POINT = "ors_gym.env.registration:make_vector_env"


def register() -> None:
    """Registers "ors_gym/ORS-v0", once: `gym.make` gives an `ORSEnv`, `gym.make_vec` an `ORSVectorEnv`.

    `import ors_gym` does it.

    >>> register()
    >>> env = gym.make("ors_gym/ORS-v0", base_url=base_url)
    >>> env.close()
    """
    if ENV_ID not in gym.registry:
        _register(ENV_ID, {})


def register_server(base_url: str, *, namespace: str = "ors", **arguments: Any) -> tuple[str, ...]:
    """Registers each environment of a server under an id of its own, `namespace/name-v0`.

    Args:
        base_url: The server.
        namespace: What stands before the slash.
        arguments: Arguments of `ORSEnv` for all of them. `api_key` and `secrets` by `EnvSecret` only.

    Returns:
        The ids, in the server's order. Characters of a name that no id may have become `-`.

    Raises:
        ORSError: The server cannot be asked.
        ValueError: A plain secret among the arguments, or an invalid namespace.

    >>> register_server(base_url)
    ('ors/largest_digit-v0',)
    >>> env = gym.make("ors/largest_digit-v0")
    >>> env.close()
    """
    if not re.fullmatch(r"[\w:-]+", namespace):
        raise ValueError(f"a namespace has letters, digits and _ : - only, not {namespace!r}")
    check_spec({"base_url": base_url, **arguments})
    client_options = ("api_key", "headers", "timeout", "retry")
    options = constructor_arguments({name: value for name, value in arguments.items() if name in client_options})
    with ORSClient(base_url, **options) as client:
        names = client.list_environments()
    ids: list[str] = []
    for name in names:
        stem = re.sub(r"[^\w:.-]", "-", name)
        versions = (f"{namespace}/{stem}{'' if n == 1 else f'-{n}'}-v0" for n in range(1, len(names) + 1))
        env_id = next(candidate for candidate in versions if candidate not in ids)
        _register(env_id, {"base_url": base_url, "env_name": name, **arguments})
        ids.append(env_id)
    return tuple(ids)


def _register(env_id: str, arguments: dict[str, Any]) -> None:
    spec = gym.registry.pop(env_id, None)
    if spec is not None and spec.entry_point != _ENTRY_POINT:
        gym.registry[env_id] = spec  # somebody else's: Gymnasium says what it makes of that
    gym.register(
        env_id,
        entry_point=_ENTRY_POINT,
        vector_entry_point=_VECTOR_ENTRY_POINT,
        nondeterministic=True,
        kwargs=arguments,
    )


def make_vector_env(num_envs: int, **arguments: Any) -> ORSVectorEnv:
    """What `gym.make_vec` calls; `max_episode_steps`, which it adds, is `max_steps` here.

    Raises:
        ValueError: A secret that is not an `EnvSecret`.
    """
    check_spec(arguments)
    limit = arguments.pop("max_episode_steps", None)
    if limit is not None:
        arguments["max_steps"] = limit
    return ORSVectorEnv(num_envs, **constructor_arguments(arguments))


class _Maker:
    """A callable with the metadata that `gym.make` reads before it calls."""

    metadata: ClassVar = ORSEnv.metadata

    def __call__(self, **arguments: Any) -> gym.Env[Any, Any]:
        """What `gym.make` calls.

        Raises:
            ValueError: A secret that is not an `EnvSecret`.
        """
        check_spec(arguments)
        return ORSEnv(**constructor_arguments(arguments))


make_env = _Maker()
