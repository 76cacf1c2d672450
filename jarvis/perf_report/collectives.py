"""Communication kernels with what is recorded about their collectives.

PyTorch records collectives in calls of ``record_param_comms``, with the arguments that kernels have
in recent versions; before these calls had arguments, the annotations ``nccl:*`` have the shapes of
what is sent.
"""

from math import prod

import numpy as np
import orjson
import polars as pl

from jarvis.core.dtypes import DTYPES, element_bytes, find_dtype
from jarvis.core.expressions import first_of
from jarvis.perf_report.communication_names import (
    HOST_CALLS,
    NCCL,
    NO_KERNELS,
    UNKNOWN,
    by_name,
    communication_kind,
    library_of,
    recorded_kind,
    rule_of,
)
from jarvis.perf_report.intervals import END, covered_during, microseconds
from jarvis.perf_report.timeline.steps import during
from jarvis.perf_report.work import COMMUNICATION, COMPUTE, GpuWork
from jarvis.schemas import dtypes
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.tables import COMMUNICATION as ARGUMENTS
from jarvis.trace.tables import RECORDED_COLLECTIVE, THREAD_KEY

MIB = 1 << 20
_ELEMENT_BYTES = {dtype.scalar_type: dtype.bytes for dtype in DTYPES if dtype.scalar_type}
_RECORDED_NAMES = {"all_reduce": "allreduce", UNKNOWN: None, **dict.fromkeys(NO_KERNELS)}
"""Kinds that PyTorch records under another name, or that are no collective."""

FROM_ARGUMENTS, FROM_HOST, FROM_NAME = "args", "host", "name"
"""Where the kind of a collective is from: recorded arguments, a host call, the kernel's name."""

KERNEL, HOST = "kernel", "host"
"""Which event has the arguments of a collective."""

MAX_GROUP_SIZE = 1 << 20
"""Larger groups are not rebuilt from a start and a stride."""


def communication_kernels(work: GpuWork) -> pl.DataFrame:
    """Return the communication kernels of a trace with ``dur_us``, ``in_msg_mb``, ``out_msg_mb``.

    ``collective`` is the recorded one, else the kind that the kernel's name states.
    """
    return _kernels(work).with_columns(
        **{
            C.dur_us: microseconds(pl.col(C.dur_ns)),
            C.collective: pl.coalesce(
                pl.col(C.collective).cast(pl.String),
                communication_kind(pl.col(C.name)).replace(_RECORDED_NAMES),
            ),
            C.in_msg_mb: message_bytes(C.in_msg_nelems) / MIB,
            C.out_msg_mb: message_bytes(C.out_msg_nelems) / MIB,
        },
    )


def collectives(trace: Trace, work: GpuWork, steps: pl.DataFrame) -> pl.DataFrame:
    """One row for each communication kernel (schema: ``collectives``).

    Arguments are those of the kernel, else those of the host call that launched it.

    Args:
        trace: The trace.
        work: Its GPU work.
        steps: The marks of its steps (``step_marks``).
    """
    kernels = _kernels(work)
    if kernels.is_empty():  # most traces: spare them the search in host calls
        return pl.DataFrame(schema=dtypes("collectives"))
    rows = kernels.join(trace.kernel_arguments(kernels[C.uid]), on=C.uid, how="left")
    rows = _with_recorded_arguments(with_launches(trace, rows.sort(C.uid)))
    rows = _with_kinds(rows).with_columns(
        microseconds(pl.col(C.dur_ns)).alias(C.dur_us),
        END.alias(C.end_ns),
        pl.col(C.process_group_name).alias(C.group),
        _ranks().alias(C.pg_ranks),
        pl.coalesce(message_bytes(C.in_msg_nelems), "host_bytes").alias(C.in_bytes),
        message_bytes(C.out_msg_nelems).alias(C.out_bytes),
    )
    steps_of = during(rows.drop_nulls(C.launch_start_ns), steps, C.launch_start_ns)
    return (
        _with_overlap(rows, work)
        .join(steps_of.select(C.uid, C.step), on=C.uid, how="left", maintain_order="left")
        .with_columns((pl.max_horizontal(C.in_bytes, C.out_bytes) / MIB).alias(C.message_mb))
    )


