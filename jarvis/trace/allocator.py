"""Memory that was freed goes back to the system."""

import ctypes
import sys


def return_freed_memory() -> None:
    """Hand back what NumPy has freed; where the C library is not glibc there is nothing to do.

    glibc keeps freed memory for later requests, but Polars has an allocator of its own: a fifth of
    the peak of a report was memory that nobody could use.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
