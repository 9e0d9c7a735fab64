"""What a session shows before anything is called: its prompt, and its tools."""

import base64
import binascii
from typing import Any

from ors_gym.conformance._probe import UNKNOWN, Probe, named
from ors_gym.conformance._requirements import Finding, NotTestable, Registry, holds, refused
from ors_gym.conformance.checks.discovery import DATA_TYPES, HTTP_API, schemas_present, schemas_valid

registry = Registry()
requirement = registry.requirement

_PROMPT = "GET /{env_name}/prompt"
_TASK_TOOLS = "GET /{env_name}/task_tools"


@requirement(_PROMPT, HTTP_API, "The answer is an array of blocks.")
async def prompt_shape(probe: Probe) -> Finding:
    async with probe.session() as sid:
        blocks = (await probe.get(await probe.path("prompt"), sid=sid)).array()
    wrong = block_faults(blocks)
    return holds(not wrong, "; ".join(wrong)[:200] if wrong else f"{len(blocks)} blocks")


@requirement(_PROMPT, "Prompts", "The prompt is that of the session's own task.")
async def prompt_of_its_own_session(probe: Probe) -> Finding:
    if await probe.num_tasks(await probe.split()) < 2:
        raise NotTestable("no split has two tasks")
    alone = []
    for index in (0, 1, 0):
        async with probe.session(index) as sid:
            alone.append(await probe.prompt(sid))
    if alone[0] != alone[2] or alone[0] == alone[1]:
        raise NotTestable("the prompts of two tasks are the same, or differ from session to session")
    async with probe.session(0) as first, probe.session(1) as second:
        together = [await probe.prompt(sid) for sid in (first, second)]
    return holds(together == alone[:2], "each its own" if together == alone[:2] else "another session's prompt")


@requirement(_PROMPT, HTTP_API, "Without X-Session-ID it is 400.")
async def prompt_without_header(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.get(await probe.path("prompt")), 400, tolerated=(422,))


@requirement(_PROMPT, HTTP_API, "An unknown session is 404.")
async def prompt_unknown_session(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.get(await probe.path("prompt"), sid=UNKNOWN), 404, tolerated=(410,))


@requirement(_PROMPT, HTTP_API, "A deleted session is 410.")
async def prompt_after_delete(probe: Probe) -> Finding:
    async with probe.session() as sid:
        pass
    return refused(await probe.get(await probe.path("prompt"), sid=sid), 410, tolerated=(404,))


@requirement(_PROMPT, "HTTP", "The session's header is found whatever the case of its name.")
async def session_header_case(probe: Probe) -> Finding:
    async with probe.session() as sid:
        answer = await probe.get(await probe.path("prompt"), headers={"x-session-id": sid})
    return holds(answer.ok, f"x-session-id: {answer.summary}")


@requirement(_TASK_TOOLS, HTTP_API, "The answer is an object with the array `tools`, of named tools.")
async def task_tools_shape(probe: Probe) -> Finding:
    listed = await _task_tools(probe)
    return holds(len(named(listed)) == len(listed), f"{len(listed)} tools, {len(named(listed))} with a name")


@requirement(_TASK_TOOLS, HTTP_API, "Every shared tool is among them, as /tools has it.")
async def task_tools_superset(probe: Probe) -> Finding:
    listed = {tool["name"]: tool for tool in named(await _task_tools(probe))}
    missing = [tool["name"] for tool in await probe.tools() if listed.get(tool["name"]) != tool]
    more = [name for name in listed if name not in {tool["name"] for tool in await probe.tools()}]
    return holds(not missing, f"missing or changed: {missing}" if missing else f"all, and {len(more)} of the task")


@requirement(_TASK_TOOLS, DATA_TYPES, "`input_schema` is always there: an object, or null without parameters.")
async def task_tools_schema_present(probe: Probe) -> Finding:
    return schemas_present(named(await _task_tools(probe)))


@requirement(_TASK_TOOLS, "Tools", "A schema is a valid JSON Schema of an object.")
async def task_tools_schema_valid(probe: Probe) -> Finding:
    return schemas_valid(named(await _task_tools(probe)))


@requirement(_TASK_TOOLS, HTTP_API, "No tool can be called that is not listed there.")
async def task_tools_complete(probe: Probe) -> Finding:
    raise NotTestable("from outside, a name that is not listed cannot be guessed")


@requirement(_TASK_TOOLS, HTTP_API, "Without X-Session-ID it is 400.")
async def task_tools_without_header(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.get(await probe.path("task_tools")), 400, tolerated=(422,))


@requirement(_TASK_TOOLS, HTTP_API, "An unknown session is 404.")
async def task_tools_unknown_session(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.get(await probe.path("task_tools"), sid=UNKNOWN), 404, tolerated=(410,))


@requirement(_TASK_TOOLS, HTTP_API, "A deleted session is 410.")
async def task_tools_after_delete(probe: Probe) -> Finding:
    async with probe.session() as sid:
        pass
    return refused(await probe.get(await probe.path("task_tools"), sid=sid), 410, tolerated=(404,))


async def _task_tools(probe: Probe) -> list[Any]:
    async with probe.session() as sid:
        return (await probe.get(await probe.path("task_tools"), sid=sid)).array("tools")


def block_faults(blocks: list[Any]) -> list[str]:
    """What is wrong with blocks: each is a text or an image, with its fields."""
    return [fault for block in blocks if (fault := _block_fault(block))]


def _block_fault(block: Any) -> str:
    match block:
        case {"type": "text", "text": str()}:
            pass
        case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
            try:
                base64.b64decode(data, validate=True)
            except binascii.Error as error:
                return f"an image that is not base64: {error}"
            if not mime_type.startswith("image/"):
                return f"an image of the type {mime_type!r}"
        case _:
            return f"neither a text nor an image block: {block!r:.80}"
    return "" if isinstance(block.get("detail"), dict | None) else f"a detail that is no object: {block['detail']!r:.80}"
