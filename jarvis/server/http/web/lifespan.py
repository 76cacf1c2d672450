"""Start and stop of the web server and its worker, which is restarted if it dies."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Event, Thread, Timer, current_thread, main_thread
from time import monotonic
from types import FrameType

from jarvis.core.memory_tuning import tune_for_server, without_server_arenas
from jarvis.server.logs import take_over_loggers
from jarvis.server.settings import settings

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""Delay before a restart; doubled while workers die within YOUNG_S."""

YOUNG_S = 30.0
STOP_S = 6.0
"""Timeout for a graceful stop of the worker."""

log = logging.getLogger(__name__)


def job_slots() -> int | None:
    """Return ``JARVIS_JOB_SLOTS``: the concurrent jobs, or 0 if other workers run them.

    The default is 1, or None with a Dask cluster, for all of its slots.
    """
    now = settings()
    is_unset = now.dask_scheduler is not None and "job_slots" not in now.model_fields_set
    return None if is_unset else now.job_slots


def worker_command(slots: int | None) -> tuple[str, ...]:
    """Return the command of a worker that ends when its stdin is closed."""
    options = () if slots is None else ("--slots", str(slots))
    return (
        sys.executable,
        "-m",
        "jarvis.server.jobs.worker",
        "--tied-to-input",
        *options,
    )


@contextmanager
def watched_worker(command: Sequence[str]) -> Iterator[None]:
    """Run a worker while the block runs."""
    watch = _Watch(command)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


@asynccontextmanager
async def worker_at_work() -> AsyncIterator[None]:
    """Run a worker with the slots of the settings while the block runs; none if they are 0."""
    slots = job_slots()
    if slots == 0:
        yield
        return
    watch = _Watch(worker_command(slots))
    watch.start()
    try:
        yield
    finally:
        await asyncio.to_thread(watch.stop)


class _Watch:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._is_stopping = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._process = self._started()
        self._thread.start()

    def _started(self) -> subprocess.Popen[bytes]:
        environment = without_server_arenas()
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environment)

    def stop(self) -> None:
        """Close the worker's stdin, which makes it stop, and wait for it."""
        self._is_stopping.set()
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
        self._thread.join()

    def _watch(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._process is not None:
            begin = monotonic()
            code = self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            if self._is_stopping.is_set():
                return
            pause_s = FIRST_PAUSE_S if monotonic() - begin > YOUNG_S else pause_s
            log.warning("the worker exited with code %d; restarting in %g s", code, pause_s)
            if self._is_stopping.wait(pause_s):
                return
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            self._process = self._started()


SIGNALS = (signal.SIGTERM, signal.SIGINT)

AFTER_REQUESTS_S = 9.0
"""Time for stopping the worker and cleaning up, after the timeout of open requests."""


@contextmanager
def bounded_stop(max_s: float) -> Iterator[None]:
    """Within the block, exit at most ``max_s`` seconds after the first stop signal, and
    immediately after a second one.

    The previous signal handlers are called first. Does nothing outside the main thread.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    timer: Timer | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal timer
        if timer is not None:
            os._exit(128 + number)
        timer = Timer(max_s, _force_exit, (number, max_s))
        timer.daemon = True
        timer.start()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in SIGNALS:
        signal.signal(number, stop)
    yield  # uvicorn restores the handlers it replaced; the timer runs until the process exits


def _force_exit(number: int, waited_s: float) -> None:
    log.error("shutdown is incomplete %g s after signal %d; exiting", waited_s, number)
    os._exit(128 + number)


@asynccontextmanager
async def lifespan(_: object) -> AsyncIterator[None]:
    """Run a worker while the web application is served, and bound the shutdown time."""
    take_over_loggers()
    tune_for_server()
    with bounded_stop(settings().stop_seconds + AFTER_REQUESTS_S):
        async with worker_at_work():
            yield