def _kernels(work: GpuWork) -> pl.DataFrame:
    return work.events.filter((pl.col(C.cat) == "kernel") & (pl.col(C.kind) == COMMUNICATION))


def message_bytes(elements: str) -> pl.Expr:
    """Return the bytes of messages by their elements and ``dtype``; null if one is not known."""
    element_bytes = pl.col(C.dtype).replace_strict(
        _ELEMENT_BYTES, default=None, return_dtype=pl.Int64
    )
    return pl.col(elements) * element_bytes


def _with_recorded_arguments(rows: pl.DataFrame) -> pl.DataFrame:
    """Return kernels whose arguments are all of the kernel, else all of its host call."""
    is_of_kernel = pl.col(C.collective).is_not_null()
    is_of_host = ~is_of_kernel & pl.col(f"host_{C.collective}").is_not_null()
    own = {field.column for field in RECORDED_COLLECTIVE} - {field.column for field in ARGUMENTS}
    return rows.with_columns(
        first_of({KERNEL: is_of_kernel, HOST: is_of_host}).alias(C.args_source),
        *(
            pl.when(is_of_host if column in own else pl.col(column).is_null())
            .then(_as_text(f"host_{column}", dtype))
            .otherwise(_as_text(column, dtype))
            .alias(column)
            for column, dtype in ((field.column, field.dtype) for field in RECORDED_COLLECTIVE)
        ),
    )


def _as_text(column: str, dtype: type[pl.DataType]) -> pl.Expr:
    return pl.col(column).cast(pl.String) if dtype is pl.Categorical else pl.col(column)


