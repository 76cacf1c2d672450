"""Whether the server lives, and whether it can do its work: for what watches it.

``/healthz`` looks at nothing: a server that does not answer it is to be started again. ``/readyz``
looks at what the server needs: one that is not ready is to get no visitors for now.
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
"""What answers later is not ready."""

NEEDS: Mapping[str, Callable[[], str]] = {
    "database": check_database,
    "artifact root": check_storage,
    "worker": check_worker,
}
"""What the server needs; each says how it is, or raises a JarvisError or OSError."""

_asked = {name: TimedProbe(ask, ANSWER_S) for name, ask in NEEDS.items()}


async def _answer(name: str) -> dict[str, object]:
    try:
        return {"ready": True, "detail": await _asked[name].answer()}
    except TimeoutError:
        return {"ready": False, "detail": f"It did not answer within {ANSWER_S:g} s."}
    except (JarvisError, OSError) as error:
        return {"ready": False, "detail": str(error)}


async def _alive(_: Request) -> Response:
    """The process answers; nothing else is looked at."""
    return JSONResponse({"status": "ok"})


async def _ready(_: Request) -> Response:
    """Each thing that the server needs; 503 where one is not there."""
    parts = dict(zip(NEEDS, await asyncio.gather(*map(_answer, NEEDS)), strict=True))
    is_ready = all(part["ready"] for part in parts.values())
    return JSONResponse(
        {"status": "ready" if is_ready else "not ready", "parts": parts},
        200 if is_ready else 503,
        {"Cache-Control": "no-store"},
    )


HEALTH_ROUTES = (Route("/healthz", _alive), Route("/readyz", _ready))
