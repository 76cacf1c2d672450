"""Prometheus metrics: requests, sessions, jobs, workers, memory."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import quantiles

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
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine, func, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from jarvis.server.claims import silent_since
from jarvis.server.database import JOBS, WORKERS, JobState, database, reading
from jarvis.server.errors import DatabaseError
from jarvis.server.http.web.health import TimedProbe

RECENT = timedelta(hours=1)
"""Maximum age of ended jobs in the job-time quantiles."""

MAX_RECENT = 2_000
"""Maximum number of ended jobs in the job-time quantiles; the newest count."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Snapshot of the queue; times in seconds."""

    jobs: dict[tuple[str, str], int]
    """Number of jobs by kind and state."""
    oldest_queued_s: float
    job_times_s: dict[str, list[float]]
    """Durations of recently finished jobs by kind."""
    workers: int
    slots: int


def queue_figures(engine: Engine) -> QueueFigures:
    """Read the figures; may raise DatabaseError."""
    now = datetime.now(UTC)
    counted = select(JOBS.c.kind, JOBS.c.state, func.count()).group_by(JOBS.c.kind, JOBS.c.state)
    oldest = select(func.min(JOBS.c.created)).where(JOBS.c.state == JobState.QUEUED)
    done = (
        select(JOBS.c.kind, JOBS.c.started, JOBS.c.ended)
        .where(JOBS.c.state == JobState.DONE, JOBS.c.ended >= now - RECENT)
        .order_by(JOBS.c.ended.desc())
        .limit(MAX_RECENT)
    )
    workers_and_slots = select(func.count(), func.coalesce(func.sum(WORKERS.c.slots), 0))
    times_s: dict[str, list[float]] = defaultdict(list)
    with reading(engine) as connection:
        jobs = {(kind.value, state.value): n for kind, state, n in connection.execute(counted)}
        since = connection.execute(oldest).scalar()
        for kind, started, ended in connection.execute(done):
            times_s[kind.value].append((ended - started).total_seconds())
        alive = workers_and_slots.where(WORKERS.c.heartbeat >= silent_since(connection))
        workers, slots = connection.execute(alive).one()
    waited_s = 0.0 if since is None else max(0.0, (now - since).total_seconds())
    return QueueFigures(jobs, waited_s, dict(times_s), workers, slots)


class JobCollector(Collector):
    """Collects the figures of the last ``refresh``, or only that the database is down."""

    def __init__(self) -> None:
        self._figures: QueueFigures | None = None

    def forget(self) -> None:
        """Discard the figures because the database does not answer."""
        self._figures = None

    def refresh(self) -> None:
        """Read the current figures."""
        try:
            self._figures = queue_figures(database())
        except DatabaseError:
            self.forget()

    def collect(self) -> Iterator[Metric]:
        """Yield the Prometheus metrics."""
        is_up = float(self._figures is not None)
        yield GaugeMetricFamily("jarvis_database_up", "1 if the database answers", value=is_up)
        if self._figures is not None:
            yield from figure_families(self._figures)


def figure_families(figures: QueueFigures) -> Iterator[Metric]:
    """Yield the figures of the queue as Prometheus metrics."""
    jobs = GaugeMetricFamily("jarvis_jobs", "Jobs in the database", labels=("kind", "state"))
    for labels, number in sorted(figures.jobs.items()):
        jobs.add_metric(labels, number)
    yield jobs
    yield GaugeMetricFamily(
        "jarvis_queue_oldest_seconds",
        "Waiting time of the oldest queued job",
        value=figures.oldest_queued_s,
    )
    yield _job_times(figures)
    yield GaugeMetricFamily(
        "jarvis_workers", "Workers with a recent heartbeat", value=figures.workers
    )
    yield GaugeMetricFamily("jarvis_slots", "Concurrent jobs of all workers", value=figures.slots)


def _job_times(figures: QueueFigures) -> Metric:
    family = GaugeMetricFamily(
        "jarvis_job_seconds",
        "Duration of jobs finished in the last hour: median, 95th percentile, maximum",
        labels=("kind", "quantile"),
    )
    for kind, times_s in sorted(figures.job_times_s.items()):
        steps = quantiles(times_s, n=20, method="inclusive") if len(times_s) > 1 else times_s * 19
        for quantile, value in (("0.5", steps[9]), ("0.95", steps[18]), ("1", max(times_s))):
            family.add_metric((kind, quantile), value)
    return family


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
