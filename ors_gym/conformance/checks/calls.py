"""Tool calls: the stream, what it carries, how it is resumed, and what a session keeps to itself."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ors_gym.conformance._probe import LONG_TEXT, MARK, UNKNOWN, Call, Probe, parameters_of, required_of
from ors_gym.conformance._requirements import (
    Finding,
    NotTestable,
    Registry,
    deviates,
    holds,
    passes,
    refused,
    violates,
)
from ors_gym.conformance.checks.discovery import DATA_TYPES, HTTP_API, extra_of_all
from ors_gym.conformance.checks.episode import block_faults
from ors_gym.conformance.checks.sessions import SESSIONS_PAGE

registry = Registry()
requirement = registry.requirement

_CALL = "POST /{env_name}/call"
_OVERVIEW = "Protocol Overview"
_EVENTS = ("task_id", "chunk", "end", "error")
_CHUNK = 4096
_ASCII = "two  spaces"
_TEXT = f'é漢字🎲 \u2028\u0085 {_ASCII} \n "quoted"'
_IN_TURN = 4
"""How many tools take turns in an episode."""


@requirement(_CALL, HTTP_API, "The answer is an event stream: text/event-stream.")
async def call_content_type(probe: Probe) -> Finding:
    call = (await probe.survey()).one()
    return holds(call.answer.is_stream, f"{call.answer.headers.get('content-type')}")


@requirement(_CALL, HTTP_API, "It is an event stream whatever the request accepts.")
async def call_without_accept(probe: Probe) -> Finding:
    sample = (await probe.survey()).one()
    async with probe.session() as sid:
        call = await probe.call(sid, sample.tool, sample.input, headers={"Accept": "application/json"})
    return holds(call.answer.ok and call.answer.is_stream, f"{call.answer.status} {call.answer.headers.get('content-type')}")


@requirement(
    _CALL, HTTP_API, "Each event is framed: fields on lines of their own, data on `data:` lines, an empty line at its end."
)
async def call_framing(probe: Probe) -> Finding:
    calls = await _streams(probe)
    faults = [fault for call in calls for fault in call.answer.stream.faults]
    return holds(not faults, f"{faults[0]}" if faults else f"{len(calls)} streams")


@requirement(_CALL, HTTP_API, "The first event is `task_id`, and there is one.")
async def call_task_id_first(probe: Probe) -> Finding:
    for call in await _streams(probe):
        names = call.answer.stream.names
        if names[:1] != ["task_id"] or names.count("task_id") != 1 or not call.task_id:
            return violates(f"the events of {call.tool!r} are {names}")
    return passes("in every stream")


@requirement(_CALL, HTTP_API, "No two calls have the same task_id.")
async def call_task_id_unique(probe: Probe) -> Finding:
    ids = [call.task_id for call in await _streams(probe)]
    if len(ids) < 2:
        raise NotTestable("there was one call only")
    return holds(len(set(ids)) == len(ids), f"{len(ids)} calls, {len(set(ids))} ids")


@requirement(
    _CALL, HTTP_API, "The events are task_id, chunk, end and error; the last is `end` or `error`, and there is one of them."
)
async def call_ends_once(probe: Probe) -> Finding:
    for call in await _streams(probe):
        names = call.answer.stream.names
        if set(names) - set(_EVENTS) or names[-1:] not in (["end"], ["error"]) or names.count("end") + names.count("error") != 1:
            return violates(f"the events of {call.tool!r} are {names[:6]}")
    return passes("in every stream")


@requirement(_CALL, HTTP_API, "A result is whole after `end`: chunks and end, joined, are JSON.")
async def call_result_is_json(probe: Probe) -> Finding:
    results = [call.result for call in await _streams(probe) if "end" in call.answer.stream.names]
    if not results:
        raise NotTestable("no call came to an end")
    return passes(f"{len(results)} results")


@requirement(_CALL, f"{HTTP_API}; Implementing a Server", "A result of more than 4 kB comes in chunks, none larger than that.")
async def call_chunks(probe: Probe) -> Finding:
    large = [call for call in await _streams(probe) if len(call.payload or "") > _CHUNK]
    if not large:
        raise NotTestable("no result was larger than 4 kB")
    parts = [event.data for call in large for event in call.answer.stream.events if event.name in ("chunk", "end")]
    characters, octets = max(map(len, parts)), max(len(part.encode()) for part in parts)
    if characters > _CHUNK:
        return violates(f"an event of {characters} characters")
    return passes(
        f"the server counts {'bytes' if octets <= _CHUNK else 'characters'}: at most {characters} characters, {octets} bytes"
    )


@requirement(_CALL, HTTP_API, "A result of up to 4 kB comes in one event.")
async def call_small_in_one(probe: Probe) -> Finding:
    small = [call for call in await _streams(probe) if call.payload is not None and len(call.payload.encode()) <= _CHUNK]
    if not small:
        raise NotTestable("no result was as small as that")
    split = [call for call in small if "chunk" in call.answer.stream.names]
    return deviates(f"{len(split)} of {len(small)} came in chunks") if split else passes(f"{len(small)} results")


@requirement(_CALL, DATA_TYPES, "`ok` is true with an `output`, or false with an `error`, a text.")
async def call_envelope(probe: Probe) -> Finding:
    for call in await _ended(probe):
        match call.parsed:
            case {"ok": True, "output": dict()} | {"ok": False, "error": str()}:
                continue
            case other:
                return violates(f"{call.tool!r} gave {other!r:.100}")
    return passes("in every result")


@requirement(_CALL, DATA_TYPES, "A result has the fields of RunToolOutput and ToolOutput.")
async def call_fields(probe: Probe) -> Finding:
    results = [call.result for call in await _ended(probe)]
    outputs = [call.output for call in await _ended(probe) if call.output is not None]
    more = extra_of_all(results, {"ok", "output", "error"}) + extra_of_all(outputs, {"blocks", "metadata", "reward", "finished"})
    return deviates(f"more fields: {', '.join(more)}") if more else passes("no others")


@requirement(_CALL, DATA_TYPES, "`blocks` is an array of text and image blocks.")
async def call_blocks(probe: Probe) -> Finding:
    for call, output in await _outputs(probe):
        blocks = output.get("blocks")
        faults = block_faults(blocks) if isinstance(blocks, list) else [f"blocks is {blocks!r:.60}"]
        if faults:
            return violates(f"{call.tool!r}: {faults[0]}")
    return passes("in every output")


@requirement(_CALL, DATA_TYPES, "`blocks` is not empty.")
async def call_blocks_not_empty(probe: Probe) -> Finding:
    empty = [call.tool for call, output in await _outputs(probe) if not output.get("blocks")]
    return violates(f"empty: {empty}") if empty else passes("in no output")


@requirement(_CALL, DATA_TYPES, "`finished` is always there, true or false.")
async def call_finished(probe: Probe) -> Finding:
    return _typed(await _outputs(probe), "finished", lambda value: isinstance(value, bool), required=True)


@requirement(_CALL, DATA_TYPES, "`reward` is a number or null, and finite, since JSON has no other.")
async def call_reward(probe: Probe) -> Finding:
    return _typed(await _outputs(probe), "reward", _is_number_or_null)


@requirement(_CALL, DATA_TYPES, "`metadata` is an object or null.")
async def call_metadata(probe: Probe) -> Finding:
    return _typed(await _outputs(probe), "metadata", lambda value: isinstance(value, dict | None))


@requirement(_CALL, "Tools", "Every tool that is listed can be called with what its schema allows.")
async def call_every_tool(probe: Probe) -> Finding:
    survey = await probe.survey()
    refusals = [call for call in survey.calls if not call.answer.ok or call.rejected]
    skipped = "".join(f"; skipped {tool}: {why}" for tool, why in survey.skipped.items())
    if refusals:
        call = refusals[0]
        said = str(call.result.get("error")) if call.rejected else call.answer.summary
        return deviates(f"{call.tool!r} refuses {str(call.input)[:60]}: {said[:100]}{skipped}")
    return passes(f"{len({call.tool for call in survey.calls})} tools, {len(survey.calls)} calls{skipped}")


@requirement(_CALL, "Tools", "A tool whose schema is null is called with {}.")
async def call_null_schema(probe: Probe) -> Finding:
    names = [tool["name"] for tool in await probe.tools() if tool.get("input_schema") is None]
    calls = [call for call in (await probe.survey()).calls if call.tool in names]
    if not calls:
        raise NotTestable("no tool is without parameters")
    refusals = [call for call in calls if call.rejected or not call.answer.ok]
    return holds(not refusals, f"{refusals[0].answer.summary}" if refusals else f"{len(calls)} calls")


@requirement(_CALL, f"{HTTP_API}; {_OVERVIEW}", "A tool that raises says so by `error` (one page) or by ok:false (another).")
async def call_error_channel(probe: Probe) -> Finding:
    raised = [call for call in (await probe.survey()).calls if "error" in call.answer.stream.names]
    if not raised:
        raise NotTestable("no tool raised on a valid input, so that it cannot be told from ok:false")
    return passes(f"{raised[0].tool!r} raised: the server sends the event `error`")


@requirement(_CALL, _OVERVIEW, "After `error` there is no `end`.")
async def call_error_ends(probe: Probe) -> Finding:
    async with probe.session() as sid:
        resumed = await probe.call(sid, (await probe.survey()).one().tool, {}, task_id=UNKNOWN)
    failed = [call for call in [*(await probe.survey()).calls, resumed] if "error" in call.answer.stream.names]
    if not failed:
        raise NotTestable("no call ended in `error`")
    both = [call for call in failed if "end" in call.answer.stream.names]
    return holds(not both, f"{both[0].answer.stream.names}" if both else f"{len(failed)} calls")


@requirement(_CALL, HTTP_API, "An unknown tool is 400 or 404, or an event `error`.")
async def call_unknown_tool(probe: Probe) -> Finding:
    async with probe.session() as sid:
        return _refused_call(await probe.call(sid, UNKNOWN, {}), (400, 404), (422,))


@requirement(_CALL, HTTP_API, "An input that the schema does not allow is 400, or an event `error`.")
async def call_invalid_input(probe: Probe) -> Finding:
    for tool in await probe.tools():
        if required_of(tool):
            async with probe.session() as sid:
                return _refused_call(await probe.call(sid, tool["name"], {}), (400,), (422,))
    raise NotTestable("no tool has a required parameter")


@requirement(_CALL, HTTP_API, "A body without `input` is 400.")
async def call_without_input(probe: Probe) -> Finding:
    async with probe.session() as sid:
        answer = await probe.post(await probe.path("call"), {"name": (await probe.survey()).one().tool}, sid=sid)
    return refused(answer, 400, tolerated=(422,))


@requirement(_CALL, HTTP_API, "A body that is not JSON is 400.")
async def call_malformed_body(probe: Probe) -> Finding:
    async with probe.session() as sid:
        answer = await probe.post(await probe.path("call"), sid=sid, raw=b'{"name": ')
    return refused(answer, 400, tolerated=(422,))


@requirement(_CALL, HTTP_API, "Without X-Session-ID it is 400.")
async def call_without_header(probe: Probe) -> Finding:
    return _refused_call((await probe.call(None, "any", {})), (400,), (422,))


@requirement(_CALL, HTTP_API, "An unknown session is 404, or an event `error`.")
async def call_unknown_session(probe: Probe) -> Finding:
    return _refused_call((await probe.call(UNKNOWN, "any", {})), (404,), (410,))


@requirement(_CALL, HTTP_API, "A deleted session is 410.")
async def call_after_delete(probe: Probe) -> Finding:
    sample = (await probe.survey()).one()
    async with probe.session() as sid:
        pass
    return _refused_call(await probe.call(sid, sample.tool, sample.input), (410,), (404,))


@requirement(_CALL, DATA_TYPES, "A first call may bring a `task_id` of its own.")
async def call_own_task_id(probe: Probe) -> Finding:
    sample = (await probe.survey()).one()
    async with probe.session() as sid:
        call = await probe.call(sid, sample.tool, sample.input, task_id="ors-gym-check-1")
    if call.output is not None:
        return passes(f"taken; the server's task_id is {call.task_id!r:.50}")
    errors = [event.data for event in call.answer.stream.events if event.name == "error"]
    return deviates(f"refused: {errors[0] if errors else call.answer.summary}")


@requirement(_CALL, HTTP_API, "A call is resumed by the server's task_id: the same result comes again.")
async def call_resume(probe: Probe) -> Finding:
    sample = (await probe.survey()).one()
    async with probe.session() as sid:
        first = await probe.call(sid, sample.tool, sample.input)
        again = [await probe.call(sid, sample.tool, sample.input, task_id=first.task_id) for _ in range(2)]
    if first.payload is None or first.task_id is None:
        raise NotTestable("the call has no result to resume")
    if all(call.payload == first.payload for call in again):
        return passes("the same result, twice")
    return violates(f"{again[0].answer.stream.events[-1:]!r:.120}")


@requirement(_CALL, HTTP_API, "Resuming does not run the tool again.")
async def call_resume_runs_once(probe: Probe) -> Finding:
    script, expected = await _script(probe)
    payloads = []
    async with probe.session() as sid:
        for call in script:
            made = await probe.call(sid, call.tool, call.input)
            await probe.call(sid, call.tool, call.input, task_id=made.task_id)
            payloads.append(made.payload)
    same = payloads == expected
    return holds(same, f"{len(script)} calls, each resumed: what follows is {'as without it' if same else 'changed'}")


@requirement(_CALL, HTTP_API, "A call that is resumed by an unknown task_id ends in the event `error`, and no tool runs.")
async def call_resume_unknown(probe: Probe) -> Finding:
    call = (await probe.survey()).one()
    async with probe.session() as sid:
        resumed = await probe.call(sid, call.tool, call.input, task_id=UNKNOWN)
    names = resumed.answer.stream.names
    if names[-1:] == ["error"] or not resumed.answer.ok:
        return passes(f"{resumed.answer.stream.events[-1:]!r:.80}" if resumed.answer.ok else resumed.answer.summary)
    return passes("the server takes it for the id of a first call, as another page allows")


@requirement(_CALL, _OVERVIEW, "State stays in its session: two that run at once do not disturb each other.")
async def sessions_are_isolated(probe: Probe) -> Finding:
    script, expected = await _script(probe)
    async with probe.session() as first, probe.session() as second:
        outcomes: list[list[str | None]] = [[], []]
        for call in script:
            for outcome, sid in zip(outcomes, (first, second), strict=True):
                outcome += await probe.replay(sid, [call])
    same = outcomes == [expected, expected]
    return holds(same, f"{len(script)} calls in turn, " + ("as alone" if same else "not as alone"))


@requirement(_CALL, _OVERVIEW, "A new session begins anew.")
async def sessions_begin_anew(probe: Probe) -> Finding:
    calls = await _episode(probe)
    runs = [await _alone(probe, calls) for _ in range(3)]
    if runs[0] == runs[1] == runs[2]:
        return passes(f"{len(runs[0])} calls give the same in each of three sessions")
    raise NotTestable("the same calls give something else in each session: by chance, or by what other sessions leave")


@requirement(_CALL, "Implementing a Server", "Sessions are served at the same time.")
async def calls_in_parallel_sessions(probe: Probe) -> Finding:
    script, expected = await _script(probe)

    async def play() -> list[str | None]:
        async with probe.session() as sid:
            return await probe.replay(sid, script)

    outcomes = await asyncio.gather(*(play() for _ in range(8)))
    same = all(outcome == expected for outcome in outcomes)
    return holds(same, "8 sessions at once, " + ("each as alone" if same else "not as alone"))


@requirement(_CALL, "Implementing a Server", "Calls that a session makes at the same time are all answered.")
async def calls_in_parallel(probe: Probe) -> Finding:
    sample = (await probe.survey()).one()
    if sample.finished:
        raise NotTestable("every tool that succeeded ended its episode")
    async with probe.session() as sid:
        calls = await asyncio.gather(*(probe.call(sid, sample.tool, sample.input) for _ in range(4)))
    answered = [call for call in calls if call.payload is not None]
    return holds(len(answered) == 4, f"4 at once, {len(answered)} answered")


@requirement(
    _CALL, SESSIONS_PAGE, "After `finished` no tool is to be called: the server does not run it, and pays no second reward."
)
async def call_after_finished(probe: Probe) -> Finding:
    async with probe.session() as sid:
        last = await probe.play_to_the_end(sid)
        again = await probe.call(sid, last.tool, last.input)
    if again.output is None:
        return passes(f"refused: {again.result.get('error') if again.rejected else again.answer.summary}"[:120])
    return deviates(f"it runs again, with the reward {again.output.get('reward')!r}")


@requirement(_CALL, HTTP_API, "Text in any script goes there and comes back as UTF-8, whole.")
async def call_non_ascii(probe: Probe) -> Finding:
    for tool in await probe.tools():
        if (parameter := _free_text(tool)) is None:
            continue
        async with probe.session() as sid:
            call = await probe.call(sid, tool["name"], {parameter: _TEXT})
        if call.payload is None or call.answer.stream.faults:
            return violates(f"{tool['name']!r}: {[*call.answer.stream.faults, call.answer.summary][0]}")
        if _TEXT in call.text:
            return passes(f"{tool['name']!r} took it, and gave it back")
        return holds(_ASCII not in call.text, f"{tool['name']!r} took it, and answered {call.text!r:.80}")
    raise NotTestable("no tool has one required text")


@requirement(_CALL, HTTP_API, "No character is lost or added between chunks, spaces included.")
async def call_chunks_lose_nothing(probe: Probe) -> Finding:
    for call in await _streams(probe):
        sent = max((value for value in call.input.values() if isinstance(value, str)), key=len, default="")
        if "chunk" in call.answer.stream.names and LONG_TEXT in sent and MARK in call.text:
            return holds(
                sent in call.text, f"{call.tool!r} gave {len(sent)} characters back{'' if sent in call.text else ', changed'}"
            )
    raise NotTestable("no tool gave a long text back in chunks")


@requirement(_CALL, HTTP_API, "A result that came in chunks is the same when it is resumed.")
async def call_resume_of_chunks(probe: Probe) -> Finding:
    large = [call for call in await _streams(probe) if "chunk" in call.answer.stream.names]
    if not large:
        raise NotTestable("no result came in chunks")
    async with probe.session() as sid:
        first = await probe.call(sid, large[0].tool, large[0].input)
        again = await probe.call(sid, large[0].tool, large[0].input, task_id=first.task_id)
    return holds(
        first.payload == again.payload is not None, f"{len(first.payload or '')} characters, then {len(again.payload or '')}"
    )


def _free_text(tool: dict[str, Any]) -> str | None:
    """The one required parameter of a tool, if it is a text of any kind."""
    match required_of(tool):
        case [name]:
            rule = parameters_of(tool).get(name, {})
            free = not rule.keys() & {"enum", "const", "pattern", "format", "maxLength"}
            return name if rule.get("type") == "string" and free else None
    return None


async def _streams(probe: Probe) -> list[Call]:
    """The calls of the survey that were answered with a stream.

    Raises:
        NotTestable: There are none.
    """
    calls = [call for call in (await probe.survey()).calls if call.answer.ok]
    if not calls:
        raise NotTestable("no call was answered with 200")
    return calls


async def _ended(probe: Probe) -> list[Call]:
    calls = [call for call in await _streams(probe) if call.parsed is not None]
    if not calls:
        raise NotTestable("no call came to a result that can be read")
    return calls


async def _outputs(probe: Probe) -> list[tuple[Call, dict[str, Any]]]:
    outputs = [(call, call.output) for call in await _ended(probe) if call.output is not None]
    if not outputs:
        raise NotTestable("no tool call succeeded")
    return outputs


def _is_number_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _typed(outputs: Sequence[tuple[Call, dict[str, Any]]], name: str, is_right: Any, required: bool = False) -> Finding:
    for call, output in outputs:
        if (required and name not in output) or not is_right(output.get(name)):
            return violates(f"{call.tool!r}: {name} is {output.get(name, 'absent')!r:.60}")
    return passes("in every output")


def _refused_call(call: Call, statuses: tuple[int, ...], tolerated: tuple[int, ...]) -> Finding:
    """A call that has to be refused: by a status, or by the event `error`; ok:false is a deviation."""
    answer = call.answer
    if answer.status in statuses:
        return passes(answer.summary)
    if answer.status in tolerated:
        return deviates(answer.summary)
    if answer.ok and answer.stream.names[-1:] == ["error"]:
        return passes(f"the event error: {answer.stream.events[-1].data[:80]!r}")
    if call.rejected:
        return deviates(f"ok:false: {call.result.get('error')!r:.100}")
    return violates(f"{answer.summary}, events {answer.stream.names}" if answer.ok else answer.summary)


async def _episode(probe: Probe) -> list[Call]:
    """A few calls for one session: each tool that goes on, three times in turn; else one that ends the episode.

    Raises:
        NotTestable: No call succeeded.
    """
    first: dict[str, Call] = {}
    for call in (await probe.survey()).succeeded:
        if not call.finished:
            first.setdefault(call.tool, call)
    return list(first.values())[:_IN_TURN] * 3 if first else [(await probe.survey()).one()]


async def _script(probe: Probe) -> tuple[list[Call], list[str | None]]:
    """Calls that give the same in a session of their own each time, and what they give. Tools that do not are left out.

    Raises:
        NotTestable: There are no such calls.
    """
    calls = await _episode(probe)
    for _ in range(2):
        runs = [await _alone(probe, calls), await _alone(probe, calls)]
        if runs[0] == runs[1]:
            return calls[: len(runs[0])], runs[0]
        changing = {call.tool for call, first, second in zip(calls, *runs, strict=False) if first != second}
        calls = [call for call in calls if call.tool not in changing]
        if not calls:
            break
    raise NotTestable("the same calls give something else in each session")


async def _alone(probe: Probe, calls: list[Call]) -> list[str | None]:
    async with probe.session() as sid:
        return await probe.replay(sid, calls)
