"""How much memory one job may have.

A limit on the address space would end healthy jobs: compiled code, thread stacks and mapped files
reserve far more than they use. So the worker measures what a job really holds, many times a second.
"""

import os

from jarvis.errors import JarvisError

MEMORY_VARIABLE = "JARVIS_JOB_MEMORY_GB"

SHARE = 0.75
"""Of the machine's memory, for all jobs together, where nothing is set."""


class MemoryLimitError(JarvisError):
    """The limit is no number of gigabytes."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"{MEMORY_VARIABLE} is {given[:40]!r}. Give the memory of one job in GB, like 8."
        )


def memory_limit_bytes(slots: int) -> int:
    """``JARVIS_JOB_MEMORY_GB``, else an equal part of most of the machine's memory."""
    given = os.environ.get(MEMORY_VARIABLE)
    if not given:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int(SHARE * machine / max(1, slots))
    try:
        limit_gb = float(given)
    except ValueError:
        raise MemoryLimitError(given) from None
    if not 0 < limit_gb < float("inf"):
        raise MemoryLimitError(given)
    return int(limit_gb * 1e9)
