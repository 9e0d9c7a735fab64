"""Rollouts: agents, episodes in groups, evaluation, replay, and what becomes of episodes afterwards."""

from ors_gym.rollout._tasks import Tasks
from ors_gym.rollout.agents import (
    Agent,
    AgentFunction,
    AgentLike,
    ChatAgent,
    ChatFailed,
    Conversation,
    FunctionAgent,
    HumanAgent,
    RandomAgent,
    ScriptedAgent,
    TransformersAgent,
    as_agent,
)
from ors_gym.rollout.collecting import (
    EpisodeJob,
    Executor,
    JobListener,
    RolloutPlan,
    collect_episodes,
    collect_groups,
)
from ors_gym.rollout.evaluation import evaluate
from ors_gym.rollout.export import to_dataset, to_numpy, to_pandas, token_mask
from ors_gym.rollout.metrics import Interval, PairedTest, bootstrap_interval, paired_test, pass_at_k, pass_hat_k
from ors_gym.rollout.progress import Progress, ProgressLine
from ors_gym.rollout.replay import ReplayServer
from ors_gym.rollout.results import Comparison, Outcome, Results, Summary, compare, summarize
from ors_gym.rollout.running import EnvOptions, run_episode

__all__ = [
    "Agent",
    "AgentFunction",
    "AgentLike",
    "ChatAgent",
    "ChatFailed",
    "Comparison",
    "Conversation",
    "EnvOptions",
    "EpisodeJob",
    "Executor",
    "FunctionAgent",
    "HumanAgent",
    "Interval",
    "JobListener",
    "Outcome",
    "PairedTest",
    "Progress",
    "ProgressLine",
    "RandomAgent",
    "ReplayServer",
    "Results",
    "RolloutPlan",
    "ScriptedAgent",
    "Summary",
    "Tasks",
    "TransformersAgent",
    "as_agent",
    "bootstrap_interval",
    "collect_episodes",
    "collect_groups",
    "compare",
    "evaluate",
    "paired_test",
    "pass_at_k",
    "pass_hat_k",
    "run_episode",
    "summarize",
    "to_dataset",
    "to_numpy",
    "to_pandas",
    "token_mask",
]
