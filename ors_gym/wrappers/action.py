"""Wrappers that turn numbers, which value networks choose among, into tool calls."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from ors_gym.protocol import ToolCall, ToolSpec
from ors_gym.wrappers import vector
from ors_gym.wrappers._forms import ForBoth
from ors_gym.wrappers.call_tables import Candidates, DiscreteCalls, MultiDiscreteCalls, ToolCallTable


class NumberedToolCalls(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, metaclass=ForBoth):
    """Actions by a `ToolCallTable`. The parent of the wrappers here; arguments are recorded by them.

    Args:
        env: The environment to wrap.
        table: The tool calls and their numbers.
    """

    def __init__(self, env: gym.Env[Any, Any], table: ToolCallTable) -> None:
        gym.Wrapper.__init__(self, env)
        self.table = table
        self.action_space = table.space
        self._mask = table.mask([])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the environment's, with `action_mask` in info."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._masked(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Call the tool that the number stands for."""
        observation, reward, terminated, truncated, info = self.env.step(self.tool_call(action))
        return observation, reward, terminated, truncated, self._masked(info)

    def tool_call(self, action: Any) -> ToolCall:
        """The tool call that an action stands for."""
        return self.table.call(action)

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions the current task allows: what `sb3_contrib.MaskablePPO` asks for."""
        return self._mask.astype(np.bool_)

    def _masked(self, info: dict[str, Any]) -> dict[str, Any]:
        self._mask = self.table.mask(info["tools"])
        return {**info, "action_mask": self._mask.copy()}


class DiscreteToolCalls(NumberedToolCalls):
    """Every call of a finite tool set as one number: the action space is `Discrete(n)`.

    Values come from `enum`, `const`, booleans, bounded integers, `null`, `anyOf` and `oneOf`; an optional parameter is left out or
    given. `table.calls` lists the calls in their order, which `ors_gym.wrappers.call_tables` documents and which is the same
    for the same tools. `info["action_mask"]` has a 1 for each call that the current task's tools allow.

    Args:
        env: An environment or a vector environment.
        candidates: Values by tool and parameter, `{"submit": {"answer": ["yes", "no"]}}`: for strings, and for anything else that
            has no finite set of values or too large a one.
        max_actions: How many calls there may be.
        tools: The tools to list; by default those that every task of the environment has. Tools that only some tasks have can be
            added here; tasks that do not list them mask them.

    Raises:
        ValueError: A parameter has no finite set of values and no candidates; there are too many calls, or none; or candidates
            are wrong.

    >>> from ors_gym.env import ORSEnv
    >>> env = DiscreteToolCalls(ORSEnv(base_url, "largest_digit"), {"submit": {"answer": list("0123456789")}})
    >>> env.action_space, env.tool_call(7).input
    (Discrete(10), {'answer': '7'})
    >>> env.close()
    """

    vector_form = vector.DiscreteToolCalls

    def __init__(
        self,
        env: gym.Env[Any, Any],
        candidates: Candidates | None = None,
        max_actions: int = 10_000,
        tools: Sequence[ToolSpec] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, candidates=candidates, max_actions=max_actions, tools=tools)
        super().__init__(env, DiscreteCalls(vector.tools_of(env, tools), candidates, max_actions))


class MultiDiscreteToolCalls(NumberedToolCalls):
    """A number for the tool and one for each parameter: the action space is `MultiDiscrete([tools, values, values, …])`.

    For tool sets whose calls are too many to list one by one. The parameters of the tools that were not chosen are ignored.
    A number between a minimum and a maximum takes `bins` evenly spaced values. `table.slots` names the tool and parameter of
    each number.

    Args:
        env: An environment or a vector environment.
        candidates: Values by tool and parameter, as for `DiscreteToolCalls`.
        bins: How many values a bounded number has, at least 2.
        tools: The tools; by default those that every task of the environment has.

    Raises:
        ValueError: As for `DiscreteToolCalls`.

    >>> from ors_gym.env import ORSEnv
    >>> env = MultiDiscreteToolCalls(ORSEnv(base_url, "largest_digit"), {"submit": {"answer": list("0123456789")}})
    >>> env.action_space, env.tool_call([0, 7]).input
    (MultiDiscrete([ 1 10]), {'answer': '7'})
    >>> env.close()
    """

    vector_form = vector.MultiDiscreteToolCalls

    def __init__(
        self,
        env: gym.Env[Any, Any],
        candidates: Candidates | None = None,
        bins: int = 11,
        tools: Sequence[ToolSpec] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, candidates=candidates, bins=bins, tools=tools)
        super().__init__(env, MultiDiscreteCalls(vector.tools_of(env, tools), candidates, bins))
