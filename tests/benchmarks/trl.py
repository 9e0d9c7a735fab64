"""What the environment costs a GRPO step: TRL's own adapter, our three modes, on the same server with the same tiny model."""

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from ors_gym.serving import LocalServer
from tests.benchmarks._measure import in_turn, medians
from tests.benchmarks._three_turns import TOOL_SECONDS, TURNS
from tests.benchmarks.table import Cell, Table

NAME = "trl"

GROUP_SIZE = 4
TOO_MANY_CALLS = 3 * TURNS

OPENREWARD, FACTORY, ROLLOUT, ONE_TURN = "OpenRewardSpec", "environment_factory", "rollout_func", "reward_funcs"
SEQUENTIAL = (OPENREWARD, FACTORY)  # TRL's loop waits for one tool after another: these steps take their time


class Cost(NamedTuple):
    """Of one step, in seconds.

    Attributes:
        environment: The trainer's thread waits in the adapter.
        resets: In resets, whatever they do.
        own: CPU of the trainer's thread in the adapter, without the model's.
        templates: CPU of the same thread for chat templates, tokens and parsers, be it in the adapter or in TRL.
        threads: CPU of the process's other threads, in the whole step.
        step: In all.
    """

    environment: float
    resets: float
    own: float
    templates: float
    threads: float
    step: float


def run(quick: bool) -> list[Table]:
    """The cost of a step by rollouts and adapter; and that of a model which goes on calling when the episode is over."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    sizes = {4: 1} if quick else {8: 3, 32: 3, 128: 1}
    few = min(sizes)
    with (
        LocalServer(["tests.benchmarks._three_turns:ThreeTurns"], workers=2) as server,
        _openreward_at(server.base_url),
        tempfile.TemporaryDirectory() as folder,
    ):
        bench = _Bench(server.base_urls, Path(folder))
        costs = {size: bench.costs(size, repeats, [*SEQUENTIAL, ROLLOUT, ONE_TURN]) for size, repeats in sizes.items()}
        chatty = bench.costs(few, sizes[few], SEQUENTIAL, calls=TOO_MANY_CALLS)
    return [_by_size(costs, quick), _after_the_end(chatty, few)]


def _by_size(costs: dict[int, dict[str, Cost]], quick: bool) -> Table:
    rows: list[list[Cell]] = [
        [size, side, cost.environment, cost.resets, cost.own, cost.own / cost.step * 100, cost.templates, cost.threads, cost.step]
        for size, sides in costs.items()
        for side, cost in sides.items()
    ]
    targets = {}
    if not quick:
        for size, least in ((32, 10), (128, 25)):
            ratio = costs[size][OPENREWARD].environment / costs[size][ROLLOUT].environment
            targets[f"{size} rollouts: {ROLLOUT} waits {ratio:.1f} times less than {OPENREWARD} (at least {least})"] = (
                ratio >= least
            )
        resets = min(sides[OPENREWARD].resets / sides[FACTORY].resets for sides in costs.values())
        targets[f"{FACTORY} resets at least {resets:.0f} times faster than {OPENREWARD} (at least 10)"] = resets >= 10
        whole = max(sides[FACTORY].step / sides[OPENREWARD].step for sides in costs.values())
        targets[f"{FACTORY}'s step takes at most {whole:.2f} of {OPENREWARD}'s (at most 1)"] = whole <= 1
        own = {side: max(sides[side].own / sides[side].step for sides in costs.values()) for side in (FACTORY, ROLLOUT, ONE_TURN)}
        shares = ", ".join(f"{side} {share:.1%}" for side, share in own.items())
        targets[f"own work of a step, at most: {shares} (under 5%)"] = max(own.values()) < 0.05
    columns = ["rollouts", "", "env s", "resets s", "own s", "own %", "templates s", "threads s", "step s"]
    note = (
        f"{TURNS} turns, a tool of {1e3 * TOOL_SECONDS:.0f} ms. Env: the trainer's thread waits in reset, tools, reward or rollout "
        "function. Resets: time in them, own work included. Own: the CPU of that thread in all of these, without the model's; in "
        f"{ROLLOUT} with chat templates and parsers, which elsewhere are TRL's. Templates: what those take, whosever they are. "
        "Threads: CPU of the process's other threads, mostly HTTP, in the whole step. "
        f"128 rollouts: two server processes, of which {OPENREWARD} takes one. Medians, in turn, after a step that is not counted."
    )
    return Table("A GRPO step of a tiny model", columns, rows, targets, note)


def _after_the_end(costs: dict[str, Cost], rollouts: int) -> Table:
    ratio = costs[OPENREWARD].step / costs[FACTORY].step
    return Table(
        f"{rollouts} rollouts of a model that goes on calling: {TOO_MANY_CALLS} calls, the episode over after {TURNS}",
        ["", "environment s", "step s"],
        [[side, cost.environment, cost.step] for side, cost in costs.items()],
        {f"{FACTORY} is {ratio:.1f} times faster (at least 2)": ratio >= 2},
    )


@dataclass
class _Meter:
    """Seconds on the clock, and of the calling thread's CPU, by part of a step."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted."""

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.wall[part] = self.wall.get(part, 0.0) + time.perf_counter() - wall
                self.cpu[part] = self.cpu.get(part, 0.0) + time.thread_time() - cpu

        return measured

    def cost(self, threads: float, step: float) -> Cost:
        """What was measured since the last time.

        Args:
            threads: Seconds of CPU of the other threads.
            step: Seconds of the step.
        """
        doors = ("reset", "tools", "reward", "rollout")
        wall, cpu = (sum(times.get(door, 0.0) for door in doors) for times in (self.wall, self.cpu))
        if "rollout" in self.wall:  # the model writes inside of it
            wall, cpu = wall - self.wall["generate"], cpu - self.cpu["generate"]
        result = Cost(wall - cpu, self.wall.get("reset", 0.0), cpu, self.cpu.get("templates", 0.0), threads, step)
        self.wall.clear()
        self.cpu.clear()
        return result


