"""Tuning of the garbage collector and of the memory allocator."""

import ctypes
import gc
import os
import sys

NEW_OBJECTS = 100_000
"""Collection threshold of an analysis, which allocates many objects and frees few."""

SERVER_NEW_OBJECTS = 10_000
"""Collection threshold of the web server, whose sessions create garbage."""

SERVER_ARENAS = {
    "MALLOC_ARENA_MAX": "2",
    "_RJEM_MALLOC_CONF": "narenas:2,muzzy_decay_ms:0",
}
"""Variables that limit the arenas of glibc and of Polars (jemalloc) in the web server. Each arena
keeps memory of its own, and the threads of sessions move between them: with 8 and more, a page of
20,000 rows at 74 targets took a quarter more memory. Polars never returns freed memory to the
system by default; to return it saves 8 MB there."""

JOB_ARENAS = {"_RJEM_MALLOC_CONF": "narenas:1"}
"""The same for jobs, most of which compute on one thread: the join of 1,024 ranks takes a tenth
less memory, and no job more time."""


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


def set_server_arenas() -> None:
    """Set SERVER_ARENAS where the user has not, for the process that this one becomes.

    Call it before Polars is imported, which sets one of them.
    """
    for name, value in SERVER_ARENAS.items():
        os.environ.setdefault(name, value)


def without_server_arenas() -> dict[str, str]:
    """Return the environment without SERVER_ARENAS, for jobs, which compute on all cores."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in SERVER_ARENAS or not value.endswith(SERVER_ARENAS[name])
    }


_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of ``mallopt``."""

_LARGE_BYTES = 4 << 20


def return_freed_memory() -> None:
    """Release memory that NumPy has freed; a no-op without glibc.

    glibc caches freed memory for later requests, but Polars has its own allocator and cannot use
    it: the cache made up a fifth of a report's peak memory.
    """
    _call_glibc("malloc_trim", 0)


def return_large_arrays() -> None:
    """Release large arrays as soon as NumPy frees them, from now on; a no-op without glibc.

    glibc keeps arrays of up to 32 MB once one of that size was freed. New ones then fill the gaps
    between others, which cannot be released.
    """
    _call_glibc("mallopt", _MMAP_THRESHOLD, _LARGE_BYTES)


def _call_glibc(name: str, *arguments: int) -> None:
    if sys.platform == "linux":
        function = getattr(ctypes.CDLL(None), name, None)
        if function is not None:
            function(*arguments)
