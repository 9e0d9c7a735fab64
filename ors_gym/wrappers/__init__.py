"""Gymnasium wrappers for policies that are no language models: tool calls as numbers, text and images as arrays.

Each takes one environment or a vector environment. `ors_gym.wrappers.sb3` has Stable-Baselines3's vector environment.
"""

from ors_gym.wrappers.action import DiscreteToolCalls, MultiDiscreteToolCalls
from ors_gym.wrappers.observation import EmbeddedText, HashedText, ImageObservation, TextBytes
from ors_gym.wrappers.restore_native import RestoreNative

__all__ = [
    "DiscreteToolCalls",
    "EmbeddedText",
    "HashedText",
    "ImageObservation",
    "MultiDiscreteToolCalls",
    "RestoreNative",
    "TextBytes",
]
