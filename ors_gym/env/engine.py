"""`AsyncORSEnv`, the one place where a session becomes episodes: reset is create and prompt, step is a tool call."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index as as_int
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from ors_gym import actions, observations
from ors_gym.actions import ActionFormat
from ors_gym.client import AsyncEnvironment, AsyncSession, Discovery, Timeout
from ors_gym.env import rendering
from ors_gym.env._info import InfoDict, failure_of, make_info
from ors_gym.env._opening import Opened, Opener
from ors_gym.env._tasks import TaskFilter, TaskSource
from ors_gym.episode import Episode, Step
from ors_gym.errors import (
    EnvironmentFailure,
    InfrastructureError,
    InvalidAction,
    SessionClosed,
    ToolCallRejected,
    ToolFailed,
)
from ors_gym.observations import ObservationFormat
from ors_gym.protocol import Blocks, TextBlock, ToolCall, ToolSpec
from ors_gym.secrets import SecretLike
from ors_gym.spaces import action_space_for, observation_space_for
from ors_gym.tasks import TaskRef
from ors_gym.tools import find_text_tool, find_tool, text_parameter

OnToolError = Literal["truncate", "observe"]

MAX_OBSERVATION_LENGTH = 1_000_000
"""Characters of text in one observation, by default."""

_OPTIONS = frozenset({"split", "index", "task_spec", "task", "secrets"})


@dataclass(frozen=True)
class Shared:
    """What the environments of one kind share: where tasks come from, and the spaces."""

    tasks: TaskSource
    action_space: Space[Any]
    observation_space: Space[Any]


class AsyncORSEnv:
    """One ORS environment, one episode at a time, asynchronous. It makes no request until `reset`.

    A `reset` or `step` that is called while another one runs waits for its turn; `close` does not.

    Args:
        environment: The environment, of a client that the caller closes.
        discovery: What `await environment.discover()` said.
        split: The split to draw tasks from; None is the first of type train.
        task_filter: Narrows the tasks that are drawn: says of a task, as the server gives it, whether it may be. The split's
            tasks are then read once, before the first draw.
        secrets: What the environment needs: names to a `str`, `(str, [allowed domains])` or an `EnvSecret`.
        max_steps: Tool calls after which an episode is truncated, invalid ones counted; None is no limit.
        action_format: The action space, and how text is read: "tool_call" (dicts), "json" (text), or "text" (verbatim
            to `text_tool`).
        observation_format: "text", "blocks" (a tuple of dicts) or "multimodal" (text and images).
        text_tool: The tool that takes plain text, one that every task has; None finds it where just one tool of a task has one
            required string parameter.
        invalid_action_reward: The reward of an action that is malformed or rejected.
        on_tool_error: What a tool that raised does: "truncate" ends the episode unscored, "observe" tells the policy.
        reset_retries: How often a reset that failed is tried again, each time in a fresh session.
        max_observation_length: Characters of text in one observation; a longer one is cut, and says so.
        timeout: Limits for the sessions; None takes the client's.
        prefetch: Open the session of the next episode while this one runs. It takes up to two sessions at once.
        render_mode: None, "human", "ansi" or "rgb_array".
        shared: What environments of one kind share; it replaces `split`, `task_filter` and what the spaces are made from.
        group: Which group of the shared tasks this environment belongs to.

    Attributes:
        episode: The ledger of the current or the last episode; None before the first.
        failure: What ended that episode unscored, as the exception that it was; None where nothing did.

    Raises:
        ValueError: An unknown split, format, `text_tool` or render mode, or a number out of its range.

    >>> import asyncio
    >>> from ors_gym.client import AsyncORSClient
    >>> async def play():
    ...     async with AsyncORSClient(base_url) as client:
    ...         environment = client.environment("largest_digit")
    ...         env = AsyncORSEnv(environment, await environment.discover())
    ...         observation, info = await env.reset(options={"split": "train", "index": 0})
    ...         step = await env.step({"name": "submit", "input": {"answer": max(observation[:3])}})
    ...         await env.close()
    ...         return step[1:4]
    >>> asyncio.run(play())
    (1.0, True, False)
    """

    metadata: Mapping[str, Any] = {"render_modes": ["human", "ansi", "rgb_array"], "render_fps": 1}
    spec: EnvSpec | None = None

    def __init__(
        self,
        environment: AsyncEnvironment,
        discovery: Discovery,
        *,
        split: str | None = None,
        task_filter: TaskFilter | None = None,
        secrets: Mapping[str, SecretLike] | None = None,
        max_steps: int | None = None,
        action_format: ActionFormat = "tool_call",
        observation_format: ObservationFormat = "text",
        text_tool: str | None = None,
        invalid_action_reward: float = 0.0,
        on_tool_error: OnToolError = "truncate",
        reset_retries: int = 2,
        max_observation_length: int | None = MAX_OBSERVATION_LENGTH,
        timeout: Timeout | None = None,
        prefetch: bool = False,
        render_mode: str | None = None,
        shared: "Shared | None" = None,
        group: int = 0,
    ) -> None:
        _check_choice("on_tool_error", on_tool_error, get_args(OnToolError))
        _check_choice("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        if max_steps is not None and as_int(max_steps) < 1:
            raise ValueError(f"max_steps must be at least 1, or None, not {max_steps!r}")
        if as_int(reset_retries) < 0:
            raise ValueError(f"reset_retries must be at least 0, not {reset_retries!r}")
        if max_observation_length is not None and as_int(max_observation_length) < 0:
            raise ValueError(f"max_observation_length must be at least 0, or None, not {max_observation_length!r}")
        if not math.isfinite(invalid_action_reward):
            raise ValueError(f"invalid_action_reward must be a finite number, not {invalid_action_reward!r}")
        if action_format == "text" and text_tool is None and find_text_tool(discovery.tools) is None:
            raise ValueError(
                'action_format="text" needs a tool that takes the text: name it by text_tool=; environment '
                f"{discovery.env_name!r} has not just one tool with one required string parameter"
            )
        if text_tool is not None and find_tool(discovery.tools, text_tool) is not None:
            _check_takes_text(text_tool, discovery.tools)
        self.environment = environment
        self.discovery = discovery
        self.shared = shared or Shared(
            TaskSource(environment, discovery, split=split, task_filter=task_filter),
            action_space_for(discovery.tools, action_format),
            observation_space_for(observation_format, max_observation_length),
        )
        self.action_space, self.observation_space = self.shared.action_space, self.shared.observation_space
        self.render_mode = render_mode
        self.max_steps = max_steps
        self.episode: Episode | None = None
        self.failure: BaseException | None = None
        self._tasks = self.shared.tasks
        self._group = group
        self._secrets = secrets
        self._action_format: ActionFormat = action_format
        self._observation_format: ObservationFormat = observation_format
        self._text_tool = text_tool
        self._invalid_action_reward = float(invalid_action_reward)
        self._on_tool_error = on_tool_error
        self._reset_retries = reset_retries
        self._max_observation_length = max_observation_length
        self._opener = Opener(environment, timeout)
        self._prefetch = prefetch
        self._session: AsyncSession | None = None
        self._np_random: np.random.Generator | None = None
        self._np_random_seed: int | None = None
        self._seed: int | None = None
        self._drawn: dict[str, int] = {}
        self._closed = False
        self._turn = asyncio.Lock()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the current task; before the first reset, those that every task has."""
        return tuple(self.episode.tools) if self.episode and self.episode.session_id else self.discovery.tools

    @property
    def np_random(self) -> np.random.Generator:
        """The generator that an unseeded sequence of tasks is drawn from."""
        if self._np_random is None:
            self._np_random, self._np_random_seed = seeding.np_random()
        return self._np_random

    @property
    def np_random_seed(self) -> int | None:
        """The seed of `np_random`."""
        return self._np_random_seed if self.np_random else None

    async def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, InfoDict]:
        """Begins an episode on the next task, or on the one that `options` names; an open session is closed first.

        Args:
            seed: Begins a new sequence of tasks. The same seed gives the same sequence; an epoch repeats nothing.
            options: `split` to draw from; or a task: `index` (with `split`, or in the default one), `task_spec`, or `task`
                (a `TaskRef` or its dict). `secrets` replaces those of the constructor in this episode.

        Returns:
            The prompt as an observation, and the info dict.

        Raises:
            ORSError: No session could be had, `reset_retries` included; `episode` then says so, and is unscored.
            ValueError: An unknown option, split, or combination of them; or the task has no `text_tool`.
            SessionClosed: The environment is closed.

        >>> import asyncio
        >>> from ors_gym.client import AsyncORSClient
        >>> async def main():
        ...     async with AsyncORSClient(base_url) as client:
        ...         environment = client.environment("largest_digit")
        ...         env = AsyncORSEnv(environment, await environment.discover())
        ...         await env.reset(seed=0)  # a task drawn by this seed; the next reset draws the next one
        ...         observation, info = await env.reset(options={"split": "test", "index": 7})
        ...         await env.close()
        ...         return info["task"]
        >>> asyncio.run(main())
        {'split': 'test', 'index': 7}
        """
        async with self._turn:
            return await self._reset(seed, _checked(options))

    async def _reset(self, seed: int | None, options: Mapping[str, Any]) -> tuple[Any, InfoDict]:
        self._check_open()
        started_at, started = time.time(), time.perf_counter()
        if seed is not None:
            self._np_random, self._np_random_seed = seeding.np_random(seed)
            self._seed = seed
            self._drawn.clear()
        await self._leave()
        self.failure = None
        task = await self._next_task(options)
        secrets = options.get("secrets", self._secrets)
        opened = await self._open(task, secrets, started_at)
        if self._closed:  # meanwhile
            await opened.session.aclose()
        self._check_open()
        self._session = opened.session
        self.episode = Episode(
            task=task,
            env_name=self.discovery.env_name,
            session_id=opened.session.session_id or "",
            prompt=opened.prompt,
            tools=opened.tools,
            started_at=started_at,
        )
        await self._check_text_tool(opened.tools)
        if self._prefetch and not _names_task(options):
            self._opener.open_ahead(await self._peek(options.get("split")), secrets)
        if self.render_mode == "human":
            rendering.show_prompt(self.episode)
        info = self._info(blocks=opened.prompt, elapsed=time.perf_counter() - started)
        return self._observe(opened.prompt), info

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, InfoDict]:
        """Runs the tool call or calls of an action, in order, until one finishes the episode.

        Args:
            action: A `ToolCall`, a dict, an OpenAI message, or text: every form of `ors_gym.actions.parse`. What cannot be
                read is answered with an observation that says why.

        Returns:
            Observation, reward, terminated, truncated, and the info dict.

        Raises:
            ResetNeeded: There is no episode, or it has ended.
            SessionClosed: The environment is closed.

        >>> import asyncio
        >>> from ors_gym.client import AsyncORSClient
        >>> async def main():
        ...     async with AsyncORSClient(base_url) as client:
        ...         environment = client.environment("largest_digit")
        ...         env = AsyncORSEnv(environment, await environment.discover())
        ...         await env.reset()
        ...         *_, info = await env.step({"name": "guess"})
        ...         observation, reward, terminated, *_ = await env.step({"name": "submit", "input": {"answer": "no digit"}})
        ...         await env.close()
        ...         return bool(info["invalid_action"]), observation, reward, terminated
        >>> asyncio.run(main())
        (True, 'Wrong.', 0.0, True)
        """
        async with self._turn:
            return await self._step(action)

    async def _step(self, action: Any) -> tuple[Any, float, bool, bool, InfoDict]:
        self._check_open()
        episode, session = self.episode, self._session
        if episode is None or session is None:
            raise ResetNeeded("the episode has ended; call reset()" if episode else "call reset() before step()")
        started = time.perf_counter()
        before = episode.num_steps
        try:
            await self._act(action, episode, session)
        except BaseException as error:
            self._fail(error, episode)
            await self._end(episode)
            raise
        steps = episode.steps[before:]
        episode.terminated = steps[-1].finished
        if not episode.ended and episode.num_steps == self.max_steps:
            episode.truncated = True
        if episode.ended:
            await self._end(episode)
        if self.render_mode == "human":
            rendering.show_steps(episode, before)
        blocks = tuple(block for step in steps for block in step.blocks)
        reward = sum((step.reward for step in steps if step.reward is not None), 0.0)
        info = self._info(blocks=blocks, steps=steps, elapsed=time.perf_counter() - started)
        return self._observe(blocks), reward, episode.terminated, episode.truncated, info

    async def close(self) -> None:
        """Closes the session. An episode that still runs is truncated. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._leave()
        finally:
            await self._opener.aclose()

    def render(self) -> Any:
        """The episode so far, as `render_mode` says: text ("ansi"), an array of `rendering.CANVAS` ("rgb_array"), or None
        ("human", which prints each reset and step as it happens).

        >>> import asyncio
        >>> from ors_gym.client import AsyncORSClient
        >>> async def main():
        ...     async with AsyncORSClient(base_url) as client:
        ...         environment = client.environment("largest_digit")
        ...         env = AsyncORSEnv(environment, await environment.discover(), render_mode="ansi")
        ...         await env.reset()
        ...         await env.step({"name": "submit", "input": {"answer": "no digit"}})
        ...         await env.close()
        ...         return env.render()
        >>> "Wrong." in asyncio.run(main())
        True
        """
        match self.render_mode:
            case "ansi":
                return rendering.ansi(self.episode)
            case "rgb_array":
                return rendering.rgb_array(self.episode)
        return None

    def failure_info(self, error: BaseException) -> InfoDict:
        """The info of an environment among many, where one raised: the episode is unscored, and why.

        >>> import asyncio
        >>> from ors_gym.client import AsyncORSClient
        >>> async def main():
        ...     async with AsyncORSClient(base_url) as client:
        ...         environment = client.environment("largest_digit")
        ...         return AsyncORSEnv(environment, await environment.discover()).failure_info(TimeoutError("a step took too long"))
        >>> info = asyncio.run(main())
        >>> info["unscored"], info["error_kind"], info["error"]
        (True, 'infrastructure', 'TimeoutError: a step took too long')
        """
        what, kind = failure_of(error)
        task = self.episode.task if self.episode else None
        return make_info(task, self.tools, unscored=True, error=what, error_kind=kind)

    def _repr_html_(self) -> str:
        return rendering.html(self.episode, str(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.discovery.env_name!r}, {self._tasks.split(None)!r})"

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed("this environment is closed; make a new one")

    async def _check_text_tool(self, tools: Sequence[ToolSpec]) -> None:
        """A tool that all tasks share was checked at the beginning; any other is known only now."""
        if self._text_tool is None or find_tool(self.discovery.tools, self._text_tool) is not None:
            return
        try:
            _check_takes_text(self._text_tool, tools)
        except ValueError:
            await self._leave()
            raise

    async def _next_task(self, options: Mapping[str, Any]) -> TaskRef:
        if not _names_task(options):
            task = await self._peek(options.get("split"))
            split = self._tasks.split(options.get("split"))
            self._drawn[split] = self._drawn.get(split, 0) + 1
            return task
        if "task_spec" in options:
            return TaskRef(task_spec=dict(options["task_spec"]))
        if "index" in options:
            return TaskRef(self._tasks.split(options.get("split")), as_int(options["index"]))
        task = options["task"] if isinstance(options["task"], TaskRef) else TaskRef.from_dict(options["task"])
        if task.env_name not in (None, self.discovery.env_name):
            raise ValueError(f"the task {task.key} is of environment {task.env_name!r}, not of {self.discovery.env_name!r}")
        return task

    async def _peek(self, split_name: str | None) -> TaskRef:
        """The task that is next in a split."""
        split = self._tasks.split(split_name)
        if self._seed is None:
            self._seed = int(self.np_random.integers(2**31))
        return await self._tasks.draw(split, seed=self._seed, n=self._drawn.get(split, 0), group=self._group)

    async def _open(self, task: TaskRef, secrets: Mapping[str, SecretLike] | None, started_at: float) -> Opened:
        for retries_left in range(self._reset_retries, -1, -1):
            try:
                return await self._opener.open(task, secrets)
            except (EnvironmentFailure, InfrastructureError) as error:
                if retries_left:
                    continue
                self.episode = Episode(task, self.discovery.env_name, started_at=started_at, ended_at=time.time())
                self._fail(error, self.episode)
                raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _act(self, action: Any, episode: Episode, session: AsyncSession) -> None:
        """Runs the calls of an action until one ends the episode; each leaves a step in the ledger, however it went."""
        try:
            calls = actions.parse(action, action_format=self._action_format, tools=episode.tools, text_tool=self._text_tool)
        except InvalidAction as error:
            episode.steps.append(Step(action, started_at=time.time(), **self._refused(error)))
            return
        for call in calls:
            await self._call(call, action, episode, session)
            if episode.truncated or episode.steps[-1].finished or episode.num_steps == self.max_steps:
                return

    async def _call(self, call: ToolCall, action: Any, episode: Episode, session: AsyncSession) -> None:
        started_at, started = time.time(), time.perf_counter()
        outcome: dict[str, Any]
        try:
            output = await session.call_tool(call.name, call.input)
            outcome = {
                "blocks": output.blocks,
                "reward": output.reward,
                "finished": output.finished,
                "metadata": output.metadata,
            }
        except ToolCallRejected as error:
            outcome = self._refused(error)
        except (EnvironmentFailure, InfrastructureError) as error:
            outcome = self._failed(error, episode)
        except BaseException as error:
            what, kind = failure_of(error)
            outcome = {"error": what, "error_kind": kind}
            raise
        finally:
            elapsed = time.perf_counter() - started
            episode.steps.append(Step(action, call, started_at=started_at, elapsed=elapsed, **outcome))

    def _refused(self, error: InvalidAction | ToolCallRejected) -> dict[str, Any]:
        reason = error.detail or str(error)
        return {
            "blocks": (TextBlock(text=f"Error: {reason}"),),
            "invalid_action": reason,
            "reward": self._invalid_action_reward or None,
        }

    def _failed(self, error: EnvironmentFailure | InfrastructureError, episode: Episode) -> dict[str, Any]:
        what, kind = failure_of(error)
        if isinstance(error, ToolFailed) and self._on_tool_error == "observe":
            return {"blocks": (TextBlock(text=f"Error: {error.detail or what}"),), "error": what, "error_kind": kind}
        self._fail(error, episode)
        return {"error": what, "error_kind": kind}

    def _fail(self, error: BaseException, episode: Episode) -> None:
        """Ends an episode unscored."""
        self.failure = error
        episode.truncated = True
        episode.error, episode.error_kind = failure_of(error)

    async def _leave(self) -> None:
        """Ends the current episode, where one still runs."""
        if self.episode is not None and self._session is not None:
            self.episode.truncated = True
            await self._end(self.episode)

    async def _end(self, episode: Episode) -> None:
        session, self._session = self._session, None
        episode.ended_at = time.time()
        if session is not None:
            await session.aclose()

    def _observe(self, blocks: Blocks) -> Any:
        return observations.render(blocks, self._observation_format, max_length=self._max_observation_length)

    def _info(self, *, blocks: Blocks, steps: Sequence[Step] = (), elapsed: float) -> InfoDict:
        episode = self.episode
        assert episode is not None
        return make_info(
            episode.task,
            episode.tools,
            blocks=blocks,
            steps=steps,
            unscored=episode.unscored,
            error=next((step.error for step in steps if step.error), episode.error),
            error_kind=next((step.error_kind for step in steps if step.error), episode.error_kind),
            elapsed=elapsed,
        )


def _checked(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    options = {name: value for name, value in (options or {}).items() if value is not None}
    if unknown := sorted(set(options) - _OPTIONS):
        raise ValueError(f"unknown options of reset: {', '.join(unknown)}; known are {', '.join(sorted(_OPTIONS))}")
    ways = [name for name in ("index", "task_spec", "task") if name in options]
    if len(ways) > 1 or ("split" in options and ways and ways != ["index"]):
        given = ", ".join(name for name in ("split", *ways) if name in options)
        raise ValueError(f"options name the task in one way: split and index, task_spec, or task; got {given}")
    return options


def _names_task(options: Mapping[str, Any]) -> bool:
    return not {"index", "task_spec", "task"}.isdisjoint(options)


def _check_takes_text(text_tool: str, tools: Sequence[ToolSpec]) -> None:
    tool = find_tool(tools, text_tool)
    if tool is None or text_parameter(tool) is None:
        able = ", ".join(repr(tool.name[:60]) for tool in tools[:20] if text_parameter(tool) is not None)
        raise ValueError(
            f"text_tool={text_tool!r} is none of the tools with one required string parameter: {able or 'there are none'}"
        )


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {value!r}")
