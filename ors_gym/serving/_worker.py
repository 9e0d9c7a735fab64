"""The server's own process, started by `LocalServer`.

It reads its orders from standard input, reports its port on the file descriptor that is its first argument, and serves until
standard input ends, which it does when the parent closes it or dies.
"""

import json
import os
import pickle
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

SHUTDOWN_GRACE = 3.0
"""Seconds that open requests and `teardown()` have before the process group is killed."""

_MAX_FILES = 65_536
"""Open files, one a connection: the usual limit of 1,024 is fewer than the sessions of a large run."""


class Served(NamedTuple):
    """An ASGI application and the names of the environments that it serves."""

    app: Any
    env_names: list[str]


class StartRefused(Exception):
    """The orders cannot be followed; the message is all that the user needs."""


def run(build: Callable[[dict[str, Any]], Served]) -> None:
    """Read the orders, build the application from them and serve it until the parent is gone.

    Args:
        build: Makes the application from the parent's orders.
    """
    report = os.fdopen(int(sys.argv[1]), "w")
    orders = pickle.load(sys.stdin.buffer)
    lifeline = os.dup(sys.stdin.fileno())
    with open(os.devnull) as nothing:  # for the environments and their processes there is nothing to read
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    threading.Thread(target=_end_with_parent, args=(lifeline, orders["parent"]), daemon=True).start()
    os.environ.setdefault("ORS_LOG_LEVEL", orders["log_level"])
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # a server has no screen: pygame draws into memory
    _allow_many_sessions()
    try:
        served = build(orders)
        listener = _listen(orders["host"], orders["port"])
    except StartRefused as refusal:
        _report(report, error=str(refusal))
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        _report(report, error=f"{type(error).__name__}: {error}")
        sys.exit(1)
    _serve(served, listener, orders, report)


def _serve(served: Served, listener: socket.socket, orders: dict[str, Any], report: Any) -> None:
    import uvicorn

    config = uvicorn.Config(
        served.app,
        log_level=orders["log_level"].lower(),
        access_log=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=2,
    )
    _report(report, port=listener.getsockname()[1], env_names=served.env_names)
    uvicorn.Server(config).run(sockets=[listener])


def _end_with_parent(lifeline: int, parent: int) -> None:
    # The pipe ends when the parent does, unless a process that the parent forked still holds the other end: hence its id too.
    while not select.select([lifeline], [], [], 1.0)[0] and os.getppid() == parent:
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # uvicorn stops in order; whatever comes before it stops at once
    time.sleep(SHUTDOWN_GRACE)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # a tool that holds the event loop would hold the process; its children go too


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol is named: 40 ms a request.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise StartRefused(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    listener.listen(2048)
    return listener


def _allow_many_sessions() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _report(report: Any, **fields: Any) -> None:
    report.write(json.dumps(fields) + "\n")
    report.close()


def build(orders: dict[str, Any]) -> Served:
    """The reference SDK's server over the targets of the orders."""
    try:
        import ors
    except ModuleNotFoundError as error:
        if error.name != "ors":
            raise
        raise StartRefused('serving needs the reference SDK: pip install "ors-gym[server]"') from None
    from ors_gym.serving.targets import TargetError, load_target

    try:
        classes = [load_target(pickle.loads(target) if isinstance(target, bytes) else target) for target in orders["targets"]]
        server = ors.Server(classes)
    except (TargetError, ValueError) as error:
        raise StartRefused(str(error)) from None
    return Served(server.app, [cls.name().lower() for cls in classes])


def main() -> None:
    """The worker's entry point."""
    run(build)
