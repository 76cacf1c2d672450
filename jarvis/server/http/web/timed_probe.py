"""Run a blocking probe in a thread with a timeout, and cache its result."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

FRESH_S = 1.0
"""Lifetime of a cached result, so that many callers cost no more than one."""


class TimedProbe(Generic[Answer]):
    """Runs at most one probe at a time, in a daemon thread that does not delay the exit."""

    def __init__(self, probe: Callable[[], Answer], timeout_s: float) -> None:
        self._probe, self._timeout_s = probe, timeout_s
        self._future: Future[Answer] | None = None
        self._answered = 0.0

    async def answer(self) -> Answer:
        """Return the result of the probe or raise its error; TimeoutError if it takes too long."""
        future = self._future
        if future is None or (future.done() and monotonic() - self._answered >= FRESH_S):
            future = self._future = Future()
            Thread(target=self._run, args=(future,), daemon=True).start()
        waiting = asyncio.wrap_future(future)
        return await asyncio.wait_for(asyncio.shield(waiting), self._timeout_s)

    def _run(self, future: "Future[Answer]") -> None:
        try:
            answer = self._probe()
        except Exception as error:  # noqa: BLE001 - raised in answer()
            self._answered = monotonic()
            future.set_exception(error)
        else:
            self._answered = monotonic()
            future.set_result(answer)
