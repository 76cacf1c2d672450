"""Whether the server lives: for what watches and restarts it."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


async def _alive(_: Request) -> Response:
    """The process answers; nothing else is looked at."""
    return JSONResponse({"status": "ok"})


HEALTH_ROUTES = (Route("/healthz", _alive),)
