"""A worker whose jobs can be held at a step, and that notices deaths sooner than a real one."""

import os
import signal
import sys

from jarvis.server import jobs, worker
from jarvis.server.database import database
from tests.server.working import ABANDONED_S

if __name__ == "__main__":
    jobs.ABANDONED_S = ABANDONED_S
    worker.BEAT_S, worker.SWEEP_S, worker.NEXT_READY_S = 0.2, 0.2, 0.0
    command = (sys.executable, "-m", "tests.server.held_job")
    held = worker.Worker(database(), int(os.environ["SLOTS"]), 8 << 30, command)
    signal.signal(signal.SIGTERM, lambda *_: held.stop())
    held.run()
