"""The roofline sheets: a row for each op and parameter set of a perf-model family."""

from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
import polars.selectors as cs

from jarvis.hardware import HardwareSpec
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.calls import (
    ARGUMENTS,
    THREAD,
    HostCalls,
    key_of,
    numbered,
    statistics,
    with_kernel_details,
)
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import lists_text
from jarvis.perf_report.roofline import COST_SCHEMA, backward, costs, sheet_metrics
from jarvis.perf_report.work import GpuWork
from jarvis.schemas import PARAM_PREFIX, SPREAD, conform, dtypes
from jarvis.schemas.names import C
from jarvis.tracelens.models import (
    ONE_SHEET_FAMILIES,
    ONE_SHEET_FAMILIES_OF_INFERENCE,
    is_in_tracelens,
    sheet_families,
)
from jarvis.tracelens.options import DEFAULT_OPTIONS, ReportOptions
from jarvis.tracelens.overlap import (
    OVERLAP_SUFFIX,
    Overlaps,
    overlap_statistics,
    overlapping_pairs,
    overlaps,
    with_overlap_details,
    with_overlaps,
)

_BACKWARD_IN_FORWARD = (
    "flash_attn::_flash_attn_varlen_backward",
    "aten::convolution_backward",
    "ConvBias_Backward",
    "ConvBiasReLU_Backward",
)
"""Ops with their own formula that belong to the sheet of the backward pass."""

_NOT_IN_BACKWARD = (
    "aten::convolution",
    "aten::miopen_convolution",
    "aten::cudnn_convolution",
    "ConvBias_",
    "ConvBiasReLU_",
    "vllm::unified_attention_with_output",
)
"""Forward ops that are excluded from the sheet of the backward pass."""

_FIRST = (C.gflops, C.data_moved_mb, C.flops_per_byte, *THREAD, C.compute_spec, *ARGUMENTS)
_OF_SHEET = (C.name, C.stream, C.ts_ns, C.dur_ns)

ROOFLINE_CALL = (C.row, C.kernel_time_us, C.flops, C.bytes, C.compute_spec)
"""Inputs of the roofline of each call."""

_FIRST_IF_PRICED = (C.roofline_time_us, C.roofline_bound)


class _Priced(NamedTuple):
    """Input of the sheets: their names, their calls in row order, and the GPU work of the calls.

    ``sheet`` of a call is an index into ``names``. An op can be in two sheets: ``uid`` (in ``work``
    ``owner_uid``) numbers the calls, ``event_uid`` is the op.
    """

    names: list[str]
    calls: pl.DataFrame
    work: pl.DataFrame


class RooflineSheets(NamedTuple):
    """The sheets by name, and their calls with ``row``, the position of their row in ``sheet``.

    ``calls`` has only calls that can have a roofline, in order (schema: ``roofline_calls``).
    """

    tables: dict[str, pl.DataFrame]
    calls: pl.DataFrame


def roofline_sheets(
    calls: HostCalls,
    own_costs: pl.DataFrame,
    backwards: pl.DataFrame,
    work: GpuWork,
    hardware: HardwareSpec | None,
    options: ReportOptions = DEFAULT_OPTIONS,
    tracelens_models_only: bool = False,
    registry: Registry = BUILTIN,
) -> RooflineSheets:
    """Return the roofline sheets with rows, by name, in report order.

    With overlap information each sheet is followed by a version that has it.

    Args:
        own_costs: ``costs`` of the cpu ops.
        backwards: ``Trace.backwards``.
    """
    names, rows, of_rows = _priced(
        calls, own_costs, backwards, work, registry, tracelens_models_only, options.inference
    )
    if not names:
        return RooflineSheets({}, pl.DataFrame(schema=dtypes("roofline_calls")))
    plain, of_sheets = _sheets(rows, of_rows, hardware, options)
    tables = dict(zip(names, plain, strict=True))
    placed = of_sheets.with_columns(
        pl.col(C.sheet).replace_strict(dict(enumerate(names)), return_dtype=pl.String)
    )
    if not options.include_overlap_info:
        return RooflineSheets(tables, placed)
    overlap = overlaps(of_rows, overlapping_pairs(work))
    overlapped, _ = _sheets(rows, of_rows, hardware, options, overlap)
    both = {
        name: sheet
        for (title, without), with_overlap in zip(tables.items(), overlapped, strict=True)
        for name, sheet in ((title, without), (title + OVERLAP_SUFFIX, with_overlap))
    }
    return RooflineSheets(both, placed)


