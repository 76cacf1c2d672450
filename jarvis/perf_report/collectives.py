"""Communication kernels with the sizes of their messages."""

import polars as pl

from jarvis.core.dtypes import DTYPES
from jarvis.perf_report.communication_names import LOCAL, STAGING, UNKNOWN, communication_kind
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.work import COMMUNICATION, GpuWork
from jarvis.schemas.names import C

MIB = 1 << 20
_ELEMENT_BYTES = {dtype.scalar_type: dtype.bytes for dtype in DTYPES if dtype.scalar_type}
_RECORDED_NAMES = {"all_reduce": "allreduce", UNKNOWN: None, LOCAL: None, STAGING: None}
"""Kinds that PyTorch records under another name, or that are no collective."""


def communication_kernels(work: GpuWork) -> pl.DataFrame:
    """Return the communication kernels of a trace with ``dur_us``, ``in_msg_mb``, ``out_msg_mb``.

    ``collective`` is the recorded one, else the kind that the kernel's name states.
    """
    element_bytes = pl.col(C.dtype).replace_strict(
        _ELEMENT_BYTES, default=None, return_dtype=pl.Int64
    )
    return work.events.filter(
        (pl.col(C.cat) == "kernel") & (pl.col(C.kind) == COMMUNICATION)
    ).with_columns(
        **{
            C.dur_us: microseconds(pl.col(C.dur_ns)),
            C.collective: pl.coalesce(
                pl.col(C.collective).cast(pl.String),
                communication_kind(pl.col(C.name)).replace(_RECORDED_NAMES),
            ),
            C.in_msg_mb: pl.col(C.in_msg_nelems) * element_bytes / MIB,
            C.out_msg_mb: pl.col(C.out_msg_nelems) * element_bytes / MIB,
        },
    )


def collectives(work: GpuWork) -> pl.DataFrame:
    """One row for each communication kernel (schema: ``collectives``)."""
    return communication_kernels(work).with_columns(
        pl.col(C.process_group_name).alias(C.group),
        pl.max_horizontal(C.in_msg_mb, C.out_msg_mb).alias(C.message_mb),
    )
