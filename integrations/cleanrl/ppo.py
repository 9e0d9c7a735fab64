"""PPO in one file, in the manner of CleanRL, on a vector of ORS environments that one event loop steps all at once.

    pip install 'ors-gym[cleanrl,server,plot]'
    python integrations/cleanrl/ppo.py                                                        # starts a server of its own
    python integrations/cleanrl/ppo.py --base-url http://localhost:8080 --env my_env --split train

The environment's tools must be finite: its calls become the numbers of a `Discrete` space. What it says is hashed to a vector.
"""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

import gymnasium as gym
import matplotlib
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import ors_gym  # noqa: F401  registers ors_gym/ORS-v0
from ors_gym.serving import LocalServer
from ors_gym.wrappers import DiscreteToolCalls, HashedText

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", help="an ORS server; without it, one is started here with the support desk")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=8_192, help="tool calls in all")
parser.add_argument("--num-envs", type=int, default=32)
parser.add_argument("--num-steps", type=int, default=16, help="steps of each environment between two updates")
parser.add_argument("--max-steps", type=int, default=100, help="tool calls after which an episode is cut")
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--gamma", type=float, default=0.8, help="what the next reward counts; raise it where rewards come late")
parser.add_argument("--gae-lambda", type=float, default=0.95)
parser.add_argument("--update-epochs", type=int, default=4)
parser.add_argument("--num-minibatches", type=int, default=4)
parser.add_argument("--clip-coef", type=float, default=0.2)
parser.add_argument("--ent-coef", type=float, default=0.01)
parser.add_argument("--vf-coef", type=float, default=0.5)
parser.add_argument("--max-grad-norm", type=float, default=0.5)
parser.add_argument("--eval-episodes", type=int, default=64)
parser.add_argument("--out", type=Path, default=Path("runs/cleanrl"), help="where the curve goes")
args = parser.parse_args()


