"""The tables of the performance report as Parquet files, for other programs."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from jarvis.run.store import write_parquet


def write_parquets(tables: Mapping[str, pl.DataFrame], folder: Path) -> list[Path]:
    """Write one ``<table>.parquet`` per table, with types and lists preserved."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in tables.items():
        path = folder / f"{name}.parquet"
        write_parquet(frame, path)
        written.append(path)
    return written