def _priced(
    calls: HostCalls,
    own_costs: pl.DataFrame,
    backwards: pl.DataFrame,
    work: GpuWork,
    registry: Registry,
    tracelens_models_only: bool,
    of_inference: bool,
) -> _Priced:
    """Return the input of all sheets at once; separate passes over small sheets are slower."""
    forward_rows = _forward_pass(calls, own_costs)
    backward_rows = _backward_pass(forward_rows, backwards, registry)
    models = {name: registry.find_model(name) for name in forward_rows[C.name].unique()}
    families = {
        name: model.sheet
        for name, model in models.items()
        if model and model.sheet and (is_in_tracelens(model) or not tracelens_models_only)
    }
    single = ONE_SHEET_FAMILIES_OF_INFERENCE if of_inference else ONE_SHEET_FAMILIES
    ahead_sheets: dict[str, str | None] = {
        name: _sheet(name, of, single) for name, of in families.items()
    }
    back_sheets = {name: _backward_sheet(of, single) for name, of in families.items()}
    if of_inference:
        ahead_sheets = {name: of for name, of in ahead_sheets.items() if not _is_backward(of)}
        back_sheets = dict.fromkeys(back_sheets)
    back, ahead = _placed(backward_rows, back_sheets), _placed(forward_rows, ahead_sheets)
    used = {*back[C.sheet].unique(), *ahead[C.sheet].unique()}
    names = [
        sheet
        for family in sheet_families(registry)
        for sheet in (family, f"{family}_fwd", f"{family}_bwd")
        if sheet in used
    ]
    numbered_calls = (
        pl.concat([back, ahead], how="diagonal")
        .with_row_index("given")
        .with_columns(
            pl.col(C.sheet).replace_strict(
                names, range(len(names)), default=None, return_dtype=pl.Int32
            )
        )
        .sort(C.sheet, maintain_order=True)
        .with_columns(event_uid=C.uid, **{C.uid: pl.int_range(pl.len())})
    )
    is_back = pl.col("given") < back.height
    places = numbered_calls.select("given", C.uid, C.sheet, pl.col("event_uid").alias(C.owner_uid))
    of_calls = [
        below.join(places.filter(which), on=C.owner_uid).drop(C.owner_uid, "given", C.sheet)
        for below, which in (
            (_backward_work(back[C.uid], backwards, work), is_back),
            (work.below(ahead[C.uid], _OF_SHEET), ~is_back),
        )
    ]
    of_rows = pl.concat(of_calls, how="diagonal").rename({C.uid: C.owner_uid})
    return _Priced(names, numbered_calls.drop("given"), of_rows)


def _is_backward(sheet: str | None) -> bool:
    return sheet is not None and sheet.endswith("_bwd")


def _sheet(name: str, family: str, single: frozenset[str]) -> str:
    """Return the sheet of a call with this name; ``single`` are families with one sheet."""
    if family in single:
        return family
    return f"{family}_bwd" if name in _BACKWARD_IN_FORWARD else f"{family}_fwd"


def _backward_sheet(family: str, single: frozenset[str]) -> str | None:
    """Return the sheet of the backward pass of a call, or None."""
    return None if family in single else f"{family}_bwd"


