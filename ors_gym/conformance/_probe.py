"""How the checks talk to a server: raw requests, what they have learnt of it, and the sessions that they have to close."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import numpy as np

from ors_gym.conformance._requirements import Malformed, NotTestable
from ors_gym.conformance._sse import Stream, parse_stream
from ors_gym.schemas import SchemaError, sample

UNKNOWN = "no-such-thing-as-this"
"""A name that no environment, split, tool or session has."""

MAX_LISTED = 5_000
"""Splits with more tasks than this are not listed in full."""

MARK = "ors-gym-check"
LONG_TEXT = f"{MARK} " + "é漢 ✓  x\n" * 1_000
"""A text that takes several chunks if a tool gives it back; the mark says that it does."""

_MAX_TOOLS = 12
_MAX_PLAYED = 100
_T = TypeVar("_T")


def _no_constants(token: str) -> Any:
    raise ValueError(f"{token} is not JSON")


@dataclass(frozen=True)
class Answer:
    """One answer of the server, as it came."""

    method: str
    path: str
    status: int
    headers: httpx.Headers
    content: bytes
    sent: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def summary(self) -> str:
        """The status, and of a refusal its words."""
        if self.ok:
            return "200"
        words = self.content.decode("utf-8", "replace").strip()
        return f"{self.status}: {words[:120]}" if words else f"{self.status}"

    def json(self) -> Any:
        """The body, read as strict JSON.

        Raises:
            Malformed: The status is not 200, or the body is not JSON.
        """
        if not self.ok:
            raise Malformed(f"{self.method} {self.path} answered {self.summary}")
        try:
            return json.loads(self.content, parse_constant=_no_constants)
        except ValueError as error:
            raise Malformed(f"{self.method} {self.path} answered what is not JSON ({error}): {self.content[:80]!r}") from None

    def object(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            Malformed: It is something else.
        """
        body = self.json()
        if not isinstance(body, dict):
            raise Malformed(f"{self.method} {self.path} answered {_kind(body)}, not an object")
        return body

    def array(self, key: str | None = None) -> list[Any]:
        """The body, or what it has under `key`, as a JSON array.

        Raises:
            Malformed: It is something else.
        """
        body = self.json() if key is None else self.object().get(key)
        if not isinstance(body, list):
            where = "" if key is None else f" under {key!r}"
            raise Malformed(f"{self.method} {self.path} answered {_kind(body)}{where}, not an array")
        return body

    @property
    def is_stream(self) -> bool:
        content_type: str = self.headers.get("content-type", "")
        return content_type.split(";")[0].strip().lower() == "text/event-stream"

    @property
    def stream(self) -> Stream:
        return parse_stream(self.content)


