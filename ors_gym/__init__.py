"""ors-gym: every Open Reward Standard environment in the loops people train with."""

__version__ = "0.1.0"
