"""The end of a web server: in order, but at the latest when its time is up."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)

AFTER_REQUESTS_S = 9.0
"""What is left for the worker and for closing up, after open requests had theirs."""

log = logging.getLogger(__name__)


@contextmanager
def bounded_stop(most_s: float) -> Iterator[None]:
    """Within the block, the process is gone ``most_s`` seconds after it is told to stop, whatever
    still hangs; told again, at once.

    The handlers that are there are called first. Nothing is changed outside the main thread.
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
        timer = threading.Timer(most_s, _give_up, (number, most_s))
        timer.daemon = True
        timer.start()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in SIGNALS:
        signal.signal(number, stop)
    yield  # what was there is put back by whoever put it there; until the end, the timer runs


def _give_up(number: int, waited_s: float) -> None:
    log.error("not everything had ended %g s after signal %d; the process goes", waited_s, number)
    os._exit(128 + number)
