"""Operations of an imported report: rows of its unified sheet with recomputed costs.

Our perf models compute the cost of a row from its arguments, as for a trace; if no model covers the
row, the FLOPs and bytes of the report are used.
"""

from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl
import polars.selectors as cs

from jarvis.hardware import HardwareSpec
from jarvis.perf_models import Registry
from jarvis.perf_report.calls import ARGUMENTS, entries
from jarvis.perf_report.collectives import MIB
from jarvis.perf_report.launchers import OTHER, with_op_category
from jarvis.perf_report.operations import COPY_TIME_US
from jarvis.perf_report.roofline import KERNEL_SEPARATOR, costs, sheet_metrics
from jarvis.perf_report.timeline.gpu import copy_direction
from jarvis.perf_report.work import COMMUNICATION, COPY, KIND_BY_NAME
from jarvis.schemas import KERNELS, NAMES, NUMBER, SPREAD, TEXT, UIDS, columns, conform
from jarvis.schemas.names import C
from jarvis.text.short_names import SYNTHETIC, SYNTHETIC_END
from jarvis.trace.arguments import DIMS, STRIDES, TYPES, VALUES
from jarvis.tracelens.imported.sheets import UNIFIED, literal


def with_rooflines(sheet: pl.DataFrame, hardware: HardwareSpec | None, schema: str) -> pl.DataFrame:
    """Return a sheet with the roofline columns of ``hardware``, if it has a peak for any row.

    They replace those of the report, which remain if the hardware is not known.
    """
    if hardware is None:
        return sheet
    bare = sheet.drop(cs.starts_with("roofline_", "pct_roofline"))
    calls = bare.select(
        C.compute_spec,
        (pl.col(C.gflops) * 1e9).alias(C.flops),
        (pl.col(C.data_moved_mb) * MIB).alias(C.bytes),
        pl.col(C.kernel_time_us_mean).alias(C.kernel_time_us),
    )
    priced = sheet_metrics(calls, hardware)
    if C.pct_roofline not in priced.columns:
        return bare
    # Percent of the roofline per TB/s.
    factor = pl.when(pl.col(C.bytes) > 0).then(
        100 * pl.col(C.roofline_time_us) / (pl.col(C.bytes) / 1e6)
    )
    rooflines = priced.select(C.roofline_time_us, C.roofline_bound, factor=factor)
    shares = {
        f"pct_roofline_{name}": pl.col("factor") * pl.col(f"tb_per_s_{name}") for name in SPREAD
    }
    return conform(bare.hstack(rooflines).with_columns(**shares), schema)


ARGUMENT_READERS = (DIMS, TYPES, STRIDES, VALUES)
"""Reader of each of ``ARGUMENTS``."""

UNKNOWN_LAUNCH = "launch"
"""Name of the launch call of a kernel if it is not known."""

_OVER_LINK = ("H2D", "D2H")
_KERNEL_SCHEMA: dict[str, pl.DataType] = {
    C.uid: pl.Int64(),
    C.name: pl.String(),
    C.stream: pl.Int64(),
    C.count: pl.Int64(),
    C.total_duration_us: pl.Float64(),
    C.min_duration_us: pl.Float64(),
    C.max_duration_us: pl.Float64(),
}


def measured(
    unified: pl.DataFrame, ops_unique_args: pl.DataFrame, registry: Registry
) -> pl.DataFrame:
    """Return the rows of a unified sheet in the form of ``perf_report.operations.measured``.

    The additional column ``is_stated`` marks rows with FLOPs and bytes of the report.
    """
    rows = _with_json_arguments(unified).rename({C.ex_uid: C.operation_uid})
    kernels = _kernels(rows.select(C.kernel_details, pl.col(C.operation_uid).alias(C.uid)))
    names = kernels.group_by(C.uid, maintain_order=True).agg(
        pl.col(C.name).str.join(KERNEL_SEPARATOR).alias(C.kernel_names)
    )
    calls = rows.select(C.name, *ARGUMENTS, pl.col(C.operation_uid).alias(C.uid))
    priced = rows.join(
        _prices(calls, names, registry),
        left_on=C.operation_uid,
        right_on=C.uid,
        how="left",
        maintain_order="left",
    )
    launchers = list(_launchers(rows, kernels, ops_unique_args))
    return (
        _with_stated(priced)
        .rename({C.kernel_time_us_sum: C.kernel_time_us})
        .with_columns(
            **{
                C.kernel_time_us_mean: pl.coalesce(
                    C.kernel_time_us_mean, pl.col(C.kernel_time_us) / pl.col(C.operation_count)
                ),
                C.op_category: _op_category(rows[C.name], registry),
                C.host_time_us: _host_time_us(),
                C.source_uid: pl.col(C.operation_uid),
                C.launcher_names: pl.lit(pl.Series(launchers, dtype=NAMES)),
                C.launcher_uids: pl.lit(None, UIDS),
            },
        )
        .join(
            _of_kernels(kernels),
            left_on=C.operation_uid,
            right_on=C.uid,
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col(C.kernel_count, C.comm_time_us, COPY_TIME_US).fill_null(0))
    )


