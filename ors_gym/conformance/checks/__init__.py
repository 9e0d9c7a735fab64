"""The requirements, one module a family of endpoints, in the order of an episode."""

from ors_gym.conformance._requirements import Requirement
from ors_gym.conformance.checks import answers, calls, discovery, episode, sessions, tasks

REQUIREMENTS: tuple[Requirement, ...] = tuple(
    requirement for module in (discovery, tasks, sessions, episode, calls, answers) for requirement in module.registry.requirements
)
"""Every requirement that is looked at. Those about all answers come last, when there are answers to look at."""
