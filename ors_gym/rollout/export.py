"""Episodes as arrays, as a data set, as a data frame, and as tokens: for training without a trainer, and for plots."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ors_gym.episode import Episode
from ors_gym.groups import Normalization, RolloutGroup
from ors_gym.messages import template_messages
from ors_gym.records import Record, jsonable, read_records
from ors_gym.rewards import RewardReduction, reduce
from ors_gym.rollout.results import Outcome
from ors_gym.tools import to_openai_chat

if TYPE_CHECKING:
    import datasets
    import pandas

Rollouts = Sequence[Episode] | Sequence[RolloutGroup]


def to_numpy(
    rollouts: Rollouts, *, reward: RewardReduction = "sum", normalize: Normalization = "group", leave_one_out: bool = False
) -> dict[str, NDArray[Any]]:
    """Episodes as arrays; N episodes with at most T steps.

    Args:
        rollouts: Episodes, or groups of them; only groups have advantages.
        reward: How an episode's rewards become one; a group's own way is kept.
        normalize, leave_one_out: Of the advantages, as in `RolloutGroup.advantages`.

    Returns:
        `rewards` (N,) float64, NaN where unscored; `advantages` (N,) float64, likewise, of groups only; `group` (N,) int64,
        the number of the group, or of the episode; `lengths` (N,) int64; `terminated`, `truncated`, `unscored` (N,) bool;
        `step_rewards` (N, T) float64, 0 where there was none; `step_mask` (N, T) bool, True where there was a step;
        `invalid` (N, T) bool, True where its action was malformed or rejected.

    >>> from ors_gym.episode import Step
    >>> from ors_gym.tasks import TaskRef
    >>> task = TaskRef("train", 0)
    >>> episodes = [Episode(task, steps=[Step("a", reward=0.5), Step("b", reward=0.25)]), Episode(task, steps=[Step("a")])]
    >>> arrays = to_numpy([RolloutGroup(task, episodes)])
    >>> arrays["rewards"].tolist(), arrays["step_rewards"].tolist()
    ([0.75, 0.0], [[0.5, 0.25], [0.0, 0.0]])
    """
    episodes, groups = _flattened(rollouts)
    shape = (len(episodes), max((episode.num_steps for episode in episodes), default=0))
    step_rewards, mask, invalid = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)
    for row, episode in enumerate(episodes):
        for column, step in enumerate(episode.steps):
            step_rewards[row, column] = step.reward or 0.0
            mask[row, column] = True
            invalid[row, column] = bool(step.invalid_action)
    arrays: dict[str, NDArray[Any]] = {
        "rewards": _numbers(_rewards(episodes, groups, reward)),
        "group": np.array([n for n, size in enumerate(_sizes(episodes, groups)) for _ in range(size)], np.int64),
        "lengths": mask.sum(axis=1, dtype=np.int64),
        "terminated": np.array([episode.terminated for episode in episodes], bool),
        "truncated": np.array([episode.truncated for episode in episodes], bool),
        "unscored": np.array([episode.unscored for episode in episodes], bool),
        "step_rewards": step_rewards,
        "step_mask": mask,
        "invalid": invalid,
    }
    if groups is not None:
        arrays["advantages"] = _numbers([a for group in groups for a in group.advantages(normalize, leave_one_out)])
    return arrays


def to_dataset(
    rollouts: Rollouts,
    *,
    reward: RewardReduction = "sum",
    normalize: Normalization = "group",
    leave_one_out: bool = False,
    system_prompt: str | None = None,
    tokenizer: Any = None,
    include_unscored: bool = False,
) -> "datasets.Dataset":
    """Scored episodes as a `datasets.Dataset` (extra `trl`): for supervised fine-tuning and offline reinforcement learning.

    Args:
        rollouts: Episodes, or groups of them; only groups have advantages.
        reward: How an episode's rewards become one; a group's own way is kept.
        normalize, leave_one_out: Of the advantages, as in `RolloutGroup.advantages`.
        system_prompt: A first message for each.
        tokenizer: With one, whose chat template must keep prefixes, there are tokens too.
        include_unscored: Keep the episodes without a reward.

    Returns:
        One row an episode. `messages`: chat messages, a call's `arguments` an object. `tools`: in OpenAI's form. `masks`:
        one number a message, 1 where the agent spoke. `actions`: JSON, as the agent said them, and `rewards`: 0.0 where
        there was none, one of each a step. `reward`: of the episode. `advantage`: of groups only. `terminated`,
        `truncated`, `id`, `env_name`, `task` (JSON). With a tokenizer `input_ids` and `assistant_masks`, as TRL's
        `SFTTrainer` takes them.

    >>> from ors_gym.episode import Step
    >>> from ors_gym.protocol import TextBlock, ToolCall
    >>> from ors_gym.tasks import TaskRef
    >>> step = Step("4", ToolCall(name="submit", input={"answer": "4"}), (TextBlock(text="Right."),), reward=1.0, finished=True)
    >>> episode = Episode(TaskRef("train", 0), "sums", prompt=(TextBlock(text="2+2?"),), steps=[step], terminated=True)
    >>> dataset = to_dataset([episode])
    >>> dataset["reward"][:], [message["role"] for message in dataset[0]["messages"]]
    ([1.0], ['user', 'assistant', 'tool'])
    """
    import datasets

    episodes, groups = _flattened(rollouts)
    rewards = _rewards(episodes, groups, reward)
    advantages = None if groups is None else [a for group in groups for a in group.advantages(normalize, leave_one_out)]
    rows = []
    for number, episode in enumerate(episodes):
        if rewards[number] is None and not include_unscored:
            continue
        messages = template_messages(episode, system_prompt)
        row = {
            "id": episode.id,
            "env_name": episode.env_name,
            "task": json.dumps(episode.task.to_dict()),
            "messages": messages,
            "tools": to_openai_chat(episode.tools),
            "masks": [int(message["role"] == "assistant") for message in messages],
            "actions": [json.dumps(jsonable(step.action)) for step in episode.steps],
            "rewards": [step.reward or 0.0 for step in episode.steps],
            "reward": rewards[number],
            "terminated": episode.terminated,
            "truncated": episode.truncated,
        }
        if advantages is not None:
            row["advantage"] = advantages[number]
        if tokenizer is not None:
            ids, mask = token_mask(episode, tokenizer, system_prompt=system_prompt)
            row |= {"input_ids": ids.tolist(), "assistant_masks": mask.astype(int).tolist()}
        rows.append(row)
    return datasets.Dataset.from_list(rows, features=_features(groups is not None, tokenizer is not None))


def to_pandas(rollouts: Rollouts | str | os.PathLike[str], *, reward: RewardReduction = "sum") -> "pandas.DataFrame":
    """One row an episode (extra `pandas`).

    Args:
        rollouts: Episodes, groups of them, a file of records or a run's folder.
        reward: How an episode's rewards become one; groups and records have their own.

    Returns:
        Columns `id`, `env_name`, `task`, `split`, `group`, `rollout`, `attempt`, `reward` (NaN where unscored), `num_steps`,
        `num_invalid`, `terminated`, `truncated`, `error`, `error_kind`, `prompt_tokens`, `completion_tokens`, `seconds`,
        `environment_seconds`, `started_at` (a time stamp).

    >>> from ors_gym.tasks import TaskRef
    >>> frame = to_pandas([Episode(TaskRef("train", 0)), Episode(TaskRef("train", 1), truncated=True)])
    >>> frame[["task", "num_steps", "truncated"]].values.tolist()
    [['train/0', 0, False], ['train/1', 0, True]]
    """
    import pandas

    scored: list[tuple[Episode | Record, float | None]]
    if isinstance(rollouts, (str, os.PathLike)):
        scored = [(record, record.reward) for record in read_records(rollouts)]
    else:
        episodes, groups = _flattened(rollouts)
        scored = list(zip(episodes, _rewards(episodes, groups, reward), strict=True))
    frame = pandas.DataFrame([_frame_row(episode, worth) for episode, worth in scored], columns=list(_COLUMNS))
    frame["reward"] = frame["reward"].astype("float64")
    frame["started_at"] = pandas.to_datetime(frame["started_at"], unit="s")
    return frame


_COLUMNS = (
    "id",
    "env_name",
    "task",
    "split",
    "group",
    "rollout",
    "attempt",
    "reward",
    "num_steps",
    "num_invalid",
    "terminated",
    "truncated",
    "error",
    "error_kind",
    "prompt_tokens",
    "completion_tokens",
    "seconds",
    "environment_seconds",
    "started_at",
)


def _frame_row(episode: Episode | Record, reward: float | None) -> tuple[Any, ...]:
    outcome = Outcome.of(episode, reward)
    own = {
        "id": episode.id,
        "env_name": episode.env_name,
        "task": outcome.task.removeprefix(f"{episode.env_name}/"),
        "attempt": episode.metadata.get("attempt", 0),
        "terminated": episode.terminated,
        "truncated": episode.truncated,
        "started_at": episode.started_at,
    }
    return tuple(own[name] if name in own else getattr(outcome, name) for name in _COLUMNS)


def token_mask(
    episode: Episode, tokenizer: Any, *, system_prompt: str | None = None, template: Mapping[str, Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The tokens of an episode, and which of them the agent said.

    The conversation is rendered message after message; what an assistant's message adds to the generation prompt, its end
    of turn included, is the agent's. Each part is tokenized by itself, as it was when the agent generated its own.

    Args:
        episode: The episode.
        tokenizer: A tokenizer with a chat template.
        system_prompt: The system message that the agent had.
        template: More arguments of `apply_chat_template`.

    Returns:
        The token ids, and the mask, True on the agent's tokens; both of the same length.

    Raises:
        ValueError: The chat template does not keep prefixes: a later message changes how an earlier one is rendered, as
            those do that leave out earlier thoughts. Use one made for training, for instance TRL's
            `get_training_chat_template`.

    >>> from ors_gym.episode import Step
    >>> from ors_gym.protocol import TextBlock
    >>> from ors_gym.tasks import TaskRef
    >>> class Characters:
    ...     def apply_chat_template(self, messages, add_generation_prompt, **options):
    ...         said = "".join(f"{message['role'][0]}:{message['content']}|" for message in messages)
    ...         return said + "a:" * add_generation_prompt
    ...     def __call__(self, text, **options):
    ...         return {"input_ids": [ord(character) for character in text]}
    >>> steps = [Step("4", None, (TextBlock(text="Right."),))]
    >>> episode = Episode(TaskRef("train", 0), prompt=(TextBlock(text="2+2?"),), steps=steps)
    >>> ids, mask = token_mask(episode, Characters())
    >>> "".join(map(chr, ids)), "".join(map(chr, ids[mask]))
    ('u:2+2?|a:4|u:Right.|', '4|')
    """
    messages = template_messages(episode, system_prompt)
    tools = to_openai_chat(episode.tools) or None

    def render(count: int, prompt: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages[:count], tools=tools, tokenize=False, add_generation_prompt=prompt, **(template or {})
            )
        )

    ids: list[int] = []
    mask: list[bool] = []
    rendered = ""

    def extend(text: str, said: bool) -> None:
        nonlocal rendered
        if not text.startswith(rendered):
            raise ValueError(
                "the chat template does not keep prefixes: a later message changes how an earlier one is rendered; "
                "use a template made for training"
            )
        tokens = tokenizer(text[len(rendered) :], add_special_tokens=False)["input_ids"]
        ids.extend(tokens)
        mask.extend([said] * len(tokens))
        rendered = text

    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            extend(render(number, prompt=True), said=False)
            extend(render(number + 1, prompt=False), said=True)
    if messages[-1]["role"] != "assistant":
        extend(render(len(messages), prompt=False), said=False)
    return np.array(ids, np.int64), np.array(mask, bool)