@dataclass(frozen=True)
class Call:
    """A tool call and what came back."""

    tool: str
    input: dict[str, Any]
    answer: Answer

    @property
    def task_id(self) -> str | None:
        """The server's id of the call, from its first event."""
        events = self.answer.stream.events
        return events[0].data if events and events[0].name == "task_id" else None

    @property
    def payload(self) -> str | None:
        """The chunks and the end, joined; None if there was no end."""
        events = self.answer.stream.events
        if "end" not in self.answer.stream.names:
            return None
        return "".join(event.data for event in events if event.name in ("chunk", "end"))

    @property
    def result(self) -> dict[str, Any]:
        """The `RunToolOutput`.

        Raises:
            Malformed: There is none.
        """
        payload = self.payload
        if payload is None:
            raise Malformed(f"the call of {self.tool!r} has no end: {self.answer.summary}, events {self.answer.stream.names}")
        try:
            result = json.loads(payload, parse_constant=_no_constants)
        except ValueError as error:
            raise Malformed(f"the result of {self.tool!r} is not JSON ({error}): {payload[:80]!r}") from None
        if not isinstance(result, dict):
            raise Malformed(f"the result of {self.tool!r} is {_kind(result)}, not an object")
        return result

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The `RunToolOutput`; None if there is none that can be read."""
        try:
            return self.result
        except Malformed:
            return None

    @property
    def output(self) -> dict[str, Any] | None:
        """The `ToolOutput` of a call that succeeded; None of any other."""
        result = self.parsed or {}
        output = result.get("output")
        return output if result.get("ok") is True and isinstance(output, dict) else None

    @property
    def rejected(self) -> bool:
        """Whether the answer is ok:false."""
        return (self.parsed or {}).get("ok") is False

    @property
    def text(self) -> str:
        """The text blocks of the output, joined."""
        blocks = (self.output or {}).get("blocks")
        texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def finished(self) -> bool:
        return bool(self.output and self.output.get("finished"))


@dataclass
class Survey:
    """What the tools did when each was called with inputs that its schema allows."""

    calls: list[Call] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def succeeded(self) -> list[Call]:
        return [call for call in self.calls if call.output is not None]

    def one(self) -> Call:
        """A call that succeeded, one that did not end its episode if there is any.

        Raises:
            NotTestable: None succeeded.
        """
        if not self.succeeded:
            skipped = "; ".join(f"{tool}: {why}" for tool, why in self.skipped.items())
            raise NotTestable(f"no tool call succeeded{f' ({skipped})' if skipped else ''}")
        return min(self.succeeded, key=lambda call: call.finished)


class Probe:
    """A server under test.

    Args:
        client: Sends the requests; follows no redirects.
        env_name: The environment to use; None is the first.
        may_call: Whether to open sessions and call tools.
        call_timeout: Seconds that a tool call may take before it is given up.
    """

    def __init__(self, client: httpx.AsyncClient, env_name: str | None, may_call: bool, call_timeout: float) -> None:
        self._client = client
        self._env_name = env_name
        self._may_call = may_call
        self._known: dict[str, Any] = {}
        self._call_timeout = call_timeout
        self._open: set[str] = set()
        self._rng = np.random.default_rng(0)
        self.gone = False
        self.answers: list[Answer] = []
        self.calls: list[Call] = []

    # Requests

    async def get(self, path: str, *, sid: str | None = None, headers: dict[str, str] | None = None) -> Answer:
        return await self._send("GET", path, sid, headers, None)

    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        sid: str | None = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        return await self._send("POST", path, sid, headers, content)

    async def _send(self, method: str, path: str, sid: str | None, headers: dict[str, str] | None, content: bytes | None) -> Answer:
        sent = dict(headers or {})
        if sid is not None:
            sent["X-Session-ID"] = sid
        if content is not None:
            sent["Content-Type"] = "application/json"
        response = await self._client.request(method, path, headers=sent, content=content)
        answer = Answer(method, path, response.status_code, response.headers, response.content, (content or b"").decode())
        self.answers.append(answer)
        return answer

    # What is known of the server; each is asked once

    async def _once(self, name: str, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Raises:
        NotTestable: It cannot be read. The requirement that is about it says what is wrong; the others just miss it.
        """
        if name not in self._known:
            try:
                self._known[name] = await ask()
            except Malformed as error:
                raise NotTestable(f"it needs what cannot be read: {error}") from None
        known: _T = self._known[name]
        return known

    async def list_environments(self) -> list[str]:
        """Asks for the names of the environments.

        Raises:
            Malformed: They are not names, or there are none.
        """
        names = (await self.get("/list_environments")).array()
        if not names or not all(isinstance(name, str) for name in names):
            raise Malformed(f"GET /list_environments answered {names!r:.80}, not names")
        return names

    async def environments(self) -> list[str]:
        return await self._once("environments", self.list_environments)

    async def env_name(self) -> str:
        """The environment under test."""
        if self._env_name is None:
            self._env_name = (await self.environments())[0]
        return self._env_name

    async def path(self, rest: str) -> str:
        """A path of the environment under test."""
        return f"/{await self.env_name()}/{rest}"

    async def tools(self) -> list[dict[str, Any]]:
        """The shared tools that can be read: those with a name."""

        async def ask() -> list[dict[str, Any]]:
            return named((await self.get(await self.path("tools"))).array("tools"))

        return await self._once("tools", ask)

    async def splits(self) -> list[dict[str, Any]]:
        async def ask() -> list[dict[str, Any]]:
            return named((await self.get(await self.path("splits"))).array())

        return await self._once("splits", ask)

    async def count_tasks(self, split: str) -> int:
        """Asks for the number of tasks.

        Raises:
            Malformed: It is no such number.
        """
        number = (await self.post(await self.path("num_tasks"), {"split": split})).object().get("num_tasks")
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise Malformed(f"num_tasks is {number!r}, not a number of tasks")
        return number

    async def num_tasks(self, split: str) -> int:
        return await self._once(f"num_tasks {split}", lambda: self.count_tasks(split))

    async def split(self) -> str:
        """The split to look at: the smallest that has three tasks, else the largest.

        Raises:
            NotTestable: There is no task.
        """

        async def ask() -> str:
            sizes = {str(split["name"]): await self.num_tasks(str(split["name"])) for split in await self.splits()}
            if not any(sizes.values()):
                raise NotTestable("the environment has no task")
            enough = {name: size for name, size in sizes.items() if size >= 3}
            return min(enough, key=enough.__getitem__) if enough else max(sizes, key=sizes.__getitem__)

        return await self._once("split", ask)

    async def list_tasks(self) -> list[Any]:
        """Asks for all tasks of the split.

        Raises:
            Malformed: The answer is no list of them.
            NotTestable: There are too many to list.
        """
        split = await self.split()
        number = await self.num_tasks(split)
        if number > MAX_LISTED:
            raise NotTestable(f"split {split!r} has {number} tasks, too many to list for a check")
        return (await self.post(await self.path("tasks"), {"split": split})).array("tasks")

    async def tasks(self) -> list[Any]:
        return await self._once("tasks", self.list_tasks)

    async def find_form(self, plain: str) -> str:
        """The path that the server has for one task or a range of them: `task` or `get_task`, by which page it follows.

        Raises:
            Malformed: It has neither.
        """
        body: dict[str, Any] = {"split": await self.split()} | ({"index": 0} if plain == "task" else {"start": 0, "stop": 1})
        for name in (plain, f"get_{plain}"):
            answer = await self.post(await self.path(name), body)
            if answer.status not in (404, 405):
                return name
        raise Malformed(f"neither /{plain} nor /get_{plain} is there")

    async def form(self, plain: str) -> str:
        return await self._once(f"form {plain}", lambda: self.find_form(plain))

    async def task(self, index: Any) -> Answer:
        return await self.post(await self.path(await self.form("task")), {"split": await self.split(), "index": index})

    async def task_range(self, **bounds: int | None) -> Answer:
        return await self.post(await self.path(await self.form("task_range")), {"split": await self.split(), **bounds})

    # Sessions

    def require_calls(self) -> None:
        """Raises:
        NotTestable: The check may not open sessions.
        """
        if not self._may_call:
            raise NotTestable("it needs a session, and the check was to open none: it does so on loopback, or with --call-tools")

    async def create_session(self) -> Answer:
        self.require_calls()
        return await self.post("/create_session")

    async def new_sid(self) -> str:
        """A session id of the server's making."""
        return read_sid(await self.create_session())

    async def create(self, body: dict[str, Any], sid: str | None = None, *, raw: bytes | None = None) -> tuple[str, Answer]:
        """Sends `/create`; a session that it opens is closed in the end."""
        self.require_calls()
        sid = await self.new_sid() if sid is None else sid
        self._open.add(sid)
        return sid, await self.post("/create", body, sid=sid, raw=raw)

    async def by_index(self, index: int = 0) -> dict[str, Any]:
        """The body of `/create` for a task of the split."""
        return {"env_name": await self.env_name(), "split": await self.split(), "index": index}

    @asynccontextmanager
    async def session(self, index: int = 0) -> AsyncIterator[str]:
        """A session on a task, closed at the end.

        Raises:
            NotTestable: None could be opened.
        """
        try:
            sid, answer = await self.create(await self.by_index(index))
        except Malformed as error:
            raise NotTestable(f"no session could be opened: {error}") from None
        try:
            if not answer.ok:
                raise NotTestable(f"no session could be opened: POST /create answered {answer.summary}")
            yield sid
        finally:
            await self.delete(sid)

    async def delete(self, sid: str) -> Answer:
        self._open.discard(sid)
        return await self.post("/delete", sid=sid)

    async def close(self) -> None:
        """Closes the sessions that are still open."""
        for sid in list(self._open):
            with suppress(httpx.TransportError):  # the requirements about /delete say what is wrong with it
                await self.delete(sid)

    async def prompt(self, sid: str) -> list[Any]:
        """The prompt of a session.

        Raises:
            NotTestable: The environment's own code failed for this task.
        """
        answer = await self.get(await self.path("prompt"), sid=sid)
        if answer.status >= 500:
            raise NotTestable(f"the environment failed for a task: {answer.summary}")
        return answer.array()

    # Tool calls

    async def call(self, sid: str | None, tool: str, input: Any, *, headers: dict[str, str] | None = None, **more: Any) -> Call:
        """Calls a tool and reads the stream to its end.

        Raises:
            NotTestable: It took too long.
        """
        self.require_calls()
        body = {"name": tool, "input": input, **more}
        accept = {"Accept": "text/event-stream"} if headers is None else headers
        try:
            answer = await asyncio.wait_for(self.post(await self.path("call"), body, sid=sid, headers=accept), self._call_timeout)
        except TimeoutError:
            raise NotTestable(f"the call of {tool!r} took more than {self._call_timeout:g} s") from None
        call = Call(tool, input, answer)
        self.calls.append(call)
        return call

    def sample(self, schema: Any) -> dict[str, Any]:
        """An input that a tool's schema allows.

        Raises:
            SchemaError: None could be found.
        """
        if schema is None:
            return {}
        drawn = sample(schema, self._rng) if isinstance(schema, dict) else None
        if not isinstance(drawn, dict):
            raise SchemaError("it is not the schema of an object")
        return drawn

    async def survey(self) -> Survey:
        """Calls each shared tool on a task of its own: with two samples, and with one that asks for a long result."""

        async def ask() -> Survey:
            survey = Survey()
            for spec in (await self.tools())[:_MAX_TOOLS]:
                await self._survey_tool(spec, survey)
            return survey

        return await self._once("survey", ask)

    async def _survey_tool(self, spec: dict[str, Any], survey: Survey) -> None:
        name, schema = str(spec["name"]), spec.get("input_schema")
        try:
            inputs = [self.sample(schema), self.sample(schema)] if schema else [{}]
        except SchemaError as error:
            survey.skipped[name] = f"its schema cannot be sampled: {error}"
            return
        if schema and (large := enlarged(spec, inputs[0])) is not None:
            inputs.append(large)
        async with self.session() as sid:
            for input in inputs:
                try:
                    call = await self.call(sid, name, input)
                except NotTestable as error:
                    survey.skipped[name] = str(error)
                    return
                survey.calls.append(call)
                if call.finished:
                    return

    async def play_to_the_end(self, sid: str) -> Call:
        """Calls tools in a session until one finishes the episode: as the survey did, else with samples; that last call.

        Raises:
            NotTestable: The episode goes on and on.
        """
        survey = await self.survey()
        ending = next((call for call in survey.succeeded if call.finished), None)
        if ending is not None:
            plan = [(call.tool, call.input) for call in survey.calls if call.tool == ending.tool]
        else:
            schemas = {str(tool["name"]): tool.get("input_schema") for tool in await self.tools()}
            usable = sorted({call.tool for call in survey.succeeded} & set(schemas))
            plan = [(tool, self.sample(schemas[tool])) for _ in range(_MAX_PLAYED) for tool in usable][:_MAX_PLAYED]
        for tool, input in plan:
            call = await self.call(sid, tool, input)
            if call.finished:
                return call
        raise NotTestable(f"no episode finished in {len(plan)} calls")

    async def replay(self, sid: str, calls: Sequence[Call]) -> list[str | None]:
        """Makes the same calls in a session, until one finishes the episode; what came back, as text."""
        payloads = []
        for call in calls:
            again = await self.call(sid, call.tool, call.input)
            payloads.append(again.payload)
            if again.finished:
                break
        return payloads


