"""The Gymnasium environments that are served and compared with the native ones."""

GYM_IDS = [
    "CartPole-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Acrobot-v1",
    "CliffWalking-v1",
]
