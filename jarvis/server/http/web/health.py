"""Health endpoints: ``/healthz`` (liveness) and ``/readyz`` (readiness).

``/healthz`` checks nothing but the process. ``/readyz`` checks the dependencies of the server: a
load balancer should send no traffic to a server that is not ready.
"""

import asyncio
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from jarvis.core.errors import JarvisError
from jarvis.server.http.web.readiness import check_database, check_storage, check_worker
from jarvis.server.http.web.timed_probe import TimedProbe

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
