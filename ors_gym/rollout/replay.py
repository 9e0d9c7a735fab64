"""`ReplayServer`: an ORS server that answers as a recorded one did, for tests and for debugging an agent offline."""

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from ors_gym.episode import Episode, Step
from ors_gym.portal import portal
from ors_gym.protocol import ToolSpec
from ors_gym.records import load_records
from ors_gym.tasks import TaskRef

_SPLIT_TYPES = ("train", "validation", "test")


@dataclass
class _Recording:
    """What was recorded of one environment."""

    episodes: dict[str, list[Episode]] = field(default_factory=lambda: defaultdict(list))
    tools: dict[str, ToolSpec] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, episode: Episode) -> None:
        task = episode.task
        self.tools |= {tool.name: tool for tool in episode.tools}
        if task.split is not None and task.index is not None:
            self.sizes[task.split] = max(self.sizes.get(task.split, 0), task.index + 1)
        if episode.session_id:
            self.episodes[task.key].append(episode)

    def next_candidates(self, key: str) -> list[Episode]:
        """The task's episodes, the one whose turn it is first: sessions on a task go through its rollouts."""
        recorded = self.episodes[key]
        turn = self.begun[key] % len(recorded)
        self.begun[key] += 1
        return recorded[turn:] + recorded[:turn]


@dataclass
class _Session:
    """A session: the recorded episodes that have gone as it has so far. The first of them answers."""

    candidates: list[Episode]
    position: int = 0
    strayed: str = ""

    def call(self, name: str, given: Mapping[str, Any]) -> Step | str:
        """The recorded step of a call, or why there is none."""
        if self.strayed:
            return self.strayed
        going_on = [episode for episode in self.candidates if self._calls(episode, name, given)]
        if not going_on:
            self.strayed = f"replay: {_shown(name, given)} is not what was recorded: {self._expected()}"
            return self.strayed
        self.candidates = going_on
        answer = self._next(going_on[0])
        self.position += 1
        assert answer is not None
        return answer

    def _calls(self, episode: Episode, name: str, given: Mapping[str, Any]) -> bool:
        """Whether the episode made that call at this point."""
        step = self._next(episode)
        return step is not None and step.call is not None and (step.call.name, step.call.input) == (name, given)

    def _next(self, episode: Episode) -> Step | None:
        calls = [step for step in episode.steps if step.call is not None]
        return calls[self.position] if self.position < len(calls) else None

    def _expected(self) -> str:
        steps = map(self._next, self.candidates)
        recorded = {
            f"the episode ended after {self.position} calls"
            if step is None or step.call is None
            else f"call {self.position + 1} was {_shown(step.call.name, step.call.input)}"
            for step in steps
        }
        return "; or ".join(sorted(recorded)[:5])


