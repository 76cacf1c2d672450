"""Convert report tables to sheets: TraceLens's labels, with every cell a number or text."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from jarvis.schemas import TABLES, labeled
from jarvis.schemas.names import C
from jarvis.tracelens.overlap import OVERLAP_SUFFIX

ALWAYS = "gpu_timeline"


def sheets(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Convert tables by sheet name to sheets for CSV and xlsx; drop empty ones except ALWAYS.

    Lists become Python text with plain numbers, booleans the words True and False.
    """
    return {
        name: labeled(_flat(_with_call_stacks(tables[name])), schema_of(name))
        for name in sheet_names(tables)
    }


def sheet_names(tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """Return the tables that are sheets: those with rows, and ALWAYS."""
    return [name for name, frame in tables.items() if frame.height or name == ALWAYS]


def schema_of(sheet: str) -> str:
    """Return the table of ``jarvis.schemas`` that describes a sheet."""
    table = sheet.removesuffix(OVERLAP_SUFFIX)
    return table if table in TABLES else "roofline"


def _with_call_stacks(frame: pl.DataFrame) -> pl.DataFrame:
    """Add call stacks of kernels to ``kernel_details``, after the stream."""
    if C.kernel_call_stacks not in frame.columns:
        return frame
    texts = [
        repr([_with_call_stack(*pair) for pair in zip(entries, stacks or (), strict=True)])
        for entries, stacks in frame.select(C.kernel_details, C.kernel_call_stacks).iter_rows()
    ]
    return frame.drop(C.kernel_call_stacks).with_columns(pl.Series(texts).alias(C.kernel_details))


def _with_call_stack(entry: dict[str, Any], stack: list[str] | None) -> dict[str, Any]:
    if stack is None:
        return entry
    return {"name": entry["name"], "stream": entry["stream"], "call_stack": stack} | entry


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    columns = [
        pl.Series(column.name, [repr(value) for value in column.to_list()], dtype=pl.String)
        if column.dtype in (pl.List, pl.Boolean)
        else column
        for column in frame.iter_columns()
    ]
    return pl.DataFrame(columns)