def _flattened(rollouts: Rollouts) -> tuple[list[Episode], list[RolloutGroup] | None]:
    """The episodes, and the groups that they are of, if they are."""
    groups = [rollout for rollout in rollouts if isinstance(rollout, RolloutGroup)]
    if not groups:
        return [rollout for rollout in rollouts if isinstance(rollout, Episode)], None
    return [episode for group in groups for episode in group.episodes], groups


def _rewards(episodes: Sequence[Episode], groups: Sequence[RolloutGroup] | None, reward: RewardReduction) -> list[float | None]:
    if groups is None:
        return [reduce(episode, reward) for episode in episodes]
    return [worth for group in groups for worth in group.rewards]


def _sizes(episodes: Sequence[Episode], groups: Sequence[RolloutGroup] | None) -> list[int]:
    return [1] * len(episodes) if groups is None else [len(group) for group in groups]


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _features(advantages: bool, tokens: bool) -> Any:
    """Typed columns: Arrow would guess them from the first rows, and merge the arguments of different tools into one struct."""
    from datasets import Features, Json, List, Value

    features = {
        "id": Value("string"),
        "env_name": Value("string"),
        "task": Value("string"),
        "messages": List(Json()),
        "tools": List(Json()),
        "masks": List(Value("int8")),
        "actions": List(Value("string")),
        "rewards": List(Value("float64")),
        "reward": Value("float64"),
        "terminated": Value("bool"),
        "truncated": Value("bool"),
    }
    if advantages:
        features["advantage"] = Value("float64")
    if tokens:
        features |= {"input_ids": List(Value("int64")), "assistant_masks": List(Value("int8"))}
    return Features(features)
