"""Graceful shutdown of the web server within a time limit."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
