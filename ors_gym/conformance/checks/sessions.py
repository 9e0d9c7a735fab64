"""The life of a session: its id, its task, its pings, and its end."""

import asyncio
import uuid
from typing import Any

from ors_gym.conformance._probe import UNKNOWN, Answer, Probe, read_sid
from ors_gym.conformance._requirements import Finding, NotTestable, Registry, deviates, holds, passes, refused, violates
from ors_gym.conformance.checks.discovery import DATA_TYPES, HTTP_API, unknown_environment

registry = Registry()
requirement = registry.requirement

SESSIONS_PAGE = "Sessions & Episodes"
_IDS = "POST /create_session"
_CREATE = "POST /create"
_PING = "POST /ping"
_DELETE = "POST /delete"

_IDLE = 1.0
"""Seconds for which a session is left alone."""


@requirement(_IDS, f"{HTTP_API}; Quick Start", "It gives an id, as JSON (one page) or as an event stream (another).")
async def create_session_gives_an_id(probe: Probe) -> Finding:
    answer = await probe.create_session()
    read_sid(answer)
    return passes(f"the server answers {'an event stream, as the Quick Start' if answer.is_stream else 'JSON, as the reference'}")


@requirement(_IDS, DATA_TYPES, "No id is given twice.")
async def create_session_unique(probe: Probe) -> Finding:
    ids = [await probe.new_sid() for _ in range(5)]
    return holds(len(set(ids)) == 5, f"of 5 ids, {len(set(ids))} different")


@requirement(_IDS, HTTP_API, "An id is a UUID.")
async def create_session_uuid(probe: Probe) -> Finding:
    sid = await probe.new_sid()
    try:
        uuid.UUID(sid)
    except ValueError:
        return deviates(f"{sid!r:.60}")
    return passes(sid)


@requirement(_IDS, HTTP_API, "It makes an id only: there is no episode before /create.")
async def create_session_makes_no_episode(probe: Probe) -> Finding:
    sid = await probe.new_sid()
    return refused(await probe.get(await probe.path("prompt"), sid=sid), 404, tolerated=(400, 410))


@requirement(_CREATE, HTTP_API, "A task by split and index is taken; the answer is the session's id in `sid`.")
async def create_by_index(probe: Probe) -> Finding:
    return _created(*await probe.create(await probe.by_index()))


@requirement(_CREATE, HTTP_API, "A task by `task_spec` is taken.")
async def create_by_task_spec(probe: Probe) -> Finding:
    task = (await probe.task(0)).object().get("task")
    return _created(*await probe.create({"env_name": await probe.env_name(), "task_spec": task}))


@requirement(
    _CREATE, DATA_TYPES, "A task by split and index is the one that /task gives, and by `task_spec` it makes the same episode."
)
async def create_same_task_both_ways(probe: Probe) -> Finding:
    index = min(1, await probe.num_tasks(await probe.split()) - 1)
    task = (await probe.task(index)).object().get("task")
    bodies = [await probe.by_index(index)] * 2 + [{"env_name": await probe.env_name(), "task_spec": task}]
    by_index, again, by_spec = [await probe.prompt((await probe.create(body))[0]) for body in bodies]
    if by_index != again:
        raise NotTestable("the prompt of a task differs from session to session")
    return holds(by_index == by_spec, f"task {index}: {'the same prompt' if by_index == by_spec else 'another prompt'}")


@requirement(_CREATE, DATA_TYPES, "`env_name` is optional: without it, it is the first environment.")
async def create_default_environment(probe: Probe) -> Finding:
    first = (await probe.environments())[0]
    if first == await probe.env_name():
        return _created(*await probe.create({"split": await probe.split(), "index": 0}))
    split = (await probe.get(f"/{first}/splits")).array()[0]["name"]
    return _created(*await probe.create({"split": split, "index": 0}))


@requirement(_CREATE, DATA_TYPES, "`secrets`, an object of texts, is taken.")
async def create_with_secrets(probe: Probe) -> Finding:
    return _created(*await probe.create({**await probe.by_index(), "secrets": {"check": "not-a-secret"}}))