def _placed(calls: pl.DataFrame, sheet_of: Mapping[str, str | None]) -> pl.DataFrame:
    """Return the calls whose name has a sheet, with ``sheet``."""
    sheet = (
        pl.col(C.name)
        .cast(pl.String)
        .replace_strict(
            list(sheet_of), list(sheet_of.values()), default=None, return_dtype=pl.String
        )
    )
    return calls.with_columns(sheet.alias(C.sheet)).drop_nulls(C.sheet)


def _forward_pass(calls: HostCalls, of: pl.DataFrame) -> pl.DataFrame:
    """Return calls with known costs, in file order."""
    known = of.filter(pl.col(C.flops).is_not_null())
    return calls.rows(known[C.uid]).drop(C.ts_ns, C.dur_ns).join(known, on=C.uid).sort(C.uid)


def _backward_pass(
    forward_rows: pl.DataFrame, backwards: pl.DataFrame, registry: Registry
) -> pl.DataFrame:
    """Return forward ops that autograd differentiated, with costs of their backward, in file
    order."""
    differentiated = forward_rows.filter(
        pl.col(C.uid).is_in(backwards[C.forward_uid].implode())
        & ~pl.col(C.name).is_in(_NOT_IN_BACKWARD)
    ).drop(*COST_SCHEMA)
    known = costs(differentiated, formula_of=backward, registry=registry).filter(
        pl.col(C.flops).is_not_null()
    )
    return differentiated.join(known, on=C.uid).sort(C.uid)


def _backward_work(owners: pl.Series, backwards: pl.DataFrame, work: GpuWork) -> pl.DataFrame:
    """Return GPU work below the autograd nodes of each op and of all ops below it."""
    nodes = _nodes_of_subtrees(owners, backwards, work.call_tree)
    below = nodes.join(
        work.below(nodes[C.node_uid].unique(), _OF_SHEET), left_on=C.node_uid, right_on=C.owner_uid
    )
    return below.unique([C.owner_uid, C.link_index]).drop(C.node_uid)


def _nodes_of_subtrees(
    owners: pl.Series, backwards: pl.DataFrame, tree: pl.DataFrame
) -> pl.DataFrame:
    """Return ``owner_uid, node_uid``: the autograd nodes of each op and of all ops below it."""
    places = tree.select(C.uid, "order", C.subtree_end)
    nodes = (
        backwards.join(places.select("order", pl.col(C.uid).alias(C.forward_uid)), on=C.forward_uid)
        .select("order", pl.col(C.backward_uid).alias(C.node_uid))
        .sort("order", C.node_uid)
    )
    spans = places.filter(pl.col(C.uid).is_in(owners.implode()))
    order = nodes["order"]
    pairs = (
        pl.DataFrame(
            {
                C.owner_uid: spans[C.uid],
                "first": order.search_sorted(spans["order"]),
                "last": order.search_sorted(spans[C.subtree_end]),
            }
        )
        .filter(pl.col("first") < pl.col("last"))
        .select(C.owner_uid, pl.int_ranges("first", "last", dtype=pl.UInt32).alias(C.node))
        .explode(C.node)
    )
    return pairs.select(C.owner_uid, nodes[C.node_uid].gather(pairs[C.node]).alias(C.node_uid))


