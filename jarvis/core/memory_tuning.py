"""Tuning of the garbage collector and of the memory allocator."""

import ctypes
import gc
import sys

NEW_OBJECTS = 100_000
"""Collection threshold of an analysis, which allocates many objects and frees few."""

SERVER_NEW_OBJECTS = 10_000
"""Collection threshold of the web server, whose sessions create garbage."""


def raise_thresholds() -> None:
    """Collect garbage less often in this process."""
    gc.set_threshold(NEW_OBJECTS)


def tune_for_server() -> None:
    """Collect garbage less often and exclude all objects that exist now (the imports).

    A full collection pauses all sessions in proportion to the number of tracked objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(SERVER_NEW_OBJECTS)


def return_freed_memory() -> None:
    """Release memory that NumPy has freed; a no-op without glibc.

    glibc caches freed memory for later requests, but Polars has its own allocator and cannot use
    it: the cache made up a fifth of a report's peak memory.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
