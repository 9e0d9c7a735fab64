"""`AsyncioVectorEnv` keeps the contract of `SyncVectorEnv`, and loses nothing where something fails."""

import asyncio
import copy
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

from ors_gym.env import AsyncioVectorEnv
from ors_gym.errors import ConnectionFailed, TimeoutExceeded
from ors_gym.portal import portal

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
SPACES = [
    spaces.Discrete(5, start=-2),
    spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiBinary(6),
    spaces.Text(12),
    spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
    spaces.Dict(a=spaces.Discrete(4), b=spaces.Dict(c=spaces.Box(0, 1, (3,)))),
    spaces.Sequence(spaces.Discrete(4)),
    spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)),
    spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
]


class Countdown(gym.Env[Any, Any]):
    """Ends after `length` steps. What it observes is drawn from its space, by its seed; actions are rewards."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, length: int = 3, space: spaces.Space[Any] | None = None, render_mode: str | None = None) -> None:
        self.length = length
        self.observation_space = copy.deepcopy(space) if space else spaces.Discrete(100)
        self.action_space = spaces.Discrete(50)
        self.sampled = space is not None
        self.render_mode = render_mode
        self.count = 0
        self.closed = 0
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        self.received.append(options)
        return self._observe(), {"count": 0, "beginning": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        info = {"count": self.count, "nested": {"half": self.count / 2}, "name": str(self.count), "array": np.full(2, self.count)}
        return self._observe(), float(action), self.count >= self.length, False, info

    def render(self) -> Any:
        return f"{self.count} of {self.length}"

    def close(self) -> None:
        self.closed += 1

    def _observe(self) -> Any:
        return self.observation_space.sample() if self.sampled else self.count


class AsyncCountdown:
    """The same, asynchronous, without anything that Gymnasium would give it."""

    def __init__(self, length: int = 3, space: spaces.Space[Any] | None = None) -> None:
        self.env = Countdown(length, space)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        await asyncio.sleep(0)
        return self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(0)
        return self.env.step(action)

    async def close(self) -> None:
        self.env.close()

    async def count_now(self) -> int:
        return self.env.count


class Gate(AsyncCountdown):
    """Waits in every step until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.entered = threading.Event()
        self.cancelled = False

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            self.entered.set()
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return await super().step(action)


