"""Figures for Prometheus: requests, open pages, jobs and workers, memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from jarvis.server.http.web.job_metrics import JobCollector
from jarvis.server.http.web.timed_probe import TimedProbe

REGISTRY = CollectorRegistry()
"""What this process counts; each web process behind a proxy is asked by itself."""

ANSWER_S = 5.0
"""A database that answers later is left out."""

_LATENCY_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

REQUESTS = Counter(
    "jarvis_http_requests_total",
    "Requests that were answered",
    ("route", "method", "status"),
    registry=REGISTRY,
)
LATENCY = Histogram(
    "jarvis_http_request_seconds",
    "From a request to the end of its answer",
    ("route", "method"),
    buckets=_LATENCY_S,
    registry=REGISTRY,
)
RECEIVED = Counter(
    "jarvis_http_received_bytes_total",
    "Bytes of the bodies of requests, uploads among them",
    ("route",),
    registry=REGISTRY,
)
SESSIONS = Gauge("jarvis_sessions", "Pages that are open in browsers", registry=REGISTRY)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

disable_created_metrics()  # the same again for every figure
ProcessCollector(registry=REGISTRY)


def route_of(scope: Scope) -> str:
    """The route that answered, as it is declared, so that ids do not multiply the figures."""
    route = scope.get("route")
    if route is None:
        return "none"
    return f"{scope.get('root_path', '')}{getattr(route, 'path', '')}" or "/"


def count_request(scope: Scope, status: int, elapsed_s: float, received_bytes: int) -> None:
    """Add one request that was answered."""
    route = route_of(scope)
    method = scope["method"] if scope["method"] in _METHODS else "other"
    REQUESTS.labels(route, method, str(status)).inc()
    LATENCY.labels(route, method).observe(elapsed_s)
    if received_bytes:
        RECEIVED.labels(route).inc(received_bytes)


@contextmanager
def open_session() -> Iterator[None]:
    """Count a page while it is open."""
    with SESSIONS.track_inprogress():
        yield


_jobs = JobCollector()
REGISTRY.register(_jobs)
_asked = TimedProbe(_jobs.refresh, ANSWER_S)


async def _metrics(_: Request) -> Response:
    """All figures; those of the jobs only where the database answers in time."""
    try:
        await _asked.answer()
    except TimeoutError:
        _jobs.forget()
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


METRICS_ROUTES = (Route("/metrics", _metrics),)
