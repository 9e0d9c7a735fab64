"""A server that costs next to nothing: canned answers, so that what is measured is the client. Run as a process of its own."""

import asyncio
import subprocess
import sys
from types import TracebackType
from typing import Self

TEXT = "Correct!"
SIZES = (4_096, 65_536, 1_048_576, 16_777_216)
_PROMPT = b'[{"text":"What is 2+2?","detail":null,"type":"text"}]'
_JSON = b"application/json"
_SSE = b"text/event-stream; charset=utf-8"


def _answer(content_type: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (content_type, len(body), body)


def result(size: int = len(TEXT)) -> bytes:
    """A tool call's event stream, its text of `size` characters, in chunks of 4,096 as the reference server sends them."""
    text = (TEXT * (size // len(TEXT) + 1))[:size]
    output = (
        '{"ok":true,"output":{"blocks":[{"text":"%s","detail":null,"type":"text"}],"metadata":null,"reward":1.0,"finished":true}}'
    )
    data = (output % text).encode()
    events = [b"event: task_id\r\ndata: 877bb56c594e4a0f921ad55c439a3762\r\n\r\n"]
    for start in range(0, len(data), 4096):
        name = b"end" if start + 4096 >= len(data) else b"chunk"
        events.append(b"event: %b\r\ndata: %b\r\n\r\n" % (name, data[start : start + 4096]))
    return b"".join(events)


_ANSWERS = {
    b"/create": _answer(_JSON, b'{"sid":"0"}'),
    b"/ping": _answer(_JSON, b'{"status":"ok"}'),
    b"/delete": _answer(_JSON, b'{"sid":"0"}'),
    b"/delete_session": _answer(_JSON, b'{"sid":"0"}'),
    **{path: _answer(_JSON, _PROMPT) for path in (b"/stub/prompt", b"/prompt")},
    **{path: _answer(_SSE, result()) for path in (b"/stub/call", b"/call")},  # openreward's client leaves the environment out
    **{b"/size%d/call" % size: _answer(_SSE, result(size)) for size in SIZES},
    **{b"/size%d/prompt" % size: _answer(_JSON, _PROMPT) for size in SIZES},
}


class _Protocol(asyncio.Protocol):
    """Knows as much of HTTP as clients that do not pipeline need."""

    sessions = 0
    pings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        start = lower.find(b"content-length:")
        length = int(lower[start + 15 :].partition(b"\r\n")[0]) if start >= 0 else 0
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        path = head.split(b" ", 2)[1]
        if path == b"/ping":
            _Protocol.pings += 1
        elif path == b"/pings":
            self._transport.write(_answer(_JSON, b"%d" % _Protocol.pings))  # type: ignore[attr-defined]
            return
        if path == b"/create_session":
            _Protocol.sessions += 1
            events = b"event: task_id\r\ndata: s%d\r\n\r\nevent: end\r\ndata: \r\n\r\n" % _Protocol.sessions
            self._transport.write(_answer(_SSE, events))  # type: ignore[attr-defined]
        else:
            self._transport.write(_ANSWERS[path])  # type: ignore[attr-defined]


class StubServer:
    """The stub in a process of its own, that ends with the `with` block, or with this process."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks._stub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
