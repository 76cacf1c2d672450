"""Health and readiness: whether the server works, what it lacks, answered in bounded time."""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import home
from jarvis.server import claims
from jarvis.server.database import database, reading
from jarvis.server.errors import NotReadyError
from jarvis.server.migrations import HEAD, version
from jarvis.server.storage import artifacts

PROBE = ".readiness"


def check_database() -> str:
    """Check that the database answers and its schema has the version of this server."""
    with reading(database()) as connection:
        current = version(connection)
    if current != HEAD:
        raise NotReadyError(f"The database has version {current}, this server needs {HEAD}.")
    return f"version {current}"


def check_storage() -> str:
    """Check that the home and the artifact root are writable."""
    home().mkdir(parents=True, exist_ok=True)
    probe = home() / f"{PROBE}-{os.getpid()}"
    probe.write_bytes(b"ready")
    probe.unlink()
    artifacts.check()
    return "writable"


def check_worker() -> str:
    """Check that a worker has a recent heartbeat."""
    if not claims.has_worker(database()):
        raise NotReadyError(
            f"No worker heartbeat in the last {claims.HEARTBEAT_TIMEOUT_S} s; jobs stay queued. "
            "Start a worker (`jarvis worker`, or `jarvis serve` with JARVIS_JOB_SLOTS above 0)."
        )
    return "running"


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


ANSWER_S = 3.0
"""Timeout of a readiness check."""

NEEDS: Mapping[str, Callable[[], str]] = {
    "database": check_database,
    "artifact root": check_storage,
    "worker": check_worker,
}
"""Readiness checks by name; each returns its status, or raises a JarvisError or OSError."""

_probes = {name: TimedProbe(check, ANSWER_S) for name, check in NEEDS.items()}


async def _answer(name: str) -> dict[str, object]:
    try:
        return {"ready": True, "detail": await _probes[name].answer()}
    except TimeoutError:
        return {"ready": False, "detail": f"No answer within {ANSWER_S:g} s."}
    except (JarvisError, OSError) as error:
        return {"ready": False, "detail": str(error)}


async def _alive(_: Request) -> Response:
    """Answer a liveness check."""
    return JSONResponse({"status": "ok"})


async def _ready(_: Request) -> Response:
    """Return the result of each readiness check; 503 if any fails."""
    parts = dict(zip(NEEDS, await asyncio.gather(*map(_answer, NEEDS)), strict=True))
    is_ready = all(part["ready"] for part in parts.values())
    return JSONResponse(
        {"status": "ready" if is_ready else "not ready", "parts": parts},
        200 if is_ready else 503,
        {"Cache-Control": "no-store"},
    )


HEALTH_ROUTES = (Route("/healthz", _alive), Route("/readyz", _ready))
