"""The tables of the performance report as parquet files, for programs that read them on."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from jarvis.core.parquet import write_parquet


def write_parquets(tables: Mapping[str, pl.DataFrame], folder: Path) -> list[Path]:
    """One ``<table>.parquet`` each, types and lists kept."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in tables.items():
        path = folder / f"{name}.parquet"
        write_parquet(frame, path)
        written.append(path)
    return written
