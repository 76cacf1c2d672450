"""Questions that may never be answered: asked in a thread, waited for only so long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

FRESH_S = 1.0
"""An answer is given again for so long, so that many askers cost no more than one."""


class TimedProbe(Generic[Answer]):
    """Asks at most one question at a time; the thread of one without an answer holds up nothing."""

    def __init__(self, ask: Callable[[], Answer], most_s: float) -> None:
        self._ask, self._most_s = ask, most_s
        self._asked: Future[Answer] | None = None
        self._answered = 0.0

    async def answer(self) -> Answer:
        """What the question gives or raises; TimeoutError where that takes too long."""
        asked = self._asked
        if asked is None or (asked.done() and monotonic() - self._answered >= FRESH_S):
            asked = self._asked = Future()
            Thread(target=self._answer, args=(asked,), daemon=True).start()
        waiting = asyncio.wrap_future(asked)
        return await asyncio.wait_for(asyncio.shield(waiting), self._most_s)

    def _answer(self, asked: "Future[Answer]") -> None:
        try:
            answer = self._ask()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._answered = monotonic()
            asked.set_exception(error)
        else:
            self._answered = monotonic()
            asked.set_result(answer)
