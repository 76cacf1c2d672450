"""What the web server does beside drawing pages: its own routes, and what wraps requests."""

from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from jarvis.server.web.health import HEALTH_ROUTES


def routes() -> Sequence[BaseRoute]:
    """The routes beside those of the pages."""
    return [*HEALTH_ROUTES]


def middleware() -> Sequence[Middleware]:
    """What wraps every request and websocket, the outermost first."""
    return []