@requirement(_CREATE, DATA_TYPES, "`secrets` may be empty.")
async def create_with_empty_secrets(probe: Probe) -> Finding:
    return _created(*await probe.create({**await probe.by_index(), "secrets": {}}))


@requirement(_CREATE, HTTP_API, "Without X-Session-ID it is 400.")
async def create_without_header(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.post("/create", await probe.by_index()), 400, tolerated=(422,))


@requirement(_CREATE, HTTP_API, "An id that has a session already is 400.")
async def create_twice(probe: Probe) -> Finding:
    sid, _ = await probe.create(await probe.by_index())
    return refused((await probe.create(await probe.by_index(), sid))[1], 400, tolerated=(409, 422))


@requirement(_CREATE, HTTP_API, "Neither `task_spec` nor `split` and `index` is 400.")
async def create_without_task(probe: Probe) -> Finding:
    return await _refused(probe, {"env_name": await probe.env_name()})


@requirement(_CREATE, HTTP_API, "`task_spec` together with `split` and `index` is 400.")
async def create_with_both_task_sources(probe: Probe) -> Finding:
    task = (await probe.task(0)).object().get("task")
    return await _refused(probe, {**await probe.by_index(), "task_spec": task})


@requirement(_CREATE, HTTP_API, "`split` without `index` is 400.")
async def create_with_split_alone(probe: Probe) -> Finding:
    return await _refused(probe, {"env_name": await probe.env_name(), "split": await probe.split()})


@requirement(_CREATE, HTTP_API, "An unknown split is 400.")
async def create_unknown_split(probe: Probe) -> Finding:
    return await _refused(probe, {**await probe.by_index(), "split": UNKNOWN})


@requirement(_CREATE, HTTP_API, "An index beyond the last is 400.")
async def create_index_out_of_range(probe: Probe) -> Finding:
    return await _refused(probe, await probe.by_index(await probe.num_tasks(await probe.split())))


@requirement(_CREATE, HTTP_API, "An unknown environment is 404.")
async def create_unknown_environment(probe: Probe) -> Finding:
    _, answer = await probe.create({**await probe.by_index(), "env_name": UNKNOWN})
    return await unknown_environment(probe, answer)


@requirement(_CREATE, DATA_TYPES, "A field of the wrong type is 400.")
async def create_wrong_type(probe: Probe) -> Finding:
    return await _refused(probe, {**await probe.by_index(), "index": "first"})


@requirement(_CREATE, HTTP_API, "A field that CreateSession does not have is invalid input, 400, or is ignored.")
async def create_unknown_field(probe: Probe) -> Finding:
    _, answer = await probe.create({**await probe.by_index(), "no_such_field": 1})
    return passes("ignored") if answer.ok else refused(answer, 400, tolerated=(422,))


@requirement(_CREATE, HTTP_API, "A body that is not JSON is 400.")
async def create_malformed_body(probe: Probe) -> Finding:
    _, answer = await probe.create({}, raw=b'{"env_name": ')
    return refused(answer, 400, tolerated=(422,))


@requirement(_CREATE, SESSIONS_PAGE, "What comes after it waits until the episode is set up.")
async def create_then_requests_wait(probe: Probe) -> Finding:
    sid, _ = await probe.create(await probe.by_index())
    answer = await probe.get(await probe.path("prompt"), sid=sid)
    if answer.status == 503 and answer.headers.get("x-backend-state") == "starting":
        return deviates("503 while it starts, to be tried again")
    return holds(answer.ok, f"a prompt at once: {answer.summary}")


@requirement(_CREATE, SESSIONS_PAGE, "An id is not used again after its session was deleted.")
async def create_after_delete(probe: Probe) -> Finding:
    async with probe.session() as sid:
        pass
    _, answer = await probe.create(await probe.by_index(), sid)
    return deviates("a deleted id is taken again") if answer.ok else passes(answer.summary)


