"""Memory limit of a job.

A limit on the address space would kill healthy jobs, because compiled code, thread stacks and
mapped files reserve far more than they use. So the worker measures the memory usage several times a
second.
"""

import os

from jarvis.server.settings import settings

MEMORY_VARIABLE = "JARVIS_JOB_MEMORY_GB"

SHARE = 0.75
"""Default share of the machine's memory for all jobs together."""


def memory_limit_bytes(slots: int) -> int:
    """Return ``JARVIS_JOB_MEMORY_GB`` in bytes, or the share of one of ``slots`` jobs."""
    memory_gb = settings().job_memory_gb
    if memory_gb is not None:
        return int(memory_gb * 1e9)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(SHARE * machine / max(1, slots))
