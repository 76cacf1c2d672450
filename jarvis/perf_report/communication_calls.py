"""What host calls record about the communication kernels that they launch.

PyTorch records collectives in calls of ``record_param_comms``, with the arguments that kernels have
in recent versions; before these calls had arguments, the annotations ``nccl:*`` have the shapes of
what is sent.
"""

from math import prod

import orjson
import polars as pl

from jarvis.core.dtypes import element_bytes
from jarvis.perf_report.communication_names import HOST_CALLS, by_name, recorded_kind
from jarvis.perf_report.intervals import END
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.tables import RECORDED_COLLECTIVE, THREAD_KEY

RECORD = "record_param_comms"
"""Operator in which PyTorch records the arguments of a collective."""

_ANNOTATION = r"^nccl:"
_CALL = (C.uid, C.name, *THREAD_KEY, C.ts_ns, C.dur_ns)


def with_launches(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return kernels with ``launch_start_ns, launch_tid`` and what the host calls around their
    launch record: the columns of ``tables.RECORDED_COLLECTIVE`` with the prefix ``host_``, and
    ``host_kind``, ``host_bytes``.

    Args:
        trace: The trace.
        kernels: GPU events with ``launch_uid``, null without a recorded launch.
    """
    calls = trace.runtime.select(
        pl.col(C.uid).alias(C.launch_uid),
        *THREAD_KEY,
        pl.col(C.ts_ns).alias(C.launch_start_ns),
    )
    launched = kernels.select(C.uid, C.launch_uid).join(calls, on=C.launch_uid)
    records = _arguments(trace, launched)
    kinds = _kinds(trace, launched)
    sizes = _sizes(trace, launched)
    found = launched.select(
        C.uid, C.launch_start_ns, pl.col(C.tid).cast(pl.String).alias(C.launch_tid)
    )
    for part in (found, records, kinds, sizes):
        kernels = kernels.join(part, on=C.uid, how="left", maintain_order="left")
    return kernels


def _arguments(trace: Trace, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid`` of kernels, and the arguments of the record around their launch."""
    records = trace.cpu_ops.filter(pl.col(C.name) == RECORD).select(_CALL)
    around = _around(launched, records)
    arguments = trace.recorded_collectives(around["call_uid"].unique())
    rows = around.join(arguments.rename({C.uid: "call_uid"}), on="call_uid")
    return rows.select(
        C.uid,
        *(pl.col(field.column).alias(f"host_{field.column}") for field in RECORDED_COLLECTIVE),
    )


def _kinds(trace: Trace, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, host_kind``: the kind that the innermost call around the launch names."""
    calls = pl.concat(
        frame.filter(pl.col(C.name).str.contains(HOST_CALLS)).select(_CALL)
        for frame in (trace.host_annotations, trace.cpu_ops)
    ).with_columns(by_name(pl.col(C.name), recorded_kind).alias("host_kind"))
    return _around(launched, calls.drop_nulls("host_kind")).select(C.uid, "host_kind")


def _sizes(trace: Trace, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, host_bytes, host_type``: what annotations say that the rank sends."""
    annotations = trace.host_annotations.filter(pl.col(C.name).str.contains(_ANNOTATION))
    around = _around(launched, annotations.select(_CALL))
    shapes = trace.annotation_arguments(around["call_uid"].unique())
    rows = [
        (uid, _bytes(dims, types), _only_type(types))
        for uid, dims, types in shapes.select(C.uid, C.input_dims, C.input_types).iter_rows()
    ]
    schema = {"call_uid": pl.Int64, "host_bytes": pl.Int64, "host_type": pl.String}
    sizes = pl.DataFrame(rows, schema=schema, orient="row")
    return around.join(sizes, on="call_uid").select(C.uid, "host_bytes", "host_type")


def _bytes(dims: str | None, types: str | None) -> int | None:
    """Return the bytes of tensors by their shapes and dtypes as JSON; None if they are unknown."""
    if dims is None or types is None:
        return None
    sizes = [
        prod(shape) * size
        for shape, dtype in zip(orjson.loads(dims), orjson.loads(types), strict=False)
        if shape and all(isinstance(entry, int) for entry in shape)
        if (size := element_bytes(dtype)) is not None
    ]
    total = sum(sizes)
    return total if 0 < total < 2**63 else None


def _only_type(types: str | None) -> str | None:
    found = set(orjson.loads(types)) - {""} if types is not None else set()
    return found.pop() if len(found) == 1 else None


def _around(launched: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return launched kernels with the last call that starts before their launch and ends after
    it, as ``call_uid``, and its columns."""
    spans = (
        calls.drop_nulls([C.ts_ns, C.dur_ns])
        .with_columns(END.alias("call_end_ns"))
        .rename({C.uid: "call_uid"})
        .sort(C.ts_ns)
    )
    return (
        launched.drop_nulls(C.launch_start_ns)
        .sort(C.launch_start_ns)
        .join_asof(
            spans,
            left_on=C.launch_start_ns,
            right_on=C.ts_ns,
            by=THREAD_KEY,
            check_sortedness=False,
        )
        .filter(pl.col(C.launch_start_ns) <= pl.col("call_end_ns"))
    )
