"""Processes that this one starts and that must not outlive it, and this one as another's."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["GuardedProgram", "end_after_parent", "end_with_parent", "stop"]

_PR_SET_PDEATHSIG = 1
"""Linux's number of that request (prctl(2))."""
_LONGEST_END = 15.0
"""Seconds that the guard may take to kill all; it takes hundredths."""
_LOOK = 1.0
"""Seconds between looks at who the parent is."""
_LEFT = 1
"""Exit code of a process whose parent has gone."""


def end_with_parent() -> Callable[[], object] | None:
    """Return what a child calls (``preexec_fn``) so that it ends with the thread that started it.

    It ends even if that one is killed. Only Linux has it. Elsewhere a killed command leaves its
    children at work until they are done, and nobody must go on with their runs before. What the
    child itself has started stays: see :class:`GuardedProgram`.
    """
    if sys.platform != "linux":
        return None
    # Looked up here: between fork and exec a child must not load anything.
    prctl = ctypes.CDLL(None).prctl
    return functools.partial(prctl, _PR_SET_PDEATHSIG, int(signal.SIGKILL))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a child if it still runs; may be called twice."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_after_parent(last_words: str) -> None:
    """End this process, wherever it is, within about a second after its present parent has ended.

    For one that somebody else's launcher started, which cannot be told how.

    Args:
        last_words: written to stderr then. Empty: nothing, and it ends a little later, so that a
            process beside it that has something to say is not ended by its end.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        if not last_words:
            time.sleep(2 * _LOOK)
        else:
            # The launcher may have read our messages, and this one must not hold us up.
            threading.Timer(_LOOK, os._exit, [_LEFT]).start()
            with contextlib.suppress(OSError):
                os.write(2, f"creditrl: {last_words}\n".encode())
        os._exit(_LEFT)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class GuardedProgram:
    """A program of somebody else, in a session of its own, with all that it starts.

    Nothing of it is left after :meth:`end`, nor when this process ends, by whatever cause: another
    small process (``guard.py``) sees to it. Ctrl-C at the terminal does not reach it.

    Args:
        command: program and arguments.
        folder: deleted at the end; empty: none is.
        word: its output is passed on up to the line that holds this; empty: all of it is.
        options: of :class:`subprocess.Popen`: its input and output, its environment.

    Attributes:
        process: the guard, which has the program's input, output and, in the end, exit code (of a
            program that a signal ended, 128 more than the signal's number).
    """

    def __init__(
        self, command: Sequence[str], *, folder: str = "", word: str = "", **options: Any
    ) -> None:
        spec = importlib.util.find_spec("creditrl.guard")
        assert spec is not None and spec.origin is not None
        self._owner, theirs = socket.socketpair()
        with theirs:
            number = str(theirs.fileno())
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", spec.origin, number, folder, word, *command],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **options,
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def trouble(self) -> str:
        """Wait until it runs; returns why it does not, empty where it does."""
        said = self._owner.recv(4096)
        return "" if said == b"+" else said.decode("utf-8", "replace") or "it ended at once"

    def end(self, patience: float = 0.0) -> None:
        """Kill what is left of it after a number of seconds; may be called twice."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        with contextlib.suppress(OSError):
            self._owner.shutdown(socket.SHUT_RDWR)  # a forked child may hold the socket as well
        try:
            self.process.wait(_LONGEST_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close our ends: after the end, or in a forked child, to whose parent it belongs."""
        for stream in (self._owner, self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was still to be written has no reader
                    stream.close()