def named(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The objects that have a name."""
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]


def read_sid(answer: Answer) -> str:
    """The session id that `/create_session` gave, as JSON or in an event stream.

    Raises:
        Malformed: It gave none.
    """
    if answer.ok and answer.is_stream:
        events = answer.stream.events
        if events and events[0].name == "task_id" and events[0].data:
            return events[0].data
        raise Malformed(f"POST /create_session sent the events {answer.stream.names}, and no id in a first task_id")
    sid = answer.object().get("sid")
    if not isinstance(sid, str) or not sid:
        raise Malformed(f"POST /create_session answered the sid {sid!r}, not a text")
    return sid


def parameters_of(tool: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of a tool and their schemas, those that can be read."""
    schema = tool.get("input_schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return {key: rule for key, rule in properties.items() if isinstance(rule, dict)} if isinstance(properties, dict) else {}


def required_of(tool: dict[str, Any]) -> list[str]:
    """The names of the parameters that a tool requires, if they can be read."""
    schema = tool.get("input_schema")
    required = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def enlarged(tool: dict[str, Any], input: dict[str, Any]) -> dict[str, Any] | None:
    """The input with one text or whole number made large, if the schema says nothing against it: to see a long result."""
    properties = parameters_of(tool)
    for key in input:
        rule = properties.get(key)
        if rule is None or rule.keys() & {"enum", "const", "pattern", "format", "maxLength", "maximum"}:
            continue
        if rule.get("type") == "string":
            return {**input, key: LONG_TEXT}
        if rule.get("type") == "integer" and "exclusiveMaximum" not in rule and "multipleOf" not in rule:
            return {**input, key: 10_000}
    return None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
