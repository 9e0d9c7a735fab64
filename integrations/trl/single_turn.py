"""GRPO on an ORS environment of one turn: `reward_funcs` is all it takes, and plays each completion in a session of its own.

    pip install 'ors-gym[trl,server,plot]'
    python integrations/trl/single_turn.py                  # a tiny model, on a server that it starts by itself
    python integrations/trl/single_turn.py --base-url http://localhost:8080 --env my_env --max-completion-length 4
    python integrations/trl/single_turn.py --base-url http://localhost:8080 --model Qwen/Qwen3-0.6B --max-completion-length 512

What the model writes is read as tool calls, and plain text goes to the tool that takes a text. Without `--model`, the model is two
layers of random weights that read and write the characters of the prompts.
"""

import argparse
import os
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ors_gym.serving import LocalServer
from ors_gym.trl import ORSSpec

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", help="an ORS server; without it, one is started here with the bundled environment")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--eval-split", help="the split to evaluate on; by default the first of type test or validation")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=100, help="training steps in all")
parser.add_argument("--tasks-per-step", type=int, default=16)
parser.add_argument("--group-size", type=int, default=4, help="rollouts of each task")
parser.add_argument("--max-completion-length", type=int, default=1, help="tokens of a completion")
parser.add_argument("--model", help="a model by its name or folder; by default a tiny one is made here")
parser.add_argument("--system-prompt", help="what a model given by --model is told first")
parser.add_argument("--learning-rate", type=float, help="by default 4e-3 for the tiny model, 1e-6 for another")
parser.add_argument("--eval-tasks", type=int, default=100)
parser.add_argument("--out", type=Path, default=Path("runs/trl-single-turn"), help="where the curve and the episodes go")
args = parser.parse_args()

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
warnings.simplefilter("ignore", FutureWarning)


def tiny_tokenizer(characters: str) -> PreTrainedTokenizerFast:
    """A token for each character."""
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", *characters])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def tiny_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Two layers of random weights."""
    torch.manual_seed(args.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=4096,
        initializer_range=0.05,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


class Curve(TrainerCallback):
    """Keeps the mean reward of each step, and says how it goes."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.started = time.monotonic()

    def on_log(self, _: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if "reward" in logs:
            self.rewards.append(logs["reward"])
            speed = (time.monotonic() - self.started) / state.global_step
            print(f"{state.global_step:>5} steps  {speed:.2f} s/step  reward {logs['reward']:.3f}", end="\r")


with ExitStack() as stack:
    if args.base_url is None:
        args.base_url = stack.enter_context(LocalServer(["ors_gym.serving.largest_digit:LargestDigit"])).base_url
    spec = stack.enter_context(
        ORSSpec(
            args.base_url,
            args.env,
            split=args.split,
            conversational=args.model is not None,
            system_prompt=args.system_prompt,
            record=args.out,
            progress=False,
        )
    )

    if args.model is None:
        torch.set_num_threads(1)
        tokenizer = tiny_tokenizer("".join(sorted(set("".join(spec.train_dataset["prompt"])))))
        model = tiny_model(tokenizer)
        print(f"{len(tokenizer)} tokens, {model.num_parameters():,} weights")
    else:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = args.model

    config = GRPOConfig(
        output_dir=str(args.out),
        max_steps=args.total_steps,
        per_device_train_batch_size=args.tasks_per_step * args.group_size,
        num_generations=args.group_size,
        per_device_eval_batch_size=args.tasks_per_step * args.group_size,
        max_completion_length=args.max_completion_length,
        learning_rate=args.learning_rate or (4e-3 if args.model is None else 1e-6),
        adam_beta2=0.98,
        entropy_coef=0.1 if args.model is None else 0.0,
        beta=0.0,
        seed=args.seed,
        use_cpu=args.model is None,
        bf16=args.model is not None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    curve = Curve()
    trainer = GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=spec.eval_dataset(args.eval_split, num_tasks=args.eval_tasks),
        reward_funcs=spec.reward_funcs,
        callbacks=[*spec.callbacks, curve],
    )
    trainer.remove_callback(PrinterCallback)

    reward_before = trainer.evaluate()["eval_reward"]
    print(f"reward before: {reward_before:.3f}")
    curve.started = time.monotonic()
    trainer.train()
    seconds = time.monotonic() - curve.started
    reward_after = trainer.evaluate()["eval_reward"]
    print(f"\nreward before: {reward_before:.3f}, after: {reward_after:.3f}, in {seconds:.0f} s")

# The curve.
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

window = max(1, len(curve.rewards) // 10)
mean = np.convolve(curve.rewards, np.ones(window) / window, "valid")
plt.figure(figsize=(6, 3.5))
plt.plot(range(1, len(curve.rewards) + 1), curve.rewards, alpha=0.4, label="mean of a step")
plt.plot(range(window, len(curve.rewards) + 1), mean, color="tab:blue", label=f"mean of {window} steps")
plt.axhline(reward_after, color="tab:green", linestyle="--", label=f"{args.eval_tasks} other tasks, after: {reward_after:.2f}")
plt.axhline(reward_before, color="tab:gray", linestyle=":", label=f"before: {reward_before:.2f}")
plt.xlabel("training steps"), plt.ylabel("reward"), plt.legend(), plt.title("GRPO, one turn"), plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
