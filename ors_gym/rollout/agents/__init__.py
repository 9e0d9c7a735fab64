"""Agents: what decides the next action of an episode.

An agent is any object with `async act(conversation) -> action`, or a plain function of the conversation. Built in:
random, scripted, a person, a model behind an OpenAI-compatible endpoint, a local `transformers` model.
"""

from ors_gym.rollout.agents._agent import Agent, AgentFunction, AgentLike, Conversation, FunctionAgent, as_agent
from ors_gym.rollout.agents._chat import ChatAgent, ChatFailed
from ors_gym.rollout.agents._human import HumanAgent
from ors_gym.rollout.agents._simple import RandomAgent, ScriptedAgent
from ors_gym.rollout.agents._transformers import TransformersAgent

__all__ = [
    "Agent",
    "AgentFunction",
    "AgentLike",
    "ChatAgent",
    "ChatFailed",
    "Conversation",
    "FunctionAgent",
    "HumanAgent",
    "RandomAgent",
    "ScriptedAgent",
    "TransformersAgent",
    "as_agent",
]
