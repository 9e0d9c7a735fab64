"""A server that costs next to nothing: canned answers, so that what is measured is the client. Run as a process of its own.

Its answers look as the reference server's: event streams are chunked, each event is a write of its own, and so is the last chunk.
"""

import asyncio
import subprocess
import sys
from types import TracebackType
from typing import Self

TEXT = "Correct!"
SIZES = (4_096, 65_536, 1_048_576, 16_777_216)
_PROMPT = b'[{"text":"What is 2+2?","detail":null,"type":"text"}]'
_HEAD = b"HTTP/1.1 200 OK\r\ndate: Wed, 02 Dec 2026 08:00:00 GMT\r\nserver: uvicorn\r\n"
_STREAM_HEAD = _HEAD + (
    b"cache-control: no-cache\r\nconnection: keep-alive\r\nx-accel-buffering: no\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _json(body: bytes) -> list[bytes]:
    return [_HEAD + b"content-length: %d\r\ncontent-type: application/json\r\n\r\n" % len(body), body]


def _stream(*events: tuple[bytes, bytes]) -> list[bytes]:
    writes = [_STREAM_HEAD]
    for name, data in events:
        event = b"event: %b\r\ndata: %b\r\n\r\n" % (name, data)
        writes.append(b"%x\r\n%b\r\n" % (len(event), event))
    return [*writes, b"0\r\n\r\n"]


def _result(size: int = len(TEXT)) -> list[bytes]:
    """A tool call's event stream, its text of `size` characters, in chunks of 4,096."""
    text = (TEXT * (size // len(TEXT) + 1))[:size]
    block = f'{{"text":"{text}","detail":null,"type":"text"}}'
    data = f'{{"ok":true,"output":{{"blocks":[{block}],"metadata":null,"reward":1.0,"finished":true}}}}'.encode()
    parts = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    chunks = [(b"chunk", part) for part in parts[:-1]]
    return _stream((b"task_id", b"877bb56c594e4a0f921ad55c439a3762"), *chunks, (b"end", parts[-1]))


_ANSWERS = {
    b"/create": _json(b'{"sid":"0"}'),
    b"/ping": _json(b'{"status":"ok"}'),
    b"/delete": _json(b'{"sid":"0"}'),
    b"/delete_session": _json(b'{"sid":"0"}'),
    **{path: _json(_PROMPT) for path in (b"/stub/prompt", b"/prompt")},
    **{path: _result() for path in (b"/stub/call", b"/call")},  # openreward's client leaves the environment out
    **{b"/size%d/prompt" % size: _json(_PROMPT) for size in SIZES},
    **{b"/size%d/call" % size: _result(size) for size in SIZES},
}


class _Protocol(asyncio.Protocol):
    """Knows as much of HTTP as clients that do not pipeline need."""

    sessions = 0
    pings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
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
        for write in self._answer(path):
            self._transport.write(write)

    def _answer(self, path: bytes) -> list[bytes]:
        if path == b"/pings":
            return _json(b"%d" % _Protocol.pings)
        if path == b"/create_session":
            _Protocol.sessions += 1
            return _stream((b"task_id", b"session-%028d" % _Protocol.sessions), (b"end", b""))
        return _ANSWERS[path]


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
