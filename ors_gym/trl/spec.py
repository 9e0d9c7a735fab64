"""`ORSSpec`: an environment on an ORS server, in the parts that a TRL trainer takes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ors_gym.actions import ActionFormat
from ors_gym.client import Retry, Timeout
from ors_gym.env.engine import OnToolError
from ors_gym.rewards import RewardReduction
from ors_gym.secrets import SecretLike
from ors_gym.trl._dataset import PromptSource, RowMaker, RowOptions, SystemPrompt, make_dataset
from ors_gym.trl._episodes import ActionParser
from ors_gym.trl._outage import OnServerDown
from ors_gym.trl._parts import TrainerParts, TrainingOptions
from ors_gym.trl._source import Source, SourceOptions, Sources
from ors_gym.trl._tool_sets import ToolSets

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from ors_gym.trl.mixture import ORSMixture


class ORSSpec(TrainerParts):
    """An environment on an ORS server, for TRL: each attribute is named after the trainer's argument that takes it.

    It makes no request until an attribute needs one. Use it with `with`, or `close` it.

    Args:
        target: The server's URL, or those of several equal servers.
        env_name: The environment; None is the server's first.
        split: The split to train on; None is the first of type train.
        num_tasks: How many of its tasks, from the first; None is all.
        indices: Or which of its tasks.
        secrets: For the sessions: names to a `str`, `(str, [allowed domains])` or an `EnvSecret`.
        api_key: Sent to the server as `X-API-Key`.
        headers: Sent to the server with every request.
        reward: How the rewards of an episode's steps become one: "sum", "last", "mean", "max", or a function of the `Episode`.
        reward_components: Keys of the `metadata` by which the environment reports parts of the reward: `reward_funcs` is then
            a list, a function a key, for the trainer to log and to weigh by `reward_weights`.
        max_steps: Tool calls after which an episode ends, invalid ones counted; None is no limit.
        invalid_action_reward: The reward of a completion without a valid call, and of a rejected one.
        max_concurrency: How many sessions are opened or called at a time.
        timeout: Limits in seconds.
        retry: What is tried again, and how often.
        keepalive: Seconds without traffic after which a session is pinged; None never pings.
        prompt: "dataset": the rows have the tasks' prompts. "session": each rollout has its own session's, for servers whose
            prompts differ from session to session; not for single-turn training.
        system_prompt: Stands before each prompt: text, or a function of the task's tools.
        conversational: Prompts are chat messages; if False, plain text.
        images: Prompts keep their images, in the column `images`, for a model that takes them.
        streaming: The dataset fetches rows as they are read; None does that from 50,000 tasks on.
        action_format: How text is read: "tool_call" and "json" look for calls first, "text" goes to `text_tool` verbatim.
        text_tool: The tool that plain text goes to; None is the only one with one required string parameter.
        action_parser: Reads a completion as tool calls, instead of `ors_gym.actions.parse`; may raise `InvalidAction`.
        on_tool_error: What a tool that raised does: "truncate" ends the episode unscored, "observe" tells the model.
        nudge: What our rollout function tells a model that made no call, so that it tries again; None ends its rollout.
        pipeline: Our rollout function generates one half of the batch while the other half's tools run.
        record: A file or folder to which every episode is written, with its step, group, reward and advantage.
        on_server_down: When every rollout of three steps in a row was lost: "wait" until a session can be had, and then go on;
            "raise" `ServerDown`; or "continue" without a gradient.
        server_down_timeout: Seconds to wait, before `ServerDown` is raised.
        progress: Show a bar while prompts are fetched; None does on a terminal.
        include_metadata: Rows have the task itself as JSON, in the column `ors_task_spec`.
        discover_task_tools: Look at each task's own tools. If False, the tools are those that all tasks share.
        task_tools_discovery_index: Look at this task's tools only, and give them to every row.

    Raises:
        ValueError: Arguments that exclude each other, or an unknown choice.
        NotImplementedError: `target` is a name from a catalogue.

    >>> with ORSSpec(base_url, "largest_digit", num_tasks=2, conversational=False, progress=False) as spec:
    ...     rows = spec.train_dataset
    ...     prompts = rows["prompt"][:]
    ...     spec.reward_funcs(prompts, ["9", "no digit"], ors_split=rows["ors_split"][:], ors_index=rows["ors_index"][:])
    [1.0, 0.0]
    """

    def __init__(
        self,
        target: str | Sequence[str],
        env_name: str | None = None,
        *,
        split: str | None = None,
        num_tasks: int | None = None,
        indices: Sequence[int] | None = None,
        secrets: Mapping[str, SecretLike] | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        reward: RewardReduction = "sum",
        reward_components: Sequence[str] = (),
        max_steps: int | None = None,
        invalid_action_reward: float = 0.0,
        max_concurrency: int = 256,
        timeout: Timeout | None = None,
        retry: Retry | None = None,
        keepalive: float | None = 60.0,
        prompt: PromptSource = "dataset",
        system_prompt: SystemPrompt | None = None,
        conversational: bool = True,
        images: bool = False,
        streaming: bool | None = None,
        action_format: ActionFormat = "tool_call",
        text_tool: str | None = None,
        action_parser: ActionParser | None = None,
        on_tool_error: OnToolError = "truncate",
        nudge: str | None = None,
        pipeline: bool = False,
        record: str | os.PathLike[str] | None = None,
        on_server_down: OnServerDown = "wait",
        server_down_timeout: float = 600.0,
        progress: bool | None = None,
        include_metadata: bool = True,
        discover_task_tools: bool = True,
        task_tools_discovery_index: int | None = None,
    ) -> None:
        self._set_up(
            SourceOptions(
                base_url=target,
                env_name=env_name,
                split=split,
                secrets=secrets,
                api_key=api_key,
                headers=headers,
                timeout=timeout,
                retry=retry,
                keepalive=keepalive,
                reward=reward,
                max_steps=max_steps,
                max_concurrency=max_concurrency,
                action_format=action_format,
                text_tool=text_tool,
                invalid_action_reward=invalid_action_reward,
                on_tool_error=on_tool_error,
                live_prompt=prompt == "session",
            ),
            RowOptions(
                num_tasks=num_tasks,
                indices=indices,
                prompt=prompt,
                system_prompt=system_prompt,
                conversational=conversational,
                images=images,
                streaming=streaming,
                include_metadata=include_metadata,
                discover_task_tools=discover_task_tools,
                task_tools_discovery_index=task_tools_discovery_index,
                progress=progress,
            ),
            TrainingOptions(
                action_parser=action_parser,
                reward_components=tuple(reward_components),
                record=record,
                on_server_down=on_server_down,
                server_down_timeout=server_down_timeout,
                nudge=nudge,
                pipeline=pipeline,
            ),
        )

    def _set_up(self, source: SourceOptions, rows: RowOptions, training: TrainingOptions) -> None:
        self._source = Source(source)
        self._rows = rows
        super().__init__(Sources({source.env_name or "": self._source}), training)

    @cached_property
    def train_dataset(self) -> "Dataset | IterableDataset":
        """The tasks to train on, a row each: `prompt`, and the columns `ors_env`, `ors_split`, `ors_index`, `ors_task_spec` and
        `environment` (the key of the row's tools), which must stay. Prompts are fetched concurrently, once.

        From 50,000 tasks on, or with `streaming=True`, it is an `IterableDataset` that fetches as it is read; trainers then
        need `max_steps`.

        Raises:
            ORSError: The server cannot be reached, or no task can be set up.
            ValueError: There is no such split or task.
        """
        return self.dataset(self._source.discovery.env_name, self._tool_sets)

    def eval_dataset(
        self, split: str | None = None, *, num_tasks: int | None = None, indices: Sequence[int] | None = None
    ) -> "Dataset | IterableDataset":
        """The tasks of another split, as `train_dataset` has them.

        Args:
            split: The split; None is the first of type test, or else of type validation.
            num_tasks: How many of its tasks, from the first; None is all.
            indices: Or which of its tasks.

        Raises:
            ORSError, ValueError: As `train_dataset`.

        >>> with ORSSpec(base_url, "largest_digit", num_tasks=2, progress=False) as spec:
        ...     spec.eval_dataset(num_tasks=3)["ors_split"][:]
        ['test', 'test', 'test']
        """
        own_name = self._source.discovery.env_name
        return self.held_out_dataset(own_name, self._tool_sets, split, num_tasks=num_tasks, indices=indices)

    def shuffle(self, seed: int) -> "ORSSpec":
        """The same spec with its tasks in another order, the same for the same seed, also where they are streamed.

        >>> with ORSSpec(base_url, "largest_digit", num_tasks=5, progress=False).shuffle(seed=0) as spec:
        ...     sorted(spec.train_dataset["ors_index"][:])
        [0, 1, 2, 3, 4]
        """
        other = ORSSpec.__new__(ORSSpec)
        other._set_up(self._source.options, replace(self._rows, shuffle_seed=seed), self._options)
        return other

    @property
    def source(self) -> Source:
        """The environment and how its episodes are run, for a mixture."""
        return self._source

    @property
    def training_options(self) -> TrainingOptions:
        """What it was told about the training, for a mixture."""
        return self._options

    def dataset(self, name: str, tool_sets: ToolSets) -> "Dataset | IterableDataset":
        """`train_dataset` for a mixture: under this name, and with tool sets that are kept there."""
        return make_dataset(RowMaker(self._source, name, self._source.split, self._rows, tool_sets))

    def held_out_dataset(
        self,
        name: str,
        tool_sets: ToolSets,
        split: str | None,
        *,
        num_tasks: int | None = None,
        indices: Sequence[int] | None = None,
    ) -> "Dataset | IterableDataset":
        """`eval_dataset` for a mixture."""
        chosen = self._held_out_split() if split is None else self._source.discovery.split(split).name
        rows = replace(self._rows, num_tasks=num_tasks, indices=indices, shuffle_seed=None)
        return make_dataset(RowMaker(self._source, name, chosen, rows, tool_sets))

    def _held_out_split(self) -> str:
        splits = self._source.discovery.splits
        for kind in ("test", "validation"):
            for split in splits:
                if split.type == kind:
                    return split.name
        names = ", ".join(repr(split.name) for split in splits) or "none"
        raise ValueError(f"no split is of type test or validation; name one of {names}")

    @staticmethod
    def mixture(specs: "Mapping[str, ORSSpec]", *, weights: Mapping[str, float] | None = None, seed: int = 0) -> "ORSMixture":
        """Trains on several environments, each row with its own tools.

        Args:
            specs: Their specs, by the names that rows and logs use. The first one's `record`, `nudge`, `pipeline`,
                `action_parser`, `reward_components` and `on_server_down` hold for all.
            weights: How often the rows of each come, relative to the others; None takes every row of each once.
            seed: Of the order of the rows.

        >>> specs = {"easy": ORSSpec(base_url, num_tasks=2, progress=False), "hard": ORSSpec(base_url, num_tasks=4, progress=False)}
        >>> with ORSSpec.mixture(specs, seed=0) as mixture:
        ...     sorted(mixture.train_dataset["ors_env"][:])
        ['easy', 'easy', 'hard', 'hard', 'hard', 'hard']
        """
        from ors_gym.trl.mixture import ORSMixture

        return ORSMixture(specs, weights=weights, seed=seed)