class Failing(AsyncCountdown):
    """Raises at the steps and resets that it is told, each counted from 1."""

    def __init__(self, *, steps: tuple[int, ...] = (), resets: tuple[int, ...] = (), error: Exception | None = None) -> None:
        super().__init__()
        self.fail_at, self.resets_to_fail, self.error = steps, resets, error or RuntimeError("it broke")
        self.steps = self.resets = 0

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        if self.resets in self.resets_to_fail:
            raise self.error
        return await super().reset(seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps in self.fail_at:
            raise self.error
        return await super().step(action)


class FailingOrdinary(Countdown):
    """An ordinary environment that raises in its second step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.count == 1:
            raise ValueError("it broke too")
        return super().step(action)


@pytest.fixture
def vectorize() -> Iterator[Callable[..., AsyncioVectorEnv]]:
    """Makes an `AsyncioVectorEnv`; closed after the test."""
    with ExitStack() as stack:

        def vectorize(env_fns: Any, *args: Any, **options: Any) -> AsyncioVectorEnv:
            envs = AsyncioVectorEnv(env_fns, *args, **options)
            stack.callback(envs.close)
            return envs

        yield vectorize


# The contract


@pytest.mark.parametrize("make", [Countdown, AsyncCountdown])
@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_it_gives_what_syncvectorenv_gives(vectorize: Any, make: Any, space: spaces.Space[Any], mode: AutoresetMode) -> None:
    lengths = (1, 2, 3, 5)
    ours = vectorize([lambda n=n: make(n, space) for n in lengths], autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda n=n: Countdown(n, space) for n in lengths], autoreset_mode=mode)

    assert ours.num_envs == theirs.num_envs
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is mode

    assert data_equivalence(ours.reset(seed=3, options={"a": 1}), theirs.reset(seed=3, options={"a": 1}), exact=True)
    for step in range(8):
        actions = [10 * step + n for n in range(4)]
        result = ours.step(actions)
        assert data_equivalence(result, theirs.step(actions), exact=True)
        assert result[0] in ours.observation_space
        assert [part.dtype for part in result[1:4]] == [np.float64, np.bool_, np.bool_]


@pytest.mark.parametrize("make", [Countdown, AsyncCountdown])
def test_masked_resets_give_what_syncvectorenv_gives(vectorize: Any, make: Any) -> None:
    ours = vectorize([lambda n=n: make(n) for n in (1, 2, 3)], autoreset_mode=DISABLED)
    theirs = SyncVectorEnv([lambda n=n: Countdown(n) for n in (1, 2, 3)], autoreset_mode=DISABLED)
    assert data_equivalence(ours.reset(seed=[1, 2, 3]), theirs.reset(seed=[1, 2, 3]))
    for _ in range(6):
        result, other = ours.step([1, 2, 3]), theirs.step([1, 2, 3])
        assert data_equivalence(result, other)
        if (ended := result[2] | result[3]).any():
            assert data_equivalence(
                ours.reset(options={"reset_mask": ended, "a": 1}), theirs.reset(options={"reset_mask": ended, "a": 1})
            )
    assert [env.received for env in theirs.envs] == [getattr(env, "env", env).received for env in ours.envs] if make else None


def test_arguments_stand_in_syncvectorenvs_order(vectorize: Any) -> None:
    envs = vectorize([Countdown] * 2, False, "different", "SameStep")
    assert (envs.copy, envs.observation_mode, envs.autoreset_mode) == (False, "different", SAME_STEP)


def test_the_metadata_of_the_environments_class_is_left_alone(vectorize: Any) -> None:
    class Another(Countdown):
        metadata = {"render_modes": []}  # noqa: RUF012

    assert vectorize([Another]).metadata["autoreset_mode"] is NEXT_STEP
    assert Another.metadata == {"render_modes": []}


def test_observations_are_copied_unless_copy_is_false(vectorize: Any) -> None:
    space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    copied = vectorize([lambda: Countdown(9, space)] * 2)
    first, _ = copied.reset(seed=0)
    kept = first.copy()
    copied.step([0, 0])
    assert np.array_equal(first, kept)
    shared = vectorize([lambda: Countdown(9, space)] * 2, copy=False)
    first, _ = shared.reset(seed=0)
    assert shared.step([0, 0])[0] is first


def test_rewards_and_flags_are_fresh_arrays(vectorize: Any) -> None:
    envs = vectorize([Countdown] * 2)
    envs.reset()
    first, second = envs.step([1, 2]), envs.step([3, 4])
    assert first[1].tolist() == [1.0, 2.0]
    assert all(a is not b for a, b in zip(first[1:4], second[1:4], strict=True))


@pytest.mark.parametrize(
    ("seed", "seeds"),
    [(42, (42, 43, 44)), ([7, 7, 1], (7, 7, 1)), (range(3), (0, 1, 2)), (np.array([4, 5, 6]).tolist(), (4, 5, 6))],
)
def test_seeds_are_one_for_all_or_one_for_each(vectorize: Any, seed: Any, seeds: tuple[int, ...]) -> None:
    envs = vectorize([Countdown] * 3)
    envs.reset(seed=seed)
    assert envs.np_random_seed == seeds
    envs.reset()
    assert envs.np_random_seed == seeds
    assert [generator.bit_generator.state for generator in envs.np_random] != [np.random.default_rng(0).bit_generator.state] * 3


@pytest.mark.parametrize(("seed", "error"), [([1, 2], ValueError), (np.int64(3), TypeError)])
def test_seeds_of_another_form_are_refused(vectorize: Any, seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        vectorize([Countdown] * 3).reset(seed=seed)


def test_attributes_and_methods_are_reached_through_wrappers(vectorize: Any) -> None:
    envs = vectorize([lambda: gym.wrappers.TimeLimit(Countdown(), 5)] * 3)
    assert envs.get_attr("length") == envs.call("length") == (3, 3, 3)
    envs.set_attr("length", [1, 2, 4])
    assert envs.get_attr("length") == (1, 2, 4)
    envs.set_attr("length", 6)
    assert envs.get_attr("length") == (6, 6, 6)
    assert envs.call("render") == ("0 of 6",) * 3
    with pytest.raises(ValueError, match="of 3, one for each sub-environment, not of 2"):
        envs.set_attr("length", (1, 2))


def test_coroutine_methods_of_asynchronous_environments_are_called_too(vectorize: Any) -> None:
    envs = vectorize([AsyncCountdown] * 2)
    envs.reset()
    envs.step([0, 0])
    assert envs.call("count_now") == (1, 1)
    envs.set_attr("label", ["a", "b"])
    assert envs.get_attr("label") == ("a", "b")


def test_render_gives_what_each_renders(vectorize: Any) -> None:
    envs = vectorize([lambda: Countdown(render_mode="ansi")] * 2)
    assert envs.render_mode == "ansi"
    envs.reset()
    assert envs.render() == ("0 of 3", "0 of 3")
    assert vectorize([AsyncCountdown]).render_mode is None


def test_spaces_that_do_not_fit_together_are_refused() -> None:
    small, large, other = (spaces.Box(0, high, shape) for high, shape in ((1, (2,)), (2, (2,)), (1, (3,))))
    with pytest.raises(RuntimeError, match="observation_mode='different'"):
        AsyncioVectorEnv([lambda: Countdown(1, small), lambda: Countdown(1, large)])
    for mode in ("different", (spaces.Box(0, 1, (2, 2)), small)):
        with pytest.raises(RuntimeError, match="shape or dtype"):
            AsyncioVectorEnv([lambda: Countdown(1, small), lambda: Countdown(1, other)], observation_mode=mode)
    with pytest.raises(RuntimeError):
        AsyncioVectorEnv([Countdown, lambda: gym.make("CartPole-v1")], observation_mode="different")
    with pytest.raises(ValueError, match="Invalid `observation_mode`"):
        AsyncioVectorEnv([Countdown], observation_mode="equal")
    with pytest.raises(TypeError, match="of spaces"):
        AsyncioVectorEnv([Countdown], observation_mode=(small, "space"))


def test_different_spaces_of_one_shape_can_be_batched(vectorize: Any) -> None:
    boxes = [spaces.Box(0, high, (2,)) for high in (1, 2)]
    envs = vectorize([lambda box=box: Countdown(1, box) for box in boxes], observation_mode="different")
    assert envs.observation_space == gym.vector.utils.batch_differing_spaces(boxes)
    pair = (spaces.Box(0, 9, (2, 2)), spaces.Box(0, 9, (2,)))
    envs = vectorize([lambda box=box: Countdown(1, box) for box in boxes], observation_mode=pair)
    assert (envs.observation_space, envs.single_observation_space) == pair


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_concurrency": 0}, ValueError),
        ({"max_concurrency": 1.5}, ValueError),
        ({"step_timeout": 0}, ValueError),
        ({"on_error": "ignore"}, ValueError),
        ({"autoreset_mode": "never"}, ValueError),
    ],
)
def test_arguments_out_of_their_range_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        AsyncioVectorEnv([Countdown], **options)
    with pytest.raises(ValueError, match="at least one"):
        AsyncioVectorEnv([])


def test_a_constructor_that_fails_closes_what_was_made() -> None:
    made: list[Countdown] = []

    def make() -> Countdown:
        if len(made) == 2:
            raise RuntimeError("no third one")
        made.append(Countdown())
        return made[-1]

    with pytest.raises(RuntimeError, match="no third one"):
        AsyncioVectorEnv([make] * 3)
    assert [env.closed for env in made] == [1, 1]


# Resets


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True, False, True], TypeError),
        (np.array([True, False]), ValueError),
        (np.array([[True, False, True]]), ValueError),
        (np.array([1, 0, 1]), TypeError),
        (np.array([1.0, 0.0, 1.0]), TypeError),
        (np.zeros(3, dtype=np.bool_), ValueError),
    ],
)
def test_a_mask_of_another_form_is_refused(vectorize: Any, mask: Any, error: type[Exception]) -> None:
    envs = vectorize([Countdown] * 3)
    envs.reset()
    with pytest.raises(error, match="reset_mask"):
        envs.reset(options={"reset_mask": mask})
    envs.step([0, 0, 0])


def test_a_mask_that_leaves_out_what_was_never_reset_is_refused(vectorize: Any) -> None:
    envs = vectorize([AsyncCountdown] * 3)
    with pytest.raises(ValueError, match=r"\[1\] were never reset"):
        envs.reset(options={"reset_mask": np.array([True, False, True])})
    envs.reset(options={"reset_mask": np.ones(3, dtype=np.bool_)})


def test_options_are_read_and_never_changed(vectorize: Any) -> None:
    envs = vectorize([Countdown] * 2)
    envs.reset()
    options = {"reset_mask": np.array([True, False]), "level": 3}
    envs.reset(options=options)
    assert list(options) == ["reset_mask", "level"]
    assert [env.received for env in envs.envs] == [[None, {"level": 3}], [None]]


def test_staggered_masks_keep_each_environments_statistics(vectorize: Any) -> None:
    envs = wrappers.RecordEpisodeStatistics(vectorize([lambda n=n: Countdown(n) for n in (1, 2, 3)], autoreset_mode=DISABLED))
    envs.reset()
    recorded: list[tuple[int, float, int]] = []
    for _ in range(6):
        _, _, terminations, truncations, infos = envs.step([1, 2, 3])
        if (ended := terminations | truncations).any():
            recorded += [(i, infos["episode"]["r"][i], infos["episode"]["l"][i]) for i in np.flatnonzero(ended).tolist()]
            envs.reset(options={"reset_mask": ended})
    assert sorted(recorded) == [(0, 1.0, 1)] * 6 + [(1, 4.0, 2)] * 3 + [(2, 9.0, 3)] * 2


def test_an_explicit_reset_after_the_end_begins_anew(vectorize: Any) -> None:
    envs = vectorize([lambda: AsyncCountdown(1), lambda: AsyncCountdown(9)])
    envs.reset()
    assert envs.step([1, 1])[2].tolist() == [True, False]
    envs.reset()
    observations, rewards, *_ = envs.step([5, 5])
    assert observations.tolist() == [1, 1]
    assert rewards.tolist() == [5.0, 5.0]


def test_the_next_step_ignores_its_action(vectorize: Any) -> None:
    envs = vectorize([lambda: AsyncCountdown(1), lambda: AsyncCountdown(9)])
    envs.reset()
    envs.step([1, 1])
    observations, rewards, terminations, truncations, infos = envs.step([49, 1])
    assert observations.tolist() == [0, 2]
    assert rewards.tolist() == [0.0, 1.0]
    assert terminations.tolist() == truncations.tolist() == [False, False]
    assert infos["beginning"].tolist() == infos["_beginning"].tolist() == [True, False]


def test_the_same_step_has_the_end_and_the_next_beginning(vectorize: Any) -> None:
    envs = vectorize([lambda: AsyncCountdown(1), lambda: AsyncCountdown(9)], autoreset_mode=SAME_STEP)
    envs.reset()
    observations, rewards, terminations, _, infos = envs.step([7, 8])
    assert observations.tolist() == [0, 1]
    assert rewards.tolist() == [7.0, 8.0]
    assert terminations.tolist() == [True, False]
    assert infos["final_obs"].tolist() == [1, None]
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [True, False]
    assert infos["final_info"]["count"].tolist() == [1, 0]
    assert envs.step([1, 1])[0].tolist() == [0, 2]


def test_without_autoreset_a_step_after_the_end_is_an_error_and_costs_nobody_a_step(vectorize: Any) -> None:
    envs = vectorize([lambda: AsyncCountdown(1), lambda: AsyncCountdown(9)], autoreset_mode=DISABLED)
    envs.reset()
    envs.step([1, 1])
    for kind in (ResetNeeded, AssertionError):
        with pytest.raises(kind, match=r"sub-environments \[0\] have ended"):
            envs.step([1, 1])
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert envs.step([1, 1])[0].tolist() == [1, 2]


# Actions


@pytest.mark.parametrize("actions", ["abc", b"abc", {"a": 1, "b": 2, "c": 3}])
def test_one_action_for_all_is_refused(vectorize: Any, actions: Any) -> None:
    envs = vectorize([Countdown] * 3)
    envs.reset()
    with pytest.raises(TypeError, match="one for each sub-environment"):
        envs.step(actions)


@pytest.mark.parametrize("actions", [[1, 2], [1, 2, 3, 4], np.arange(2), []])
def test_another_number_of_actions_is_refused_and_the_environments_are_not_stepped(vectorize: Any, actions: Any) -> None:
    envs = vectorize([Countdown] * 3)
    envs.reset()
    with pytest.raises(ValueError):
        envs.step(actions)
    assert envs.step([0, 0, 0])[0].tolist() == [1, 1, 1]


def test_actions_may_be_a_list_a_tuple_an_array_or_a_sample(vectorize: Any) -> None:
    envs = vectorize([lambda: Countdown(9)] * 3)
    envs.reset()
    for actions in ([1, 2, 3], (1, 2, 3), np.array([1, 2, 3])):
        assert envs.step(actions)[1].tolist() == [1.0, 2.0, 3.0]
    envs.step(envs.action_space.sample())


def test_a_step_before_the_first_reset_is_the_environments_own_error(vectorize: Any) -> None:
    with pytest.raises(ResetNeeded):
        vectorize([lambda: gym.make("CartPole-v1")] * 2).step([0, 0])


# Waiting


def test_a_time_out_loses_nothing(vectorize: Any) -> None:
    envs = vectorize([Gate, AsyncCountdown])
    envs.reset()
    envs.step_async([1, 2])
    for kind in (TimeoutError, multiprocessing.TimeoutError):
        with pytest.raises(kind, match="nothing is lost"):
            envs.step_wait(timeout=0.01)
    portal().loop.call_soon_threadsafe(envs.envs[0].open.set)
    observations, rewards, *_ = envs.step_wait(timeout=60)
    assert observations.tolist() == [1, 1]
    assert rewards.tolist() == [1.0, 2.0]
    assert envs.step([3, 4])[0].tolist() == [2, 2]


def test_a_reset_can_be_begun_and_awaited(vectorize: Any) -> None:
    envs = vectorize([AsyncCountdown] * 2)
    envs.reset_async(seed=1)
    assert envs.reset_wait(timeout=60)[0].tolist() == [0, 0]


def test_calls_out_of_order_are_gymnasiums_errors(vectorize: Any) -> None:
    envs = vectorize([Gate, AsyncCountdown])
    with pytest.raises(NoAsyncCallError, match="without any prior call to `reset_async`"):
        envs.reset_wait()
    envs.reset()
    with pytest.raises(NoAsyncCallError, match="without any prior call to `step_async`"):
        envs.step_wait()
    envs.step_async([0, 0])
    for call in (lambda: envs.step_async([0, 0]), envs.reset, lambda: envs.step([0, 0])):
        with pytest.raises(AlreadyPendingCallError, match="while waiting for a pending call to `step` to complete"):
            call()
    with pytest.raises(NoAsyncCallError):
        envs.reset_wait()


def test_close_ends_a_call_that_is_under_way(vectorize: Any) -> None:
    envs = vectorize([Gate, AsyncCountdown])
    gate = envs.envs[0]
    envs.reset()
    envs.step_async([0, 0])
    gate.entered.wait(60)
    envs.close()
    assert gate.cancelled
    assert gate.env.closed == 1


@pytest.mark.parametrize("make", [Countdown, AsyncCountdown])
def test_close_closes_each_once_and_again_does_nothing(vectorize: Any, make: Any) -> None:
    envs = vectorize([make] * 3)
    made = [getattr(env, "env", env) for env in envs.envs]
    envs.reset()
    envs.close()
    envs.close()
    assert envs.closed
    assert [env.closed for env in made] == [1, 1, 1]
    for call in (envs.reset, lambda: envs.step([0, 0, 0]), envs.step_wait):
        with pytest.raises(ClosedEnvironmentError):
            call()


async def test_an_event_loop_can_await_it_and_is_not_blocked(vectorize: Any) -> None:
    envs = vectorize([Gate, AsyncCountdown])
    observations, _ = await envs.areset(seed=1)
    assert observations.tolist() == [0, 0]
    step = asyncio.create_task(envs.astep([1, 2]))
    await asyncio.sleep(0)
    assert not step.done()
    portal().loop.call_soon_threadsafe(envs.envs[0].open.set)
    assert (await step)[1].tolist() == [1.0, 2.0]


async def test_a_step_that_is_cancelled_cancels_each_and_the_next_resets_them(vectorize: Any) -> None:
    envs = vectorize([Gate, AsyncCountdown])
    await envs.areset()
    step = asyncio.create_task(envs.astep([1, 2]))
    await asyncio.to_thread(envs.envs[0].entered.wait, 60)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert envs.envs[0].cancelled
    observations, *_ = await envs.astep([1, 2])
    assert observations.tolist() == [0, 2]


def test_ordinary_environments_run_at_once(vectorize: Any) -> None:
    together = threading.Barrier(4, timeout=60)

    class Meeting(Countdown):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            together.wait()
            return super().step(action)

    envs = vectorize([Meeting] * 4)
    envs.reset()
    assert envs.step([1, 2, 3, 4])[1].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_an_ordinary_environment_stays_in_one_thread_which_ends_with_it(vectorize: Any) -> None:
    class Threads(Countdown):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return super().step(threading.get_ident() % 1_000_003)

        def close(self) -> None:
            threads.append(threading.current_thread())

    threads: list[threading.Thread] = []
    envs = vectorize([Threads] * 2)
    envs.reset()
    first, second = envs.step([0, 0])[1].tolist(), envs.step([0, 0])[1].tolist()
    assert first == second
    assert first[0] != first[1]
    envs.close()
    assert len({thread.ident for thread in threads}) == 2
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)


def test_no_more_run_at_once_than_max_concurrency(vectorize: Any) -> None:
    running: list[int] = [0, 0]

    class Counting(AsyncCountdown):
        async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            running[0] += 1
            running[1] = max(running)
            result = await super().step(action)
            running[0] -= 1
            return result

    envs = vectorize([Counting] * 10, max_concurrency=3)
    envs.reset()
    envs.step([0] * 10)
    assert running == [0, 3]


def test_a_forked_child_is_told_to_make_its_own(vectorize: Any) -> None:
    envs = vectorize([AsyncCountdown] * 2)
    envs.reset()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            envs.step([0, 0])
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        envs.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert b"make another one in a forked child" in os.read(reading, 1000)
    assert envs.step([0, 0])[0].tolist() == [1, 1]


# Failures


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_a_failing_step_truncates_its_own_episode_only(vectorize: Any, mode: AutoresetMode) -> None:
    failing = [Failing(steps=(2,)) if i in (2, 5) else AsyncCountdown(9) for i in range(8)]
    envs = vectorize([lambda env=env: env for env in failing], autoreset_mode=mode)
    envs.reset()
    envs.step(range(8))
    observations, rewards, terminations, truncations, infos = envs.step(range(8))
    broken = [i in (2, 5) for i in range(8)]
    assert truncations.tolist() == broken
    assert terminations.tolist() == [False] * 8
    assert rewards.tolist() == [0.0 if i in (2, 5) else float(i) for i in range(8)]
    assert observations.tolist() == [0 if i in (2, 5) else 2 for i in range(8)]
    told = infos["final_info"] if mode is SAME_STEP else infos
    assert [error if mask else "" for error, mask in zip(told["error"], told["_error"], strict=True)] == [
        "RuntimeError: it broke" if i in (2, 5) else "" for i in range(8)
    ]
    assert told["unscored"].tolist() == broken
    assert told["error_kind"].tolist() == ["environment" if i in (2, 5) else None for i in range(8)]
    if mode is DISABLED:
        envs.reset(options={"reset_mask": truncations})
    if mode is NEXT_STEP:
        assert envs.step(range(8))[0].tolist() == [0 if i in (2, 5) else 3 for i in range(8)]
    assert not envs.step(range(8))[3].any()


def test_an_ordinary_environment_that_fails_is_no_different(vectorize: Any) -> None:
    envs = vectorize([FailingOrdinary, lambda: Countdown(9)])
    envs.reset()
    envs.step([1, 1])
    *_, truncations, infos = envs.step([1, 1])
    assert truncations.tolist() == [True, False]
    assert infos["error"].tolist() == ["ValueError: it broke too", None]
    assert envs.step([1, 1])[0].tolist() == [0, 3]


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_a_failing_reset_is_an_empty_observation_and_the_next_step_is_truncated_without_asking(
    vectorize: Any, mode: AutoresetMode
) -> None:
    failing = Failing(resets=(1,))
    envs = vectorize([lambda: failing, lambda: AsyncCountdown(9)], autoreset_mode=mode)
    observations, infos = envs.reset()
    assert observations.tolist() == [0, 0]
    assert infos["error"].tolist() == ["RuntimeError: it broke", None]

    _, _, terminations, truncations, infos = envs.step([1, 1])
    assert terminations.tolist() == [False, False]
    assert truncations.tolist() == [True, False]
    assert failing.steps == 0
    assert (infos["final_info"] if mode is SAME_STEP else infos)["error"].tolist() == ["RuntimeError: it broke", None]

    if mode is NEXT_STEP:
        *_, truncations, infos = envs.step([1, 1])
        assert not truncations.any()
        assert infos["_beginning"].tolist() == [True, False]
    if mode is DISABLED:
        envs.reset(options={"reset_mask": truncations})
    assert failing.resets == 2
    assert envs.step([7, 7])[1].tolist() == [7.0, 7.0]


def test_a_reset_that_keeps_failing_never_stops_the_others(vectorize: Any) -> None:
    envs = vectorize([lambda: Failing(resets=tuple(range(1, 99))), lambda: AsyncCountdown(9)])
    envs.reset()
    assert [envs.step([1, 1])[3].tolist() for _ in range(5)] == [[n % 2 == 0, False] for n in range(5)]


def test_failures_are_raised_on_demand_when_every_result_is_in(vectorize: Any) -> None:
    others = [AsyncCountdown(9) for _ in range(3)]
    envs = vectorize([lambda: Failing(steps=(2,)), *(lambda env=env: env for env in others)], on_error="raise")
    envs.reset()
    envs.step([1, 1, 1, 1])
    with pytest.raises(RuntimeError, match="it broke") as caught:
        envs.step([1, 2, 3, 4])
    assert caught.value.__notes__ == ["in sub-environment 0 of 4"]
    assert [env.env.count for env in others] == [2, 2, 2]
    observations, rewards, _, truncations, infos = envs.last_step()
    assert observations.tolist() == [0, 2, 2, 2]
    assert rewards.tolist() == [0.0, 2.0, 3.0, 4.0]
    assert truncations.tolist() == [True, False, False, False]
    assert infos["error"][0] == "RuntimeError: it broke"
    assert envs.step([1, 2, 3, 4])[0].tolist() == [0, 3, 3, 3]


def test_a_failing_reset_is_raised_on_demand_too(vectorize: Any) -> None:
    envs = vectorize([lambda: Failing(resets=(1,)), AsyncCountdown], on_error="raise")
    with pytest.raises(RuntimeError, match="it broke"):
        envs.reset()
    assert envs.reset()[0].tolist() == [0, 0]


def test_there_is_no_last_step_before_the_first(vectorize: Any) -> None:
    with pytest.raises(ResetNeeded):
        vectorize([Countdown]).last_step()


def test_a_step_that_takes_too_long_has_failed_and_the_others_have_not(vectorize: Any) -> None:
    envs = vectorize([Gate, AsyncCountdown], step_timeout=0.05)
    envs.reset()
    *_, truncations, infos = envs.step([1, 1])
    assert truncations.tolist() == [True, False]
    assert "step_timeout=0.05 s" in infos["error"][0]
    assert infos["error_kind"].tolist() == ["infrastructure", None]
    raising = vectorize([Gate, AsyncCountdown], step_timeout=0.05, on_error="raise")
    raising.reset()
    with pytest.raises(TimeoutExceeded):
        raising.step([1, 1])


def test_an_ordinary_environment_that_takes_too_long_is_reset_when_it_is_done(vectorize: Any) -> None:
    release = threading.Event()

    class Slow(Countdown):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            release.wait(60)
            return super().step(action)

    envs = vectorize([Slow], step_timeout=0.05)
    envs.reset()
    assert envs.step([1])[3].tolist() == [True]
    envs.step_async([1])  # resets it, at its turn
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0.05)
    release.set()
    assert envs.step_wait(timeout=60)[0].tolist() == [0]
    assert envs.step([1])[0].tolist() == [1]


# Wrappers around it


def test_gymnasiums_vector_wrappers_work_over_it(vectorize: Any) -> None:
    envs: Any = vectorize([lambda: gym.make("CartPole-v1")] * 3)
    envs = wrappers.NormalizeReward(wrappers.TransformReward(envs, lambda rewards: 2 * rewards))
    envs = wrappers.NormalizeObservation(envs)
    envs = wrappers.DictInfoToList(wrappers.RecordEpisodeStatistics(envs))
    observations, infos = envs.reset(seed=1)
    assert observations.shape == (3, 4)
    assert len(infos) == 3
    for _ in range(40):
        *_, infos = envs.step(envs.action_space.sample())
    envs.close()


def test_an_observation_wrapper_refuses_the_same_step_mode(vectorize: Any) -> None:
    envs = vectorize([lambda: Countdown(1, spaces.Box(0, 1, (2,)))], autoreset_mode=SAME_STEP)
    with pytest.raises((ValueError, AssertionError)):
        wrappers.NormalizeObservation(envs)


# The garbage collector


@pytest.mark.parametrize("enabled", [True, False])
def test_a_step_leaves_the_garbage_collector_as_it_was(vectorize: Any, enabled: bool) -> None:
    envs = vectorize([lambda: Failing(steps=(2,)), AsyncCountdown], on_error="raise")
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        envs.reset()
        envs.step([0, 0])
        assert gc.isenabled() is enabled
        with pytest.raises(RuntimeError):
            envs.step([0, 0])
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_long_step_holds_the_garbage_collector_back_for_a_moment_only(vectorize: Any) -> None:
    envs = vectorize([Gate])
    envs.reset()
    collected = threading.Event()
    gc.callbacks.append(lambda phase, info: collected.set())
    try:
        envs.step_async([0])
        envs.envs[0].entered.wait(60)
        while not collected.wait(0.01):
            _ = [[] for _ in range(2_000)]
    finally:
        gc.callbacks.pop()
    portal().loop.call_soon_threadsafe(envs.envs[0].open.set)
    envs.step_wait(timeout=60)


@pytest.mark.parametrize(("error", "traced"), [(ConnectionFailed("gone"), False), (KeyError("gone"), True)])
def test_only_a_failure_that_nobody_foresaw_is_logged_with_its_traceback(
    error: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(gym.Env[Any, Any]):
        observation_space = action_space = spaces.Discrete(2)

        def reset(self, **options: Any) -> Any:
            raise error

    envs = AsyncioVectorEnv([Broken] * 2)
    envs.reset()
    envs.close()

    assert [bool(record.exc_info) for record in caplog.records] == [traced, traced]
