"""What the commands share: the consoles, text from a server made safe for a terminal, and errors in one line."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ors_gym.errors import ORSError
from ors_gym.protocol import Block, ImageBlock, TextBlock, ToolSpec

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_CONTROLS |= {code: f"\\u{code:04x}" for code in (0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2066, 0x2067, 0x2068, 0x2069)}


def plain(text: str) -> str:
    """`text` without anything that a terminal obeys: control characters and lone surrogates are shown as escapes.

    >>> plain("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    return text.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


def server_text(text: str, *, limit: int = 2_000, style: str = "") -> Text:
    """Text from a server, safe to print: no markup, no control characters, at most `limit` characters."""
    shown = text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
    return Text(plain(shown), style=style)


def blocks_text(blocks: Sequence[Block], *, limit: int = 2_000) -> Text:
    """Blocks for a terminal: texts as they are, an image as a line that says what it is."""
    lines = []
    for block in blocks:
        match block:
            case TextBlock():
                lines.append(server_text(block.text, limit=limit))
            case ImageBlock():
                lines.append(server_text(f"[{block.mimeType}, {len(block.data) * 3 // 4:,} bytes]", style="dim"))
            case _:
                lines.append(server_text(f"[block of unknown type {block.type!r}]", style="dim"))
    return Text("\n").join(lines)


def tools_table(tools: Sequence[ToolSpec]) -> Table:
    """Tools and their parameters, one parameter a row."""
    table = Table()
    for heading in ("tool", "parameter", "type", "description"):
        table.add_column(heading, overflow="fold")
    for tool in tools:
        schema = tool.input_schema or {}
        required = schema.get("required") or ()
        table.add_row(server_text(tool.name, style="bold"), "", "", server_text(tool.description, limit=500))
        for name, parameter in (schema.get("properties") or {}).items():
            optional = "" if name in required else " (optional)"
            description = parameter.get("description", "") if isinstance(parameter, dict) else ""
            table.add_row(
                "", server_text(name), server_text(_type_of(parameter) + optional), server_text(str(description), limit=500)
            )
    return table


def _type_of(schema: Any) -> str:
    """A parameter's JSON Schema in a few words."""
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(_type_of(branch) for branch in schema[keyword])
    kind = schema.get("type", str(schema.get("$ref", "any")).rsplit("/", 1)[-1])
    if kind == "array":
        return f"array of {_type_of(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[name]}" for name, sign in _BOUNDS.items() if name in schema]
    return " ".join([" | ".join(kind) if isinstance(kind, list) else str(kind), *bounds])


_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def print_json(value: Any) -> None:
    """`value` as JSON on standard output, for programs; ASCII only."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What a user can mend ends the command with one line on standard error and exit code 1: an error of the library, an argument
    that it refuses, a file that cannot be read or written.
    """
    try:
        yield
    except (ORSError, ValueError, OSError) as error:
        errors.print(Text.assemble(("error: ", "bold red"), plain(" ".join(_words(error).split()))), soft_wrap=True)
        raise typer.Exit(1) from error


def _words(error: Exception) -> str:
    """The system's own errors without their number, the file first."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename2 or error.filename}: {error.strerror}"
    return str(error)
