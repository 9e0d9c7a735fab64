"""Any Gymnasium environment as an ORS environment: `gymnasium_environment("FrozenLake-v1")`."""

import asyncio
import base64
import importlib.util
import inspect
import io
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from ors import Environment, ImageBlock, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel, ConfigDict, WithJsonSchema, WrapValidator, create_model
from pydantic_core import PydanticCustomError

from ors_gym.spaces.exact import encode, encode_info
from ors_gym.spaces.native import OutsideSpace, action_from_json, action_schema, space_to_json

logger = logging.getLogger("ors_gym.serving")

TEST_SEED_OFFSET = 1_000_000_000
"""Task `i` of `train` has seed `i`, task `i` of `test` this much more, so that the splits share nothing."""

_SECTIONS = ("description", "action space", "observation space", "starting state", "reward", "episode")
_T = TypeVar("_T")
_Blocks = list[TextBlock | ImageBlock]


def gymnasium_environment(
    env: str | EnvSpec | Callable[..., gym.Env[Any, Any]],
    *,
    env_name: str | None = None,
    num_train: int = 10_000,
    num_test: int = 1_000,
    description: str | None = None,
    action_meanings: Sequence[str] | None = None,
    **make_kwargs: Any,
) -> type[Environment]:
    """An ORS environment class whose sessions are episodes of a Gymnasium environment.

    Task `i` of `train` is the seed `i`; task `i` of `test` is the seed `1_000_000_000 + i`. The prompt describes the environment
    and shows the first observation. The tool `step` takes an `action` whose JSON Schema is the action space; an action outside it
    is refused with the reason, and the environment does not step. Outputs hold the observation as text and, where the
    environment renders `"rgb_array"`, as a PNG image. `finished` is terminated or truncated; `metadata["ors_gym"]` has
    `terminated`, `truncated`, `reward`, `info` and `observation`, written by `ors_gym.spaces.exact.encode`.

    Each session has a thread of its own, so that a slow environment holds up no other session.

    Args:
        env: A Gymnasium id, an `EnvSpec`, or a function that makes the environment.
        env_name: The name to serve it under; by default its id in lower case.
        num_train, num_test: The sizes of the two splits; a size of 0 leaves the split out.
        description: What the prompt says about the environment; by default its docstring's sections about its use.
        action_meanings: What each action of a `Discrete` space does; by default what the environment or its docstring says.
        **make_kwargs: For `gymnasium.make` or the function. `render_mode` is `"rgb_array"` where there is one; pass
            `render_mode=None` for text only, which is faster.

    Raises:
        gymnasium.error.Error: There is no such environment, or it cannot be made.
        TypeError: Its action space cannot be written as a JSON Schema.
        ValueError: A size is negative, or both are 0.

    >>> FrozenLake = gymnasium_environment("FrozenLake-v1", num_train=100, num_test=0, is_slippery=False)
    >>> FrozenLake.name(), [split.name for split in FrozenLake.list_splits()]
    ('frozenlake-v1', ['train'])
    """
    sizes = {"train": num_train, "test": num_test}
    if min(sizes.values()) < 0 or not any(sizes.values()) or num_train > TEST_SEED_OFFSET:
        raise ValueError(f"num_train and num_test must be at least 0, and one of them 1: got {num_train} and {num_test}")
    make, title = _maker(env, make_kwargs)
    facts = _Facts.read(make, title, description, action_meanings)
    parameters = _step_parameters(facts)

    async def step(self: GymnasiumEnvironment, params: parameters) -> ToolOutput:  # type: ignore[valid-type]
        """Take one action in the environment."""
        return await self._in_thread(lambda: self._step(params.action))  # type: ignore[attr-defined]

    attributes = {
        "make": staticmethod(make),
        "facts": facts,
        "sizes": {split: size for split, size in sizes.items() if size},
        "env_name": (env_name or re.sub(r"[^\w.-]", "-", title)).lower(),
        "step": tool(step),
        "__doc__": f"The Gymnasium environment {title}.",
    }
    return type(re.sub(r"\W", "_", title), (GymnasiumEnvironment,), attributes)


@dataclass(frozen=True)
class _Facts:
    """What is read once from a specimen of the environment."""

    title: str
    description: str
    meanings: tuple[str, ...]
    action_space: gym.Space[Any]
    observation_space: gym.Space[Any]

    @classmethod
    def read(
        cls, make: Callable[[], gym.Env[Any, Any]], title: str, description: str | None, meanings: Sequence[str] | None
    ) -> "_Facts":
        specimen = make()
        try:
            sections = _sections(inspect.getdoc(type(specimen.unwrapped)) or "")
            if meanings is None:
                meanings = _meanings(specimen, sections)
            return cls(
                title=title,
                description=_description(sections) if description is None else description,
                meanings=tuple(meanings),
                action_space=specimen.action_space,
                observation_space=specimen.observation_space,
            )
        finally:
            specimen.close()


