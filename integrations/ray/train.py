"""Group-relative policy optimisation with groups that are collected on Ray: a linear policy, so that all is in sight.

    pip install 'ors-gym[ray,server,plot]'
    python integrations/ray/train.py                                                      # starts a server and Ray on this machine
    python integrations/ray/train.py --ray-address auto --num-workers 16 --base-url http://one:8080 --base-url http://two:8080

Each round, workers play a group of episodes of each of some tasks; the advantages within the groups say which calls to make more
often. The environment's tools must be finite. With `--num-workers 0` the same episodes are played here, without Ray.
"""

import argparse
import asyncio
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from ors_gym import Episode, ORSClient, RolloutGroup, ToolCall
from ors_gym.protocol import text_of
from ors_gym.rollout import Conversation, Tasks, collect_groups, evaluate
from ors_gym.rollout.ray import RayExecutor
from ors_gym.serving import LocalServer
from ors_gym.wrappers.call_tables import DiscreteCalls
from ors_gym.wrappers.hashing import TextHasher

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", action="append", help="an ORS server, or several equal ones; without it, two are started here")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=15_000, help="tool calls in all, about")
parser.add_argument("--num-workers", type=int, default=2, help="Ray actors that play; 0 plays here")
parser.add_argument("--ray-address", help="a Ray cluster; by default Ray is started on this machine")
parser.add_argument("--tasks-per-round", type=int, default=16)
parser.add_argument("--group-size", type=int, default=8)
parser.add_argument("--max-steps", type=int, default=100, help="tool calls after which an episode is cut")
parser.add_argument("--learning-rate", type=float, default=0.3)
parser.add_argument("--update-epochs", type=int, default=4)
parser.add_argument("--clip-coef", type=float, default=0.2)
parser.add_argument("--eval-tasks", type=int, default=64)
parser.add_argument("--out", type=Path, default=Path("runs/ray"), help="where the curve goes")
args = parser.parse_args()

HASHER = TextHasher()


