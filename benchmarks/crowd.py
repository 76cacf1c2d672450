"""Users who browse during a benchmark and reconnect when their server restarts."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import perf_counter

from websockets.exceptions import WebSocketException

from benchmarks.servers import Server
from benchmarks.visitors import TARGETS_PCT, NotFollowedError, Visitor, visit

_BACK_S = 0.5
"""Reconnect interval of a browser."""

_OPENED_S = 180


@dataclass
class Seen:
    """Milliseconds of each successful rerun, and counts of failures."""

    times_ms: list[float] = field(default_factory=list)
    refused: int = 0
    """Reruns that showed an error message instead of the metric, or did not end."""

    came_back: int = 0
    stack_traces: int = 0


@contextmanager
def crowd(servers: Sequence[Server], page: str, users: int, think_s: float) -> Iterator[Seen]:
    """Let users, who have opened the page, move its slider while the block runs."""
    seen, stop, opened = Seen(), Event(), Event()
    body = _browse_all(servers, page, users, think_s, seen, stop, opened)
    thread = Thread(target=asyncio.run, args=(body,))
    thread.start()
    try:
        if not opened.wait(_OPENED_S):
            raise TimeoutError(f"{users} users did not open their pages in {_OPENED_S} s")
        yield seen
    finally:
        stop.set()
        thread.join()


async def _browse_all(
    servers: Sequence[Server],
    page: str,
    users: int,
    think_s: float,
    seen: Seen,
    stop: Event,
    opened: Event,
) -> None:
    barrier = asyncio.Barrier(users + 1)
    tasks = [
        asyncio.create_task(
            _come_and_stay(
                servers[number % len(servers)], page, think_s, seen, stop, barrier, number
            )
        )
        for number in range(users)
    ]
    await barrier.wait()
    opened.set()
    await asyncio.gather(*tasks)


async def _come_and_stay(
    server: Server,
    page: str,
    think_s: float,
    seen: Seen,
    stop: Event,
    barrier: asyncio.Barrier,
    number: int,
) -> None:
    chance, is_first = random.Random(number), True
    while not stop.is_set():
        try:
            async with visit(server, page) as visitor:
                if is_first:
                    is_first = False
                    await barrier.wait()
                    await asyncio.sleep(chance.uniform(0, think_s))
                await _move(visitor, think_s, seen, stop, chance)
        except (OSError, WebSocketException):
            seen.came_back += 1
            await asyncio.sleep(_BACK_S)


async def _move(
    visitor: Visitor, think_s: float, seen: Seen, stop: Event, chance: random.Random
) -> None:
    while not stop.is_set():
        before = visitor.stack_traces
        try:
            seen.times_ms.append(await visitor.rerun(chance.randint(*TARGETS_PCT)))
        except (NotFollowedError, TimeoutError):
            seen.refused += 1
        seen.stack_traces += visitor.stack_traces - before
        end = perf_counter() + chance.uniform(0.5, 1.5) * think_s
        while perf_counter() < end and not stop.is_set():
            await asyncio.sleep(0.1)