def _op_category(names: pl.Series, registry: Registry) -> pl.Expr:
    """Return the op category of the report, else by name."""
    by_name = {name: registry.op_category(name) for name in names.unique()}
    named = pl.col(C.name).replace_strict(by_name, default=None, return_dtype=pl.String)
    return pl.coalesce(C.op_category, named, pl.lit(OTHER))


def _host_time_us() -> pl.Expr:
    """Return the host time of all calls.

    A synthetic row counts the time of its graph launch for every kernel. With equal times there is
    one launch, whose time is used; for several launches the time is not known.
    """
    of_one = pl.when(pl.col(C.host_time_us_min) == pl.col(C.host_time_us_max)).then(
        C.host_time_us_min
    )
    is_synthetic = pl.col(C.name).str.ends_with(SYNTHETIC_END)
    return (
        pl.when(is_synthetic & (pl.col(C.operation_count) > 1))
        .then(of_one)
        .otherwise(C.host_time_us_sum)
    )


def _prices(calls: pl.DataFrame, kernel_names: pl.DataFrame, registry: Registry) -> pl.DataFrame:
    """Return the costs of our perf models for the calls, with the column names of operations."""
    right = {C.exact_flops: C.flops, C.exact_bytes: C.bytes, C.compute_spec: C.compute}
    return (
        costs(calls, kernel_names=kernel_names, registry=registry)
        .drop(C.flops, C.bytes, C.perf_params)
        .rename(right)
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
    )


def unified_of_kernels(kernel_summary: pl.DataFrame, registry: Registry) -> pl.DataFrame:
    """Return a unified sheet with a row for each kernel, for a trace without operators.

    Launches are not known; communication is excluded, as in the unified sheet.
    """
    kernels = kernel_summary.select(
        C.kernel_stream,
        pl.col(C.kernel_name).alias(C.name),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(C.ex_uid),
        pl.col(C.dur_us_count).alias(C.operation_count),
        pl.col(C.dur_us_sum).alias(C.kernel_time_us_sum),
        **{
            f"kernel_time_us_{which}": pl.col(f"dur_us_{which}") for which in ("mean", "min", "max")
        },
    ).filter(KIND_BY_NAME != COMMUNICATION)
    entry = pl.struct(
        C.name,
        pl.col(C.kernel_stream).alias(C.stream),
        pl.col(C.operation_count).alias(C.count),
        pl.col(C.kernel_time_us_sum).alias(C.total_duration_us),
        pl.col(C.kernel_time_us_mean).alias(C.mean_duration_us),
        pl.lit(None, NUMBER).alias(C.median_duration_us),
        pl.lit(None, NUMBER).alias(C.std_dev_duration_us),
        pl.col(C.kernel_time_us_min).alias(C.min_duration_us),
        pl.col(C.kernel_time_us_max).alias(C.max_duration_us),
    )
    launched = kernels.select(C.name, pl.col(C.ex_uid).alias(C.owner_uid))
    rows = kernels.with_columns(
        pl.format(SYNTHETIC, pl.lit(UNKNOWN_LAUNCH), "name").alias(C.name),
        pl.col(C.ex_uid).alias(C.source_uid),
        pl.concat_list(entry).alias(C.kernel_details),
    )
    categorized = with_op_category(rows, launched, registry)
    absent = (c for c in columns(UNIFIED) if c.name not in categorized.columns and not c.optional)
    nulls = (pl.lit(None, c.dtype).alias(c.name) for c in absent)
    return conform(categorized.with_columns(nulls), UNIFIED)


def _with_json_arguments(rows: pl.DataFrame) -> pl.DataFrame:
    texts = [
        pl.Series(name, [read(_lists(literal(text))) for text in rows[name]], dtype=pl.String)
        for name, read in zip(ARGUMENTS, ARGUMENT_READERS, strict=True)
    ]
    return rows.with_columns(texts)


