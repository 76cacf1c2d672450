"""Start and end of the web server: what runs beside it, and a stop that ends in bounded time."""

import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from jarvis.core.memory_tuning import tune_for_server
from jarvis.server.jobs.workers.worker_watch import worker_at_work
from jarvis.server.logs import take_over_loggers
from jarvis.server.settings import settings

SIGNALS = (signal.SIGTERM, signal.SIGINT)

AFTER_REQUESTS_S = 9.0
"""Time for stopping the worker and cleaning up, after the timeout of open requests."""

log = logging.getLogger(__name__)


@contextmanager
def bounded_stop(max_s: float) -> Iterator[None]:
    """Within the block, exit at most ``max_s`` seconds after the first stop signal, and
    immediately after a second one.

    The previous signal handlers are called first. Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    timer: threading.Timer | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal timer
        if timer is not None:
            os._exit(128 + number)
        timer = threading.Timer(max_s, _force_exit, (number, max_s))
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
