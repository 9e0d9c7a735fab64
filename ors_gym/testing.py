"""For the tests of code that uses ors-gym: an ORS server that misbehaves on demand, and pytest fixtures.

    pytest_plugins = ["ors_gym.testing"]        # in conftest.py

    def test_my_loop_survives_a_lost_result(ors_fault_server):
        ors_fault_server.script("call", Fault(cut=b"event: task_id"))
        ...

`ors_fault_server` is a `FaultServer`; `ors_local_server` is a `LocalServer` with the bundled environment `largest_digit`.
"""

import asyncio
import json
import ssl
import threading
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

from ors_gym.serving import LocalServer

_ROOT_ENDPOINTS = frozenset(
    {"health", "list_environments", "create_session", "create", "ping", "delete", "delete_session", "version"}
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one answer.

    Attributes:
        delay: Seconds before it begins.
        status: Answer with this status instead; the request is not carried out.
        headers: Headers to add, or to set.
        body: The body instead; the request is not carried out.
        raw: Send exactly these bytes instead of an answer, and close the connection; the request is not carried out.
        endless: Send these bytes as the body, again and again, until the client hangs up; the request is not carried out.
        cut: Close the connection after so many bytes of the answer, its head included, or after these bytes have been sent;
            0 sends nothing. The request is carried out.
        stall: As `cut`, but go silent instead of closing.
        packet: Send the answer in pieces of so many bytes.
    """

    delay: float = 0.0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    raw: bytes | None = None
    endless: bytes | None = None
    cut: int | bytes | None = None
    stall: int | bytes | None = None
    packet: int | None = None

    @property
    def instead(self) -> bool:
        """Whether the request is not carried out."""
        return any(part is not None for part in (self.status, self.body, self.raw, self.endless))


@dataclass(frozen=True)
class Request:
    """A request that a `FaultServer` received.

    Attributes:
        endpoint: The last segment of its path: "create", "call", "prompt" and so on.
        method, path, headers, body: As they came; the headers' names are in lower case.
        target: What was asked for, with the query; a URL where the server was asked as a proxy.
        connection: The number of its connection, from 0.
    """

    endpoint: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    target: str

    @property
    def session_id(self) -> str:
        """The value of `X-Session-ID`, or ""."""
        return self.headers.get("x-session-id", "")

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


Tool = Callable[[dict[str, Any]], Any]
Decide = Callable[[Request], Fault | None]


class FaultServer:
    """An ORS server in a thread of this process, in plain asyncio, that does what it should but for the faults it is told.

    It has one environment, "fault", with 10 tasks in the split "train" and 5 in "test", and the tools `submit(answer)` (reward 1.0
    for "right", finished), `echo(text)`, `slow(seconds)` and `fail()`.

    Args:
        decide: Says for each request what goes wrong; `script` has precedence.
        tools: More tools by name: functions of the input that return a `ToolOutput` as a dict, or raise; they may be async.
        prefix: A path that all endpoints are below.
        ping: Seconds between the comments that keep a tool call's stream alive.
        tls: Serve https by this context.
        host: The address to listen on.

    >>> with FaultServer() as server:
    ...     server.script("create", Fault(status=503, headers={"Retry-After": "1"}))
    """

    def __init__(
        self,
        decide: Decide | None = None,
        *,
        tools: Mapping[str, Tool] | None = None,
        prefix: str = "",
        ping: float = 10.0,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.decide = decide
        self._tools: dict[str, Tool] = {"submit": _submit, "echo": _echo, "slow": _slow, "fail": _fail, **(tools or {})}
        self._prefix = prefix.rstrip("/")
        self._ping = ping
        self._tls = tls
        self._host = host
        self._port = 0
        self._scripts: dict[str, deque[Fault | None]] = defaultdict(deque)
        self._results: dict[str, asyncio.Task[str]] = {}
        self._changed = threading.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ors-gym-fault-server", daemon=True)
        self.requests: list[Request] = []
        """Every request, in the order in which they came."""
        self.sessions: set[str] = set()
        """The ids of the sessions that live."""
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        """The tools that ran: session id, name and input."""
        self.connections = 0
        """How many connections were opened."""

    # ── life ──

    def start(self) -> Self:
        """Starts to listen on a free port."""
        self._thread.start()
        self.listen()
        return self

    def close(self) -> None:
        """Closes every connection and ends the thread. Further calls do nothing."""
        if self._thread.is_alive():
            self.stop_listening()
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def listen(self) -> None:
        """Listens, again on the same port, after `stop_listening`."""
        self._run(self._listen())

    def stop_listening(self) -> None:
        """Refuses connections and closes those that are open."""
        self._run(self._stop_listening())

    @property
    def base_url(self) -> str:
        """The server's URL, with its prefix."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}{self._prefix}"

    # ── what to do, and what was done ──

    def script(self, endpoint: str, *faults: Fault | None) -> None:
        """The next requests to an endpoint meet these faults, one each; None is none. Afterwards all is well again.

        Args:
            endpoint: The last segment of the path: "create", "call", "prompt" and so on.
            faults: What goes wrong.
        """
        self._scripts[endpoint].extend(faults)

    def received(self, endpoint: str) -> list[Request]:
        """The requests to an endpoint so far."""
        return [request for request in list(self.requests) if request.endpoint == endpoint]

    def wait_for(self, endpoint: str, count: int = 1, timeout: float = 10.0) -> list[Request]:
        """Waits until an endpoint has received so many requests, and returns them.

        Raises:
            TimeoutError: They did not come in time.
        """
        self.wait_until(lambda: len(self.received(endpoint)) >= count, timeout)
        return self.received(endpoint)

    def wait_until(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Waits until a condition holds; it is asked whenever a request comes and when it has been answered.

        Raises:
            TimeoutError: It did not come to hold in time.
        """
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                counts = Counter(request.endpoint for request in self.requests)
                raise TimeoutError(f"the condition did not hold within {timeout} s; requests so far: {dict(counts)}")

    def drop_connections(self) -> None:
        """Closes every open connection."""
        self._run(self._drop())

    def forget_sessions(self) -> None:
        """Loses every session, as a server does that was restarted."""
        self.sessions.clear()

    def forget_results(self) -> None:
        """Loses every tool result: a resume is answered with "unknown task_id"."""
        self._results.clear()

    # ── the server ──

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._connected, self._host, self._port, ssl=self._tls, backlog=2048)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = self.connections
        self.connections += 1
        self._writers.add(writer)
        try:
            while (request := await self._read(reader, connection)) is not None:
                with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                goes_on = await self._answer(request, writer)
                with self._changed:
                    self._changed.notify_all()
                if not goes_on:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, as clients in these tests do
        except asyncio.CancelledError:
            pass  # the server closes; asyncio would report the task as failed
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, connection: int) -> Request | None:
        head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
        if not head:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = httpx.URL(target).raw_path.decode("ascii").partition("?")[0]
        return Request(path.rpartition("/")[2], method, path, headers, body, connection, target)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answers a request. Returns whether the connection goes on."""
        script = self._scripts[request.endpoint]
        fault = script.popleft() if script else self.decide(request) if self.decide else None
        fault = fault or Fault()
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.raw is not None:
            writer.write(fault.raw)
            await writer.drain()
            return False
        answer = _Answer(fault.status or 200, fault.body or b"") if fault.instead else await self._carry_out(request)
        if fault.endless is not None:
            answer.headers["Transfer-Encoding"] = "chunked"
        answer.headers.update(fault.headers)
        return await _Wire(writer, fault).send(answer)

    async def _carry_out(self, request: Request) -> "_Answer":
        path = request.path.removeprefix(self._prefix).strip("/").split("/")
        if len(path) == 1 and path[0] in _ROOT_ENDPOINTS:
            return self._root(request)
        if len(path) != 2 or path[0] != "fault":
            return _problem(404, "Not Found")
        if request.method == "GET" and path[1] in _DISCOVERY:
            return _Answer.of(_DISCOVERY[path[1]])
        if path[1] in ("tasks", "num_tasks", "task", "task_range"):
            return _tasks(path[1], request.json())
        if request.session_id not in self.sessions:
            return _problem(404, "Active environment not found")
        if path[1] == "prompt":
            return _Answer.of([{"type": "text", "text": "What is right?", "detail": None}])
        if path[1] == "task_tools":
            return _Answer.of(_DISCOVERY["tools"])
        return self._call(request) if path[1] == "call" else _problem(404, "Not Found")

    def _root(self, request: Request) -> "_Answer":
        sid = request.session_id
        match request.endpoint:
            case "health":
                return _Answer.of({"status": "ok"})
            case "list_environments":
                return _Answer.of(["fault"])
            case "create_session":
                return _Answer.of({"sid": str(uuid.uuid4())})
            case "create":
                self.sessions.add(sid)
                return _Answer.of({"sid": sid})
            case "ping":
                return _Answer.of({"status": "ok"}) if sid in self.sessions else _problem(404, "Active environment not found")
            case "delete" | "delete_session":
                self.sessions.discard(sid)
                return _Answer.of({"sid": sid})
        return _problem(404, "Not Found")

    def _call(self, request: Request) -> "_Answer":
        call = request.json()
        task_id = call.get("task_id")
        if task_id is None:
            if call["name"] not in self._tools:
                return _Answer(200, events=_events(("end", json.dumps({"ok": False, "error": f"{call['name']!r} is not a tool"}))))
            task_id = uuid.uuid4().hex
            self.calls.append((request.session_id, call["name"], call["input"]))
            self._results[task_id] = self._loop.create_task(_run_tool(self._tools[call["name"]], call["input"]))
        result = self._results.get(task_id)
        if result is None:
            return _Answer(200, events=_events(("error", "unknown task_id")))
        return _Answer(200, events=self._stream(task_id, result))

    async def _stream(self, task_id: str, result: asyncio.Task[str]) -> AsyncIterator[bytes]:
        yield _event("task_id", task_id)
        while not result.done():
            await asyncio.wait((result,), timeout=self._ping)
            if not result.done():
                yield b": ping\r\n\r\n"
        if (error := result.exception()) is not None:
            yield _event("error", str(error))
            return
        text = result.result()
        for start in range(0, len(text), 4096):
            yield _event("end" if start + 4096 >= len(text) else "chunk", text[start : start + 4096])


@dataclass
class _Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    events: AsyncIterator[bytes] | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200) -> "_Answer":
        return cls(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class _Cut(Exception):
    """The connection is to be closed now."""


class _Wire:
    """Writes one answer, and goes wrong where the fault says."""

    def __init__(self, writer: asyncio.StreamWriter, fault: Fault) -> None:
        self._writer, self._fault = writer, fault
        self._sent = bytearray()

    async def send(self, answer: _Answer) -> bool:
        headers = dict(answer.headers)
        if answer.events is None and self._fault.endless is None:
            headers.setdefault("Content-Length", str(len(answer.body)))
        elif answer.events is not None:
            headers |= {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        lines = [f"HTTP/1.1 {answer.status} -", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        try:
            await self._write("\r\n".join(lines).encode("latin-1"))
            while self._fault.endless is not None:
                await self._write(_chunk(self._fault.endless))
            if answer.events is None:
                await self._write(answer.body)
                return True
            async for piece in answer.events:
                await self._write(_chunk(piece))
            await self._write(b"0\r\n\r\n")
        except _Cut:
            return False
        return True

    async def _write(self, data: bytes) -> None:
        end, stalls = self._end(data)
        cut = data if end is None else data[: max(end - len(self._sent), 0)]
        size = self._fault.packet or len(cut) or 1
        for start in range(0, len(cut), size):
            self._writer.write(cut[start : start + size])
            await self._writer.drain()
            if self._fault.packet:
                await asyncio.sleep(0)
        self._sent += cut
        if end is not None:
            if stalls:
                await asyncio.Event().wait()
            raise _Cut

    def _end(self, data: bytes) -> tuple[int | None, bool]:
        """The number of bytes after which the answer ends early with this piece, and whether it then stalls."""
        for mark, stalls in ((self._fault.cut, False), (self._fault.stall, True)):
            whole = len(self._sent) + len(data)
            if isinstance(mark, bytes):
                found = (self._sent + data).find(mark)
                if found >= 0:
                    return found + len(mark), stalls
            elif mark is not None and mark <= whole:
                return mark, stalls
        return None, False


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(name: str, data: str) -> bytes:
    lines = [f"event: {name}", *(f"data: {line}" for line in data.split("\n")), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogatepass")


async def _events(*events: tuple[str, str]) -> AsyncIterator[bytes]:
    for name, data in events:
        yield _event(name, data)


def _problem(status: int, detail: str) -> _Answer:
    return _Answer.of({"detail": detail}, status)


def _tasks(endpoint: str, body: dict[str, Any]) -> _Answer:
    count = {"train": 10, "test": 5}.get(body["split"])
    if count is None:
        return _problem(400, "Invalid split")
    tasks = [{"number": number} for number in range(count)]
    match endpoint:
        case "num_tasks":
            return _Answer.of({"num_tasks": count})
        case "task" if not 0 <= body["index"] < count:
            return _problem(400, "Invalid index")
        case "task":
            return _Answer.of({"task": tasks[body["index"]]})
    return _Answer.of({"tasks": tasks[body.get("start") : body.get("stop")], "env_name": "fault"})


async def _run_tool(tool: Tool, input: dict[str, Any]) -> str:
    output = tool(input)
    if isawaitable(output):
        output = await output
    return json.dumps({"ok": True, "output": output}, ensure_ascii=False)


def _output(text: str, reward: float | None = 0.0, *, finished: bool = False) -> dict[str, Any]:
    return {"blocks": [{"type": "text", "text": text, "detail": None}], "reward": reward, "finished": finished, "metadata": None}


def _submit(input: dict[str, Any]) -> dict[str, Any]:
    right = input["answer"] == "right"
    return _output("Right!" if right else "Wrong.", float(right), finished=True)


def _echo(input: dict[str, Any]) -> dict[str, Any]:
    return _output(input["text"])


async def _slow(input: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(input["seconds"])
    return _output("That took a while.")


def _fail(input: dict[str, Any]) -> Awaitable[Any]:
    raise RuntimeError("the tool failed")


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}, "required": [*properties]}
    return {"name": name, "description": f"The tool {name}.", "input_schema": schema if properties else None}


_TOOLS = [_tool("submit", answer="string"), _tool("echo", text="string"), _tool("slow", seconds="number"), _tool("fail")]
_DISCOVERY = {
    "tools": {"tools": _TOOLS},
    "splits": [{"name": "train", "type": "train"}, {"name": "test", "type": "test"}],
}


@pytest.fixture
def ors_fault_server() -> Iterator[FaultServer]:
    """A `FaultServer` of the test's own."""
    with FaultServer() as server:
        yield server


@pytest.fixture(scope="session")
def ors_local_server() -> Iterator[LocalServer]:
    """A `LocalServer` with the bundled environment `largest_digit`, shared by the whole test session."""
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
        yield server