class ReplayServer:
    """Answers as the server of some records did, on a loopback port; a context manager.

    A session on a task replays an episode of that task: the sessions go through its recorded rollouts in turn, and change
    to another one of them where the agent calls what that one had called. Outputs, rejections, tools that raised and lost
    sessions come as they came. A call that no rollout had made at that point fails, with what was recorded there, as a
    session does on a task that was not recorded.

    Args:
        records: A file of records, a run's folder, or episodes.
        host: The address to listen on.
        port: The port; 0 is a free one.

    >>> from ors_gym.episode import Step
    >>> from ors_gym.protocol import TextBlock, ToolCall
    >>> from ors_gym.client import ORSClient
    >>> step = Step("4", ToolCall(name="submit", input={"answer": "4"}), (TextBlock(text="Right."),), reward=1.0, finished=True)
    >>> episode = Episode(TaskRef("train", 0), "sums", "s", (TextBlock(text="2+2?"),), (ToolSpec(name="submit"),), [step])
    >>> with ReplayServer([episode]) as server, ORSClient(server.base_url) as client:
    ...     with client.environment("sums").session(split="train", index=0) as session:
    ...         session.call_tool("submit", {"answer": "4"}).reward
    1.0
    """

    def __init__(self, records: str | os.PathLike[str] | Sequence[Episode], *, host: str = "127.0.0.1", port: int = 0) -> None:
        episodes = load_records(records) if isinstance(records, (str, os.PathLike)) else records
        self._recordings: dict[str, _Recording] = {}
        for episode in episodes:
            self._recordings.setdefault(episode.env_name, _Recording()).add(episode)
        if not self._recordings:
            raise ValueError("there is no episode to replay")
        self._host = host
        self._port = port
        self._sessions: dict[str, _Session | None] = {}
        self._runner: web.AppRunner | None = None
        self._base_url = ""

    @property
    def base_url(self) -> str:
        """The server's URL, once it is started.

        Raises:
            RuntimeError: It is not running.
        """
        if self._runner is None:
            raise RuntimeError("the replay server is not running; use it as a context manager, or call start()")
        return self._base_url

    def start(self) -> Self:
        """Begin to listen. Starting again does nothing.

        Raises:
            OSError: The port is taken.
        """
        if self._runner is None:
            portal().call(self._start)
        return self

    def close(self) -> None:
        """Stop. Closing again does nothing."""
        if self._runner is not None:
            portal().call(self._stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _start(self) -> None:
        runner = web.AppRunner(self._app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port)
        try:
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self._base_url = f"http://{self._host}:{runner.addresses[0][1]}"

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(
            [
                web.get("/health", _health),
                web.get("/list_environments", self._list_environments),
                web.post("/create_session", self._create_session),
                web.post("/create", self._create),
                web.post("/delete", self._delete),
                web.post("/ping", self._ping),
                web.get("/{env}/tools", self._tools),
                web.get("/{env}/splits", self._splits),
                web.post("/{env}/tasks", self._tasks),
                web.post("/{env}/num_tasks", self._num_tasks),
                web.post("/{env}/task", self._task),
                web.post("/{env}/task_range", self._task_range),
                web.get("/{env}/prompt", self._prompt),
                web.get("/{env}/task_tools", self._task_tools),
                web.post("/{env}/call", self._call),
            ]
        )
        return app

    # What the environments offer

    async def _list_environments(self, request: web.Request) -> web.Response:
        return web.json_response(list(self._recordings))

    async def _tools(self, request: web.Request) -> web.Response:
        return _tools_response(list(self._recording(request.match_info["env"]).tools.values()))

    async def _splits(self, request: web.Request) -> web.Response:
        names = self._recording(request.match_info["env"]).sizes
        return web.json_response([{"name": name, "type": name if name in _SPLIT_TYPES else "validation"} for name in names])

    async def _num_tasks(self, request: web.Request) -> web.Response:
        _, size = await self._split(request)
        return web.json_response({"num_tasks": size})

    async def _tasks(self, request: web.Request) -> web.Response:
        split, size = await self._split(request)
        return web.json_response({"tasks": [_task_json(split, index) for index in range(size)]})

    async def _task(self, request: web.Request) -> web.Response:
        split, _ = await self._split(request)
        return web.json_response({"task": _task_json(split, (await request.json())["index"])})

    async def _task_range(self, request: web.Request) -> web.Response:
        split, size = await self._split(request)
        body = await request.json()
        return web.json_response({"tasks": [_task_json(split, n) for n in range(size)[body.get("start") : body.get("stop")]]})

    async def _split(self, request: web.Request) -> tuple[str, int]:
        recording = self._recording(request.match_info["env"])
        split = (await request.json()).get("split")
        if split not in recording.sizes:
            there = ", ".join(recording.sizes) or "none"
            raise _bad_request(f"replay: no task of the split {split!r} was recorded; there is {there}")
        return split, recording.sizes[split]

    # Sessions

    async def _create_session(self, request: web.Request) -> web.Response:
        sid = uuid.uuid4().hex
        self._sessions[sid] = None
        return web.json_response({"sid": sid})

    async def _create(self, request: web.Request) -> web.Response:
        sid, body = request.headers.get("X-Session-ID", ""), await request.json()
        if sid not in self._sessions:
            raise _not_found("replay: there is no such session")
        recording = self._recording(body["env_name"])
        fields = {name: body[name] for name in ("split", "index", "task_spec") if body.get(name) is not None}
        key = TaskRef(**fields).key
        if key not in recording.episodes:
            there = ", ".join(list(recording.episodes)[:20])
            raise _bad_request(f"replay: no episode of the task {key} was recorded; there are {there}")
        self._sessions[sid] = _Session(recording.next_candidates(key))
        return web.json_response({"sid": sid})

    async def _delete(self, request: web.Request) -> web.Response:
        sid = request.headers.get("X-Session-ID", "")
        self._sessions.pop(sid, None)
        return web.json_response({"sid": sid})

    async def _ping(self, request: web.Request) -> web.Response:
        self._session(request)
        return web.json_response({"status": "ok"})

    async def _prompt(self, request: web.Request) -> web.Response:
        return web.json_response([block.model_dump(exclude_none=True) for block in self._session(request).candidates[0].prompt])

    async def _task_tools(self, request: web.Request) -> web.Response:
        return _tools_response(self._session(request).candidates[0].tools)

    async def _call(self, request: web.Request) -> web.Response:
        body = await request.json()
        session = self._session(request)
        answer = session.call(body["name"], body.get("input") or {})
        if isinstance(answer, str):
            return _stream("error", answer)
        if answer.invalid_action:
            return _stream("end", json.dumps({"ok": False, "error": answer.invalid_action}))
        if answer.error_kind == "infrastructure":
            self._sessions.pop(request.headers["X-Session-ID"])
            raise _not_found(f"replay: the recorded session was lost here: {answer.error}")
        if answer.error_kind == "environment":
            return _stream("error", answer.error)
        output = {
            "blocks": [block.model_dump(exclude_none=True) for block in answer.blocks],
            "reward": answer.reward,
            "finished": answer.finished,
            "metadata": answer.metadata,
        }
        return _stream("end", json.dumps({"ok": True, "output": output}))

    def _recording(self, env_name: str) -> _Recording:
        if env_name not in self._recordings:
            raise _not_found(f"replay: the environment {env_name!r} was not recorded; there is {', '.join(self._recordings)}")
        return self._recordings[env_name]

    def _session(self, request: web.Request) -> _Session:
        session = self._sessions.get(request.headers.get("X-Session-ID", ""))
        if session is None:
            raise _not_found("replay: there is no such session")
        return session


async def _health(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


def _task_json(split: str, index: int) -> dict[str, Any]:
    """Records know a task by its place only, so that is what it says of itself."""
    return {"split": split, "index": index}


def _tools_response(tools: Sequence[ToolSpec]) -> web.Response:
    return web.json_response({"tools": [tool.model_dump() for tool in tools]})


def _stream(event: str, data: str) -> web.Response:
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    body = f"event: task_id\ndata: {uuid.uuid4().hex}\n\nevent: {event}\n{lines}\n"
    return web.Response(body=body.encode("utf-8", "backslashreplace"), content_type="text/event-stream")


def _shown(name: str, given: Mapping[str, Any]) -> str:
    shown = json.dumps(given)
    return f"{name}({shown if len(shown) <= 300 else f'{shown[:300]}…'})"


def _bad_request(reason: str) -> web.HTTPException:
    return web.HTTPBadRequest(text=json.dumps({"detail": reason}), content_type="application/json")


def _not_found(reason: str) -> web.HTTPException:
    return web.HTTPNotFound(text=json.dumps({"detail": reason}), content_type="application/json")
