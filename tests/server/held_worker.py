"""A worker whose jobs can be paused at a step, with short heartbeat timeouts."""

import os
import signal

from jarvis.server import claims
from jarvis.server.database import database
from jarvis.server.jobs import worker
from jarvis.server.settings import settings
from tests.server.working import HEARTBEAT_TIMEOUT_S

JOB = "tests.server.held_job"
SILENT_S = 6.0
"""Timeout of silent Dask workers in these tests."""


def held_worker() -> worker.Worker:
    """A worker with SLOTS, whose jobs run on a Dask cluster where that is set.

    With ABANDONED_S it gives others up as late as that.
    """
    claims.HEARTBEAT_TIMEOUT_S = float(os.environ.get("HEARTBEAT_TIMEOUT_S", HEARTBEAT_TIMEOUT_S))
    worker.HEARTBEAT_S, worker.REAP_S = 0.2, 0.2
    scheduler, cluster = settings().dask_scheduler, None
    if scheduler is not None:
        from jarvis.server.jobs.dask import jobs as dask_jobs

        dask_jobs.SILENT_S = SILENT_S
        cluster = dask_jobs.DaskCluster(scheduler, JOB)
    slots = os.environ.get("SLOTS")
    return worker.Worker(database(), None if slots is None else int(slots), 8 << 30, JOB, cluster)


if __name__ == "__main__":
    held = held_worker()
    signal.signal(signal.SIGTERM, lambda *_: held.stop())
    held.run()
