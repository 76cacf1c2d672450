"""Jobs on a Dask cluster: a Jarvis worker takes them from its queue and has Dask workers do them.

The queue stays the truth. Dask chooses the machine, and what is lost with its scheduler is nothing
that anybody needs: jobs that ran have failed, and those that wait do so in the queue.
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
from jarvis.server.jobs.dask.messages import TOPIC, Order, Report, storage_mark
from jarvis.server.jobs.dask.task import DIED, run_job
from jarvis.server.jobs.queue import Job, Outcome
from jarvis.server.jobs.workers.job_child import JobProcess, appended, assignment_of
from jarvis.server.settings import settings

JOB_MODULE = "jarvis.server.jobs.workers.job_process"

SILENT_S = 15.0
"""A Dask worker that has begun a job and says nothing for so long has died. Half a minute is the
longest that a user may wait for that."""

CONNECT_S = 5.0
"""So long a scheduler may take to answer."""

LOOK_S = 0.5
"""The connection and the size of the cluster are looked at this often."""

STOP_S = 2.0
"""So long it may take to tell the cluster that a worker leaves."""

log = logging.getLogger(__name__)


class DaskCluster:
    """The connection to a scheduler, made again when it is lost; ``module`` is what a job runs."""

    def __init__(self, address: str, module: str = JOB_MODULE) -> None:
        self.slots = 0
        """How many jobs it can run at once: the threads of its workers; 0 while not connected."""
        self._address = address
        self._module = module
        self._client: Client | None = None
        self._tasks: dict[str, tuple[DaskJobProcess, Future[Any]]] = {}
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="dask", daemon=True)
        self._thread.start()

    def child(self) -> "DaskJobProcess":
        """What does one job there."""
        return DaskJobProcess(self)

    def close(self) -> None:
        """Give the connection up; the cluster ends what still runs."""
        self._is_stopping = True
        self._thread.join(STOP_S)

    def submit(self, child: "DaskJobProcess", job: Job) -> None:
        """Have a job done, and its child told how it gets on."""
        given_gb = settings().job_memory_gb
        order = Order(
            version=product_version(),
            storage=storage_mark(),
            assignment=assignment_of(job),
            folders=job.folders,
            attempt=job.attempts,
            module=self._module,
            limit_bytes=None if given_gb is None else int(given_gb * 1e9),
        )
        self._loop.call_soon_threadsafe(self._submit, child, order)

    def drop(self, child: "DaskJobProcess") -> None:
        """Nobody waits for the job of a child any more."""
        self._loop.call_soon_threadsafe(self._drop, child.key)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        is_known = False
        while not self._is_stopping:
            try:
                async with self._connection() as client:
                    is_known = False
                    log.info("connected to the Dask scheduler at %s", self._address)
                    await self._follow(client)
            except (OSError, ValueError) as error:
                if not is_known:
                    log.error("%s Jobs wait until it answers. (%s)", self._trouble, error)
                is_known = True
            self._lose_all()
            await asyncio.sleep(LOOK_S)

    def _connection(self) -> Client:
        return Client(self._address, asynchronous=True, timeout=CONNECT_S, set_as_default=False)

    async def _follow(self, client: Client) -> None:
        """Be at work while connected."""
        client.subscribe_topic(TOPIC, self._hear)
        self._client = client
        while client.status == "running" and not self._is_stopping:
            self.slots = sum((await client.nthreads()).values())
            for child, future in list(self._tasks.values()):
                if future.status in ("error", "cancelled", "lost"):
                    child.tell(await self._why(future))
            await asyncio.sleep(LOOK_S)

    def _lose_all(self) -> None:
        self._client, self.slots = None, 0
        for child, _ in self._tasks.values():
            child.tell(f"{self._trouble} What it ran is lost; retry the job.")

    async def _why(self, future: Future[Any]) -> str:
        """Why a task ended without a word of the job."""
        error = await future.exception()
        if error is None or isinstance(error, KilledWorker):
            return DIED
        return (
            f"A Dask worker could not do this job ({type(error).__name__}: {error}). It needs "
            f"Jarvis {product_version()} and what this server has installed; then retry the job."
        )

    @property
    def _trouble(self) -> str:
        return f"The Dask scheduler at {self._address} cannot be reached."

    def _submit(self, child: "DaskJobProcess", order: Order) -> None:
        if self._client is None:
            child.tell(f"{self._trouble} Retry the job when it runs.")
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
    """The process of a job on a Dask worker, which is chosen when it is given its job."""

    def __init__(self, cluster: DaskCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._told: SimpleQueue[Report | str] = SimpleQueue()
        self._heard_at: float | None = None

    @property
    def key(self) -> str:
        """The name of its task; another attempt has another one."""
        assert self.job is not None
        return f"jarvis-{self.job.attempt_label}"

    @property
    def is_waiting(self) -> bool:
        """Whether it has no job yet."""
        return self.job is None

    def give(self, job: Job) -> None:
        """Let the cluster do a job."""
        self.job = job
        self.headway.log = "Waits for a Dask worker.\n"
        self._cluster.submit(self, job)

    def tell(self, news: Report | str) -> None:
        """How far the job is, or why it has failed; from any thread."""
        self._told.put(news)

    def listen(self) -> bool:
        """Take in what it was told; whether that is something new."""
        has_news = False
        try:
            while True:
                self._take(self._told.get_nowait())
                has_news = True
        except Empty:
            pass
        if self.outcome is None and monotonic() - (self._heard_at or monotonic()) > SILENT_S:
            self.outcome = Outcome(JobState.FAILED, DIED)
        return has_news

    def end(self, outcome: Outcome) -> None:
        """Have the process killed if it still runs; how its job ended if that is open."""
        self.listen()
        self.outcome = self.outcome or outcome
        if self.job is not None:
            self._cluster.drop(self)

    def _take(self, news: Report | str) -> None:
        if isinstance(news, str):
            self.outcome = self.outcome or Outcome(JobState.FAILED, news)
            return
        before = self.headway.log
        if self._heard_at is None:
            before = f"{before}Runs on the Dask worker at {news.place}.\n"
        self._heard_at = monotonic()
        self.headway = news.headway
        self.headway.log = appended(before, news.log)
        self.outcome = self.outcome or news.outcome
