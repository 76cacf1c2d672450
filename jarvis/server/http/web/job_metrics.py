"""Figures of the queue, read from the database when they are asked for."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import quantiles

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine, func, select

from jarvis.server.database import JOBS, WORKERS, DatabaseError, JobState, database, reading
from jarvis.server.jobs.claims import silent_since

RECENT = timedelta(hours=1)
"""How long a job may have ended ago to count in the times that jobs take."""

MAX_RECENT = 2_000
"""The newest so many of them."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The queue at a moment; times in seconds."""

    jobs: dict[tuple[str, str], int]
    """By kind and state."""
    oldest_queued_s: float
    job_times_s: dict[str, list[float]]
    """Of jobs that were done lately, by kind."""
    workers: int
    slots: int


def queue_figures(engine: Engine) -> QueueFigures:
    """Read them; DatabaseError where the database does not answer."""
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
    """Gives the figures of the last ``refresh``; without one that worked, none but that."""

    def __init__(self) -> None:
        self._figures: QueueFigures | None = None

    def forget(self) -> None:
        """The figures are old, and the database does not answer."""
        self._figures = None

    def refresh(self) -> None:
        """Read the figures anew."""
        try:
            self._figures = queue_figures(database())
        except DatabaseError:
            self.forget()

    def collect(self) -> Iterator[Metric]:
        """The figures as Prometheus takes them."""
        answers = float(self._figures is not None)
        yield GaugeMetricFamily("jarvis_database_up", "1: the database answers", value=answers)
        if self._figures is not None:
            yield from figure_families(self._figures)


def figure_families(figures: QueueFigures) -> Iterator[Metric]:
    """The figures of the queue as Prometheus takes them."""
    jobs = GaugeMetricFamily("jarvis_jobs", "Jobs in the table", labels=("kind", "state"))
    for labels, number in sorted(figures.jobs.items()):
        jobs.add_metric(labels, number)
    yield jobs
    yield GaugeMetricFamily(
        "jarvis_queue_oldest_seconds",
        "How long the job that waits longest has waited",
        value=figures.oldest_queued_s,
    )
    yield _job_times(figures)
    yield GaugeMetricFamily("jarvis_workers", "Workers heard of lately", value=figures.workers)
    yield GaugeMetricFamily("jarvis_slots", "Jobs that they run at once", value=figures.slots)


def _job_times(figures: QueueFigures) -> Metric:
    family = GaugeMetricFamily(
        "jarvis_job_seconds",
        "What jobs took that were done in the last hour: median, 95th percentile, longest",
        labels=("kind", "quantile"),
    )
    for kind, times_s in sorted(figures.job_times_s.items()):
        steps = quantiles(times_s, n=20, method="inclusive") if len(times_s) > 1 else times_s * 19
        for quantile, value in (("0.5", steps[9]), ("0.95", steps[18]), ("1", max(times_s))):
            family.add_metric((kind, quantile), value)
    return family
