"""Process that forks those of jobs: ``python -m jarvis.server.jobs.processes.forker MODULE``.

It imports MODULE and what its ``prepare`` imports, once. For each request on its standard input, a
socket, it forks a process that runs ``MODULE.main()``. A request brings four descriptors: the three
standard streams of the new process, and one that gets its id and later its status, as lines.

Threads do not survive a fork. Those of Polars start when it is first used, which is in the forked
process; where an extension has started some before, the forked process imports everything again.
"""

import gc
import os
import select
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

READY = b"ready"
REQUEST = b"fork"
PID, STATUS = "pid", "status"
DESCRIPTORS = 4

_INPUT = 0
_THREADS = Path("/proc/self/task")
IDLE_THREADS = {"jemalloc_bg_thd", "polars-ooc-clea"}
"""Those that Polars starts when it is imported; a process does without them."""


def main(name: str) -> None:
    """Serve until the standard input is closed."""
    module = import_module(name)
    with socket.socket(fileno=os.dup(_INPUT)) as requests:
        module.prepare(lambda: False)  # all jobs need it, also where one is waiting
        can_fork = thread_names() <= IDLE_THREADS
        gc.collect()
        gc.freeze()  # the collector of a forked process would copy the pages of all objects
        requests.send(READY)
        forker = _Forker(requests)
        while forker.serve():
            pass
    if forker.is_job:
        if can_fork:
            _run(module)
        os.execv(sys.executable, (sys.executable, "-m", name))


class _Forker:
    """Forks on request, and reports what has ended."""

    is_job = False
    """Whether this is a forked process."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._jobs: dict[int, tuple[int, int]] = {}
        """Process id and status descriptor, by the descriptor of the process."""
        self._events = select.poll()
        self._events.register(requests, select.POLLIN)

    def serve(self) -> bool:
        """Wait for an event; return False at the end of the requests, and in a forked process."""
        for descriptor, _ in self._events.poll():
            if descriptor in self._jobs:
                self._report(descriptor)
                continue
            request, descriptors, _, _ = socket.recv_fds(self._requests, len(REQUEST), DESCRIPTORS)
            if not request or not self._fork(descriptors):
                return False
        return True

    def _fork(self, descriptors: list[int]) -> bool:
        """Return False in the forked process, where the streams are in place."""
        status = descriptors[-1]
        with warnings.catch_warnings():
            # Python counts the idle threads of Polars's allocator, which a process does without.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            for descriptor in descriptors[:-1]:
                os.close(descriptor)
            process = os.pidfd_open(pid)
            self._jobs[process] = pid, status
            self._events.register(process, select.POLLIN)
            return True
        self.is_job = True
        os.setsid()
        for place, descriptor in enumerate(descriptors[:-1]):
            os.dup2(descriptor, place)
            os.close(descriptor)
        _write(status, PID, os.getpid())
        os.close(status)
        for process, (_, other) in self._jobs.items():
            os.close(process)
            os.close(other)
        return False

    def _report(self, process: int) -> None:
        pid, status = self._jobs.pop(process)
        self._events.unregister(process)
        os.close(process)
        with suppress(BrokenPipeError):  # the worker has killed it and does not want to know
            _write(status, STATUS, os.waitpid(pid, 0)[1])
        os.close(status)


def thread_names() -> set[str]:
    """Return the names of all threads but the main one."""
    others = (task for task in _THREADS.iterdir() if task.name != str(os.getpid()))
    return {(task / "comm").read_text().strip() for task in others}


def _write(descriptor: int, word: str, number: int) -> None:
    os.write(descriptor, f"{word} {number}\n".encode())


def _run(module: ModuleType) -> None:
    """Run the job and end without the slow clean-up of an interpreter."""
    code = 1
    try:
        module.main()
        code = 0
    except Exception:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