class _Bench:
    """Trainers on these servers.

    Args:
        base_urls: Two equal servers.
        folder: Where the trainers write.
    """

    def __init__(self, base_urls: tuple[str, ...], folder: Path) -> None:
        self._base_urls = base_urls
        self._folder = folder

    def costs(self, rollouts: int, repeats: int, sides: list[str] | tuple[str, ...], calls: int = TURNS) -> dict[str, Cost]:
        """The median cost of a step by side.

        Args:
            rollouts: In a step.
            repeats: How many steps are measured of each sequential side; three times as many of the others.
            sides: Which.
            calls: How many calls the model makes, where nothing stops it.
        """
        with ExitStack() as stack:
            steps = {side: self._one_step(side, rollouts, calls, stack) for side in sides}
            for step in steps.values():  # what is made once is made: connections, caches
                step()
            measures = {side: step if side in SEQUENTIAL else _three_times(step) for side, step in steps.items()}
            return {side: Cost(*medians(rows)) for side, rows in in_turn(measures, repeats).items()}

    def _one_step(self, side: str, rollouts: int, calls: int, stack: ExitStack) -> Callable[[], Cost]:
        """A trainer of this side; what is returned has it train one step and tells what that cost."""
        from trl.trainer import grpo_trainer

        from ors_gym.trl._chat import Chat
        from tests.trl.tiny import PRESSES, make_tokenizer, make_trainer

        meter = _Meter()
        tokenizer = make_tokenizer(PRESSES)
        legal = set(tokenizer.convert_tokens_to_ids(PRESSES))
        trainer = make_trainer(
            self._folder / side,
            self._doors(side, rollouts, meter, stack),
            tokenizer=tokenizer,
            per_device_train_batch_size=rollouts,
            num_generations=GROUP_SIZE,
            max_tool_calling_iterations=calls,
            generation_kwargs={
                "suppress_tokens": [token for token in range(len(tokenizer)) if token not in legal],
                "max_new_tokens": calls if side == ONE_TURN else 1,
            },
        )
        trainer._generate_single_turn = meter.timed("generate", trainer._generate_single_turn)
        for name in ("_tokenize_prompts", "_get_tool_suffix_ids"):
            setattr(trainer, name, meter.timed("templates", getattr(trainer, name)))
        templates = [(grpo_trainer, "parse_response"), (Chat, "prompt_ids"), (Chat, "suffix_ids"), (Chat, "read")]
        loop = trainer._tool_call_loop

        def measured_loop(*args: Any) -> Any:
            trainer._sync_tool_dicts = [
                {name: meter.timed("tools", tool) for name, tool in tools.items()} for tools in trainer._sync_tool_dicts
            ]
            return loop(*args)

        trainer._tool_call_loop = measured_loop

        def step() -> Cost:
            with ExitStack() as patches:
                for owner, name in templates:
                    patches.enter_context(mock.patch.object(owner, name, meter.timed("templates", getattr(owner, name))))
                threads = time.process_time() - time.thread_time()
                trainer.train()
                threads = time.process_time() - time.thread_time() - threads
            return meter.cost(threads, trainer.state.log_history[-2]["step_time"])

        return step

    def _doors(self, side: str, rollouts: int, meter: _Meter, stack: ExitStack) -> dict[str, Any]:
        """What the adapter gives to the trainer, each door measured."""
        from trl.experimental.openreward import OpenRewardSpec

        from ors_gym.trl import ORSSpec

        if side == OPENREWARD:
            spec = OpenRewardSpec(self._base_urls[0], env_name="threeturns")
        else:
            spec = stack.enter_context(ORSSpec(self._base_urls if rollouts >= 128 else self._base_urls[0], progress=False))
        doors = {"train_dataset": spec.train_dataset, "reward_funcs": meter.timed("reward", spec.reward_funcs)}
        if side in SEQUENTIAL:
            doors["environment_factory"] = _measured_factory(spec.environment_factory, meter)
        if side == ROLLOUT:
            doors["rollout_func"] = meter.timed("rollout", spec.rollout_func)
        return doors if side == OPENREWARD else doors | {"callbacks": spec.callbacks}


def _measured_factory(factory: Callable[[], Any], meter: _Meter) -> Callable[[], Any]:
    """The factory; the resets of what it makes are counted."""

    def make() -> Any:
        environment = factory()
        kind = type(environment)
        if not hasattr(kind.reset, "__wrapped__"):
            kind.reset = meter.timed("reset", kind.reset)
        return environment

    return make


def _three_times(step: Callable[[], Cost]) -> Callable[[], Cost]:
    return lambda: Cost(*medians([step() for _ in range(3)]))


@contextmanager
def _openreward_at(base_url: str) -> Iterator[None]:
    """Has the `openreward` client find a server that is no subdomain of its platform's."""
    names = ("OPENREWARD_API_URL", "OPENREWARD_SESSION_URL")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, base_url))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
