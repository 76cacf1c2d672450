"""Run directories on disk: written beside their place, then moved there as a whole."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import polars as pl

from jarvis.core.errors import OutputFolderError, RunError, RunVersionError
from jarvis.core.output import OutputFile, write_output
from jarvis.core.staging import staged_folder
from jarvis.core.workspace import RUN_ENTRIES, RunPaths
from jarvis.run.results import results_json
from jarvis.run.run import Run, read_manifest

ROWS_OF_GROUP = 1 << 17
"""Rows that are written together."""

_LEVEL = 1
"""Compression level of zstd; the default 3 takes longer for files of about the same size."""


def write_parquet(frame: pl.DataFrame | pl.LazyFrame, path: Path) -> None:
    """Write a table; one that is not computed yet in parts, so that it need not fit into memory.

    Raises:
        OSError: Writing failed (Polars itself raises a ComputeError).
    """
    output = OutputFile(path)
    try:
        with cast(IO[bytes], output) as file:
            if isinstance(frame, pl.DataFrame):
                frame.write_parquet(file, compression_level=_LEVEL, statistics=False)
            else:
                # Else the groups, and so the bytes, follow the chunks that a frame happens to have.
                frame.sink_parquet(file, maintain_order=True, row_group_size=ROWS_OF_GROUP)
    except pl.exceptions.ComputeError as error:
        unknown = OSError(errno.EIO, f"The file could not be written ({error})", str(path))
        raise output.error or unknown from error


def check_output_folder(root: Path, trace_sha256: str) -> None:
    """Raise OutputFolderError for a folder that must not be replaced.

    Folders that are missing, empty, or contain only a run of the same trace are accepted.
    """

    def conflict() -> str | None:
        trace = read_manifest(root).trace
        return None if trace.sha256 == trace_sha256 else f"the analysis of {trace.file_name}"

    check_replaceable(root, "an analysis", RUN_ENTRIES, conflict)


def check_replaceable(
    root: Path, what: str, entries: frozenset[str], conflict: Callable[[], str | None]
) -> None:
    """Raise OutputFolderError for a folder that is not empty and must not be replaced.

    Args:
        what: Kind of run that may be replaced, with its article.
        entries: Names of the files and folders of such a run.
        conflict: Reads the run; returns what it is if it must not be replaced.
    """
    if not root.exists():
        return
    if not root.is_dir():
        raise OutputFolderError(root, "a file")
    found = {entry.name for entry in root.iterdir()}
    if not found:
        return
    try:
        other = conflict()
    except RunVersionError:
        raise OutputFolderError(root, f"{what} in another layout") from None
    except RunError:
        raise OutputFolderError(root, f"files that are not {what}") from None
    if other is not None:
        raise OutputFolderError(root, other)
    if foreign := sorted(found - entries):
        raise OutputFolderError(root, f"{what} and other files ({', '.join(foreign[:3])})")


@contextmanager
def staged(root: Path, trace_sha256: str) -> Iterator[Path]:
    """Yield a folder to write a run into; it replaces ``root`` when the block succeeds.

    ``root`` is checked before and after, and unchanged after an error.
    """
    with staged_folder(root, lambda: check_output_folder(root, trace_sha256)) as folder:
        yield folder


def write_run(run: Run, root: Path) -> None:
    """Write manifest, results and tables of a run into ``root``; the manifest comes last."""
    paths = RunPaths(root)
    for name in run.manifest.tables:
        write_parquet(run.table(name), paths.table(name))
    write_output(paths.results, results_json(run.results))
    write_output(paths.manifest, run.manifest.model_dump_json(indent=2))
