"""`LocalServer`: ORS environments on a free loopback port, in processes of their own that end with this one."""

import json
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self

import cloudpickle

from ors_gym.errors import ServerStartFailed

logger = logging.getLogger("ors_gym.serving")

_LOG_LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")
_STOP_TIMEOUT = 6.0  # seconds; the process kills itself earlier


class LocalServer:
    """A server for ORS environments, in processes of its own on the reference SDK (extra `server`).

    It stops with `close()`, at the end of a `with` block, and when this process ends in whatever way, also killed.

    Args:
        targets: What to serve: `module:Class`, `path.py:Class`, `gym:ID`, `reasoning_gym:NAME`, or environment classes, also ones
            defined in a script or a notebook cell. The first is the default environment.
        host: The address to listen on. Any other than loopback opens the environments to the network.
        port: The port, or 0 for a free one. Further workers take the ports after it.
        workers: How many server processes to run, each on a port of its own. A session lives in one of them.
        start_timeout: Seconds to wait until every worker listens.
        log_level: From which level on the server writes, to the logger `ors_gym.serving`: a name from `logging`.

    >>> with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
    ...     server.env_names
    ('largest_digit',)
    """

    _module = "ors_gym.serving._worker"

    def __init__(
        self,
        targets: Sequence[str | type[Any]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        workers: int = 1,
        start_timeout: float = 60.0,
        log_level: str = "ERROR",
    ) -> None:
        if isinstance(targets, str):
            raise TypeError(f"targets is a list of targets: [{targets!r}]")
        if not targets:
            raise ValueError("there is no target to serve")
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if not 0 <= port <= 65536 - workers:
            raise ValueError(f"port must be at least 0 and leave room for {workers} up to 65535, not {port}")
        if log_level.upper() not in _LOG_LEVELS:
            raise ValueError(f"log_level is one of {', '.join(_LOG_LEVELS)}, not {log_level!r}")
        self._targets = tuple(targets)
        self._host = host
        self._ports = [port + n if port else 0 for n in range(workers)]
        self._start_timeout = start_timeout
        self._log_level = log_level.upper()
        self._processes: list[_ServerProcess] = []
        self._finalizer: weakref.finalize[Any, Self] | None = None

    def start(self) -> Self:
        """Start every worker and wait until all listen. Does nothing if they run.

        Raises:
            ServerStartFailed: A worker did not come up; the message has what it wrote.
        """
        if self._processes:
            return self
        deadline = time.monotonic() + self._start_timeout
        self._processes = [_ServerProcess(self._module, self._orders(port)) for port in self._ports]
        self._finalizer = weakref.finalize(self, _stop_all, self._processes, os.getpid())
        try:
            for process in self._processes:
                process.wait_until_listening(deadline)
        except BaseException:
            self.close()
            raise
        return self

    def _orders(self, port: int) -> dict[str, Any]:
        return {
            "targets": [target if isinstance(target, str) else _pickled(target) for target in self._targets],
            "host": self._host,
            "port": port,
            "log_level": self._log_level,
            "parent": os.getpid(),
        }

    def close(self) -> None:
        """Stop the workers: open requests end, each session is torn down. Does nothing if they are stopped."""
        self._processes = []  # first: an interrupt may end the wait for them
        if self._finalizer is not None:
            self._finalizer()

    @property
    def base_url(self) -> str:
        """The first worker's URL, without a slash at its end."""
        return self.base_urls[0]

    @property
    def base_urls(self) -> tuple[str, ...]:
        """Every worker's URL: what a client takes as `base_url`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
        return tuple(f"http://{host}:{process.port}" for process in self._running())

    @property
    def env_names(self) -> tuple[str, ...]:
        """The names of the environments, the default first."""
        return self._running()[0].env_names

    @property
    def pid(self) -> int:
        """The first worker's process id."""
        return self.pids[0]

    @property
    def pids(self) -> tuple[int, ...]:
        """The process id of each worker."""
        return tuple(process.pid for process in self._running())

    @property
    def running(self) -> bool:
        """Whether every worker lives."""
        return bool(self._processes) and all(process.running for process in self._processes)

    @property
    def output(self) -> str:
        """The last lines that the workers wrote."""
        return "".join(process.output for process in self._running())

    def _running(self) -> "list[_ServerProcess]":
        if not self._processes:
            raise RuntimeError("the server is not running; call start(), or use it in a with statement")
        return self._processes

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        place = " ".join(self.base_urls) if self._processes else "not running"
        return f"LocalServer({list(self._targets)!r}, {place})"


def _pickled(environment: type[Any]) -> bytes:
    """A class for another process: by reference where that can import it, else by value, as of a script or a notebook."""
    name = environment.__module__
    module = sys.modules.get(name)
    if module is None or name == "__main__" or _importable(name.partition(".")[0]):
        return bytes(cloudpickle.dumps(environment))
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(environment))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _importable(name: str) -> bool:
    return any(finder.find_spec(name, None) is not None for finder in sys.meta_path)


class _ServerProcess:
    """One worker: a child process whose standard input is the lifeline."""

    def __init__(self, module: str, orders: Mapping[str, Any]) -> None:
        report, child_report = os.pipe()
        program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"
        self._report = os.fdopen(report, "rb", buffering=0)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(child_report)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[child_report],
                start_new_session=True,  # Ctrl-C is for the parent, which then stops its server in order
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(child_report)
        self.pid = self._process.pid
        self.port = 0
        self.env_names: tuple[str, ...] = ()
        self._lines: deque[str] = deque(maxlen=200)
        self._reader = threading.Thread(
            target=_keep_output, args=(self._process.stdout, self._lines), name="ors-gym-server-output", daemon=True
        )
        self._reader.start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once; what it wrote says why
            pickle.dump(dict(orders), self._process.stdin)
            self._process.stdin.flush()

    def wait_until_listening(self, deadline: float) -> None:
        report = self._read_report(deadline)
        if report is None:
            self._process.kill()
        if report is None or "port" not in report:
            self._process.wait()
            self._reader.join(timeout=1.0)
            reason = "it did not listen in time" if report is None else report.get("error", "it ended without a word")
            output = self.output.strip()
            written = f"\nIt wrote:\n{output}" if output else ""
            raise ServerStartFailed(f"the local server did not start: {reason}{written}", detail=output)
        self.port = report["port"]
        self.env_names = tuple(report["env_names"])

    def _read_report(self, deadline: float) -> dict[str, Any] | None:
        """What the worker reported; {} if it ended without a report, None if it did neither in time."""
        received = b""
        with self._report as report:
            while select.select([report], [], [], max(0.0, deadline - time.monotonic()))[0]:
                piece = report.read(65536)
                received += piece
                if not piece:
                    return json.loads(received) if received else {}
        return None

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def release(self) -> None:
        """Let go of the lifeline: the worker begins to stop."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it has stopped, by force if it does not."""
        try:
            self._process.wait(timeout=_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=1.0)


def _stop_all(processes: "list[_ServerProcess]", owner: int) -> None:
    if os.getpid() != owner:  # a forked child has a copy of the server's handle, not the server
        return
    for process in processes:
        process.release()
    for process in processes:
        process.wait()


def _keep_output(stream: IO[bytes], lines: deque[str]) -> None:
    with stream:
        for line in stream:
            text = line.decode(errors="replace")
            lines.append(text)
            logger.info(text.rstrip("\n"))
