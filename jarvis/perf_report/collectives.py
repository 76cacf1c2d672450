"""Communication kernels with the sizes of their messages."""

import polars as pl

from jarvis.core.dtypes import DTYPES
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.work import COMMUNICATION, GpuWork

MIB = 1 << 20
_ELEMENT_BYTES = {dtype.scalar_type: dtype.bytes for dtype in DTYPES if dtype.scalar_type}
_CUSTOM_ALL_REDUCE = "cross_device_reduce"


def communication_kernels(work: GpuWork) -> pl.DataFrame:
    """The communication kernels of a trace with ``dur_us``, ``in_msg_mb``, ``out_msg_mb``."""
    element_bytes = pl.col("dtype").replace_strict(
        _ELEMENT_BYTES, default=None, return_dtype=pl.Int64
    )
    return work.events.filter(
        (pl.col("cat") == "kernel") & (pl.col("kind") == COMMUNICATION)
    ).with_columns(
        dur_us=microseconds(pl.col("dur_ns")),
        collective=pl.when(pl.col("name").str.contains(f"(?i){_CUSTOM_ALL_REDUCE}"))
        .then(pl.col("collective").fill_null("allreduce"))
        .otherwise("collective"),
        in_msg_mb=pl.col("in_msg_nelems") * element_bytes / MIB,
        out_msg_mb=pl.col("out_msg_nelems") * element_bytes / MIB,
    )


def collectives(work: GpuWork) -> pl.DataFrame:
    """One row for each communication kernel (schema: ``collectives``)."""
    return communication_kernels(work).with_columns(
        group="process_group_name", message_mb=pl.max_horizontal("in_msg_mb", "out_msg_mb")
    )