def _lists(value: Any) -> Any:
    """Return nested tuples as lists."""
    return [_lists(entry) for entry in value] if isinstance(value, list | tuple) else value


def _with_stated(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the values of the report if no model of ours covers them (``is_stated``)."""
    is_covered = pl.col(C.modelled).fill_null(value=False)
    is_known = is_covered & pl.col(C.failure).is_null()
    stated: dict[str, pl.Expr | pl.Series] = {
        C.flops: pl.col(C.gflops) * 1e9,
        C.bytes: pl.col(C.data_moved_mb) * MIB,
        C.compute: pl.col(C.compute_spec).fill_null(""),
        C.params: pl.Series([_stated_params(text) for text in rows[C.perf_params]], dtype=TEXT),
        C.failure: pl.lit(None, TEXT),
        C.uncovered: pl.lit(None, TEXT),
        "is_extension": pl.lit(value=False),
        "makes_row": pl.lit(value=True),
    }
    marked = rows.with_columns(is_stated=~is_known & pl.col(C.gflops).is_not_null())
    return marked.with_columns(
        is_known=is_known | pl.col("is_stated"),
        **{C.modelled: is_covered | pl.col("is_stated")},
        **{
            name: pl.when("is_stated").then(value).otherwise(name) for name, value in stated.items()
        },
    )


def _stated_params(text: str | None) -> str | None:
    params = literal(text)
    if not isinstance(params, dict):
        return None
    try:
        return orjson.dumps(params, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    except TypeError:  # integers over 64 bits, lone surrogates
        return None


def _kernels(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each kernel of each operation, with its ``kind``."""
    kernels: list[dict[str, Any]] = [
        {C.uid: uid, **{key: entry[key] for key in _KERNEL_SCHEMA if key in entry}}
        for uid, entries in rows.select(C.uid, C.kernel_details).iter_rows()
        for entry in entries or ()
    ]
    return pl.DataFrame(kernels, schema=_KERNEL_SCHEMA).with_columns(
        KIND_BY_NAME.alias(C.kind), copy_direction()
    )


def _of_kernels(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, kernels, kernel_count, comm_time_us, copy_time_us, crosses_link`` by
    operation."""
    time, by_kernel = pl.col(C.total_duration_us), [C.uid, C.name, C.stream]
    lists = (
        kernels.group_by(by_kernel)
        .agg(
            pl.col(C.count).sum(),
            time.sum().alias(C.total_us),
            (time.sum() / pl.col(C.count).sum()).alias(C.mean_us),
            pl.col(C.min_duration_us).min().alias(C.min_us),
            pl.col(C.max_duration_us).max().alias(C.max_us),
        )
        .sort(C.uid, C.total_us, C.name, C.stream, descending=[False, True, False, False])
        .group_by(C.uid, maintain_order=True)
        .agg(entries(KERNELS).alias(C.kernels))
    )
    is_over_link = (pl.col(C.kind) == COPY) & pl.col(C.direction).is_in(_OVER_LINK)
    sums = kernels.group_by(C.uid).agg(
        pl.col(C.count).sum().alias(C.kernel_count),
        time.filter(pl.col(C.kind) == COMMUNICATION).sum().alias(C.comm_time_us),
        time.filter(pl.col(C.kind) == COPY).sum().alias(COPY_TIME_US),
        (2 * time.filter(is_over_link).sum() > time.sum()).alias(C.crosses_link),
    )
    return lists.join(sums, on=C.uid)


def _launchers(
    rows: pl.DataFrame, kernels: pl.DataFrame, ops_unique_args: pl.DataFrame
) -> Iterator[list[str]]:
    """Yield the operators of the ops sheets that launched the kernels of each row.

    This is the row's own operator if it launches a kernel of that name, else the only one that
    does.
    """
    by_kernel: dict[str, set[str]] = {}
    for name, details in ops_unique_args.select(C.name, C.kernel_details).iter_rows():
        for entry in details or ():
            by_kernel.setdefault(entry["name"], set()).add(name)
    own = dict(kernels.group_by(C.uid, maintain_order=True).agg(C.name).iter_rows())
    for uid, name in rows.select(C.operation_uid, C.name).iter_rows():
        launchers: dict[str, None] = {}
        for kernel in own.get(uid, ()):
            candidates = by_kernel.get(kernel, set())
            if name in candidates or len(candidates) == 1:
                launchers[name if name in candidates else next(iter(candidates))] = None
        yield list(launchers)
