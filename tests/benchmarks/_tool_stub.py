"""A server that costs next to nothing, whose tool takes time and never ends the episode. Run as a process of its own.

An environment's name says how long its tool takes: "wait20" 20 ms; "uneven20" too, but 200 ms in every tenth session.
"""

import asyncio
import json
import re
import subprocess
import sys
from types import TracebackType
from typing import Self


def _answer(content_type: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (content_type, len(body), body)


_JSON, _SSE = b"application/json", b"text/event-stream; charset=utf-8"
_TOOLS = {"tools": [{"name": "go", "description": "Go on.", "input_schema": None}]}
_RESULT = {
    "ok": True,
    "output": {
        "blocks": [{"text": "Go on.", "detail": None, "type": "text"}],
        "metadata": None,
        "reward": 1.0,
        "finished": False,
    },
}
_CALL = _answer(
    _SSE,
    b"event: task_id\r\ndata: 877bb56c594e4a0f921ad55c439a3762\r\n\r\n"
    b"event: end\r\ndata: %b\r\n\r\n" % json.dumps(_RESULT, separators=(",", ":")).encode(),
)
_ANSWERS = {
    name.encode(): _answer(_JSON, json.dumps(body).encode())
    for name, body in {
        "tools": _TOOLS,
        "task_tools": _TOOLS,
        "splits": [{"name": "train", "type": "train"}],
        "num_tasks": {"num_tasks": 10_000},
        "prompt": [{"text": "Go.", "detail": None, "type": "text"}],
        "create": {"sid": "0"},
        "ping": {"status": "ok"},
        "delete": {"sid": "0"},
        "health": {"status": "ok"},
    }.items()
}


class _Protocol(asyncio.Protocol):
    """Knows as much of HTTP as clients that do not pipeline need."""

    sessions = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        needed = int(length.group(1)) if length else 0
        if len(rest) < needed:
            return
        self._buffer = rest[needed:]
        path = head.split(b" ", 2)[1]
        endpoint = path.rpartition(b"/")[2]
        if endpoint == b"create_session":
            _Protocol.sessions += 1
            self._write(_answer(_SSE, b"event: task_id\r\ndata: s%d\r\n\r\nevent: end\r\ndata: \r\n\r\n" % _Protocol.sessions))
        elif endpoint == b"call":
            asyncio.get_running_loop().call_later(_seconds(path, head), self._write, _CALL)
        else:
            self._write(_ANSWERS[endpoint])

    def _write(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


def _seconds(path: bytes, head: bytes) -> float:
    kind, milliseconds = re.match(rb"/(wait|uneven)(\d+)/", path).groups()  # type: ignore[union-attr]
    slow = kind == b"uneven" and re.search(rb"x-session-id: *s\d*0\r", head, re.I)
    return int(milliseconds) / 1000 * (10 if slow else 1)


class ToolStub:
    """The stub in a process of its own, that ends with the `with` block, or with this process."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks._tool_stub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.base_url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Protocol, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_main())
