"""Tables as parquet files."""

import errno
from pathlib import Path

import polars as pl

from jarvis.core.output import open_output


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a table.

    Raises:
        OSError: Writing failed (Polars itself raises a ComputeError).
    """
    try:
        with open_output(path) as file:
            frame.write_parquet(file)
    except pl.exceptions.ComputeError as error:
        raise OSError(errno.EIO, f"The file could not be written ({error})", str(path)) from error
