"""The standard's server with one fault at a time, each with the requirement that has to notice it."""

import json
import uuid
from collections.abc import Callable
from typing import Any

from tests.servers.standard import Events, Mutant, Playground, Refusal, Standard, encode_events, output

Answer = Callable[[str, int, Any], tuple[int, Any]]


def on(route: str, change: Callable[[int, Any], tuple[int, Any]]) -> Answer:
    """Changes the answers of one route."""
    return lambda name, status, body: change(status, body) if name == route else (status, body)


def body_of(route: str, change: Callable[[Any], Any]) -> Answer:
    """Changes the body of one route's answers that succeeded."""
    return on(route, lambda status, body: (status, change(body) if status == 200 else body))


def instead(route: str, refusal: int, body: Any) -> Answer:
    """Answers 200 with a body where the route refuses with a status."""
    return on(route, lambda status, old: (200, body) if status == refusal else (status, old))


def each_tool(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Any], Any]:
    return lambda body: {"tools": [change(tool) for tool in body["tools"]]}


def without(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: {name: value for name, value in body.items() if name != key}


def in_output(**fields: Any) -> Callable[[Events], Events]:
    """Sets fields of every tool output; `...` takes one away."""

    def change(events: Events) -> Events:
        if events[-1][0] != "end":
            return events
        result = json.loads("".join(data for name, data in events if name in ("chunk", "end")))
        if result.get("ok"):
            result["output"] = {name: value for name, value in {**result["output"], **fields}.items() if value is not ...}
        return [events[0], *Standard().chunks(json.dumps(result, ensure_ascii=False))]

    return change


class OffByOne(Standard):
    def task(self, environment: type[Playground], split: str, index: Any) -> dict[str, Any]:
        super().task(environment, split, index)
        return environment.tasks(split)[index - 1]


class Wrapping(Standard):
    def task(self, environment: type[Playground], split: str, index: Any) -> dict[str, Any]:
        tasks = environment.tasks(split)
        return tasks[index % len(tasks)] if isinstance(index, int) else super().task(environment, split, index)


class Random(Standard):
    def task(self, environment: type[Playground], split: str, index: Any) -> dict[str, Any]:
        return {**super().task(environment, split, index), "salt": uuid.uuid4().hex}


class InclusiveStop(Standard):
    def task_range(self, environment: type[Playground], split: str, start: int | None = None, stop: int | None = None) -> Any:
        return environment.tasks(split)[slice(start, stop if stop is None or stop < 0 else stop + 1)]


class NoNegatives(Standard):
    def task_range(self, environment: type[Playground], split: str, start: int | None = None, stop: int | None = None) -> Any:
        return environment.tasks(split)[slice(max(start or 0, 0), stop)]


class NoNegativeStop(Standard):
    def task_range(self, environment: type[Playground], split: str, start: int | None = None, stop: int | None = None) -> Any:
        return environment.tasks(split)[slice(start, None if stop is None or stop < 0 else stop)]


class StopNeeded(Standard):
    def task_range(self, environment: type[Playground], split: str, start: int | None = None, stop: int | None = None) -> Any:
        return environment.tasks(split)[slice(start, stop or 1)]


class Replacing(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        self.sessions.pop(sid, None)
        return super().create(sid, body)


class Reviving(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        self.deleted.discard(sid)
        return super().create(sid, body)


class TakesBothSources(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        if "task_spec" in body:
            body = {key: value for key, value in body.items() if key not in ("split", "index")}
        return super().create(sid, body)


class TakesNoSource(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        return super().create(sid, body if "task_spec" in body or "split" in body else {**body, "task_spec": {}})


class IndexIgnored(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        return super().create(sid, {**body, "index": 0} if isinstance(body.get("index"), int) else body)


class WrongDefault(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        if "env_name" not in body:
            raise Refusal(400, "env_name is required")
        return super().create(sid, body)


class RefusesSecrets(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        if "secrets" in body:
            raise Refusal(400, "Unknown field secrets")
        return super().create(sid, body)


class EchoesBodies(Standard):
    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        try:
            return super().create(sid, body)
        except Refusal as refusal:
            raise Refusal(refusal.status, f"{refusal.detail}: {body}") from None


class DeletesAll(Standard):
    def delete(self, sid: str) -> dict[str, str]:
        answer = super().delete(sid)
        self.deleted |= set(self.sessions)
        self.sessions.clear()
        return answer


class DeletesNothing(Standard):
    def delete(self, sid: str) -> dict[str, str]:
        return {"sid": sid}


class OneForAll(Standard):
    """Every session is the one that was created last."""

    def session(self, sid: str | None) -> Playground:
        super().session(sid)
        return list(self.sessions.values())[-1]


class AnySession(Standard):
    """Without a header it takes whatever session there is."""

    def required(self, sid: str | None) -> str:
        return sid or next(iter(self.sessions), "none")

    def session(self, sid: str | None) -> Playground:
        return super().session(sid) if sid else Playground({})


class SharedTotal(Standard):
    """Calls of all sessions that live count into one total."""

    def call(self, sid: str | None, name: str, input: dict[str, Any], task_id: str | None = None) -> Events:
        events = super().call(sid, name, input, task_id)
        total = sum(session.total for session in self.sessions.values())
        return [
            (event, data.replace(f"The total is {self.session(sid).total}.", f"The total is {total}.")) for event, data in events
        ]


class RunsAgain(Standard):
    def call(self, sid: str | None, name: str, input: dict[str, Any], task_id: str | None = None) -> Events:
        self.results.clear()
        return super().call(sid, name, input, task_id)


class ForgetsResults(Standard):
    def call(self, sid: str | None, name: str, input: dict[str, Any], task_id: str | None = None) -> Events:
        known = (str(sid), task_id or "") in self.results
        return [("error", "unknown task_id")] if known else super().call(sid, name, input, task_id)


class OwnIdsOnly(Standard):
    def call(self, sid: str | None, name: str, input: dict[str, Any], task_id: str | None = None) -> Events:
        if task_id and (str(sid), task_id) not in self.results:
            return [("error", "unknown task_id")]
        return super().call(sid, name, input, task_id)


class Tireless(Standard):
    """Runs tools after the end, and pays for them."""

    def session(self, sid: str | None) -> Playground:
        session = super().session(sid)
        session.finished = False
        return session


class AnythingGoes(Standard):
    """Takes every tool and every input."""

    def call(self, sid: str | None, name: str, input: dict[str, Any], task_id: str | None = None) -> Events:
        try:
            return super().call(sid, name, input, task_id)
        except Refusal as refusal:
            if "ool" not in refusal.detail:
                raise
            return [("task_id", "x"), ("end", json.dumps({"ok": True, "output": output("Fine.")}))]


class Unchunked(Standard):
    def chunks(self, result: str) -> Events:
        return [("end", result)]


class SmallChunks(Standard):
    def chunks(self, result: str) -> Events:
        pieces = [result[at : at + 20] for at in range(0, len(result), 20)]
        return [*(("chunk", piece) for piece in pieces[:-1]), ("end", pieces[-1])]


class LossyChunks(Standard):
    def chunks(self, result: str) -> Events:
        events = super().chunks(result)
        return [(name, data.replace("  ", " ") if len(events) > 1 else data) for name, data in events]


class CutChunks(Standard):
    def chunks(self, result: str) -> Events:
        return [(name, data[:-1] if name == "chunk" else data) for name, data in super().chunks(result)]


class CutEnds(Standard):
    def chunks(self, result: str) -> Events:
        return [(name, data[:-1] if name == "end" else data) for name, data in super().chunks(result)]


def ascii_only(events: Events) -> Events:
    return [(name, data.encode("ascii", "ignore").decode()) for name, data in events]


def bare(events: Events) -> Events:
    """The output without its envelope."""
    return [(name, json.dumps(json.loads(data)["output"]) if name == "end" and len(events) == 2 else data) for name, data in events]


def unframed(events: Events) -> bytes:
    return "\n".join(data for _, data in events).encode()


MUTANTS = [
    Mutant("not healthy", "health-status", answer=on("health", lambda s, b: (503, b))),
    Mutant("another health", "health-body", answer=body_of("health", lambda b: {"status": "fine"})),
    Mutant("environments in an object", "environments-shape", answer=body_of("list_environments", lambda b: {"environments": b})),
    Mutant("an environment twice", "environments-unique", answer=body_of("list_environments", lambda b: [*b, b[0]])),
    Mutant(
        "an environment that is not there",
        "environments-usable",
        answer=body_of("list_environments", lambda b: [*b, "ghost"]),
    ),
    Mutant("tools without a list", "tools-shape", answer=body_of("tools", lambda b: b["tools"])),
    Mutant("a tool twice", "tools-named", answer=body_of("tools", lambda b: {"tools": b["tools"] * 2})),
    Mutant("no descriptions", "tools-described", answer=body_of("tools", each_tool(without("description")))),
    Mutant("no schemas", "tools-schema-present", answer=body_of("tools", each_tool(without("input_schema")))),
    Mutant(
        "a schema that is none",
        "tools-schema-valid",
        answer=body_of("tools", each_tool(lambda tool: {**tool, "input_schema": {"type": "thing"}})),
    ),
    Mutant("more fields", "tools-fields", "deviation", answer=body_of("tools", lambda b: {**b, "version": 2})),
    Mutant("tools of any environment", "tools-unknown-environment", answer=instead("tools", 404, {"tools": []})),
    Mutant(
        "splits of an unknown type",
        "splits-typed",
        answer=body_of("splits", lambda b: [{**split, "type": "eval"} for split in b]),
    ),
    Mutant(
        "the test split to train on",
        "splits-type-of-name",
        "deviation",
        answer=body_of("splits", lambda b: [{**split, "type": "train"} for split in b]),
    ),
    Mutant("tasks without a list", "tasks-shape", answer=body_of("tasks", lambda b: b["tasks"])),
    Mutant(
        "tasks that are texts",
        "tasks-objects",
        answer=body_of("tasks", lambda b: {**b, "tasks": list(map(str, b["tasks"]))}),
    ),
    Mutant("no env_name", "tasks-env-name", answer=body_of("tasks", without("env_name"))),
    Mutant(
        "an unknown split is empty", "tasks-unknown-split", answer=instead("tasks", 400, {"tasks": [], "env_name": "playground"})
    ),
    Mutant("422 for 400", "tasks-without-split", "deviation", answer=on("tasks", lambda s, b: (422 if s == 400 else s, b))),
    Mutant("500 for 400", "tasks-malformed-body", answer=on("tasks", lambda s, b: (500 if s == 400 else s, b))),
    Mutant("one task too many", "num-tasks-agrees", answer=body_of("num_tasks", lambda b: {"num_tasks": b["num_tasks"] + 1})),
    Mutant("a number in a text", "num-tasks-shape", answer=body_of("num_tasks", lambda b: {"num_tasks": str(b["num_tasks"])})),
    Mutant("no single tasks", "task-path", answer=on("task", lambda status, body: (404, {"detail": "Not Found"}))),
    Mutant("a bare task", "task-shape", answer=body_of("task", lambda b: b["task"])),
    Mutant("off by one", "task-agrees", server=OffByOne),
    Mutant("an index beyond the end begins again", "task-out-of-range", server=Wrapping),
    Mutant("another task each time", "task-repeatable", server=Random),
    Mutant("stop is inclusive", "range-half-open", server=InclusiveStop),
    Mutant("a negative start is 0", "range-negative-start", server=NoNegatives),
    Mutant("a negative stop is the end", "range-negative-stop", server=NoNegativeStop),
    Mutant("stop is needed", "range-open-stop", server=StopNeeded),
    Mutant("no id", "create-session-gives-an-id", answer=body_of("create_session", lambda b: {})),
    Mutant("the same id", "create-session-unique", answer=body_of("create_session", lambda b: {"sid": "s"})),
    Mutant(
        "an id that is no UUID",
        "create-session-uuid",
        "deviation",
        answer=body_of("create_session", lambda b: {"sid": b["sid"] + "!"}),
    ),
    Mutant("no sid", "create-by-index", answer=body_of("create", lambda b: {})),
    Mutant("a second session replaces the first", "create-twice", server=Replacing),
    Mutant("a deleted id lives again", "create-after-delete", "deviation", server=Reviving),
    Mutant("both sources", "create-with-both-task-sources", server=TakesBothSources),
    Mutant("no source", "create-without-task", server=TakesNoSource),
    Mutant("the index is ignored", "create-same-task-both-ways", server=IndexIgnored),
    Mutant("env_name is needed", "create-default-environment", server=WrongDefault),
    Mutant("no secrets", "create-with-secrets", server=RefusesSecrets),
    Mutant("secrets come back", "secrets-are-not-echoed", "deviation", server=EchoesBodies),
    Mutant("everything is there to ping", "ping-unknown-session", answer=instead("ping", 404, {"status": "ok"})),
    Mutant("no id of the deleted", "delete-answers-the-id", answer=body_of("delete", lambda b: {})),
    Mutant("200 for an unknown session", "delete-unknown-session", "deviation", answer=instead("delete", 404, {"sid": "x"})),
    Mutant("one delete deletes all", "delete-leaves-others", server=DeletesAll),
    Mutant("a deleted session speaks", "prompt-after-delete", server=DeletesNothing),
    Mutant("a prompt that is a text", "prompt-shape", answer=body_of("prompt", lambda b: b[0]["text"])),
    Mutant("another session's prompt", "prompt-of-its-own-session", server=OneForAll),
    Mutant("a prompt for nobody", "prompt-without-header", server=AnySession),
    Mutant("only the task's tools", "task-tools-superset", answer=body_of("task_tools", lambda b: {"tools": b["tools"][-1:]})),
    Mutant("a stream of another type", "call-content-type", stream_type="application/json"),
    Mutant("no frames", "call-framing", encode=unframed),
    Mutant("no empty line at the end", "call-framing", encode=lambda events: encode_events(events)[:-1]),
    Mutant("line breaks in data", "call-framing", encode=lambda events: encode_events(events).replace(b", ", b",\n")),
    Mutant("no task_id", "call-task-id-first", events=lambda events: events[1:]),
    Mutant("one task_id for all", "call-task-id-unique", events=lambda events: [("task_id", "t"), *events[1:]]),
    Mutant("two ends", "call-ends-once", events=lambda events: [*events, events[-1]]),
    Mutant("no end", "call-ends-once", events=lambda events: events[:1]),
    Mutant("an event of another name", "call-ends-once", events=lambda events: [(n.replace("end", "done"), d) for n, d in events]),
    Mutant("chunks without their last character", "call-chunks-lose-nothing", server=CutChunks),
    Mutant("ends without their last character", "call-result-is-json", server=CutEnds),
    Mutant("one long event", "call-chunks", server=Unchunked),
    Mutant("chunks of 20 characters", "call-small-in-one", "deviation", server=SmallChunks),
    Mutant("spaces are lost in chunks", "call-chunks-lose-nothing", server=LossyChunks),
    Mutant(
        "a bare output",
        "call-envelope",
        events=lambda events: [
            (n, json.dumps(json.loads(d)["output"]) if n == "end" and len(events) == 2 else d) for n, d in events
        ],
    ),
    Mutant("blocks that are a text", "call-blocks", events=in_output(blocks="text")),
    Mutant("a block of no type", "call-blocks", events=in_output(blocks=[{"text": "text"}])),
    Mutant(
        "an image that is no base64",
        "call-blocks",
        events=in_output(blocks=[{"type": "image", "data": "!", "mimeType": "image/png"}]),
    ),
    Mutant("no blocks", "call-blocks-not-empty", events=in_output(blocks=[])),
    Mutant("no finished", "call-finished", events=in_output(finished=...)),
    Mutant("finished is a text", "call-finished", events=in_output(finished="no")),
    Mutant("the reward is a text", "call-reward", events=in_output(reward="1.0")),
    Mutant("the reward is no number", "answers-are-strict-json", events=in_output(reward=float("nan"))),
    Mutant("metadata is a list", "call-metadata", events=in_output(metadata=[])),
    Mutant("an end after an error", "call-error-ends", events=lambda e: [*e, ("end", "{}")] if e[-1][0] == "error" else e),
    Mutant("any tool", "call-unknown-tool", server=AnythingGoes),
    Mutant("any input", "call-invalid-input", server=AnythingGoes),
    Mutant("no task_id of one's own", "call-own-task-id", "deviation", server=OwnIdsOnly),
    Mutant("results are forgotten", "call-resume", server=ForgetsResults),
    Mutant("resuming runs the tool again", "call-resume-runs-once", server=RunsAgain),
    Mutant("one session for all", "sessions-are-isolated", server=OneForAll),
    Mutant("one total for all", "sessions-are-isolated", server=SharedTotal),
    Mutant("no rest after the end", "call-after-finished", "deviation", server=Tireless),
    Mutant("letters are lost", "call-non-ascii", events=ascii_only),
    Mutant("JSON that does not say so", "answers-are-json", content_type="text/html"),
    Mutant(
        "refusals in words of their own", "refusals-have-a-detail", answer=lambda _, s, b: (s, {"error": "no"} if s >= 400 else b)
    ),
]