def _sheets(
    rows: pl.DataFrame,
    work: pl.DataFrame,
    hardware: HardwareSpec | None,
    options: ReportOptions,
    overlap: Overlaps | None = None,
) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    """Return the sheets, by the column ``sheet`` of the calls, and the calls that can have a
    roofline."""
    timed = rows.join(
        busy_ns(work, [C.owner_uid]),
        left_on=C.uid,
        right_on=C.owner_uid,
        how="left",
        maintain_order="left",
    ).with_columns(microseconds(pl.col(C.busy_ns).fill_null(0)).alias(C.kernel_time_us))
    if options.group_by_num_kernels:
        timed = _with_num_kernels(timed, work)
    if overlap is not None:
        timed = with_overlaps(timed, overlap)
    key = key_of(timed, C.sheet, C.name, C.perf_params)
    priced = numbered(sheet_metrics(timed, hardware), key)
    has_peaks = C.roofline_time_us in priced.columns
    priced_rates = (C.pct_roofline,) if has_peaks else ()
    groups = priced.group_by(C.group, *key, maintain_order=True).agg(
        *(
            pl.col(column).drop_nulls().first()
            for column in (*_FIRST, *(_FIRST_IF_PRICED if has_peaks else ()))
        ),
        *statistics((C.tb_per_s, C.tflops_per_s, *priced_rates), SPREAD),
        *statistics([C.kernel_time_us], (*SPREAD, "sum")),
        *overlap_statistics(priced),
        pl.len().alias(C.name_count),
        pl.col("event_uid").min().alias(C.uid_first),
    )
    detailed = with_kernel_details(groups, priced, work.sort(C.ts_ns, C.gpu_uid))
    details = with_overlap_details(detailed, priced, overlap)
    ranked = details.with_columns(lists_text(name) for name in ARGUMENTS).sort(
        [C.sheet, C.kernel_time_us_sum, C.uid_first], descending=[False, True, False]
    )
    places = ranked.select(C.group, pl.int_range(pl.len()).over(C.sheet).alias(C.row))
    sheets = [
        conform(_columns_of_sheet(sheet, options), "roofline")
        for sheet in ranked.partition_by(C.sheet, include_key=False, maintain_order=True)
    ]
    return sheets, roofline_calls(priced, places, on=C.group)


def roofline_calls(calls: pl.DataFrame, places: pl.DataFrame, on: str) -> pl.DataFrame:
    """Return the calls that can have a roofline, in order: ``sheet`` and ROOFLINE_CALL.

    Args:
        calls: ``sheet, kernel_time_us, flops, bytes, compute_spec`` and the column ``on``.
        places: ``row`` and the column ``on``.
        on: Name of the join column.
    """
    can_have = (
        pl.col(C.flops) > 0,
        pl.col(C.bytes).is_not_null(),
        pl.col(C.compute_spec).cast(pl.String) != "",
    )
    selected = calls.filter(can_have).select(C.sheet, *ROOFLINE_CALL[1:], on)
    placed = selected.join(places, on=on, maintain_order="left")
    return placed.select(C.sheet, *ROOFLINE_CALL)


def _columns_of_sheet(sheet: pl.DataFrame, options: ReportOptions) -> pl.DataFrame:
    """Return the top rows with parameter columns, without roofline columns that are all null."""
    if C.roofline_time_us in sheet.columns and sheet[C.roofline_time_us].is_null().all():
        sheet = sheet.drop(cs.starts_with("roofline_", "pct_roofline"))
    parameters = _parameter_columns(sheet[C.perf_params].to_list(), sheet[C.group].to_list())
    return sheet.with_columns(parameters).head(options.topk_roofline_ops or sheet.height)


def _with_num_kernels(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    counts = work.group_by(C.owner_uid).agg(pl.len().cast(pl.Int64).alias(C.num_kernels))
    return calls.join(
        counts, left_on=C.uid, right_on=C.owner_uid, how="left", maintain_order="left"
    ).with_columns(pl.col(C.num_kernels).fill_null(0))


def _parameter_columns(texts: Sequence[str | None], groups: Sequence[int]) -> list[pl.Series]:
    """Return a column for each parameter in ``texts``, in order of appearance.

    ``groups``: the first call of each row.
    """
    rows = [literal_eval(text) if text else {} for text in texts]
    by_call = sorted(zip(groups, rows, strict=True), key=lambda pair: pair[0])
    names = dict.fromkeys(name for _, row in by_call for name in row)
    return [_column(PARAM_PREFIX + name, [row.get(name) for row in rows]) for name in names]


def _column(name: str, values: Sequence[object]) -> pl.Series:
    if all(value is None or type(value) is int for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)
