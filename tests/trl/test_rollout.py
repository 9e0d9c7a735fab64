"""`spec.rollout_func`: our loop of many turns, token by token."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ors_gym.trl import ORSSpec
from tests.trl.test_environment import sessions_open, wait_until
from tests.trl.tiny import LOOK, PRESSES, call, logged, make_tokenizer, make_trainer

FINISH, BOOM = call("finish"), call("boom")


class ScriptedTrainer:
    """As much of a trainer as the rollout function uses, whose model writes what a script says.

    Args:
        script: What each rollout writes, turn by turn; the last turn is repeated.
        tokenizer: Its tokenizer.
        max_completion_length: Its budget of tokens.
        logprobs: Whether generation gives them, as vLLM's does.
        silent: Whether every turn is its end alone, whatever the script.
    """

    use_vllm = False
    chat_template = None

    def __init__(
        self,
        script: Sequence[Sequence[str]],
        tokenizer: Any,
        *,
        max_completion_length: int = 1000,
        logprobs: bool = False,
        silent: bool = False,
    ) -> None:
        self.processing_class = tokenizer
        self.max_completion_length = max_completion_length
        self.chat_template_kwargs: dict[str, Any] = {}
        self.accelerator = SimpleNamespace(num_processes=1, device="cpu")
        self.model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=2000))
        self.generation_config = SimpleNamespace(max_new_tokens=max_completion_length)
        self.batches: list[list[list[int]]] = []
        self.limits: list[int] = []
        self._script = [list(turns) for turns in script]
        self._turns: dict[int, int] = {}
        self._logprobs = logprobs
        self._silent = silent

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, fields: Any, num_generations: int
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        self.batches.append(prompt_ids)
        self.limits.append(self.generation_config.max_new_tokens)
        written = [self.processing_class(self._next(ids))["input_ids"][: self.limits[-1]] for ids in prompt_ids]
        return written, [[-0.5] * len(ids) for ids in written] if self._logprobs else None

    def _next(self, ids: list[int]) -> str:
        """The turn of the rollout whose prompt ends with its number."""
        if self._silent:
            return str(self.processing_class.eos_token)
        text = self.processing_class.decode(ids)
        number = next(int(word[3:]) for word in text.split() if word.startswith("row"))
        turn = self._turns.get(number, 0)
        self._turns[number] = turn + 1
        return self._script[number][min(turn, len(self._script[number]) - 1)]


def tokenizer_for(script: Sequence[Sequence[str]], *words: str) -> Any:
    calls = sorted({turn for turns in script for turn in turns if turn.startswith("<tool_call>")})
    return make_tokenizer(calls=calls, words=[*words, *(f"row{number}" for number in range(len(script))), "think", "no", "call"])


def play(
    base_url: str, env_name: str, script: Sequence[Sequence[str]], *, words: Sequence[str] = (), index: int = 0, **options: Any
) -> tuple[dict[str, Any], ScriptedTrainer]:
    """The rollouts of a script, one row a script, on one task."""
    trainer_options = {name: options.pop(name) for name in ("max_completion_length", "logprobs") if name in options}
    trainer = ScriptedTrainer(script, tokenizer_for(script, *words), **trainer_options)
    with ORSSpec(base_url, env_name, indices=[index], **options) as spec:
        (row,) = spec.train_dataset
        prompts = [
            [*row["prompt"][:-1], row["prompt"][-1] | {"content": f"row{number} " + row["prompt"][-1]["content"]}]
            for number in range(len(script))
        ]
        return spec.rollout_func(prompts, trainer), trainer


def test_the_tokens_are_the_conversation(base_url: str) -> None:
    out, trainer = play(base_url, "code", [[LOOK, PRESSES[0]], [LOOK, LOOK, PRESSES[1]]], words=["set", "lock"])
    tokenizer = trainer.processing_class
    for row, transcript in enumerate(out["ors_transcript"]):
        ids = out["prompt_ids"][row] + out["completion_ids"][row]
        rendered = tokenizer.apply_chat_template(transcript[:-1], tokenize=True, return_dict=False)
        assert ids == rendered
        assert tokenizer.decode(ids) == tokenizer.decode(rendered)
        written = [token for token, mine in zip(out["completion_ids"][row], out["env_mask"][row], strict=True) if mine]
        assert tokenizer.convert_ids_to_tokens(written) == [[LOOK, PRESSES[0]], [LOOK, LOOK, PRESSES[1]]][row]
    assert [message["role"] for message in out["ors_transcript"][0]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [episode.rewards for episode in out["ors_episode"]] == [[1.0], [0.0]]


def test_a_rollout_stops_at_finished_and_drops_out(base_url: str) -> None:
    out, trainer = play(base_url, "faulty", [[FINISH], [call("echo", text="good"), FINISH]])
    assert [len(batch) for batch in trainer.batches] == [2, 1]
    assert [len(episode.steps) for episode in out["ors_episode"]] == [1, 2]
    assert [mask[-1] for mask in out["env_mask"]] == [1, 1]


def test_a_rollout_stops_at_a_turn_without_a_call(base_url: str) -> None:
    out, trainer = play(base_url, "counter", [[call("add", amount=1), "no call"]])
    assert len(trainer.batches) == 2
    assert out["ors_episode"][0].num_steps == 1
    assert trainer.processing_class.decode(out["completion_ids"][0][-2:]) == "no call"


def test_a_model_that_made_no_call_is_told_so_where_that_is_wanted(base_url: str) -> None:
    out, _ = play(base_url, "counter", [["no call", call("add", amount=5)]], nudge="press then")
    assert [message["role"] for message in out["ors_transcript"][0]] == ["user", "assistant", "user", "assistant", "tool"]
    assert [step.invalid_action != "" for step in out["ors_episode"][0].steps] == [True, False]


def test_plain_text_is_a_call_where_one_tool_takes_text(base_url: str) -> None:
    out, _ = play(base_url, "arithmetic", [["1"]])
    assert out["ors_episode"][0].rewards == [1.0]


def test_a_broken_call_is_answered_and_the_rollout_goes_on(base_url: str) -> None:
    broken = '<tool_call>{"name": </tool_call>'
    out, _ = play(base_url, "faulty", [[broken, FINISH]])
    assert [step.invalid_action != "" for step in out["ors_episode"][0].steps] == [True, False]
    assert out["ors_transcript"][0][2]["content"].startswith("Error: ")


def test_max_steps_end_a_rollout(base_url: str) -> None:
    out, trainer = play(base_url, "faulty", [[call("echo", text="good")]], max_steps=3)
    assert len(trainer.batches) == 3
    assert out["ors_episode"][0].truncated
    assert not out["ors_episode"][0].unscored


def test_a_broken_episode_ends_its_rollout_and_no_other(base_url: str) -> None:
    out, _ = play(base_url, "faulty", [[BOOM, FINISH], [FINISH]])
    assert [episode.unscored for episode in out["ors_episode"]] == [True, False]
    assert [len(ids) for ids in out["completion_ids"]] == [1, 1]


@pytest.mark.parametrize("budget", range(1, 14))
def test_the_budget_is_never_exceeded_and_no_tool_message_is_cut(budget: int, base_url: str) -> None:
    out, trainer = play(base_url, "faulty", [[call("echo", text="good bad good bad"), "no call"]], max_completion_length=budget)
    tokenizer = trainer.processing_class
    tool_message = tokenizer(" <tool> good bad good bad  <assistant> ")["input_ids"]
    ids, mask = out["completion_ids"][0], out["env_mask"][0]
    assert len(ids) == len(mask) <= budget
    assert [token for token, mine in zip(ids, mask, strict=True) if not mine] in ([], tool_message)
    assert mask[-1] == 1
    assert all(limit <= budget for limit in trainer.limits)


def test_control_tokens_in_what_the_environment_says_stay_text(base_url: str) -> None:
    hostile = call("echo", text="<eos> <tool_call> good")
    out, trainer = play(base_url, "faulty", [[hostile, FINISH]])
    assert out["ors_transcript"][0][2]["content"] == "<eos> <tool_call> good"
    environment = [token for token, mine in zip(out["completion_ids"][0], out["env_mask"][0], strict=True) if not mine]
    assert trainer.processing_class.eos_token_id not in environment
    assert hostile not in trainer.processing_class.convert_ids_to_tokens(environment)


def test_rollouts_that_hear_the_same_and_those_that_do_not_have_the_tokens_of_what_they_heard(base_url: str) -> None:
    texts = ["good", "bad", "good bad", "bad"]
    out, trainer = play(base_url, "faulty", [[call("echo", text=text), call("echo", text="good"), FINISH] for text in texts])
    good = call("echo", text="good")
    assert [trainer.processing_class.decode(ids) for ids in out["completion_ids"]] == [
        f"{call('echo', text=text)} <tool> {text} <assistant> {good} <tool> good <assistant> {FINISH}" for text in texts
    ]


def test_all_calls_of_a_turn_run_at_once(base_url: str) -> None:
    out, _ = play(base_url, "faulty", [[call("slow", seconds=0.3)]] * 24, max_steps=1)
    assert max(step.metadata["peak_in_flight"] for episode in out["ors_episode"] for step in episode.steps) >= 20


def test_several_calls_of_a_turn_run_in_order_until_finished(base_url: str) -> None:
    both = call("echo", text="good") + call("finish") + call("echo", text="bad")
    out, _ = play(base_url, "faulty", [[both]])
    assert [step.call.name for step in out["ors_episode"][0].steps] == ["echo", "finish"]


def test_log_probabilities_are_the_models_and_zero_for_the_environment(base_url: str) -> None:
    out, _ = play(base_url, "code", [[LOOK, PRESSES[0]]], logprobs=True)
    assert out["logprobs"] == [[-0.5 if mine else 0.0 for mine in out["env_mask"][0]]]
    assert play(base_url, "code", [[LOOK, PRESSES[0]]])[0]["logprobs"] is None


def test_halves_in_a_pipeline_play_the_same_rollouts(base_url: str) -> None:
    script = [[LOOK, PRESSES[0]], [PRESSES[2]], [LOOK, LOOK, PRESSES[0]], ["no call"], [LOOK, PRESSES[3]]]
    plain, piped = (play(base_url, "code", script, pipeline=pipeline)[0] for pipeline in (False, True))
    for name in ("prompt_ids", "completion_ids", "env_mask"):
        assert piped[name] == plain[name]
    assert [episode.rewards for episode in piped["ors_episode"]] == [[1.0], [0.0], [1.0], [], [0.0]]


def test_live_prompts_are_those_of_the_session(base_url: str) -> None:
    out, trainer = play(base_url, "counter", [["no call"]], prompt="session", words=["Count", "to", "10."], index=7)
    assert trainer.processing_class.decode(out["prompt_ids"][0]) == "<user> row0 Count to 10. <assistant>"


@pytest.mark.parametrize("prompt", ["dataset", "session"])
def test_a_prompt_offers_the_tools_of_its_task(prompt: Any, base_url: str) -> None:
    tokenizer = make_tokenizer(calls=[], words=["say", "hint", "solve"])
    tokenizer.chat_template = "{% for tool in tools or [] %}{{ tool.function.name + ' ' }}{% endfor %}" + tokenizer.chat_template
    with ORSSpec(base_url, "tasktools", prompt=prompt) as spec:
        out = spec.rollout_func(spec.train_dataset["prompt"][:], ScriptedTrainer([], tokenizer, silent=True))
    offered = [tokenizer.decode(ids).split(" <user>")[0] for ids in out["prompt_ids"]]
    assert offered == ["say", "say hint", "say hint solve"]


def test_prompts_that_name_no_task_are_refused(base_url: str) -> None:
    with ORSSpec(base_url, "arithmetic") as spec, pytest.raises(ValueError, match="a prompt names no task"):
        spec.rollout_func([[{"role": "user", "content": "hello"}]], ScriptedTrainer([["no call"]], make_tokenizer()))


def test_a_prompt_that_cannot_be_rendered_leaves_no_session_open(base_url: str) -> None:
    trainer = ScriptedTrainer([["no call"]], make_tokenizer())
    trainer.processing_class.chat_template = "{{ raise_exception('no such role') }}"
    with ORSSpec(base_url, "arithmetic", prompt="session", num_tasks=1) as spec:
        with pytest.raises(Exception, match="no such role"):
            spec.rollout_func(spec.train_dataset["prompt"][:], trainer)
        wait_until(lambda: sessions_open(spec) == 0)


def test_rows_end_on_the_models_own_end(base_url: str, tmp_path: Path) -> None:
    with ORSSpec(base_url, "copy") as spec:
        trainer = make_trainer(tmp_path, spec.trainer_kwargs("rollout"), allowed=[*PRESSES, "<eos>"], max_steps=2)
        trainer.train()
    assert all(0 < length <= 1 for length in logged(trainer, "completions/mean_length"))


def test_both_loops_train_on_the_same_tokens(base_url: str, tmp_path: Path) -> None:
    """From the same seed, TRL's loop and ours sample the same and log the same rewards and losses, step after step."""
    logs: list[list[Any]] = []
    for mode in ("environment", "rollout"):
        with ORSSpec(base_url, "code") as spec:
            trainer = make_trainer(
                tmp_path, spec.trainer_kwargs(mode), allowed=[LOOK, *PRESSES], max_steps=4, max_tool_calling_iterations=8
            )  # fmt: skip
            trainer.train()
        logs.append([logged(trainer, name) for name in ("reward", "loss", "grad_norm", "completions/mean_length")])
    assert logs[0] == logs[1]
