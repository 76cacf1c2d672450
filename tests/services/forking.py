"""Processes of Jarvis that are forked from one that has imported everything.

Each ``jarvis serve``, worker, job and command would import for 1 to 4 CPU seconds otherwise. Those
that tests start with ``python -m``, and those that these start, are forked: the same processes with
the same streams, environment, folder, session and exit code, only faster to start. Whatever else is
started is started as ever, as are the processes of a test with ``usual_processes``.
"""

import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_MODULES = (
    "jarvis.cli",
    "jarvis.server.jobs.processes.forker",
    "jarvis.server.jobs.processes.job_process",
    "jarvis.server.jobs.worker",
    "tests.server.held_worker",
    "uvicorn",
)
"""What is forked."""

_READ_BY_IMPORTS = ("LD_", "MALLOC_", "NUMBA_", "OMP_", "POLARS_", "PYTHON")
"""Prefixes of variables that must be those of the fork server, which has imported already."""

_ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # its threads start with NumPy
"""That of the fork server, which may start within a test that changes it."""

_ROOT = Path(__file__).parents[2]
_SERVER = "tests.services.fork_server"
LENGTH_BYTES = 8

USUAL: Any = subprocess.Popen

_CHILD_PIPES = ("p2cread", "c2pwrite", "errwrite")
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")

_AS_EVER = {
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
"""Options of processes that are forked. Which of them others use does not matter."""


def module_of(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the module that a command runs, and its arguments, if it is one that is forked."""
    program, option, module, *arguments = [*command, "", "", ""]
    if (program, option) != (sys.executable, "-m") or module not in _MODULES:
        return None
    return module, arguments[:-3]


@contextmanager
def forked_processes() -> Iterator[None]:
    """Fork what is started within the block."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forks-"))

        @cache
        def address() -> str:
            """Start the fork server when it is first needed."""
            path = f"{folder}/address"
            server = stack.enter_context(_started(path))
            stack.callback(server.stdin.close)
            return path

        stack.callback(setattr, subprocess, "Popen", USUAL)
        subprocess.Popen = popen_of(address)  # type: ignore[misc]
        yield


def _started(address: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", _SERVER, address]
    server = USUAL(command, stdin=subprocess.PIPE, cwd=_ROOT, env=_ENVIRONMENT)
    while not os.path.exists(address):
        assert server.poll() is None, "the fork server did not start"
        time.sleep(0.02)
    return server


def popen_of(address: Callable[[], str]) -> type["subprocess.Popen[Any]"]:
    """Return the class that starts processes through the fork server at an address."""

    class Forked(USUAL):  # type: ignore[misc]
        """A process that is forked if it runs one of ``_MODULES``, else started as ever."""

        _end: int | None = None
        """The descriptor that gives the status of a forked process when it has ended."""

        def _execute_child(self, args, *rest):
            names = tuple(inspect.signature(USUAL._execute_child).parameters)[2:]
            options = dict(zip(names, rest, strict=True))
            request = _request(args, options)
            if request is None:
                super()._execute_child(args, *rest)
                return
            pipes = [options[name] for name in _CHILD_PIPES]
            streams = [place if pipe == -1 else pipe for place, pipe in enumerate(pipes)]
            self.pid, self._end = _forked(address(), request, streams)
            self._child_created = True
            self._close_pipe_fds(*(options[name] for name in _PIPES))

        def _internal_poll(self, _deadstate=None, **options):
            if self._end is None:
                return super()._internal_poll(_deadstate, **options)
            return super()._internal_poll(_deadstate, _waitpid=lambda _, f: self._try_wait(f))

        def _try_wait(self, wait_flags):
            if self._end is None:
                return super()._try_wait(wait_flags)
            if wait_flags & os.WNOHANG and not select.select([self._end], [], [], 0)[0]:
                return 0, 0
            status = os.read(self._end, LENGTH_BYTES)
            os.close(self._end)
            return self.pid, int.from_bytes(status) if status else signal.SIGKILL

    return Forked


def _request(args: object, options: Mapping[str, Any]) -> dict[str, object] | None:
    """Return what the fork server needs to know; None for what must be started as ever."""
    if not isinstance(args, list | tuple):
        return None
    found = module_of([*map(os.fspath, args)])
    environment = dict(os.environ if options["env"] is None else options["env"])
    unusual = any(options[name] != usual for name, usual in _AS_EVER.items())
    if found is None or unusual or _read_by_imports(environment) != _read_by_imports(_ENVIRONMENT):
        return None
    return {
        "module": found[0],
        "arguments": found[1],
        "environment": environment,
        "folder": os.fspath(options["cwd"] or os.getcwd()),
        "is_session": options["start_new_session"],
    }


def _read_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_READ_BY_IMPORTS)}


def _forked(address: str, request: Mapping[str, object], streams: Sequence[int]) -> tuple[int, int]:
    """Return the id of a new process, and the descriptor of its end."""
    body = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [len(body).to_bytes(LENGTH_BYTES)], streams)
    connection.sendall(body)
    pid = connection.recv(LENGTH_BYTES)
    assert pid, "the fork server has ended"
    return int.from_bytes(pid), connection.detach()
