"""The cache of compiled kernels, and kernels on Polars arrays."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from jarvis.core import workspace
from jarvis.trace import jit
from jarvis.trace.jit import kernel, read_only, types


def test_a_kernel_reads_the_arrays_of_polars() -> None:
    @kernel(types.int64(read_only(types.int64)))
    def total(values):  # type: ignore[no-untyped-def]
        result = 0
        for value in values:
            result += value
        return result

    assert total(pl.Series([1, 2, 3]).to_numpy()) == 6


def test_a_read_only_installation_caches_kernels_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(jit, "compiled_dirs", lambda: (file / "below", tmp_path / "home"))
    monkeypatch.setattr(jit, "BOUNDS_CHECKED", False)
    assert jit._cache_dir() == tmp_path / "home" / jit._LAYOUT


def test_an_unwritable_cache_folder_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(jit, "compiled_dirs", lambda: (file / "below",))
    assert jit._cache_dir() is None


def test_kernels_with_bounds_checks_are_cached_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "compiled_dirs", lambda: (tmp_path,))
    monkeypatch.setattr(jit, "BOUNDS_CHECKED", True)
    assert jit._cache_dir() == tmp_path / f"{jit._LAYOUT}-checked"


def test_the_users_cache_folder_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "kept/here")
    assert workspace.compiled_dirs() == (Path("kept/here"),)


SCRIPT = """
import numpy
from jarvis.trace.jit import kernel
@kernel("int64(int64[::1], int64)")
def at(values, index):
    return values[index]
print(at(numpy.zeros(3, dtype=numpy.int64), 10**6))
"""


def test_the_environment_turns_bounds_checking_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert "IndexError: index is out of bounds" in done.stderr
