"""A server written from the letter of the standard, and from nothing else.

Where two pages differ it follows the HTTP API Reference. It serves `Playground` and, so that there are several environments,
`Second`. A `Mutant` breaks it in one place.
"""

import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

LIMIT = 4096
"""Bytes of one event's data."""

Events = list[tuple[str, str]]


class Refusal(Exception):
    """An HTTP error."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def text(words: str) -> dict[str, Any]:
    return {"text": words, "detail": None, "type": "text"}


def output(words: str, reward: float | None = 0.0, finished: bool = False, metadata: Any = None) -> dict[str, Any]:
    return {"blocks": [text(words)], "metadata": metadata, "reward": reward, "finished": finished}


def schema(name: str, **rule: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: rule}, "required": [name]}


class Playground:
    """Tools of every kind: an echo, a counter with state, one without parameters, one that ends, and one of the task's own."""

    TOOLS = (
        {"name": "echo", "description": "Give a text back.", "input_schema": schema("text", type="string")},
        {"name": "add", "description": "Add.", "input_schema": schema("amount", type="integer", minimum=1, maximum=5)},
        {"name": "look", "description": "See the total.", "input_schema": None},
        {"name": "crash", "description": "Raise.", "input_schema": None},
        {"name": "finish", "description": "End the episode.", "input_schema": None},
    )
    TASK_TOOLS = ({"name": "hint", "description": "Get a hint.", "input_schema": None},)
    SPLITS = ({"name": "train", "type": "train"}, {"name": "test", "type": "test"}, {"name": "hard", "type": "validation"})
    SIZES = {"train": 6, "test": 4, "hard": 9}  # noqa: RUF012 - never changed

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.total = 0
        self.finished = False

    @classmethod
    def tasks(cls, split: str) -> list[dict[str, Any]]:
        if split not in cls.SIZES:
            raise Refusal(400, f"Invalid split {split!r}")
        return [{"number": number, "split": split} for number in range(cls.SIZES[split])]

    def prompt(self) -> list[dict[str, Any]]:
        return [text(f"Play with the number {self.task.get('number')}.")]

    def call(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        tools = {tool["name"]: tool for tool in (*self.TOOLS, *self.TASK_TOOLS)}
        if name not in tools:
            raise Refusal(404, f"Tool {name!r} not found")
        wanted = (tools[name]["input_schema"] or {"required": []})["required"]
        if sorted(given) != wanted:
            raise Refusal(400, f"Tool {name!r} takes {wanted}")
        if self.finished:
            return {"ok": False, "error": "The episode is over"}
        if name == "crash":
            raise RuntimeError("The tool crashed")
        if name == "add":
            self.total += given["amount"]
        self.finished = name == "finish"
        words = given["text"] if name == "echo" else f"The total is {self.total}."
        return {"ok": True, "output": output(words, reward=0.5, finished=self.finished, metadata={"total": self.total})}


class Second(Playground):
    """The same again under another name."""


ENVIRONMENTS: dict[str, type[Playground]] = {"playground": Playground, "second": Second}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        name: What is wrong.
        caught_by: The requirement that has to notice.
        verdict: What it has to say.
        answer: Changes a JSON answer: takes its route, status and body, and gives status and body.
        events: Changes the events of a call.
        encode: Writes events to bytes in another way.
        server: Another server class.
        content_type, stream_type: The content types of JSON answers and of streams.
    """

    name: str
    caught_by: str
    verdict: str = "violation"
    answer: Callable[[str, int, Any], tuple[int, Any]] = lambda route, status, body: (status, body)
    events: Callable[[Events], Events] = lambda events: events
    encode: Callable[[Events], bytes] = lambda events: encode_events(events)
    server: "type[Standard] | None" = None
    content_type: str = "application/json"
    stream_type: str = "text/event-stream"


def encode_events(events: Events) -> bytes:
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events).encode()


@dataclass
class Standard:
    """The server, an ASGI application."""

    mutant: Mutant = field(default_factory=lambda: Mutant("none", ""))

    def __post_init__(self) -> None:
        self.sessions: dict[str, Playground] = {}
        self.deleted: set[str] = set()
        self.results: dict[tuple[str, str], Events] = {}

    # Routes: each takes the request's parts and gives a JSON body, or events

    def route(self, method: str, path: str, sid: str | None, body: dict[str, Any]) -> tuple[str, Any]:
        parts = path.strip("/").split("/")
        if len(parts) == 1:
            name = parts[0]
            roots = {
                ("GET", "health"): lambda: {"status": "ok"},
                ("GET", "list_environments"): lambda: list(ENVIRONMENTS),
                ("POST", "create_session"): lambda: {"sid": str(uuid.uuid4())},
                ("POST", "create"): lambda: self.create(self.required(sid), body),
                ("POST", "ping"): lambda: self.ping(self.required(sid)),
                ("POST", "delete"): lambda: self.delete(self.required(sid)),
                ("POST", "delete_session"): lambda: {"sid": self.required(sid)},
            }
            if (method, name) in roots:
                return name, roots[method, name]()
        elif len(parts) == 2:
            name = parts[1]
            environment = self.environment(parts[0])
            routes = {
                ("GET", "tools"): lambda: {"tools": list(environment.TOOLS)},
                ("GET", "splits"): lambda: list(environment.SPLITS),
                ("POST", "tasks"): lambda: {"tasks": environment.tasks(body["split"]), "env_name": parts[0]},
                ("POST", "num_tasks"): lambda: {"num_tasks": len(environment.tasks(body["split"]))},
                ("POST", "task"): lambda: {"task": self.task(environment, body["split"], body["index"])},
                ("POST", "task_range"): lambda: {"tasks": self.task_range(environment, **body)},
                ("GET", "prompt"): lambda: self.session(sid).prompt(),
                ("GET", "task_tools"): lambda: {"tools": [*environment.TOOLS, *self.session(sid).TASK_TOOLS]},
                ("POST", "call"): lambda: self.call(sid, **body),
            }
            if (method, name) in routes:
                return name, routes[method, name]()
        raise Refusal(404, "Not found")

    def required(self, sid: str | None) -> str:
        if not sid:
            raise Refusal(400, "X-Session-ID header is required")
        return sid

    def environment(self, name: str) -> type[Playground]:
        if name not in ENVIRONMENTS:
            raise Refusal(404, f"Environment {name!r} not recognized")
        return ENVIRONMENTS[name]

    def session(self, sid: str | None) -> Playground:
        sid = self.required(sid)
        if sid in self.deleted:
            raise Refusal(410, "Session deleted")
        if sid not in self.sessions:
            raise Refusal(404, "Session not found")
        return self.sessions[sid]

    def task(self, environment: type[Playground], split: str, index: Any) -> dict[str, Any]:
        tasks = environment.tasks(split)
        if not isinstance(index, int) or not 0 <= index < len(tasks):
            raise Refusal(400, "Invalid index")
        return tasks[index]

    def task_range(self, environment: type[Playground], split: str, start: int | None = None, stop: int | None = None) -> Any:
        return environment.tasks(split)[slice(start, stop)]

    def create(self, sid: str, body: dict[str, Any]) -> dict[str, str]:
        if sid in self.sessions or sid in self.deleted:
            raise Refusal(400, "Session already exists")
        if set(body) - {"env_name", "task_spec", "split", "index", "secrets"}:
            raise Refusal(400, "Unknown field")
        environment = self.environment(body.get("env_name") or next(iter(ENVIRONMENTS)))
        by_index = "split" in body and "index" in body
        if by_index == ("task_spec" in body) or ("split" in body) != ("index" in body):
            raise Refusal(400, "Give task_spec, or split and index")
        task = self.task(environment, body["split"], body["index"]) if by_index else body["task_spec"]
        self.sessions[sid] = self.make(environment, task)
        return {"sid": sid}

    def make(self, environment: type[Playground], task: dict[str, Any]) -> Playground:
        return environment(task)

    def ping(self, sid: str) -> dict[str, str]:
        if sid not in self.sessions:
            raise Refusal(404, "Session not found")
        return {"status": "ok"}

    def delete(self, sid: str) -> dict[str, str]:
        if sid not in self.sessions:
            raise Refusal(404, "Session not found")
        del self.sessions[sid]
        self.deleted.add(sid)
        return {"sid": sid}

    def call(self, sid: str | None, name: str, input: dict[str, Any], task_id: str | None = None) -> Events:
        session = self.session(sid)
        task_id = task_id or uuid.uuid4().hex
        key = (str(sid), task_id)
        if key not in self.results:
            try:
                self.results[key] = self.chunks(json.dumps(session.call(name, input), ensure_ascii=False))
            except RuntimeError as error:
                self.results[key] = [("error", str(error))]
        return [("task_id", task_id), *self.results[key]]

    def chunks(self, result: str) -> Events:
        pieces, rest = [], result
        while rest:
            piece = rest.encode()[:LIMIT].decode(errors="ignore")
            pieces.append(piece)
            rest = rest[len(piece) :]
        return [*(("chunk", piece) for piece in pieces[:-1]), ("end", pieces[-1])]

    # HTTP

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = b""
        while (message := await receive()).get("more_body") or message["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, content_type, content = self.respond(scope, raw)
        headers = [(b"content-type", content_type.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def respond(self, scope: Any, raw: bytes) -> tuple[int, str, bytes]:
        sid = dict(scope["headers"]).get(b"x-session-id", b"").decode() or None
        route, status = scope["path"].rpartition("/")[2], 200
        try:
            route, body = self.route(scope["method"], scope["path"], sid, self.read(raw))
        except Refusal as refusal:
            status, body = refusal.status, {"detail": refusal.detail}
        except (AttributeError, KeyError, TypeError) as error:
            status, body = 400, {"detail": f"Invalid input: {error}"}
        if route == "call" and status == 200:
            return status, self.mutant.stream_type, self.mutant.encode(self.mutant.events(body))
        status, body = self.mutant.answer(route, status, json.loads(json.dumps(body)))
        return status, self.mutant.content_type, body if isinstance(body, bytes) else json.dumps(body).encode()

    def read(self, raw: bytes) -> dict[str, Any]:
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            raise Refusal(400, "The body is not JSON") from None
        if not isinstance(body, dict):
            raise Refusal(400, "The body is not an object")
        return body


@contextmanager
def standard_server(mutant: Mutant | None = None) -> Iterator[str]:
    """The server in a thread of this process; gives its base URL."""
    kind = (mutant and mutant.server) or Standard
    server = uvicorn.Server(uvicorn.Config(kind(mutant) if mutant else kind(), log_level="error", lifespan="off"))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
