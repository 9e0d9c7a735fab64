"""GRPO on an ORS environment of many turns, in TRL's own loop: `environment_factory`.

    pip install 'ors-gym[trl,server,plot]'
    python integrations/trl/environment.py                  # a tiny model, on a server that it starts by itself
    python integrations/trl/environment.py --base-url http://localhost:8080 --env my_env --split train
    python integrations/trl/environment.py --base-url http://localhost:8080 --model Qwen/Qwen3-0.6B

Without `--model`, the model is one layer of random weights whose every word is a tool call, so the environment's tools must be
finite.
"""

import argparse
import asyncio
import json
import os
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ors_gym.protocol import text_of
from ors_gym.rollout import RandomAgent, Tasks, collect_episodes
from ors_gym.serving import LocalServer
from ors_gym.trl import ORSSpec
from ors_gym.wrappers.call_tables import DiscreteCalls

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", help="an ORS server; without it, one is started here with the parcel desk")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--eval-split", help="the split to evaluate on; by default the first of type test or validation")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=80, help="training steps in all")
parser.add_argument("--tasks-per-step", type=int, default=16)
parser.add_argument("--group-size", type=int, default=8, help="rollouts of each task")
parser.add_argument("--max-steps", type=int, default=16, help="tool calls after which an episode is cut")
parser.add_argument("--max-completion-length", type=int, default=256, help="tokens of an episode, the environment's included")
parser.add_argument("--model", help="a model by its name or folder; by default a tiny one is made here")
parser.add_argument("--learning-rate", type=float, help="by default 5e-3 for the tiny model, 1e-6 for another")
parser.add_argument("--eval-tasks", type=int, default=64)
parser.add_argument("--out", type=Path, default=Path("runs/trl-environment"), help="where the curve and the episodes go")
args = parser.parse_args()

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
warnings.simplefilter("ignore", FutureWarning)

# How a conversation reads to the tiny model, and how its tool calls are found in what it says.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<' + message.role + '>' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function | tojson + '</tool_call>' }}{% endfor %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""
RESPONSE_TEMPLATE = {
    "start_anchor": "<assistant>",
    "defaults": {"role": "assistant"},
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": "<eos>", "content": "text"},
    },
}


def look_around() -> tuple[list[str], list[str]]:
    """What some random episodes show: the words of the environment, and every tool call as the tiny model writes it."""
    tasks = Tasks(args.base_url, args.env, split=args.split, num_tasks=64)
    episodes = asyncio.run(collect_episodes(RandomAgent(), tasks, max_steps=args.max_steps))
    texts = [text_of(blocks) for episode in episodes for blocks in (episode.prompt, *(step.blocks for step in episode.steps))]
    words = sorted({word for text in texts for word, _ in Whitespace().pre_tokenize_str(text)})
    calls = [{"name": call.name, "arguments": call.input} for call in DiscreteCalls(episodes[0].tools).calls]
    return words, [f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls]


def tiny_tokenizer(words: list[str], calls: list[str]) -> PreTrainedTokenizerFast:
    """A token for each word, and one for each call."""
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", "<unk>", *words])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    roles = ["<system>", "<user>", "<assistant>", "<tool>"]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in [*roles, *calls]])
    tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    return tokenizer


def tiny_model(tokenizer: PreTrainedTokenizerFast, calls: list[str]) -> LlamaForCausalLM:
    """One layer of random weights, which can say nothing but the calls."""
    torch.manual_seed(args.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=4096,
        initializer_range=0.05,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    bias = torch.full((len(tokenizer),), -1e4)
    bias[tokenizer.convert_tokens_to_ids(calls)] = 0.0
    model.lm_head.bias = torch.nn.Parameter(bias, requires_grad=False)
    return model


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
        parcel_desk = Path(__file__).parent / "parcels.py"
        args.base_url = stack.enter_context(LocalServer([f"{parcel_desk}:ParcelDesk"])).base_url
    spec = stack.enter_context(
        ORSSpec(args.base_url, args.env, split=args.split, max_steps=args.max_steps, record=args.out, progress=False)
    )

    if args.model is None:
        torch.set_num_threads(1)
        words, calls = look_around()
        tokenizer = tiny_tokenizer(words, calls)
        model = tiny_model(tokenizer, calls)
        print(f"{len(calls)} calls, {model.num_parameters():,} weights")
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
        generation_kwargs={"max_new_tokens": 1} if args.model is None else None,
        learning_rate=args.learning_rate or (5e-3 if args.model is None else 1e-6),
        lr_scheduler_type="constant",
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
        environment_factory=spec.environment_factory,
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
plt.xlabel("training steps"), plt.ylabel("reward"), plt.legend(), plt.title("GRPO, TRL's loop"), plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
