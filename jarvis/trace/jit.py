"""Compile loops over arrays with numba; no other module uses numba directly.

Kernels are compiled on import and cached on disk. Numba invalidates a cached kernel only when the
kernel's own file changes, so helper functions must be in the kernel's module, and the cache folder
is named by a checksum of ``layout``.

``NUMBA_BOUNDSCHECK=1`` checks every index, as the tests with malicious traces do.
"""

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types

from jarvis.core.workspace import compiled_dirs
from jarvis.trace import layout

__all__ = ["helper", "inlined", "kernel", "read_only", "types"]

Function = TypeVar("Function", bound=Callable[..., Any])

_LAYOUT = f"layout-{zlib.crc32(Path(layout.__file__).read_bytes()):08x}"
BOUNDS_CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"


def kernel(signature: object) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function over NumPy arrays; it releases the GIL.

    Args:
        signature: A numba signature, as text (``"int64(int64[::1], uint8[::1])"``) or made from
            ``types``. Arrays from Polars are read-only and need the type ``read_only(dtype)``.
    """

    def compile_function(function: Function) -> Function:
        compiler: Any = numba.njit(
            signature, cache=_CACHE_DIR is not None, nogil=True, boundscheck=BOUNDS_CHECKED
        )
        return cast(Function, compiler(function))

    return compile_function


def helper(function: Function) -> Function:
    """Compile a function that kernels of the same file call."""
    compiler: Any = numba.njit(nogil=True, boundscheck=BOUNDS_CHECKED)
    return cast(Function, compiler(function))


def inlined(function: Function) -> Function:
    """Compile a ``helper`` that is inlined into its callers, for innermost loops."""
    compiler: Any = numba.njit(nogil=True, boundscheck=BOUNDS_CHECKED, inline="always")
    return cast(Function, compiler(function))


def read_only(dtype: Any) -> Any:
    """Return the type of a read-only, contiguous 1-d array of ``dtype``."""
    return types.Array(dtype, 1, "C", readonly=True)


def _cache_dir() -> Path | None:
    """Return the first writable cache folder; kernels with bounds checks have their own.

    None if no folder is writable: every process then compiles the kernels.
    """
    for folder in compiled_dirs():
        cache = folder / f"{_LAYOUT}-checked" if BOUNDS_CHECKED else folder / _LAYOUT
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(cache, os.W_OK):
            return cache
    return None


_CACHE_DIR = _cache_dir()
if _CACHE_DIR is not None:
    numba.config.CACHE_DIR = str(_CACHE_DIR)  # type: ignore[attr-defined]