class Agent(nn.Module):
    """A policy and a value function, each of two small layers."""

    def __init__(self, observation_size: int, num_actions: int) -> None:
        super().__init__()
        self.actor = self.network(observation_size, num_actions, last_std=0.01)
        self.critic = self.network(observation_size, 1, last_std=1.0)

    @staticmethod
    def network(inputs: int, outputs: int, last_std: float) -> nn.Sequential:
        layers = [nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
        for layer, gain in zip(layers[::2], (np.sqrt(2), np.sqrt(2), last_std), strict=True):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(*layers)

    def policy(self, observations: torch.Tensor, masks: torch.Tensor) -> Categorical:
        """Which call to make next; calls that the task does not allow have no probability."""
        return Categorical(logits=self.actor(observations).masked_fill(~masks, -1e9))


def make_envs(base_url: str) -> gym.vector.VectorEnv:
    """Text and tool calls come out as float vectors and numbers; the environments step concurrently."""
    envs = gym.make_vec(
        "ors_gym/ORS-v0",
        num_envs=args.num_envs,
        base_url=base_url,
        env_name=args.env,
        split=args.split,
        max_steps=args.max_steps,
    )
    return HashedText(DiscreteToolCalls(envs))


@torch.no_grad()
def evaluate(agent: Agent, envs: gym.vector.VectorEnv) -> float:
    """The mean reward of the episodes that a fixed seed draws, with the most probable calls."""
    observations, infos = envs.reset(seed=10_000)
    returns, running = [], np.zeros(args.num_envs)
    while len(returns) < args.eval_episodes:
        logits = agent.policy(torch.as_tensor(observations), torch.as_tensor(infos["action_mask"], dtype=torch.bool)).logits
        observations, rewards, terminations, truncations, infos = envs.step(logits.argmax(-1).numpy())
        running += rewards
        for index in np.flatnonzero(terminations | truncations):
            if not infos["unscored"][index]:
                returns.append(running[index])
            running[index] = 0.0
    return float(np.mean(returns[: args.eval_episodes]))


with ExitStack() as stack:
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    if args.base_url is None:
        support_desk = Path(__file__).parents[1] / "support_desk.py"
        args.base_url = stack.enter_context(LocalServer([f"{support_desk}:SupportDesk"])).base_url
    envs = make_envs(args.base_url)
    stack.callback(envs.close)

    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    reward_before = evaluate(agent, envs)
    print(f"{envs.single_action_space.n} calls; reward before: {reward_before:.3f}")

    # What is stored of each step of each environment. With Gymnasium's next-step autoreset, the step after an episode's end ignores
    # the action and only brings the first observation of the next episode: `counts` leaves it out of the learning, and with it
    # steps that the infrastructure lost, whose reward of 0 says nothing about the action.
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros((*shape, *envs.single_observation_space.shape))
    masks = torch.zeros((*shape, int(envs.single_action_space.n)), dtype=torch.bool)
    actions, logprobs, rewards, ends, values, counts = (torch.zeros(shape) for _ in range(6))

    observations, infos = envs.reset(seed=args.seed)
    next_obs, next_mask = torch.as_tensor(observations), torch.as_tensor(infos["action_mask"], dtype=torch.bool)
    just_ended = np.zeros(args.num_envs, dtype=bool)
    running, curve = np.zeros(args.num_envs), []
    batch_size = args.num_envs * args.num_steps
    num_updates = max(1, args.total_steps // batch_size)
    started = time.monotonic()

    for update in range(num_updates):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - update / num_updates)

        # Play.
        for step in range(args.num_steps):
            obs[step], masks[step] = next_obs, next_mask
            with torch.no_grad():
                policy = agent.policy(next_obs, next_mask)
                action = policy.sample()
                actions[step], logprobs[step], values[step] = action, policy.log_prob(action), agent.critic(next_obs).squeeze(-1)
            observations, reward, terminations, truncations, infos = envs.step(action.numpy())
            ended = terminations | truncations
            rewards[step], ends[step] = torch.as_tensor(reward), torch.as_tensor(ended)
            counts[step] = torch.as_tensor(~just_ended & ~infos["unscored"].astype(bool))
            next_obs, next_mask = torch.as_tensor(observations), torch.as_tensor(infos["action_mask"], dtype=torch.bool)

            running += reward
            for index in np.flatnonzero(ended):
                if not infos["unscored"][index]:
                    curve.append((update * batch_size + step * args.num_envs, running[index]))
                running[index] = 0.0
            just_ended = ended

        # Generalised advantage estimation.
        with torch.no_grad():
            next_value, advantage = agent.critic(next_obs).squeeze(-1), torch.zeros(args.num_envs)
            advantages = torch.zeros(shape)
            for step in reversed(range(args.num_steps)):
                goes_on = 1.0 - ends[step]
                delta = rewards[step] + args.gamma * next_value * goes_on - values[step]
                advantage = delta + args.gamma * args.gae_lambda * goes_on * advantage
                advantages[step], next_value = advantage, values[step]
            returns = advantages + values

        # Learn.
        keep = counts.flatten().nonzero().squeeze(-1)
        batch = [tensor.flatten(0, 1)[keep] for tensor in (obs, masks, actions, logprobs, advantages, returns)]
        for _ in range(args.update_epochs):
            for chosen in torch.randperm(len(keep)).chunk(args.num_minibatches):
                mb_obs, mb_masks, mb_actions, mb_logprobs, mb_advantages, mb_returns = (tensor[chosen] for tensor in batch)
                policy = agent.policy(mb_obs, mb_masks)
                ratio = (policy.log_prob(mb_actions) - mb_logprobs).exp()
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(mb_advantages * ratio, mb_advantages * clipped).mean()
                value_loss = 0.5 * (agent.critic(mb_obs).squeeze(-1) - mb_returns).square().mean()
                loss = policy_loss - args.ent_coef * policy.entropy().mean() + args.vf_coef * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        steps = (update + 1) * batch_size
        recent = np.mean([value for _, value in curve[-args.num_envs :]]) if curve else float("nan")
        print(f"{steps:>7} steps  {steps / (time.monotonic() - started):>5.0f} steps/s  reward {recent:.3f}", end="\r")

    reward_after = evaluate(agent, envs)
    print(f"\nreward before: {reward_before:.3f}, after: {reward_after:.3f}, in {time.monotonic() - started:.0f} s")

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
plt.title("PPO, CleanRL's way")
plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