class GymnasiumEnvironment(Environment):
    """The base of what `gymnasium_environment` makes. A session is one episode, in a thread of its own."""

    make: ClassVar[Callable[[], gym.Env[Any, Any]]]
    facts: ClassVar[_Facts]
    sizes: ClassVar[dict[str, int]]
    env_name: ClassVar[str]

    def __init__(self, task_spec: Any = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006 - the SDK's signature
        super().__init__(task_spec, secrets)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self.env_name)
        self._env: gym.Env[Any, Any] | None = None
        self._prompt: _Blocks = []
        self._over = False

    @classmethod
    def name(cls) -> str:
        return cls.env_name

    @classmethod
    def list_splits(cls) -> list[Split]:  # type: ignore[override]  # the SDK caches its own with functools
        return [Split(name=split, type=split) for split in cls.sizes]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [cls._task(split, index) for index in range(cls.sizes[split])]

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return cls.sizes[split]

    @classmethod
    async def get_task(cls, split: str, index: int) -> dict[str, Any]:
        if not 0 <= index < cls.sizes[split]:
            raise IndexError(f"{split} has the tasks 0 to {cls.sizes[split] - 1}, not {index}")
        return cls._task(split, index)

    @classmethod
    def _task(cls, split: str, index: int) -> dict[str, Any]:
        return {"seed": index + (TEST_SEED_OFFSET if split == "test" else 0)}

    async def setup(self) -> None:
        try:
            await self._in_thread(self._begin)
        except BaseException:  # the server tears down only what was set up
            self._thread.submit(self._end)
            self._thread.shutdown(wait=False)
            raise

    async def teardown(self) -> None:
        await self._in_thread(self._end)
        self._thread.shutdown(wait=False)

    def get_prompt(self) -> _Blocks:
        return self._prompt

    @tool(shared=False)
    def spaces(self) -> ToolOutput:
        """The environment's own spaces, for `ors_gym.wrappers.RestoreNative`. Not listed: no policy needs it."""
        facts = self.facts
        metadata = {
            "action_space": space_to_json(facts.action_space),
            "observation_space": space_to_json(facts.observation_space),
        }
        text = f"Action space: {facts.action_space}\nObservation space: {facts.observation_space}"
        return ToolOutput(blocks=[TextBlock(text=text)], metadata={"ors_gym": metadata})

    async def _in_thread(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _begin(self) -> None:
        seed = self.task_spec.get("seed")
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"a task of {self.env_name} is {{'seed': an integer from 0}}, not {dict(self.task_spec)!r:.200}")
        self._env = type(self).make()
        observation, info = self._env.reset(seed=seed)
        facts = self.facts
        text = (
            f"You act in the environment {facts.title}.\n\n{facts.description}\n\n"
            f"Call the tool `step` with an `action` until the episode is over. The action space is {facts.action_space}"
            f"{_listed(facts)}. The observation space is {facts.observation_space}.\n\n"
            f"The first observation: {_readable(observation)}"
        )
        detail = {"ors_gym": {"seed": seed, "observation": encode(observation), "info": encode_info(info)}}
        self._prompt = [TextBlock(text=text, detail=detail), *self._picture()]

    def _step(self, action: Any) -> ToolOutput:
        if self._over:
            return ToolOutput(blocks=[TextBlock(text="The episode is over. No step was taken.")], finished=True)
        assert self._env is not None
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._over = bool(terminated or truncated)
        lines = [f"Observation: {_readable(observation)}", f"Reward: {float(reward):g}"]
        if terminated:
            lines.append("The episode is over.")
        elif truncated:
            lines.append("The episode is over: it reached its limit.")
        exact = {
            "observation": encode(observation),
            "reward": encode(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": encode_info(info),
        }
        return ToolOutput(
            blocks=[TextBlock(text="\n".join(lines)), *self._picture()],
            metadata={"ors_gym": exact},
            reward=float(reward),
            finished=self._over,
        )

    def _end(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _picture(self) -> _Blocks:
        """What the environment renders: an image, or text in the mode "ansi"."""
        assert self._env is not None
        if self._env.render_mode not in ("rgb_array", "ansi"):
            return []
        frame = self._env.render()
        if isinstance(frame, str):
            return [TextBlock(text=frame)]
        from PIL import Image

        png = io.BytesIO()
        Image.fromarray(np.asarray(frame, dtype=np.uint8)).save(png, "PNG", compress_level=1)
        return [ImageBlock(data=base64.b64encode(png.getvalue()).decode(), mimeType="image/png")]


def _maker(env: Any, make_kwargs: dict[str, Any]) -> tuple[Callable[[], gym.Env[Any, Any]], str]:
    """A function without arguments that makes the environment, and its title."""
    if isinstance(env, str | EnvSpec):
        spec = gym.spec(env) if isinstance(env, str) else env
        if "render_mode" not in make_kwargs and _renders_images(spec, make_kwargs):
            make_kwargs = {**make_kwargs, "render_mode": "rgb_array"}
        return lambda: gym.make(env, **make_kwargs), spec.id
    if not callable(env):
        raise TypeError(f"env is a Gymnasium id, an EnvSpec or a function that makes an environment, not {env!r}")
    return lambda: env(**make_kwargs), getattr(env, "__name__", type(env).__name__).strip("<>")


def _renders_images(spec: EnvSpec, make_kwargs: dict[str, Any]) -> bool:
    """Whether it has the mode "rgb_array" and what that needs is installed."""
    entry_point = spec.entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if "rgb_array" not in (getattr(creator, "metadata", {}).get("render_modes") or []):
        return False
    if importlib.util.find_spec("PIL") is None:
        logger.warning('%s is served without images: they need pillow, pip install "ors-gym[images]"', spec.id)
        return False
    try:
        specimen = gym.make(spec, **make_kwargs, render_mode="rgb_array")
        try:
            specimen.reset(seed=0)
            specimen.render()
        finally:
            specimen.close()
    except gym.error.DependencyNotInstalled as error:
        logger.warning("%s is served without images: %s", spec.id, error)
        return False
    return True


def _step_parameters(facts: _Facts) -> type[BaseModel]:
    """The model of the input of `step`: its schema is the action space's, its validator reads the native action."""
    space = facts.action_space

    def read_action(value: Any, _: Any) -> Any:
        try:
            return action_from_json(space, value)
        except OutsideSpace as error:
            raise PydanticCustomError("outside_space", str(error)) from None

    action = Annotated[Any, WrapValidator(read_action), WithJsonSchema(action_schema(space, facts.meanings))]
    return create_model("Step", __config__=ConfigDict(extra="forbid"), action=(action, ...))


def _sections(doc: str) -> dict[str, str]:
    """A docstring's text by its second-level headings; what comes before the first is under ""."""
    heading, *rest = re.split(r"^ *##\s+(.+)$", doc, flags=re.MULTILINE)
    return {"": heading.strip()} | {name.strip(): text.strip() for name, text in zip(rest[::2], rest[1::2], strict=True)}


def _description(sections: dict[str, str]) -> str:
    chosen = [sections[""]] if sections[""] else []
    chosen += [f"{name}:\n{text}" for name, text in sections.items() if name and name.lower().startswith(_SECTIONS)]
    return "\n\n".join(chosen)


def _meanings(env: gym.Env[Any, Any], sections: dict[str, str]) -> list[str]:
    """What the actions of a `Discrete` space do: by the environment's method, or the list or table in its docstring."""
    if not isinstance(env.action_space, gym.spaces.Discrete):
        return []
    if callable(get_meanings := getattr(env.unwrapped, "get_action_meanings", None)):
        return [str(meaning).lower() for meaning in get_meanings()]
    text = next((text for name, text in sections.items() if name.lower() == "action space"), "")
    found = re.findall(r"^\s*(?:-|\|)\s*(\d+)\s*(?::|\|)\s*([^|\n]+?)\s*(?:\||$)", text, flags=re.MULTILINE)
    numbers = [int(number) for number, _ in found]
    start, n = int(env.action_space.start), int(env.action_space.n)
    return [meaning for _, meaning in found] if numbers == list(range(start, start + n)) else []


def _listed(facts: _Facts) -> str:
    first = int(getattr(facts.action_space, "start", 0)) if facts.meanings else 0
    listed = ", ".join(f"{first + number} = {meaning}" for number, meaning in enumerate(facts.meanings))
    return f" ({listed})" if listed else ""


def _readable(observation: Any) -> str:
    """An observation as a policy reads it: plain numbers, in their own precision; large arrays shortened."""
    match observation:
        case np.ndarray() if observation.size > 1000:
            return f"an array of shape {observation.shape} and type {observation.dtype}"
        case np.ndarray() if observation.ndim:
            return f"[{', '.join(map(_readable, observation))}]"
        case tuple():
            return f"({', '.join(_readable(part) for part in observation)})"
        case dict():
            return f"{{{', '.join(f'{key}: {_readable(part)}' for key, part in observation.items())}}}"
    return str(observation)
