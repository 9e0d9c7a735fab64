"""A random transformer that speaks in tool calls: each legal call is one token, and a step takes milliseconds."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(1)

CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- ' <' + message.role + '> ' }}
{%- if message.content %}{{ message.content + ' ' }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + call.function | tojson + '</tool_call>' }}
{%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}{{ ' <assistant> ' }}{% endif %}"""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<assistant>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<eos>\s*", "content": "text"},
    },
}

WORDS = ["<user>", "<assistant>", "<system>", "<tool>", "press", "look", "then", "digit", "good", "bad", *"0123456789"]


def call(name: str, **arguments: Any) -> str:
    """A tool call as the model writes it."""
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


PRESSES = [call("press", digit=digit) for digit in range(4)]
LOOK = call("look")


def make_tokenizer(calls: Sequence[str] = (LOOK, *PRESSES), words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Words and calls, a token each; other words are unknown."""
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", "<unk>", *WORDS, *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    fast.add_tokens([AddedToken(text, special=False, normalized=False) for text in calls])
    fast.chat_template = CHAT_TEMPLATE
    fast.response_template = RESPONSE_TEMPLATE
    return fast


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0, max_length: int = 256) -> LlamaForCausalLM:
    """Two layers of width 32 with random weights."""
    set_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=max_length,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def make_trainer(
    tmp_path: Path,
    kwargs: dict[str, Any],
    *,
    tokenizer: Any = None,
    model: Any = None,
    allowed: Sequence[str] | None = None,
    seed: int = 0,
    stop_at: float | None = None,
    trainer_class: type = GRPOTrainer,
    config_class: type = GRPOConfig,
    **config: Any,
) -> Any:
    """A trainer of the tiny model.

    Args:
        tmp_path: Where the trainer writes.
        kwargs: What the spec gives.
        tokenizer: Or a processor; by default the tokenizer for `look` and `press`.
        model: By default a tiny one of text.
        allowed: The only tokens that may be sampled, one a turn; None allows all.
        seed: Of weights and sampling.
        stop_at: The mean reward of five steps with which training ends before `max_steps`.
        **config: Of the trainer's configuration.
    """
    tokenizer = tokenizer or make_tokenizer()
    if allowed is not None:
        words = getattr(tokenizer, "tokenizer", tokenizer)
        ids = set(words.convert_tokens_to_ids(list(allowed)))
        suppressed = [token for token in range(len(words)) if token not in ids]
        config["generation_kwargs"] = {"suppress_tokens": suppressed, "max_new_tokens": 1}
    defaults = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 32,
        "num_generations": 4,
        "max_completion_length": 64,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "max_steps": 1,
        "seed": seed,
        "use_cpu": True,
        "bf16": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    trainer = trainer_class(
        model=model or make_model(tokenizer, seed), args=config_class(**(defaults | config)), processing_class=tokenizer, **kwargs
    )
    trainer.remove_callback(PrinterCallback)
    if stop_at is not None:
        trainer.add_callback(_StopAt(stop_at))
    return trainer


class _StopAt(TrainerCallback):
    def __init__(self, reward: float) -> None:
        self._reward = reward

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        last = [entry["reward"] for entry in state.log_history[-5:] if "reward" in entry]
        control.should_training_stop = len(last) == 5 and fmean(last) >= self._reward


def logged(trainer: Any, name: str) -> list[float]:
    """The values of a metric, step by step."""
    return [entry[name] for entry in trainer.state.log_history if name in entry]
