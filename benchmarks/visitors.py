"""Simulated users: websocket sessions without a browser."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks.servers import FIGURE, SLIDER, Server

TARGETS_PCT = (40, 95)
"""Users move the slider to a random value in this range."""

_LOST_SECONDS = 120


class NotFollowedError(RuntimeError):
    """The page shows no metric for the value of its slider, for instance an error message."""


@dataclass
class Visitor:
    """One websocket session."""

    connection: ClientConnection
    query: str
    page_name: str
    page_hash: str = ""
    slider: str = ""
    stack_traces: int = 0
    """Number of pages with an exception instead of an error message."""

    async def rerun(self, target_pct: int | None = None) -> float:
        """Rerun the page with a new target; return the milliseconds until it has ended.

        Raises NotFollowedError if the metric does not change, and TimeoutError if the run does not
        end.
        """
        message = BackMsg()
        message.rerun_script.query_string = self.query
        message.rerun_script.page_script_hash = self.page_hash
        message.rerun_script.page_name = "" if self.page_hash else self.page_name
        if target_pct is not None:
            state = message.rerun_script.widget_states.widgets.add()
            state.id = self.slider
            state.double_array_value.data.append(target_pct)
        is_followed = target_pct is None
        begin = perf_counter()
        await self.connection.send(message.SerializeToString())
        async with asyncio.timeout(_LOST_SECONDS):
            while True:
                answer = ForwardMsg()
                answer.ParseFromString(await self.connection.recv(decode=False))
                kind = answer.WhichOneof("type")
                if kind == "navigation":
                    self.page_hash = answer.navigation.page_script_hash
                elif kind == "new_session" and not self.page_hash:
                    self.page_hash = answer.new_session.page_script_hash
                elif kind == "page_info_changed":  # the URL that a browser then has
                    self.query = answer.page_info_changed.query_string
                elif kind == "delta":
                    is_followed |= self._sees(answer, target_pct)
                elif kind == "script_finished":
                    break
        if not is_followed:
            raise NotFollowedError("the page did not follow its slider")
        return 1000 * (perf_counter() - begin)

    def _sees(self, answer: ForwardMsg, target_pct: int | None) -> bool:
        """Store a new element; return whether it is the metric for this target."""
        element = answer.delta.new_element
        kind = element.WhichOneof("type")
        self.stack_traces += kind == "exception"
        if kind == "slider" and element.slider.label == SLIDER:
            self.slider = element.slider.id
        return bool(kind == "metric" and element.metric.label == f"{FIGURE} {target_pct}%")


@asynccontextmanager
async def visit(server: Server, name: str) -> AsyncIterator[Visitor]:
    """Open a page in a new session."""
    address = f"{server.url.replace('http', 'ws', 1)}/_stcore/stream"
    protocol = Subprotocol("streamlit")
    async with connect(address, subprotocols=[protocol], max_size=None, proxy=None) as connection:
        visitor = Visitor(connection, server.query, name)
        await visitor.rerun()
        yield visitor


@dataclass(frozen=True, slots=True)
class Browsing:
    """Milliseconds of each rerun, and CPU time of the servers per rerun."""

    times_ms: list[float]
    cpu_ms: float


async def browsing(
    servers: Sequence[Server], page: str, users: int, think_s: float, moves: int
) -> Browsing:
    """Distribute users over the servers; each moves the slider about every ``think_s`` seconds.

    All open the page first, then start at different times.
    """
    opened = asyncio.Barrier(users + 1)
    tasks = [
        asyncio.create_task(
            _browse(servers[n % len(servers)], page, think_s, moves, opened, random.Random(n))
        )
        for n in range(users)
    ]
    try:
        await opened.wait()
        before = sum(server.cpu_s() for server in servers)
        times_ms = [ms for taken in await asyncio.gather(*tasks) for ms in taken]
    finally:
        for task in tasks:
            task.cancel()
    used_s = sum(server.cpu_s() for server in servers) - before
    return Browsing(times_ms, 1000 * used_s / len(times_ms))


async def _browse(
    server: Server,
    page: str,
    think_s: float,
    moves: int,
    opened: asyncio.Barrier,
    chance: random.Random,
) -> list[float]:
    taken = []
    async with visit(server, page) as visitor:
        await opened.wait()
        await asyncio.sleep(chance.uniform(0, think_s))
        for _ in range(moves):
            taken.append(await visitor.rerun(chance.randint(*TARGETS_PCT)))
            await asyncio.sleep(chance.uniform(0.5, 1.5) * think_s)
    return taken


async def memory_over_views(
    server: Server, pages: Sequence[str], views: int, samples: int
) -> list[float]:
    """Return the server's memory in MB at the start and after each of ``samples`` parts.

    Each view is a new session.
    """
    taken = [server.memory_mb()]
    part = max(1, views // samples)
    for number in range(views):
        async with visit(server, pages[number % len(pages)]):
            pass
        if (number + 1) % part == 0:
            taken.append(server.memory_mb())
    return taken
