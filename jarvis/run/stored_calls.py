"""Calls of a run: from its trace if it still exists, else from the run's stored data."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from jarvis.core.errors import UnknownCallError
from jarvis.core.staging import file_sha256
from jarvis.perf_report import CallPath
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.call_tree.trace_tree import CALL_SCHEMA, name_pattern
from jarvis.run.run import Run
from jarvis.schemas.names import C


def trace_file(run: Run) -> Path | None:
    """Return the trace of the run.

    None if it is gone or changed, or if the run was made from a performance report.
    """
    info = run.manifest.trace
    beside = [] if run.root is None else [run.root.parent / info.file_name]
    return next((path for path in (Path(info.path), *beside) if is_trace_of(run, path)), None)


def is_trace_of(run: Run, path: Path) -> bool:
    """Return whether a file is the trace of the run, unchanged."""
    info = run.manifest.trace
    if info.form != "trace" or not path.is_file() or path.stat().st_size != info.size_bytes:
        return False
    return file_sha256(path) == info.sha256


class StoredCalls:
    """The stored calls of a run, in the tables of ``TraceTree``.

    It has only the surroundings of main operations, without uids and kernel times of their calls;
    ``find`` gives the example call of each operation, with the mean kernel time of all its calls.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def find(self, name: str) -> pl.DataFrame:
        """Return the operations with a name (as ``TraceTree.find``), each by its example call."""
        operations = self.run.table("operations")
        found = operations.filter(pl.col(C.name).str.contains(name_pattern(name))).sort(C.uid)
        return _conformed(
            found.select(
                C.uid,
                C.name,
                C.input_dims,
                C.input_types,
                C.input_strides,
                C.concrete_inputs,
                pl.lit("op").alias(C.kind),
                pl.col(C.module_path).list.last().alias(C.module),
                pl.col(C.kernel_time_us_mean).alias(C.kernel_time_us),
            )
        )

    def parents(self, uid: int) -> pl.DataFrame:
        """Return the calls around a main operation, outermost first; UnknownCallError for
        others."""
        chain = self._path(uid).parent_chain
        rows = [
            {C.depth: depth, C.kind: frame.kind, C.name: frame.name}
            for depth, frame in enumerate(chain)
        ]
        return _rows(rows)

    def subtree(self, uid: int, depth: int | None = None) -> pl.DataFrame:
        """Return a main operation and its subtree; UnknownCallError for others."""
        path = self._path(uid)
        head = (
            self.find("*")
            .filter(pl.col(C.uid) == uid)
            .with_columns(pl.lit(0, pl.Int64).alias(C.depth))
        )
        below = [
            {
                C.depth: entry.depth,
                C.kind: entry.kind,
                C.name: entry.name,
                C.input_dims: entry.input_dims,
                C.input_types: entry.input_types,
                C.dur_us: entry.dur_us,
                C.kernel_time_us: entry.dur_us if entry.kind == "kernel" else None,
            }
            for entry in path.subtree
            if depth is None or entry.depth <= depth
        ]
        return pl.concat([head, _rows(below)])

    def _path(self, uid: int) -> CallPath:
        for by_uid in self.run.paths_by_category.values():
            if uid in by_uid:
                return by_uid[uid]
        raise UnknownCallError(uid, f"The stored calls of {self.run.manifest.trace.file_name}")


def _rows(rows: Iterable[Mapping[str, object]]) -> pl.DataFrame:
    found = pl.DataFrame(list(rows), schema_overrides=CALL_SCHEMA)
    if C.kind not in found.columns:
        return pl.DataFrame(schema=CALL_SCHEMA)
    is_module = pl.col(C.kind) == "module"
    return _conformed(
        found.with_columns(
            pl.when(is_module).then(pl.col(C.name).str.strip_prefix(MODULE_PREFIX)).alias(C.module)
        )
    )


def _conformed(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(
        pl.col(name).cast(dtype) if name in found.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in CALL_SCHEMA.items()
    )
