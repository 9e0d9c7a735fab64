"""PPO and MaskablePPO of Stable-Baselines3 on ORS environments that one event loop steps all at once.

    pip install 'ors-gym[sb3,server,plot]'
    python integrations/sb3/train.py                                                        # starts a server of its own
    python integrations/sb3/train.py --algorithm maskable-ppo
    python integrations/sb3/train.py --base-url http://localhost:8080 --env my_env --split train

The environment's tools must be finite: its calls become the numbers of a `Discrete` space. What it says is hashed to a vector.
"""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

import matplotlib
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked_policy
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

from ors_gym import ORSVectorEnv
from ors_gym.serving import LocalServer
from ors_gym.wrappers import DiscreteToolCalls, HashedText
from ors_gym.wrappers.sb3 import ORSVecEnv

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", help="an ORS server; without it, one is started here with the support desk")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=8_192, help="tool calls in all")
parser.add_argument("--algorithm", choices=["ppo", "maskable-ppo"], default="ppo")
parser.add_argument("--num-envs", type=int, default=32)
parser.add_argument("--num-steps", type=int, default=16, help="steps of each environment between two updates")
parser.add_argument("--max-steps", type=int, default=100, help="tool calls after which an episode is cut")
parser.add_argument("--gamma", type=float, default=0.8, help="what the next reward counts; raise it where rewards come late")
parser.add_argument("--eval-episodes", type=int, default=64)
parser.add_argument("--out", type=Path, default=Path("runs/sb3"), help="where the curve goes")
args = parser.parse_args()


class Curve(BaseCallback):
    """Keeps the reward of each episode, and says now and then how it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float]] = []
        self.started = time.monotonic()

    def _on_step(self) -> bool:
        infos = [info for info in self.locals["infos"] if "episode" in info and not info["unscored"]]
        self.points += [(self.num_timesteps, info["episode"]["r"]) for info in infos]
        return True

    def _on_rollout_end(self) -> None:
        speed = self.num_timesteps / (time.monotonic() - self.started)
        recent = np.mean([reward for _, reward in self.points[-args.num_envs :]]) if self.points else float("nan")
        print(f"{self.num_timesteps:>7} steps  {speed:>5.0f} steps/s  reward {recent:.3f}", end="\r")


def mean_reward(model: PPO | MaskablePPO, vec_env: VecMonitor) -> float:
    """The mean reward of the episodes that a fixed seed draws, with the most probable calls."""
    evaluate = evaluate_masked_policy if isinstance(model, MaskablePPO) else evaluate_policy
    vec_env.seed(10_000)
    return float(evaluate(model, vec_env, n_eval_episodes=args.eval_episodes)[0])


with ExitStack() as stack:
    torch.set_num_threads(1)
    if args.base_url is None:
        support_desk = Path(__file__).parents[1] / "support_desk.py"
        args.base_url = stack.enter_context(LocalServer([f"{support_desk}:SupportDesk"])).base_url

    envs = ORSVectorEnv(
        args.num_envs,
        args.base_url,
        args.env,
        split=args.split,
        max_steps=args.max_steps,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    vec_env = VecMonitor(ORSVecEnv(HashedText(DiscreteToolCalls(envs))))
    stack.callback(vec_env.close)

    algorithm = {"ppo": PPO, "maskable-ppo": MaskablePPO}[args.algorithm]
    model = algorithm(
        "MlpPolicy",
        vec_env,
        n_steps=args.num_steps,
        batch_size=128,
        n_epochs=4,
        learning_rate=lambda remaining: 3e-3 * remaining,
        gamma=args.gamma,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
    )
    reward_before = mean_reward(model, vec_env)
    print(f"{vec_env.action_space.n} calls; reward before: {reward_before:.3f}")

    curve = Curve()
    vec_env.seed(args.seed)
    model.learn(args.total_steps, callback=curve)
    seconds = time.monotonic() - curve.started
    reward_after = mean_reward(model, vec_env)
    print(f"\nreward before: {reward_before:.3f}, after: {reward_after:.3f}, in {seconds:.0f} s")

# The curve.
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

args.out.mkdir(parents=True, exist_ok=True)
steps, episode_rewards = np.array(curve.points).reshape(-1, 2).T
buckets = [bucket for bucket in np.array_split(np.arange(len(steps)), 25) if len(bucket)]
plt.figure(figsize=(6, 3.5))
plt.plot(steps, episode_rewards, ".", alpha=0.15, label="an episode")
plt.plot([steps[b].mean() for b in buckets], [episode_rewards[b].mean() for b in buckets], label="mean")
plt.xlabel("tool calls")
plt.ylabel("reward")
plt.legend()
plt.title(f"{algorithm.__name__}, Stable-Baselines3")
plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
