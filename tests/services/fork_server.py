"""A process that has imported everything and forks one that runs a module, for each request.

``forking.py`` starts it and says what for. No thread may work in it, because threads do not survive
a fork: Polars, NumPy and Numba start theirs when they are first used, which is after it.
"""

import gc
import json
import logging
import os
import pkgutil
import runpy
import selectors
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

import jarvis
from jarvis.server.jobs.processes import forker
from tests.services import forking
from tests.services.forking import LENGTH_BYTES, module_of

_NOT_IMPORTED = ("__main__", "jarvis.replay.runner", "jarvis.dashboard", "jarvis.server.migrations")
"""Parts of names of modules that do their work when they are imported, or that need a server."""

_LIBRARIES = (
    "openpyxl",
    "pandas",
    "streamlit.runtime",
    "streamlit.starlette",
    "streamlit.web.server.starlette.starlette_app",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)
"""Imported late by what is started."""

_OWNER, _STREAMS = 0, 3


@dataclass(frozen=True)
class Request:
    """A module to run as the main one, and how."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    is_session: bool


class Replaced(BaseException):
    """Raised where a forked process would replace itself with another module."""

    def __init__(self, module: str, arguments: list[str]) -> None:
        super().__init__(module)
        self.module = module
        self.arguments = arguments


def main(address: str) -> None:
    """Serve until the standard input is closed; in a forked process, run its module."""
    logging.disable()  # what Streamlit misses outside of a server
    _import_everything()
    logging.disable(logging.NOTSET)
    subprocess.Popen = forking.popen_of(lambda: address)  # type: ignore[misc]
    os.execv = _execv  # type: ignore[assignment]
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(64)
        os.rename(f"{address}.new", address)  # it is there when it can be used
        found = _serve(listener)
    if found is not None:
        _set_up(*found)
        _run(found[0].module, found[0].arguments)


def _import_everything() -> None:
    names = [name for _, name, _ in pkgutil.walk_packages(jarvis.__path__, "jarvis.")]
    own = [name for name in names if not any(part in name for part in _NOT_IMPORTED)]
    for name in (*own, *_LIBRARIES):
        import_module(name)


def _serve(listener: socket.socket) -> tuple[Request, list[int], socket.socket] | None:
    """Fork for each request; return it in the forked process, and None when the owner ends.

    With the request come the standard streams of the process, and whom to tell its id.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(_OWNER, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == _OWNER:
                    return None
                if key.fileobj is not listener:
                    selector.unregister(key.fd)
                    _report_end(key.fd, *key.data)
                    continue
                connection, _ = listener.accept()
                request, streams = _received(connection)
                import_module(request.module)
                _check_threads()
                pid = os.fork()
                if pid == 0:
                    for other in selector.get_map().values():
                        if other.data is not None:
                            os.close(other.fd)
                            other.data[1].close()
                    return request, streams, connection
                for stream in streams:
                    os.close(stream)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))


def _check_threads() -> None:
    lost = forker.thread_names() - forker.IDLE_THREADS
    assert not lost, f"the fork would stop these threads: {lost}"


def _report_end(handle: int, pid: int, connection: socket.socket) -> None:
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError, ConnectionResetError), connection:
        connection.sendall(status.to_bytes(LENGTH_BYTES))


def _received(connection: socket.socket) -> tuple[Request, list[int]]:
    header, streams, _, _ = socket.recv_fds(connection, LENGTH_BYTES, _STREAMS)
    body = bytearray()
    while len(body) < int.from_bytes(header):
        body += connection.recv(1 << 16)
    return Request(**json.loads(body)), streams


def _set_up(request: Request, streams: list[int], connection: socket.socket) -> None:
    """Make this process what ``subprocess.Popen`` would have started, and report its id."""
    if request.is_session:
        os.setsid()
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[0] = request.folder
    with connection:
        connection.sendall(os.getpid().to_bytes(LENGTH_BYTES))


def _run(module: str, arguments: list[str]) -> None:
    """Run a module, and then each that it is replaced with, as ``python -m`` does."""
    while True:
        sys.argv = [module, *arguments]
        if not hasattr(sys.modules[module], "__path__"):
            del sys.modules[module]  # it becomes the main module, as in a usual process
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except Replaced as other:
            module, arguments = other.module, other.arguments
        else:
            return
        _forget()


def _execv(_: str, command: list[str]) -> None:
    found = module_of(command)
    assert found is not None, f"a forked process cannot be replaced with {command}"
    raise Replaced(*found)


def _forget() -> None:
    """Forget what a program that was replaced has cached, such as its database."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "jarvis":
            for cached in vars(module).values():
                if hasattr(cached, "cache_clear"):
                    cached.cache_clear()
    gc.collect()


if __name__ == "__main__":
    main(sys.argv[1])
