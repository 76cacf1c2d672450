"""A Dask cluster of the tests' own: a scheduler and workers, each a process on loopback."""

import os
import subprocess
import sys
from pathlib import Path

from tests.optional import tied
from tests.services.ports import free_port, wait_until_open

_ROOT = Path(__file__).parents[2]


class Dask:
    """A scheduler whose port stays the same, and the workers that were started for it.

    ``environment`` is added to that of the workers; their log is in ``folder``.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(_ROOT), **environment}
        self._scheduler: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the scheduler."""
        self._scheduler = self._run(
            "dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard",
            "--no-show", "--no-jupyter",
        )  # fmt: skip
        wait_until_open(self.port)

    def start_worker(self) -> "subprocess.Popen[bytes]":
        """Start a worker that does one task at a time; it joins when it is ready."""
        worker = self._run(
            "dask_worker", self.address, "--host", "127.0.0.1", "--nthreads", "1",
            "--no-nanny", "--no-dashboard", "--death-timeout", "60",
            "--local-directory", str(self._folder),
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def kill_scheduler(self) -> None:
        """Kill it; its workers end by themselves."""
        if self._scheduler is not None:
            self._scheduler.kill()
            self._scheduler.wait()

    def stop(self) -> None:
        """Kill everything."""
        self.kill_scheduler()
        for worker in self.workers:
            worker.kill()
            worker.wait()

    def _run(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = (sys.executable, "-m", f"distributed.cli.{module}", *arguments)
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                (*tied(), *command), env=self._environment, stdout=log, stderr=log
            )
