"""Loops over arrays as machine code: the one place that knows numba.

Kernels are compiled when their module is imported, and kept on disk for the next process. Numba
forgets a kept kernel when its own file changes, not when a function in another file does: what a
kernel calls stands in the kernel's module, and the numbers of ``layout`` name the folder.

``NUMBA_BOUNDSCHECK=1`` checks every index, as the tests for hostile traces do.
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
    """Compile a function over NumPy arrays for one signature; it runs without the GIL.

    ``signature``: numba's text (``"int64(int64[::1], uint8[::1])"``) or a signature of ``types``.
    Arrays of Polars are read-only and need ``read_only`` in their place.
    """

    def compile_function(function: Function) -> Function:
        compiler: Any = numba.njit(
            signature, cache=_CACHE_DIR is not None, nogil=True, boundscheck=BOUNDS_CHECKED
        )
        return cast(Function, compiler(function))

    return compile_function


def helper(function: Function) -> Function:
    """A function that kernels of the same file call; it is compiled as a part of them."""
    compiler: Any = numba.njit(nogil=True, boundscheck=BOUNDS_CHECKED)
    return cast(Function, compiler(function))


def inlined(function: Function) -> Function:
    """A ``helper`` whose code is put into the kernels that call it, as innermost loops need."""
    compiler: Any = numba.njit(nogil=True, boundscheck=BOUNDS_CHECKED, inline="always")
    return cast(Function, compiler(function))


def read_only(dtype: Any) -> Any:
    """The type of a dense 1-d array of ``dtype`` that the kernel only reads."""
    return types.Array(dtype, 1, "C", readonly=True)


def _cache_dir() -> Path | None:
    """The first writable folder for compiled kernels; checked ones are kept apart.

    None where no folder is writable: kernels are then compiled by every process.
    """
    for folder in compiled_dirs():
        place = folder / f"{_LAYOUT}-checked" if BOUNDS_CHECKED else folder / _LAYOUT
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    return None


_CACHE_DIR = _cache_dir()
if _CACHE_DIR is not None:
    numba.config.CACHE_DIR = str(_CACHE_DIR)  # type: ignore[attr-defined]