@requirement(_PING, HTTP_API, 'The answer is {"status": "ok"}.')
async def ping_body(probe: Probe) -> Finding:
    async with probe.session() as sid:
        body = (await probe.post("/ping", sid=sid)).json()
    return holds(body == {"status": "ok"}, f"{body}")


@requirement(_PING, HTTP_API, "Without X-Session-ID it is 400.")
async def ping_without_header(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.post("/ping"), 400, tolerated=(422,))


@requirement(_PING, HTTP_API, "An unknown session is 404.")
async def ping_unknown_session(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.post("/ping", sid=UNKNOWN), 404, tolerated=(410,))


@requirement(_PING, HTTP_API, "A deleted session is 404 or 410.")
async def ping_after_delete(probe: Probe) -> Finding:
    async with probe.session() as sid:
        pass
    answer = await probe.post("/ping", sid=sid)
    return holds(answer.status in (404, 410), answer.summary)


@requirement(_PING, SESSIONS_PAGE, "A session that is idle for less than 15 minutes lives on.")
async def session_outlives_idleness(probe: Probe) -> Finding:
    async with probe.session() as sid:
        await asyncio.sleep(_IDLE)
        answer = await probe.post("/ping", sid=sid)
    return holds(answer.ok, f"after {_IDLE:g} s: {answer.summary}; a quarter of an hour is not waited for")


@requirement(_PING, SESSIONS_PAGE, "A session that is idle for 15 minutes is torn down, and is 404 from then on.")
async def session_expires(probe: Probe) -> Finding:
    raise NotTestable("a check does not wait for 15 minutes")


@requirement(_DELETE, HTTP_API, "The answer is the session's id in `sid`.")
async def delete_answers_the_id(probe: Probe) -> Finding:
    sid, created = await probe.create(await probe.by_index())
    if not created.ok:
        raise NotTestable(f"no session could be opened: {created.summary}")
    body = (await probe.delete(sid)).object()
    return holds(body.get("sid") == sid, f"sid is {body.get('sid')!r:.60}")


@requirement(_DELETE, HTTP_API, "Without X-Session-ID it is 400.")
async def delete_without_header(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.post("/delete"), 400, tolerated=(422,))


@requirement(_DELETE, HTTP_API, "An unknown session is 404.")
async def delete_unknown_session(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.post("/delete", sid=UNKNOWN), 404, tolerated=(200, 410))


@requirement(_DELETE, HTTP_API, "A session that was deleted is not found a second time.")
async def delete_twice(probe: Probe) -> Finding:
    async with probe.session() as sid:
        pass
    return refused(await probe.delete(sid), 404, tolerated=(200, 410))


@requirement(_DELETE, SESSIONS_PAGE, "Deleting one session leaves the others.")
async def delete_leaves_others(probe: Probe) -> Finding:
    async with probe.session() as kept:
        async with probe.session() as other:
            pass
        answer = await probe.get(await probe.path("prompt"), sid=kept)
    return holds(answer.ok, f"the other session's prompt after {other[:8]}… was deleted: {answer.summary}")


@requirement("POST /delete_session", HTTP_API, "The answer is the id in `sid`.")
async def delete_session_answers_the_id(probe: Probe) -> Finding:
    sid = await probe.new_sid()
    body = (await probe.post("/delete_session", sid=sid)).object()
    return holds(body.get("sid") == sid, f"sid is {body.get('sid')!r:.60}")


@requirement("POST /delete_session", HTTP_API, "Without X-Session-ID it is 400.")
async def delete_session_without_header(probe: Probe) -> Finding:
    probe.require_calls()
    return refused(await probe.post("/delete_session"), 400, tolerated=(422,))


def _created(sid: str, answer: Answer) -> Finding:
    if not answer.ok:
        return violates(answer.summary)
    body = answer.object()
    return holds(body.get("sid") == sid, f"sid is {body.get('sid')!r:.60}")


async def _refused(probe: Probe, body: dict[str, Any]) -> Finding:
    _, answer = await probe.create(body)
    return refused(answer, 400, tolerated=(422,))
