"""Runs jobs on a Dask cluster: a Jarvis worker claims them and submits them to Dask workers.

The queue in the database is authoritative; Dask only chooses the machine. If its scheduler is lost,
running jobs fail and the others are still queued.
"""

import asyncio
import logging
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

from distributed import Client, Future, KilledWorker

from jarvis.core.product import product_version
from jarvis.server.database import JobState
from jarvis.server.jobs.dask.task import DIED, TOPIC, Order, Report, run_job, storage_mark
from jarvis.server.jobs.processes.job_child import JobProcess, appended, assignment_of
from jarvis.server.jobs.processes.start import MODULE
from jarvis.server.queue import Job, Outcome
from jarvis.server.settings import settings

SILENT_S = 15.0
"""A Dask worker without a report for this time is dead. Users see it within half a minute."""

CONNECT_S = 5.0
"""Connection timeout of the scheduler."""

POLL_S = 0.5
"""Polling interval of the connection and the cluster size."""

STOP_S = 2.0
"""Timeout for disconnecting from the cluster."""

log = logging.getLogger(__name__)


class DaskCluster:
    """A reconnecting connection to a scheduler; ``module`` is the module that runs a job."""

    def __init__(self, address: str, module: str = MODULE) -> None:
        self.slots = 0
        """Number of concurrent jobs: the threads of its workers; 0 while not connected."""
        self._address = address
        self._module = module
        self._client: Client | None = None
        self._tasks: dict[str, tuple[DaskJobProcess, Future[Any]]] = {}
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="dask", daemon=True)
        self._thread.start()

    def child(self) -> "DaskJobProcess":
        """Return a handle for one job on the cluster."""
        return DaskJobProcess(self)

    def close(self) -> None:
        """Close the connection; the cluster ends its running jobs."""
        self._is_stopping = True
        self._thread.join(STOP_S)

    def submit(self, child: "DaskJobProcess", job: Job) -> None:
        """Submit a job; its progress is passed to ``child.tell``."""
        memory_gb = settings().job_memory_gb
        order = Order(
            version=product_version(),
            storage=storage_mark(),
            assignment=assignment_of(job),
            folders=job.folders,
            attempt=job.attempts,
            module=self._module,
            limit_bytes=None if memory_gb is None else int(memory_gb * 1e9),
        )
        self._loop.call_soon_threadsafe(self._submit, child, order)

    def drop(self, child: "DaskJobProcess") -> None:
        """Release the task of a job."""
        self._loop.call_soon_threadsafe(self._drop, child.key)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        is_reported = False
        while not self._is_stopping:
            try:
                async with self._connection() as client:
                    is_reported = False
                    log.info("connected to the Dask scheduler at %s", self._address)
                    await self._follow(client)
            except (OSError, ValueError) as error:
                if not is_reported:
                    log.error("%s Jobs stay queued until it answers. (%s)", self._trouble, error)
                is_reported = True
            self._lose_all()
            await asyncio.sleep(POLL_S)

    def _connection(self) -> Client:
        return Client(self._address, asynchronous=True, timeout=CONNECT_S, set_as_default=False)

    async def _follow(self, client: Client) -> None:
        """Process tasks while connected."""
        client.subscribe_topic(TOPIC, self._hear)
        self._client = client
        while client.status == "running" and not self._is_stopping:
            self.slots = sum((await client.nthreads()).values())
            for child, future in list(self._tasks.values()):
                if future.status in ("error", "cancelled", "lost"):
                    child.tell(await self._why(future))
            await asyncio.sleep(POLL_S)

    def _lose_all(self) -> None:
        self._client, self.slots = None, 0
        for child, _ in self._tasks.values():
            child.tell(f"{self._trouble} Its running jobs are lost; retry the job.")

    async def _why(self, future: Future[Any]) -> str:
        """Return why a task ended without an outcome of the job."""
        error = await future.exception()
        if error is None or isinstance(error, KilledWorker):
            return DIED
        return (
            f"A Dask worker could not run this job ({type(error).__name__}: {error}). Install "
            f"Jarvis {product_version()} and this server's packages there, then retry the job."
        )

    @property
    def _trouble(self) -> str:
        return f"The Dask scheduler at {self._address} cannot be reached."

    def _submit(self, child: "DaskJobProcess", order: Order) -> None:
        if self._client is None:
            child.tell(f"{self._trouble} Retry the job when it is running.")
            return
        future = self._client.submit(run_job, child.key, order.values(), key=child.key, pure=False)
        self._tasks[child.key] = child, future

    def _drop(self, key: str) -> None:
        _, future = self._tasks.pop(key, (None, None))
        if future is not None:
            future.release()

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        _, values = event
        child, _ = self._tasks.get(values["key"], (None, None))
        if child is not None:
            child.tell(Report.of(values))


class DaskJobProcess(JobProcess):
    """A job's process on a Dask worker, which is chosen when the job is submitted."""

    def __init__(self, cluster: DaskCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._reports: SimpleQueue[Report | str] = SimpleQueue()
        self._heard_at: float | None = None

    @property
    def key(self) -> str:
        """Return the name of the Dask task, which differs for each attempt."""
        assert self.job is not None
        return f"jarvis-{self.job.attempt_label}"

    def give(self, job: Job) -> None:
        """Submit a job to the cluster."""
        self.job = job
        self.progress.log = "Waiting for a Dask worker.\n"
        self._cluster.submit(self, job)

    def tell(self, news: Report | str) -> None:
        """Pass a report, or the reason of a failure; thread-safe."""
        self._reports.put(news)

    def listen(self) -> bool:
        """Process the passed reports; return whether there were any."""
        has_news = False
        try:
            while True:
                self._take(self._reports.get_nowait())
                has_news = True
        except Empty:
            pass
        if self.outcome is None and monotonic() - (self._heard_at or monotonic()) > SILENT_S:
            self.outcome = Outcome(JobState.FAILED, DIED)
        return has_news

    def end(self, outcome: Outcome) -> None:
        """Kill the process if it is running; ``outcome`` applies if the job has none yet."""
        self.listen()
        self.outcome = self.outcome or outcome
        if self.job is not None:
            self._cluster.drop(self)

    def _take(self, news: Report | str) -> None:
        if isinstance(news, str):
            self.outcome = self.outcome or Outcome(JobState.FAILED, news)
            return
        before = self.progress.log
        if self._heard_at is None:
            before = f"{before}Running on the Dask worker at {news.place}.\n"
        self._heard_at = monotonic()
        self.progress = news.progress
        self.progress.log = appended(before, news.log)
        self.outcome = self.outcome or news.outcome