def _with_kinds(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with ``kind, kind_source, library, also_computes, collective, dtype``.

    Kernels of NCCL are named by how they move data: an all-to-all runs as `SendRecv`, so there the
    host call decides.
    """
    name = pl.col(C.name)
    by_kernel = communication_kind(name)
    runs_any_kind = (pl.col(C.library) == NCCL) | (by_kernel == UNKNOWN) | by_kernel.is_null()
    by_record = by_name(pl.col(C.collective), recorded_kind)
    by_host = pl.when(runs_any_kind.fill_null(value=True)).then("host_kind")
    named = pl.coalesce(by_host, by_kernel)
    return rows.with_columns(by_name(name, library_of).alias(C.library)).with_columns(
        pl.coalesce(by_record, named, pl.lit(UNKNOWN)).alias(C.kind),
        first_of(
            {FROM_ARGUMENTS: by_record.is_not_null(), FROM_HOST: by_host.is_not_null()}, FROM_NAME
        ).alias(C.kind_source),
        by_name(name, _also_computes).is_not_null().alias(C.also_computes),
        pl.coalesce(pl.col(C.collective), named.replace(_RECORDED_NAMES)).alias(C.collective),
        pl.coalesce(pl.col(C.dtype), by_name(pl.col("host_type"), _scalar_type)).alias(C.dtype),
    )


def _also_computes(kernel: str) -> str | None:
    rule = rule_of(kernel)
    return kernel if rule and rule.also_computes else None


def _scalar_type(name: str) -> str | None:
    dtype = find_dtype(name)
    return dtype.scalar_type or None if dtype else None


def _ranks() -> pl.Expr:
    """Return the global ranks of the group as a JSON list; null if they are not known."""
    parts = pl.struct(C.process_group_ranks, C.rank_start, C.rank_stride, C.group_size)

    def ranks(rows: pl.Series) -> pl.Series:
        found: dict[tuple[object, ...], str | None] = {}
        values = []
        for row in rows.struct.unnest().iter_rows():
            if row not in found:
                found[row] = group_ranks(*row)
            values.append(found[row])
        return pl.Series(values, dtype=pl.String)

    return parts.map_batches(ranks, return_dtype=pl.String)


def group_ranks(
    listed: str | None, start: int | None, stride: int | None, size: int | None
) -> str | None:
    """Return the ranks of a process group as a JSON list; None if they are not known.

    PyTorch lists the first 30 ranks of a longer list; the others follow from the first rank and
    the stride where these agree with the listed ones.
    """
    head, is_whole = _listed(listed)
    if head and is_whole:
        return orjson.dumps(head).decode()
    if start is None or stride is None or size is None or not 0 < size <= MAX_GROUP_SIZE:
        return None
    if start < 0 or stride < 1 or start + stride * size >= 2**31:
        return None
    rebuilt = list(range(start, start + stride * size, stride))
    return orjson.dumps(rebuilt).decode() if rebuilt[: len(head)] == head else None


def _listed(text: str | None) -> tuple[list[int], bool]:
    """Return the ranks of a recorded list, and whether it is not cut."""
    entries = (text or "").strip().strip("[]").split(",")
    entries = [entry.strip() for entry in entries if entry.strip()]
    is_whole = "..." not in entries
    numbers = [int(entry) for entry in entries if entry.isdecimal()]
    return (numbers, is_whole) if len(numbers) + (not is_whole) == len(entries) else ([], False)


def _with_overlap(rows: pl.DataFrame, work: GpuWork) -> pl.DataFrame:
    """Return kernels with ``overlap_ns``, in which compute runs, and ``exposed_ns``."""
    compute = work.events.filter(pl.col(C.kind) == COMPUTE)
    starts, ends = rows[C.ts_ns].to_numpy(), rows[C.end_ns].to_numpy()
    overlap = covered_during(compute, starts, ends)
    return rows.with_columns(
        pl.Series(C.overlap_ns, overlap, pl.Int64),
        pl.Series(C.exposed_ns, np.asarray(ends - starts - overlap), pl.Int64),
    )


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
    kinds = _kinds_of_calls(trace, launched)
    sizes = _sent(trace, launched)
    found = launched.select(
        C.uid, C.launch_start_ns, pl.col(C.tid).cast(pl.String).alias(C.launch_tid)
    )
    for part in (found, records, kinds, sizes):
        kernels = kernels.join(part, on=C.uid, how="left", maintain_order="left")
    return kernels


def _arguments(trace: Trace, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid`` of kernels, and the arguments of the record around their launch."""
    records = trace.cpu_ops.filter(pl.col(C.name) == RECORD).select(_CALL)
    around = _calls_around(launched, records)
    arguments = trace.recorded_collectives(around["call_uid"].unique())
    rows = around.join(arguments.rename({C.uid: "call_uid"}), on="call_uid")
    return rows.select(
        C.uid,
        *(pl.col(field.column).alias(f"host_{field.column}") for field in RECORDED_COLLECTIVE),
    )


def _kinds_of_calls(trace: Trace, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, host_kind``: the kind that the innermost call around the launch names."""
    calls = pl.concat(
        frame.filter(pl.col(C.name).str.contains(HOST_CALLS)).select(_CALL)
        for frame in (trace.host_annotations, trace.cpu_ops)
    ).with_columns(by_name(pl.col(C.name), recorded_kind).alias("host_kind"))
    return _calls_around(launched, calls.drop_nulls("host_kind")).select(C.uid, "host_kind")


def _sent(trace: Trace, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, host_bytes, host_type``: what annotations say that the rank sends."""
    annotations = trace.host_annotations.filter(pl.col(C.name).str.contains(_ANNOTATION))
    around = _calls_around(launched, annotations.select(_CALL))
    shapes = trace.annotation_arguments(around["call_uid"].unique())
    texts = shapes.select(C.input_dims, C.input_types).rows()
    known = {pair: (_bytes_of(*pair), _only_type(pair[1])) for pair in set(texts)}
    rows = [(uid, *known[pair]) for uid, pair in zip(shapes[C.uid], texts, strict=True)]
    schema = {"call_uid": pl.Int64, "host_bytes": pl.Int64, "host_type": pl.String}
    sizes = pl.DataFrame(rows, schema=schema, orient="row")
    return around.join(sizes, on="call_uid").select(C.uid, "host_bytes", "host_type")


def _bytes_of(dims: str | None, types: str | None) -> int | None:
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


def _calls_around(launched: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
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
