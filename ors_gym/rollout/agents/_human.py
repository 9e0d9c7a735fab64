"""A person as an agent, asked in a terminal."""

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any

from rich.console import Console
from rich.text import Text

from ors_gym.protocol import ToolCall, ToolSpec
from ors_gym.rollout.agents._agent import Conversation
from ors_gym.schemas import Parameter, SchemaError, parameters


class HumanAgent:
    """Asks a person: which tool, then each of its parameters, until the schema allows what was typed.

    An empty line leaves out an optional parameter; the end of input (Ctrl-D) ends the episode. It asks for one
    conversation at a time, whatever the concurrency.

    Args:
        ask: Shows a prompt and returns the line that was typed; raises `EOFError` at the end of input.
        console: Where to show; by default the standard output.

    >>> typed = iter(["submit", "9"])
    >>> agent = HumanAgent(ask=lambda prompt: next(typed), console=Console(quiet=True))
    >>> agent.choose([ToolSpec(name="submit", input_schema={"type": "object", "properties": {"answer": {"type": "string"}}})])
    ToolCall(name='submit', input={'answer': '9'}, task_id=None)
    """

    def __init__(self, ask: Callable[[str], str] = input, console: Console | None = None) -> None:
        self._ask = ask
        self._console = console or Console(highlight=False)
        self._turn = asyncio.Lock()

    async def act(self, conversation: Conversation) -> ToolCall | None:
        """The call that the person chose, or None at the end of input."""
        async with self._turn:
            answer: Future[ToolCall | None] = Future()
            Thread(target=self._answer, args=(conversation, answer), daemon=True).start()
            return await asyncio.wrap_future(answer)

    def choose(self, tools: Sequence[ToolSpec]) -> ToolCall | None:
        """Ask for a call of one of the tools; None at the end of input."""
        try:
            tool = self._tool(tools)
            return ToolCall(name=tool.name, input=self._input(tool))
        except EOFError:
            return None

    def _answer(self, conversation: Conversation, answer: "Future[ToolCall | None]") -> None:
        """Ask in a thread that nobody waits for: after Ctrl-C it may still sit in `input`."""
        answer.set_running_or_notify_cancel()
        try:
            self._show(str(conversation.observation))
            answer.set_result(self.choose(conversation.tools))
        except BaseException as error:
            answer.set_exception(error)

    def _tool(self, tools: Sequence[ToolSpec]) -> ToolSpec:
        for number, tool in enumerate(tools, 1):
            self._show(f"  {number}. {tool.name}  {tool.description}")
        while True:
            typed = self._ask("tool: ").strip()
            for number, tool in enumerate(tools, 1):
                if typed in (str(number), tool.name):
                    return tool
            self._show(f"{typed!r} is none of them; type a number or a name")

    def _input(self, tool: ToolSpec) -> dict[str, Any]:
        try:
            asked = parameters(tool.input_schema)
        except SchemaError as error:
            self._show(f"the tool's schema cannot be asked for one by one ({error}); type the whole input as JSON")
            return self._json_object()
        answers = ((parameter.name, self._parameter(parameter)) for parameter in asked)
        return {name: value[0] for name, value in answers if value}

    def _parameter(self, parameter: Parameter) -> tuple[Any, ...]:
        """The value, in a tuple; an empty tuple leaves the parameter out."""
        details = parameter.kind if parameter.required else f"{parameter.kind}, optional"
        if parameter.description:
            self._show(f"  {parameter.description}")
        while True:
            typed = self._ask(_printable(f"  {parameter.name} ({details}): "))
            if not typed and not parameter.required:
                return ()
            try:
                return (parameter.read(typed),)
            except ValueError as error:
                self._show(f"  {error}")

    def _json_object(self) -> dict[str, Any]:
        while True:
            try:
                value = json.loads(self._ask("  input: "))
            except ValueError as error:
                self._show(f"  not JSON: {error}")
                continue
            if isinstance(value, dict):
                return value
            self._show("  a JSON object is needed")

    def _show(self, text: str) -> None:
        self._console.print(Text(_printable(text)))

    def __repr__(self) -> str:
        return "HumanAgent()"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)
