"""Routes and middleware of the web server around Streamlit's pages."""

import os
from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount

from jarvis.core.product import API
from jarvis.server.http.api import api
from jarvis.server.http.web.bodies import BodyLimits, HeaderLimits
from jarvis.server.http.web.errors import ClosedPaths
from jarvis.server.http.web.headers import PageBase, SecureHeaders
from jarvis.server.http.web.health import HEALTH_ROUTES
from jarvis.server.http.web.hosts import (
    ADDRESS_VARIABLE,
    AllowedHosts,
    TrustedProxies,
    answered_names,
)
from jarvis.server.http.web.metrics import METRICS_ROUTES
from jarvis.server.http.web.requests import Requests
from jarvis.server.settings import settings


def routes() -> Sequence[BaseRoute]:
    """Return the routes besides those of the pages."""
    return [*HEALTH_ROUTES, *METRICS_ROUTES, Mount(API, app=api())]


def middleware() -> Sequence[Middleware]:
    """Return the middleware for requests and websockets, outermost first."""
    now = settings()
    names = answered_names(now, os.environ.get(ADDRESS_VARIABLE, ""))
    return [
        Middleware(TrustedProxies),
        Middleware(SecureHeaders, public_url=now.public_url, opens_windows=bool(now.perfetto_url)),
        Middleware(Requests),
        Middleware(HeaderLimits),
        Middleware(AllowedHosts, names=names, public_url=now.public_url),
        Middleware(ClosedPaths),
        Middleware(BodyLimits),
        Middleware(PageBase),
    ]
