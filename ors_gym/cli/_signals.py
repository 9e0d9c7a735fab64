"""The end of a command from outside: a closed terminal and `kill` do as Ctrl-C does."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

_ENDINGS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class App(typer.Typer):
    """Commands that a closed terminal and `kill` end in order, as Ctrl-C does: sessions are deleted, records kept."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with signals_as_ctrl_c():
            return super().__call__(*args, **kwargs)


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP are taken as Ctrl-C; the program then exits with 143 or 129.

    Only the first one counts, until the program has ended: a closing terminal may send several. A signal that is ignored, as SIGHUP
    is under `nohup`, stays so.
    """
    received: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def interrupt(number: int, frame: FrameType | None) -> None:
        if received:
            return
        received.append(number)
        if number != signal.SIGTERM:
            _silence(terminals)
        ctrl_c = signal.getsignal(signal.SIGINT)
        (ctrl_c if callable(ctrl_c) else signal.default_int_handler)(signal.SIGINT, frame)

    taken = [number for number in _ENDINGS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if not received:
            raise
        sys.exit(128 + received[0])
    finally:
        if not received:
            for number in taken:
                signal.signal(number, signal.SIG_DFL)


def _silence(terminals: list[int]) -> None:
    """Nobody reads on a closed terminal, and to write there is an error."""
    with open(os.devnull, "w") as nowhere:
        for stream in terminals:
            os.dup2(nowhere.fileno(), stream)