def probabilities(observations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How likely each call is: a softmax of a linear function of the hashed text, one row an observation."""
    logits = observations @ weights
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


class LinearAgent:
    """What goes to the workers: weights, and the calls that they choose among. It draws the same on any worker."""

    def __init__(self, weights: np.ndarray, calls: tuple[ToolCall, ...], round_number: int, greedy: bool = False) -> None:
        self.weights = weights
        self.calls = calls
        self.round_number = round_number
        self.greedy = greedy

    async def act(self, conversation: Conversation) -> ToolCall:
        [chances] = probabilities(HASHER(conversation.observation)[None], self.weights)
        if self.greedy:
            return self.calls[int(chances.argmax())]
        task, rollout = conversation.episode.task.index, conversation.episode.metadata["rollout"]
        rng = np.random.default_rng([args.seed, self.round_number, task, rollout, conversation.turn])
        return self.calls[int(rng.choice(len(chances), p=chances))]


def what_was_seen_and_done(episode: Episode, numbers: dict[str, int]) -> tuple[list[np.ndarray], list[int]]:
    """From the ledger: the hashed text before each call, and the call's number."""
    texts = [text_of(episode.prompt), *(text_of(step.blocks) for step in episode.steps[:-1])]
    return [HASHER(text) for text in texts], [numbers[call_key(step.call)] for step in episode.steps]


def call_key(call: ToolCall) -> str:
    return json.dumps([call.name, call.input], sort_keys=True)


class Learner:
    """The policy's weights, and Adam's memory of their gradients."""

    def __init__(self, calls: tuple[ToolCall, ...]) -> None:
        self.numbers = {call_key(call): number for number, call in enumerate(calls)}
        self.weights = np.zeros((HASHER.n_features, len(calls)))
        self.mean, self.square, self.updates = np.zeros_like(self.weights), np.zeros_like(self.weights), 0

    def learn(self, groups: list[RolloutGroup]) -> int:
        """Ascend PPO's clipped objective with each group's advantages. Returns how many calls there were."""
        seen, done, advantages = [], [], []
        for group in groups:
            for episode, advantage in zip(group.episodes, group.advantages(), strict=True):
                if advantage is None:  # the infrastructure lost it: it says nothing about the calls
                    continue
                observations, actions = what_was_seen_and_done(episode, self.numbers)
                seen += observations
                done += actions
                advantages += [advantage] * len(actions)
        x, actions, a = np.stack(seen), np.array(done), np.array(advantages)
        rows = np.arange(len(actions))
        before = probabilities(x, self.weights)[rows, actions]
        for _ in range(args.update_epochs):
            now = probabilities(x, self.weights)
            ratio = now[rows, actions] / before
            clipped = ((a > 0) & (ratio > 1 + args.clip_coef)) | ((a < 0) & (ratio < 1 - args.clip_coef))
            pull = np.where(clipped, 0.0, ratio * a)
            towards = -now * pull[:, None]
            towards[rows, actions] += pull
            self._ascend(x.T @ towards / len(x))
        return len(actions)

    def _ascend(self, gradient: np.ndarray) -> None:
        self.updates += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean, square = self.mean / (1 - 0.9**self.updates), self.square / (1 - 0.999**self.updates)
        self.weights = self.weights + args.learning_rate * mean / (np.sqrt(square) + 1e-8)


async def train(base_urls: list[str], executor: RayExecutor | None, curve: list[tuple[int, float]]) -> None:
    with ORSClient(base_urls) as client:
        discovery = client.environment(args.env).discover()
    split = discovery.split(args.split).name
    calls = DiscreteCalls(discovery.tools).calls
    learner = Learner(calls)
    rng = np.random.default_rng(args.seed)
    options: dict[str, Any] = {"max_steps": args.max_steps, "executor": executor}

    async def mean_reward() -> float:
        agent = LinearAgent(learner.weights, calls, 0, greedy=learner.updates > 0)
        tasks = Tasks(base_urls, discovery.env_name, split=split, num_tasks=args.eval_tasks)
        return float((await evaluate(agent, tasks, **options)).overall.mean_reward or 0.0)

    reward_before = await mean_reward()
    print(f"{len(calls)} calls; reward before: {reward_before:.3f}")

    steps, round_number, started = 0, 0, time.monotonic()
    while steps < args.total_steps:
        round_number += 1
        num_tasks = discovery.num_tasks[split]
        indices = rng.choice(num_tasks, min(args.tasks_per_round, num_tasks), replace=False)
        tasks = Tasks(base_urls, discovery.env_name, split=split, indices=[int(index) for index in indices])
        agent = LinearAgent(learner.weights, calls, round_number)
        groups = await collect_groups(agent, tasks, group_size=args.group_size, **options)
        steps += learner.learn(groups)
        curve += [(steps, reward) for group in groups for reward in group.rewards if reward is not None]
        recent = np.mean([reward for _, reward in curve[-args.tasks_per_round * args.group_size :]])
        print(f"{steps:>7} steps  {steps / (time.monotonic() - started):>5.0f} steps/s  reward {recent:.3f}", end="\r")
    seconds = time.monotonic() - started

    reward_after = await mean_reward()
    print(f"\nreward before: {reward_before:.3f}, after: {reward_after:.3f}, in {seconds:.0f} s")


curve: list[tuple[int, float]] = []
with ExitStack() as stack:
    if args.base_url is None:
        support_desk = Path(__file__).parents[1] / "support_desk.py"
        args.base_url = list(stack.enter_context(LocalServer([f"{support_desk}:SupportDesk"], workers=2)).base_urls)
    executor = None
    if args.num_workers:
        executor = stack.enter_context(RayExecutor(args.num_workers, address=args.ray_address))
    asyncio.run(train(args.base_url, executor, curve))

# The curve.
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

args.out.mkdir(parents=True, exist_ok=True)
steps, episode_rewards = np.array(curve).reshape(-1, 2).T
buckets = [bucket for bucket in np.array_split(np.arange(len(steps)), 25) if len(bucket)]
plt.figure(figsize=(6, 3.5))
plt.plot(steps, episode_rewards, ".", alpha=0.15, label="an episode")
plt.plot([steps[b].mean() for b in buckets], [episode_rewards[b].mean() for b in buckets], label="mean")
plt.xlabel("tool calls")
plt.ylabel("reward")
plt.legend()
plt.title("Groups on Ray")
plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
