"""RLlib's PPO on ORS environments: each of Ray's environment runners steps a vector of them at once.

    python -m venv .venv-rllib && .venv-rllib/bin/pip install 'ors-gym[rllib,server,plot]'    # RLlib needs Gymnasium 1.2.2
    .venv-rllib/bin/python integrations/rllib/train.py                                       # starts a server of its own
    .venv-rllib/bin/python integrations/rllib/train.py --base-url http://localhost:8080 --env my_env --split train

The environment's tools must be finite: its calls become the numbers of a `Discrete` space. What it says is hashed to a vector.
"""

import argparse
import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from ors_gym import ORSVectorEnv
from ors_gym.serving import LocalServer
from ors_gym.wrappers import DiscreteToolCalls, HashedText

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--base-url", help="an ORS server; without it, one is started here with the support desk")
parser.add_argument("--env", help="the environment; by default the server's first")
parser.add_argument("--split", help="the split to train on; by default the first of type train")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=8_192, help="tool calls in all")
parser.add_argument("--num-envs", type=int, default=32, help="environments of each runner")
parser.add_argument("--num-env-runners", type=int, default=1, help="Ray actors that play")
parser.add_argument("--batch-size", type=int, default=512, help="steps between two updates")
parser.add_argument("--max-steps", type=int, default=100, help="tool calls after which an episode is cut")
parser.add_argument("--gamma", type=float, default=0.8, help="what the next reward counts; raise it where rewards come late")
parser.add_argument("--eval-episodes", type=int, default=64)
parser.add_argument("--ray-address", help="a Ray cluster; by default Ray is started on this machine")
parser.add_argument("--out", type=Path, default=Path("runs/rllib"), help="where the curve goes")
args = parser.parse_args()


def make_envs(config: dict[str, Any]) -> gym.vector.VectorEnv:
    """Text and tool calls come out as float vectors and numbers; the environments step concurrently."""
    arguments = {name: config[name] for name in ("base_url", "env_name", "split", "max_steps")}
    return HashedText(DiscreteToolCalls(ORSVectorEnv(config["num_envs"], **arguments)))


def evaluate(algorithm: Any, envs: gym.vector.VectorEnv) -> float:
    """The mean reward of the episodes that a fixed seed draws, with the most probable calls."""
    module = algorithm.get_module()
    observations, infos = envs.reset(seed=10_000)
    returns, running = [], np.zeros(envs.num_envs)
    while len(returns) < args.eval_episodes:
        with torch.no_grad():
            logits = module.forward_inference({"obs": torch.as_tensor(observations)})["action_dist_inputs"]
        observations, rewards, terminations, truncations, infos = envs.step(logits.argmax(-1).numpy())
        running += rewards
        for index in np.flatnonzero(terminations | truncations):
            if not infos["unscored"][index]:
                returns.append(running[index])
            running[index] = 0.0
    return float(np.mean(returns[: args.eval_episodes]))


class EpisodeRewards(RLlibCallback):
    """Keeps the reward of each episode for the curve; an episode that the infrastructure lost has none."""

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        if not episode.get_infos(-1)["unscored"]:
            metrics_logger.log_value("episode_rewards", episode.get_return(), reduce="item_series")


with ExitStack() as stack:
    torch.set_num_threads(1)
    if args.base_url is None:
        support_desk = Path(__file__).parents[1] / "support_desk.py"
        args.base_url = stack.enter_context(LocalServer([f"{support_desk}:SupportDesk"])).base_url
    ray.init(args.ray_address, include_dashboard=False if args.ray_address is None else None, logging_level=logging.ERROR)
    stack.callback(ray.shutdown)

    env_config = {"base_url": args.base_url, "env_name": args.env, "split": args.split, "max_steps": args.max_steps}
    register_env("ors", make_envs)
    config = (
        PPOConfig()
        .environment("ors", env_config=env_config)
        .env_runners(
            num_env_runners=args.num_env_runners,
            num_envs_per_env_runner=args.num_envs,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh"))
        .training(
            train_batch_size_per_learner=args.batch_size,
            minibatch_size=128,
            num_epochs=4,
            lr=[[0, 3e-3], [args.total_steps, 3e-4]],
            gamma=args.gamma,
            lambda_=0.95,
            clip_param=0.2,
            entropy_coeff=0.01,
            vf_loss_coeff=0.5,
            use_kl_loss=False,
        )
        .callbacks(EpisodeRewards)
        .debugging(seed=args.seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    stack.callback(algorithm.stop)
    envs = make_envs({**env_config, "num_envs": args.num_envs})
    stack.callback(envs.close)

    reward_before = evaluate(algorithm, envs)
    print(f"{envs.single_action_space.n} calls; reward before: {reward_before:.3f}")

    curve, steps, started = [], 0, time.monotonic()
    while steps < args.total_steps:
        result = algorithm.train()
        steps = int(result["num_env_steps_sampled_lifetime"])
        rewards = result["env_runners"].get("episode_rewards", [])
        curve += [(steps, reward) for reward in rewards]
        recent = np.mean([reward for _, reward in curve[-args.num_envs :]]) if curve else float("nan")
        print(f"{steps:>7} steps  {steps / (time.monotonic() - started):>5.0f} steps/s  reward {recent:.3f}", end="\r")
    seconds = time.monotonic() - started

    reward_after = evaluate(algorithm, envs)
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
plt.title("PPO, RLlib")
plt.tight_layout()
plt.savefig(args.out / "curve.png", dpi=120)
print(f"the curve is {args.out / 'curve.png'}")
