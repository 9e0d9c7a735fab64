"""TorchRL's PPO on ORS environments, with text kept as text.

    pip install 'ors-gym[torchrl,server,plot]'
    python integrations/torchrl/train.py                                                        # starts a server of its own
    python integrations/torchrl/train.py --base-url http://localhost:8080 --env my_env --split train

The environment's tools must be finite: its calls become the numbers of a `Discrete` space. What it says stays a string in the
tensordicts; a transform hashes it to a vector for the small network here. A language model would read the string.
"""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

import matplotlib
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.data import Binary
from torchrl.envs import Compose, GymWrapper, RewardSum, TransformedEnv, UnaryTransform, default_info_dict_reader
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import ors_gym.wrappers.torchrl  # noqa: F401  makes text known to TorchRL
from ors_gym import ORSVectorEnv
from ors_gym.serving import LocalServer
from ors_gym.wrappers import DiscreteToolCalls
from ors_gym.wrappers.hashing import TextHasher

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", help="an ORS server; without it, one is started here with the support desk")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=8_192, help="tool calls in all")
parser.add_argument("--num-envs", type=int, default=32)
parser.add_argument("--num-steps", type=int, default=16, help="steps of each environment between two updates")
parser.add_argument("--max-steps", type=int, default=100, help="tool calls after which an episode is cut")
parser.add_argument("--gamma", type=float, default=0.8, help="what the next reward counts; raise it where rewards come late")
parser.add_argument("--eval-episodes", type=int, default=64)
parser.add_argument("--out", type=Path, default=Path("runs/torchrl"), help="where the curve goes")
args = parser.parse_args()


HASHER = TextHasher()


def read(texts: str | list[str]) -> torch.Tensor:
    """A string as a vector, or a batch of strings as a batch of vectors."""
    return torch.as_tensor(HASHER(texts)) if isinstance(texts, str) else torch.stack([read(text) for text in texts])


def make_env(base_url: str) -> TransformedEnv:
    """Environments that step concurrently; beside the text, its vector, and the sum of an episode's rewards so far."""
    envs = ORSVectorEnv(
        args.num_envs,
        base_url,
        args.env,
        split=args.split,
        max_steps=args.max_steps,
        autoreset_mode=AutoresetMode.DISABLED,  # TorchRL resets those that ended by itself
    )
    env = GymWrapper(DiscreteToolCalls(envs), categorical_action_encoding=True)
    unscored = {"unscored": Binary(shape=(args.num_envs,), dtype=torch.bool)}
    env.set_info_dict_reader(default_info_dict_reader(["unscored"], spec=unscored))
    reader = UnaryTransform(
        in_keys=["observation"], out_keys=["features"], fn=lambda texts: read(texts.tolist()), use_raw_nontensor=True
    )
    return TransformedEnv(env, Compose(reader, RewardSum()))


def network(outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer, gain in zip(layers[::2], (np.sqrt(2), np.sqrt(2), last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


@torch.no_grad()
def evaluate(actor: ProbabilisticActor, env: TransformedEnv) -> float:
    """The mean reward of the episodes that a fixed seed draws, with the most probable calls."""
    env.set_seed(10_000)
    returns: list[float] = []
    state = env.reset()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        while len(returns) < args.eval_episodes:
            played, state = env.step_and_maybe_reset(actor(state))
            ended = played["next", "done"] & ~played["next", "unscored"].view(-1, 1)
            returns += played["next", "episode_reward"][ended].tolist()
    return float(np.mean(returns[: args.eval_episodes]))


with ExitStack() as stack:
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    if args.base_url is None:
        support_desk = Path(__file__).parents[1] / "support_desk.py"
        args.base_url = stack.enter_context(LocalServer([f"{support_desk}:SupportDesk"])).base_url

    env, eval_env = make_env(args.base_url), make_env(args.base_url)  # the collector closes the one it is given
    stack.callback(env.close, raise_if_closed=False)
    stack.callback(eval_env.close)

    num_calls = env.action_spec.space.n
    actor = ProbabilisticActor(
        TensorDictModule(network(num_calls, last_gain=0.01), in_keys=["features"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(network(1, last_gain=1.0), in_keys=["features"])
    loss_module = ClipPPOLoss(
        actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, critic_coeff=0.5, loss_critic_type="l2", normalize_advantage=True
    )
    advantage = GAE(gamma=args.gamma, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=3e-3, eps=1e-5)

    reward_before = evaluate(actor, eval_env)
    print(f"{num_calls} calls; reward before: {reward_before:.3f}")

    batch_size = args.num_envs * args.num_steps
    total_steps = max(1, args.total_steps // batch_size) * batch_size
    collector = Collector(env, actor, frames_per_batch=batch_size, total_frames=total_steps, auto_register_policy_transforms=False)
    collector.set_seed(args.seed)
    curve, steps, started = [], 0, time.monotonic()
    for batch in collector:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - steps / total_steps)
        steps += batch.numel()
        lost = batch["next", "unscored"]
        ended = batch["next", "done"].squeeze(-1) & ~lost
        curve += [(steps, reward) for reward in batch["next", "episode_reward"].squeeze(-1)[ended].tolist()]

        with torch.no_grad():
            advantage(batch)
        learnable = batch[~lost]  # what the infrastructure lost says nothing about the call
        for _ in range(4):
            for chosen in torch.randperm(len(learnable)).chunk(4):
                losses = loss_module(learnable[chosen])
                loss = losses["loss_objective"] + losses["loss_entropy"] + losses["loss_critic"]
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(loss_module.parameters(), 0.5)
                optimizer.step()

        recent = np.mean([reward for _, reward in curve[-args.num_envs :]]) if curve else float("nan")
        print(f"{steps:>7} steps  {steps / (time.monotonic() - started):>5.0f} steps/s  reward {recent:.3f}", end="\r")
    seconds = time.monotonic() - started

    reward_after = evaluate(actor, eval_env)
    print(f"\nreward before: {reward_before:.3f}, after: {reward_after:.3f}, in {seconds:.0f} s")

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
plt.title("PPO, TorchRL")
plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
