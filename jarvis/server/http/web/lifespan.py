"""Lifespan handler of the web server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jarvis.core.gc_tuning import tune_for_server
from jarvis.server.http.web.stopping import AFTER_REQUESTS_S, bounded_stop
from jarvis.server.jobs.workers.worker_watch import worker_at_work
from jarvis.server.logs import take_over_loggers
from jarvis.server.settings import settings


@asynccontextmanager
async def lifespan(_: object) -> AsyncIterator[None]:
    """Run a worker while the web application is served, and bound the shutdown time."""
    take_over_loggers()
    tune_for_server()
    with bounded_stop(settings().stop_seconds + AFTER_REQUESTS_S):
        async with worker_at_work():
            yield
