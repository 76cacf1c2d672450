"""How much memory one job may have.

A limit on the address space would end healthy jobs: compiled code, thread stacks and mapped files
reserve far more than they use. So the worker measures what a job really holds, many times a second.
"""

import os

from jarvis.server.settings import settings

MEMORY_VARIABLE = "JARVIS_JOB_MEMORY_GB"

SHARE = 0.75
"""Of the machine's memory, for all jobs together, where nothing is set."""


def memory_limit_bytes(slots: int) -> int:
    """``JARVIS_JOB_MEMORY_GB``, else an equal part of most of the machine's memory."""
    given_gb = settings().job_memory_gb
    if given_gb is not None:
        return int(given_gb * 1e9)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(SHARE * machine / max(1, slots))
