"""Starts the processes of jobs."""

import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import IO, Protocol

from jarvis.core.memory_tuning import JOB_ARENAS
from jarvis.server.jobs.processes.forker import PID, READY, REQUEST, STATUS
from jarvis.server.jobs.processes.job_messages import Lines

MODULE = "jarvis.server.jobs.processes.job_process"
"""The module that runs a job."""

RESTART_S = 1.0
"""Delay before a forker that has ended is started again."""

_FORKER = "jarvis.server.jobs.processes.forker"
SETTINGS = {"OPENBLAS_NUM_THREADS": "1", **JOB_ARENAS}
"""Variables of the forker, unless they are set: NumPy would start threads when it is imported."""


class Process(Protocol):
    """A process in a session of its own, with pipes as its standard streams."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def pid(self) -> int | None:
        """Return its id; None if it has not been started yet."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None until it ends."""

    def wait(self) -> int:
        """Wait for its end; return the exit code."""


def own_process(command: Sequence[str] = (sys.executable, "-m", MODULE)) -> Process:
    """Start a process that imports all it needs itself."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


class JobProcesses:
    """Starts processes that run the ``main`` of a module.

    On Linux they are forked from one that has imported everything. On macOS, whose libraries do not
    survive a fork, each process imports for itself.
    """

    def __init__(self, module: str = MODULE) -> None:
        self._module = module
        self._forker: _Forker | None = None
        self._start_after = 0.0

    @property
    def is_ready(self) -> bool:
        """Return whether a process would start now; start the forker if it has ended."""
        if sys.platform != "linux":
            return True
        if self._forker is not None and self._forker.has_ended:
            self.close()
            self._start_after = monotonic() + RESTART_S
        if self._forker is None and monotonic() >= self._start_after:
            self._forker = _Forker(self._module)
        return self._forker is not None and self._forker.is_ready

    def start(self) -> Process:
        """Start a process; if the forker is not ready yet, it starts later."""
        if sys.platform != "linux":
            return own_process((sys.executable, "-m", self._module))
        if self._forker is None or self._forker.has_ended:
            self.close()
            self._forker = _Forker(self._module)
        return _ForkedProcess(self._forker)

    def close(self) -> None:
        """End the forker."""
        if self._forker is not None:
            self._forker.close()
        self._forker = None


class _Forker:
    """A running forker; it ends with this process."""

    def __init__(self, module: str) -> None:
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with requests:
            self._process = subprocess.Popen(
                (sys.executable, "-m", _FORKER, module),
                stdin=requests.fileno(),
                start_new_session=True,
                env=SETTINGS | os.environ,
            )
        self._is_ready = False

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def is_ready(self) -> bool:
        """Return whether all imports are done."""
        if not self._is_ready and select.select([self._requests], [], [], 0)[0]:
            with suppress(ConnectionResetError):
                self._is_ready = self._requests.recv(len(READY)) == READY
        return self._is_ready

    def fork(self, descriptors: Sequence[int]) -> None:
        """Ask for a process with these descriptors."""
        with suppress(OSError):  # it has ended: then the process has ended, too
            socket.send_fds(self._requests, [REQUEST], descriptors)

    def close(self) -> None:
        self._requests.close()
        self._process.kill()
        self._process.wait()


class _ForkedProcess:
    """A process that a forker starts."""

    def __init__(self, forker: _Forker) -> None:
        stdin, *outputs = (os.pipe() for _ in range(4))
        theirs = [stdin[0], *(write for _, write in outputs)]
        forker.fork(theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin: IO[bytes] | None = os.fdopen(stdin[1], "wb")
        (stdout, _), (stderr, _), (status, _) = outputs
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb", buffering=0)
        self.stderr: IO[bytes] | None = os.fdopen(stderr, "rb", buffering=0)
        self._status = status
        weakref.finalize(self, os.close, status)
        self._lines = Lines(status)
        self._known: dict[str, int] = {}

    @property
    def pid(self) -> int | None:
        self.poll()
        return self._known.get(PID)

    def poll(self) -> int | None:
        for line in self._lines.read():
            word, number = line.decode().split()
            self._known[word] = int(number)
        if STATUS in self._known:
            return os.waitstatus_to_exitcode(self._known[STATUS])
        return -signal.SIGKILL if self._lines.is_closed else None

    def wait(self) -> int:
        while (code := self.poll()) is None:
            select.select([self._status], [], [])
        return code
