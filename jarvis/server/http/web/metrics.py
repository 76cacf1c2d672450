"""Prometheus metrics: requests, sessions, jobs, workers, memory."""

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
"""Metrics of this process; scrape each web process behind a proxy separately."""

ANSWER_S = 5.0
"""Timeout of the database query; later, the job metrics are left out."""

_LATENCY_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

REQUESTS = Counter(
    "jarvis_http_requests_total",
    "Answered requests",
    ("route", "method", "status"),
    registry=REGISTRY,
)
LATENCY = Histogram(
    "jarvis_http_request_seconds",
    "Time from a request to the end of its response",
    ("route", "method"),
    buckets=_LATENCY_S,
    registry=REGISTRY,
)
RECEIVED = Counter(
    "jarvis_http_received_bytes_total",
    "Bytes of request bodies, including uploads",
    ("route",),
    registry=REGISTRY,
)
SESSIONS = Gauge("jarvis_sessions", "Pages open in browsers", registry=REGISTRY)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

disable_created_metrics()  # otherwise each counter has a second "_created" series
ProcessCollector(registry=REGISTRY)


def route_of(scope: Scope) -> str:
    """Return the declared route of a request, so that ids do not become label values."""
    route = scope.get("route")
    if route is None:
        return "none"
    return f"{scope.get('root_path', '')}{getattr(route, 'path', '')}" or "/"


def count_request(scope: Scope, status: int, elapsed_s: float, received_bytes: int) -> None:
    """Count an answered request."""
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
_jobs_probe = TimedProbe(_jobs.refresh, ANSWER_S)


async def _metrics(_: Request) -> Response:
    """Return all metrics; those of jobs only if the database answers in time."""
    try:
        await _jobs_probe.answer()
    except TimeoutError:
        _jobs.forget()
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


METRICS_ROUTES = (Route("/metrics", _metrics),)
