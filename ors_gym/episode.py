"""The ledger of one episode: what everything that scores, shows or saves an episode reads, and nothing else."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ors_gym import _html
from ors_gym.protocol import Blocks, JSONObject, ToolCall, ToolSpec, blocks_html, text_of
from ors_gym.tasks import TaskRef

FailureKind = Literal["", "environment", "infrastructure"]


@dataclass(frozen=True)
class Step:
    """One tool call, or one action that could not become one.

    Attributes:
        action: What the policy said, as it said it; of several calls in one action, each step has the whole action.
        call: The tool call that it was read as; None if it could not be read.
        blocks: What came back, or the reason why nothing did.
        reward: The environment's reward; None if it gave none.
        finished: Whether the environment ended the episode here.
        metadata: The environment's metadata.
        invalid_action: Why the action was malformed or rejected, or "".
        error: What failed, or "".
        error_kind: Whose failure `error` is: the environment's or the infrastructure's, or "".
        started_at: Seconds since the epoch.
        elapsed: Seconds from sending to the result.

    >>> Step({"name": "look"}, ToolCall(name="look"), reward=0.5).call.name
    'look'
    """

    action: Any
    call: ToolCall | None = None
    blocks: Blocks = ()
    reward: float | None = None
    finished: bool = False
    metadata: JSONObject | None = None
    invalid_action: str = ""
    error: str = ""
    error_kind: FailureKind = ""
    started_at: float = 0.0
    elapsed: float = 0.0

    def _repr_html_(self) -> str:
        title = self.call.name if self.call else "no tool call"
        said = self.call.input if self.call else self.action
        facts: dict[str, str | float | None] = {"reward": self.reward, "seconds": self.elapsed}
        if self.finished:
            facts["finished"] = "yes"
        if self.invalid_action:
            facts["invalid"] = "yes"
        told = text_of(self.blocks)
        reasons = [reason for reason in (self.invalid_action, self.error) if reason and reason not in told]
        trouble = [_html.element("div", reason, style="color:#c0392b") for reason in reasons]
        action = _html.text(said) if isinstance(said, str) else _html.json_text(said)
        return _html.box(title, facts, action, blocks_html(self.blocks), *trouble)


@dataclass
class Episode:
    """What happened in one episode, from its task to its end.

    Attributes:
        task: Which task it was.
        env_name: The environment's name.
        session_id: The server's id of the session, "" if none was opened.
        prompt: The prompt's blocks.
        tools: The tools of this task.
        steps: The steps so far.
        terminated: The environment said `finished`.
        truncated: The episode was cut: by the step limit, a time-out, a failure, or because its owner closed it.
        error: What failed, or "".
        error_kind: Whose failure `error` is, or "".
        started_at, ended_at: Seconds since the epoch; `ended_at` is None while it runs.
        metadata: What its owner notes about it (group, training step, attempt), JSON values.
        id: A unique id.

    >>> episode = Episode(TaskRef("train", 0), steps=[Step("a", reward=0.5), Step("b")], terminated=True)
    >>> episode
    <Episode 'train/0': finished after 2 steps, reward 0.5>
    >>> episode.rewards, episode.num_steps, episode.outcome
    ([0.5], 2, 'finished')
    """

    task: TaskRef
    env_name: str = ""
    session_id: str = ""
    prompt: Blocks = ()
    tools: Sequence[ToolSpec] = ()
    steps: list[Step] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    error: str = ""
    error_kind: FailureKind = ""
    started_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def ended(self) -> bool:
        """Whether it is over, however it ended."""
        return self.terminated or self.truncated

    @property
    def unscored(self) -> bool:
        """Whether the environment or the infrastructure failed, so that no reward of it may be learnt from."""
        return bool(self.error_kind)

    @property
    def rewards(self) -> list[float]:
        """The rewards that the environment gave, in order; steps without one are left out."""
        return [step.reward for step in self.steps if step.reward is not None]

    @property
    def num_steps(self) -> int:
        """Tool calls, invalid ones counted."""
        return len(self.steps)

    @property
    def num_invalid_actions(self) -> int:
        """Steps whose action was malformed or rejected."""
        return sum(bool(step.invalid_action) for step in self.steps)

    @property
    def elapsed(self) -> float:
        """Seconds from start to end, or to now while it runs."""
        return (self.ended_at or time.time()) - self.started_at

    @property
    def environment_seconds(self) -> float:
        """Seconds spent waiting for tool calls."""
        return sum(step.elapsed for step in self.steps)

    @property
    def outcome(self) -> str:
        """How it stands, in a word or two: running, finished, truncated, environment failed, infrastructure failed."""
        if self.error_kind:
            return f"{self.error_kind} failed"
        if not self.ended:
            return "running"
        return "finished" if self.terminated else "truncated"

    def __repr__(self) -> str:
        worth = "unscored" if self.unscored else f"reward {sum(self.rewards):g}"
        steps = f"{self.num_steps} step{'s' * (self.num_steps != 1)}"
        return f"<Episode {f'{self.env_name} {self.task.key}'.strip()!r}: {self.outcome} after {steps}, {worth}>"

    def _repr_html_(self) -> str:
        facts: dict[str, str | float | None] = {
            "reward": sum(self.rewards) if not self.unscored else None,
            "steps": self.num_steps,
            "seconds": self.elapsed,
            "": self.outcome,
        }
        trouble = [_html.element("div", self.error, style="color:#c0392b")] if self.error else []
        prompt = _html.folded("prompt", blocks_html(self.prompt), unfolded=True)
        steps = [
            _html.folded(f"step {n}", _html.Markup(step._repr_html_()), unfolded=n <= 5) for n, step in enumerate(self.steps, 1)
        ]
        return _html.box(f"{self.env_name} {self.task.key}".strip(), facts, *trouble, prompt, *steps)
