"""`ors-gym demo`: a model learns by GRPO on a real ORS server, in about a minute."""

import logging
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ors_gym.cli._console import blocks_text, console, one_line_errors, server_text
from ors_gym.records import EPISODES_FILE

if TYPE_CHECKING:
    from trl import GRPOTrainer

    from ors_gym.trl import ORSSpec

_ENVIRONMENT = "ors_gym.serving.largest_digit:LargestDigit"
_TASKS_A_STEP = 16
_GROUP_SIZE = 4


def demo(
    steps: Annotated[int, typer.Option(min=1, help="Training steps, of 64 episodes each.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights, the tasks' order and the sampling.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the curve and the episodes; a new one in runs/ by default.")
    ] = None,
) -> None:
    """Train a tiny model by GRPO against an ORS server, and show what it learnt.

    Starts a local server, trains from random weights with every reward from it, and tests on tasks that were kept back.
    """
    folder = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        with one_line_errors():
            folder.mkdir(parents=True, exist_ok=True)
            _run(steps, seed, folder)
    except KeyboardInterrupt:
        console.print(Text(f"\nStopped. What was recorded until now is in {folder}"), soft_wrap=True)
        raise typer.Exit(130) from None


def _run(steps: int, seed: int, folder: Path) -> None:
    from ors_gym.serving import LocalServer

    with LocalServer([_ENVIRONMENT], workers=2) as server:
        console.print(f"An ORS server runs at {server.base_url}. One episode of its environment:")
        _show_episode(server.base_url)
        with console.status("Loading PyTorch, Transformers and TRL"):
            trainer, spec, curve = _make_trainer(server.base_urls, steps, seed, folder)
        with spec:
            with console.status("Evaluating the random model on the test split"):
                before = trainer.evaluate()
            curve.train(trainer, steps)
            with console.status("Evaluating the trained model on the test split"):
                after = trainer.evaluate()
    _show_result(before, after)
    curve.save(folder / "reward.png", before["eval_reward"], after["eval_reward"])
    console.print(Text(f"The reward curve: {folder / 'reward.png'}\nEvery episode:    {folder / EPISODES_FILE}"), soft_wrap=True)


def _show_episode(base_url: str) -> None:
    from ors_gym.env import ORSEnv

    with ORSEnv(base_url, "largest_digit", split="train") as env:
        prompt, _ = env.reset(options={"split": "train", "index": 0})
        env.step({"name": "submit", "input": {"answer": max(prompt.rstrip("="))}})
        episode = env.episode
    assert episode is not None
    (step,) = episode.steps
    assert step.call is not None
    lines = Table.grid(padding=(0, 2))
    lines.add_row("prompt", blocks_text(episode.prompt))
    lines.add_row("tool call", server_text(f"{step.call.name}({step.call.input})"))
    lines.add_row("output", blocks_text(step.blocks))
    lines.add_row("reward", str(step.reward))
    console.print(Panel(lines, expand=False))


def _make_trainer(base_urls: tuple[str, ...], steps: int, seed: int, folder: Path) -> "tuple[GRPOTrainer, ORSSpec, _Curve]":
    _silence()
    import torch
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from ors_gym.cli._tiny_model import character_tokenizer, tiny_model
    from ors_gym.trl import ORSSpec

    torch.set_num_threads(1)  # the server's two workers need the cores more
    tokenizer = character_tokenizer("0123456789=")
    spec = ORSSpec(base_urls, "largest_digit", split="train", conversational=False, record=folder, progress=False)
    args = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=_TASKS_A_STEP * _GROUP_SIZE,
        num_generations=_GROUP_SIZE,
        per_device_eval_batch_size=100 * _GROUP_SIZE,
        max_completion_length=1,
        learning_rate=4e-3,
        adam_beta2=0.98,
        beta=0.0,
        entropy_coef=0.1,
        seed=seed,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    curve = _Curve()
    trainer = GRPOTrainer(
        model=tiny_model(tokenizer, seed),
        args=args,
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=spec.eval_dataset("test"),
        reward_funcs=spec.reward_funcs,
        callbacks=[*spec.callbacks, curve.callback()],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, spec, curve


def _silence() -> None:
    """Nothing but the demo's own lines on the terminal, and no request to a model hub."""
    os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    warnings.simplefilter("ignore")
    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    for name in ("trl", "accelerate", "torch"):
        logging.getLogger(name).setLevel(logging.ERROR)


class _Curve:
    """The mean reward of every step: a line on the terminal while it trains, a picture afterwards."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self._progress = Progress(
            TextColumn("Training"),
            BarColumn(),
            TextColumn("step {task.completed:.0f}/{task.total:.0f}   mean reward {task.fields[reward]:.2f}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task("", total=None, reward=0.0)

    def callback(self) -> Any:
        """What the trainer calls at each step."""
        from transformers import TrainerCallback

        curve = self

        class OnLog(TrainerCallback):  # type: ignore[misc]
            def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
                if logs and logs.get("reward") is not None:
                    curve.add(logs["reward"])

        return OnLog()

    def add(self, reward: float) -> None:
        """Takes in the mean reward of a step."""
        self.rewards.append(reward)
        self._progress.update(self._bar, completed=len(self.rewards), reward=_smoothed(self.rewards)[-1])

    def train(self, trainer: "GRPOTrainer", steps: int) -> None:
        """Trains, with the progress line."""
        self._progress.update(self._bar, total=steps)
        with self._progress:
            trainer.train()

    def save(self, path: Path, before: float, after: float) -> None:
        """Draws the curve."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        numbers = range(1, len(self.rewards) + 1)
        figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
        axes.plot(numbers, self.rewards, color="tab:blue", alpha=0.3, label="training, each step")
        axes.plot(numbers, _smoothed(self.rewards), color="tab:blue", label="training, mean of 10 steps")
        axes.axhline(before, color="tab:gray", linestyle=":", label=f"test split before: {before:.2f}")
        axes.axhline(after, color="tab:green", linestyle="--", label=f"test split after: {after:.2f}")
        axes.set(
            xlabel="step", ylabel="mean reward", ylim=(-0.02, 1.02), title="GRPO on largest_digit, rewards from the ORS server"
        )
        axes.legend(loc="lower right")
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def _smoothed(values: list[float], width: int = 10) -> list[float]:
    """The mean of each value and those before it, up to `width` of them."""
    windows = (values[max(0, end - width) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]


def _show_result(before: dict[str, float], after: dict[str, float]) -> None:
    table = Table(title="Test split: 100 unseen tasks, 4 episodes each", title_justify="left")
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="left" if not heading else "right")
    for label, key in (("mean reward", "eval_reward"), ("completions without a valid call", "eval_ors/invalid_action_rate")):
        table.add_row(label, f"{before[key]:.3f}", f"{after[key]:.3f}")
    console.print(table)
