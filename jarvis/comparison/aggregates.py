"""Sums over either side: timeline, bounds, categories, modules, collectives, kernels."""

from dataclasses import replace

import polars as pl

from jarvis.comparison.matching import VIEW
from jarvis.comparison.operations import Paired, difference, difference_pct, whole
from jarvis.comparison.sides import Role, Side
from jarvis.core.expressions import first_of
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.timeline.step_account import LABELS, StepAccount
from jarvis.schemas.names import C

_UNBOUND = "not known"
_SIDES = ("reference", "target")
STEP_TIME = "step time"
_STEP_COLUMNS = tuple(f"{side}_{name}" for side in _SIDES for name in ("ms", "percent"))
_COLLECTIVE = (C.collective, C.dtype, C.group_size, C.message_mb)


def with_difference(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the difference of ``reference_ms, target_ms``; null counts as 0."""
    target, reference = pl.col(C.target_ms), pl.col(C.reference_ms)
    return rows.with_columns(pl.col(C.reference_ms, C.target_ms).fill_null(0.0)).with_columns(
        difference(target, reference), difference_pct(target, reference).alias(C.difference_pct)
    )


def found_in(rows: pl.DataFrame, counts: str) -> pl.DataFrame:
    """Add ``found_in`` by the columns ``reference_<counts>, target_<counts>``; null counts as 0."""
    names = [f"{side}_{counts}" for side in _SIDES]
    has = {name: pl.col(name) > 0 for name in names}
    return rows.with_columns(pl.col(names).fill_null(0)).with_columns(
        first_of(
            {"both": has[names[0]] & has[names[1]], Role.TARGET: has[names[1]]}, Role.REFERENCE
        ).alias(C.found_in)
    )


def totals(target: Side, reference: Side) -> pl.DataFrame:
    """Return both GPU timelines in the order of that sheet; no rows if a side has none."""
    of = {
        side: table.rows("gpu_timeline").select(
            C.type,
            pl.col(C.time_ms).alias(f"{side}_ms"),
            pl.col(C.percent).alias(f"{side}_percent"),
        )
        for side, table in zip(_SIDES, (reference, target), strict=True)
    }
    return with_difference(of["target"].join(of["reference"], on=C.type, maintain_order="left"))


def steps(target: Side, reference: Side) -> pl.DataFrame:
    """Return the accounts of a step of both sides, the step time last; no rows if a side has none,
    or if steps are marked on one side only."""
    if (target.steps is None) != (reference.steps is None):
        target = reference = replace(target, tables={})
    accounts = [StepAccount.of(side.rows("steps")) for side in (reference, target)]
    rows: dict[str, list[str] | list[float]] = {C.type: [*LABELS.values(), STEP_TIME]}
    for side, account in zip(_SIDES, accounts, strict=True):
        if account is None:
            return with_difference(
                pl.DataFrame(schema={C.type: pl.String} | dict.fromkeys(_STEP_COLUMNS, pl.Float64))
            )
        times = [*account.parts_ns.values(), account.total_ns]
        rows[f"{side}_ms"] = [account.mean_ms(time_ns) for time_ns in times]
        rows[f"{side}_percent"] = [account.pct(time_ns) for time_ns in times]
    return with_difference(pl.DataFrame(rows))


def bounds(paired: Paired) -> pl.DataFrame:
    """Return the operations' time of each side by their bound on that side."""
    known = pl.col(C.bound).is_in(["memory", "compute"]).fill_null(value=False)
    kind = pl.when(known).then(C.bound).otherwise(pl.lit(_UNBOUND))
    return _by_kind(paired, pl.DataFrame({C.bound: ["memory", "compute", _UNBOUND]}), kind)


def _by_kind(paired: Paired, kinds: pl.DataFrame, kind: pl.Expr) -> pl.DataFrame:
    """Return the operations' time of each side by ``kind``; ``kinds`` is a column of all kinds."""
    (name,) = kinds.columns
    rows = kinds
    for side in _SIDES:
        time = pl.col(C.kernel_time_us)
        groups = paired.rows[Role(side)].group_by(kind.alias(name))
        summed = groups.agg((time.sum() / 1e3).alias(f"{side}_ms"))
        share = 100 * pl.col(f"{side}_ms") / pl.col(f"{side}_ms").sum()
        rows = rows.join(
            summed.with_columns(share.alias(f"{side}_percent")),
            on=name,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
    percents = [f"{side}_percent" for side in _SIDES]
    return with_difference(rows).with_columns(pl.col(percents).fill_null(0.0))


def categories(paired: Paired, operations: pl.DataFrame, unmatched: pl.DataFrame) -> pl.DataFrame:
    """Return the GPU time by category, most time of the target first."""
    keys = pl.concat(paired.rows[role].select(C.category) for role in Role).unique()
    titles = {**paired.reference.titles, **paired.target.titles}
    unexplained = operations.group_by(C.category).agg(pl.col(C.unexplained_ms).sum())
    rows = _by_kind(paired, keys, pl.col(C.category)).join(
        unexplained, on=C.category, how="left", nulls_equal=True
    )
    for role in Role:
        only = (
            unmatched.filter(pl.col(C.side) == role.value)
            .group_by(C.category)
            .agg(pl.col(C.time_ms).sum().alias(f"only_in_{role.value}_ms"))
        )
        rows = rows.join(only, on=C.category, how="left", nulls_equal=True)
    parts = (C.unexplained_ms, *(f"only_in_{role.value}_ms" for role in Role))
    return rows.with_columns(
        pl.col(parts).fill_null(0.0),
        pl.coalesce(
            pl.col(C.category).replace_strict(titles, default=None, return_dtype=pl.String),
            C.category,
        ).alias(C.title),
    ).sort(C.target_ms, C.reference_ms, C.category, descending=[True, True, False])


def collectives(target: Side, reference: Side) -> pl.DataFrame:
    """Return communication by kind, type, group size and message, most time of the target first.

    No rows if a side has no data about its communication.
    """
    of = {}
    for side, table in zip(_SIDES, (reference, target), strict=True):
        of[side] = (
            communication(table)
            .group_by(_COLLECTIVE)
            .agg(
                whole(pl.col(C.count).sum() / table.divisor).alias(f"{side}_count"),
                (pl.col("us").sum() / 1e3 / table.divisor).alias(f"{side}_ms"),
            )
        )
    both = of["target"].join(
        of["reference"], on=_COLLECTIVE, how="full", coalesce=True, nulls_equal=True
    )
    if not (has_communication_data(target) and has_communication_data(reference)):
        both = both.clear()
    rows = with_difference(found_in(both, "count"))
    descending = [True, True, *[False] * len(_COLLECTIVE)]
    return rows.sort(C.target_ms, C.reference_ms, *_COLLECTIVE, descending=descending)


def is_same_communication(target: Side, reference: Side) -> bool:
    """Return whether the collectives of both sides are equal in kind, type, size and count, per
    step if the comparison is."""
    of = [
        communication(side)
        .group_by(_COLLECTIVE)
        .agg(pl.col(C.count).sum().cast(pl.Int64) * other.divisor)
        .sort(_COLLECTIVE)
        for side, other in ((target, reference), (reference, target))
    ]
    return of[0].equals(of[1])


def is_known_communication(collectives: pl.DataFrame) -> bool:
    """Return whether kind, type and message of every collective are recorded."""
    return not any(collectives[name].null_count() for name in (C.collective, C.dtype, C.message_mb))


def has_communication_data(side: Side) -> bool:
    """Return whether the collectives of a side are known, even if there are none."""
    return any(side.table(name) is not None for name in ("collectives", "coll_analysis"))


def communication(side: Side) -> pl.DataFrame:
    """Return kind, type, group size, message, ``count`` and ``us`` of a side's collectives.

    Without single kernels, they come from the summary by message.
    """
    if side.table("collectives") is not None:
        kernels = side.rows("collectives")
        return kernels.select(*_COLLECTIVE, pl.lit(1, pl.Int64).alias(C.count), us=C.dur_us)
    message_mb = pl.max_horizontal(C.in_msg_mb, C.out_msg_mb)
    named = side.rows("coll_analysis").with_columns(message_mb.alias(C.message_mb))
    return named.select(*_COLLECTIVE, pl.col(C.operation_count).alias(C.count), us=C.dur_us_sum)


def modules(target: Side, reference: Side) -> pl.DataFrame:
    """Return GPU time by module in the order of the target's call tree, then of the reference's.

    No rows if a side has no modules.
    """
    keys = [C.path, C.module, C.depth]
    sides = zip(_SIDES, (reference, target), strict=True)
    of = {side: _modules(table, side) for side, table in sides}
    both = of["target"].join(
        of["reference"], on=keys, how="full", coalesce=True, maintain_order="left_right"
    )
    if any(rows.is_empty() for rows in of.values()):
        both = both.clear()
    return with_difference(found_in(both, "calls"))


def _modules(side: Side, prefix: str) -> pl.DataFrame:
    """Return ``path, module, depth``, calls and time of the modules of a side."""
    nodes = side.rows("call_tree").filter(pl.col(C.view) == VIEW).sort(C.node)
    above: dict[int | None, tuple[str, ...]] = {}
    rows = []
    columns = nodes.select(C.node, C.parent, C.kind, C.name, C.calls, C.gpu_ns)
    for node, parent, kind, name, calls, gpu_ns in columns.iter_rows():
        path = above.get(parent, ())
        if kind == "module":
            path = (*path, name.removeprefix(MODULE_PREFIX))
            calls = max(1, round(calls)) if calls else 0
            rows.append((" / ".join(path), path[-1], len(path) - 1, calls, gpu_ns / 1e6))
        above[node] = path
    schema = {
        C.path: pl.String,
        C.module: pl.String,
        C.depth: pl.Int64,
        f"{prefix}_calls": pl.Int64,
        f"{prefix}_ms": pl.Float64,
    }
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.group_by(C.path, C.module, C.depth, maintain_order=True).sum()


def launched(operations: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each kernel of each operation: ``kernel, launches, us``, other columns."""
    return (
        operations.explode(C.kernels, empty_as_null=False)
        .drop_nulls(C.kernels)
        .with_columns(
            pl.col(C.kernels).struct.field(C.name).alias(C.kernel),
            pl.col(C.kernels).struct.field(C.count).cast(pl.Float64).alias(C.launches),
            us=pl.col(C.kernels).struct.field(C.total_us),
        )
        .drop(C.kernels)
    )


def kernels(paired: Paired) -> pl.DataFrame:
    """Return GPU work by kernel name, most time of the target first.

    No rows if the kernels of a side are not known.
    """
    of = {
        role: launched(paired.rows[role])
        .group_by(C.kernel)
        .agg(
            whole(pl.col(C.launches).sum()).alias(f"{role.value}_launches"),
            (pl.col("us").sum() / 1e3).alias(f"{role.value}_ms"),
        )
        for role in Role
    }
    both = of[Role.TARGET].join(of[Role.REFERENCE], on=C.kernel, how="full", coalesce=True)
    if any(rows.is_empty() for rows in of.values()):
        both = both.clear()
    per_launch = {
        f"{role.value}_us_per_launch": pl.when(pl.col(f"{role.value}_launches") > 0).then(
            1e3 * pl.col(f"{role.value}_ms") / pl.col(f"{role.value}_launches")
        )
        for role in Role
    }
    return (
        with_difference(found_in(both, "launches"))
        .with_columns(**per_launch)
        .sort(C.target_ms, C.reference_ms, C.kernel, descending=[True, True, False])
    )


def lowering(paired: Paired, operations: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of each pair on each side, longest first; ``operations`` are the pairs."""
    share = pl.col("share")
    work = (
        launched(paired.members)
        .group_by(C.pair, C.side, C.kernel)
        .agg(
            **{
                C.launches_per_call: (share * pl.col(C.launches)).sum() / pl.col(C.calls).first(),
                C.us_per_call: (share * pl.col("us")).sum() / pl.col(C.calls).first(),
            },
        )
    )
    time = pl.col(C.us_per_call)
    sides = pl.col(C.side).n_unique().over(C.pair, C.kernel)
    return (
        work.join(operations.select(C.pair, C.row, C.name, C.input_dims, C.input_types), on=C.pair)
        .with_columns(
            (100 * time / time.sum().over(C.pair, C.side)).alias(C.percent),
            pl.when(sides > 1).then(pl.lit("both")).otherwise(C.side).alias(C.found_in),
        )
        .sort(C.row, C.side, C.us_per_call, C.kernel, descending=[False, True, True, False])
    )


def main_kernels(lowered: pl.DataFrame) -> pl.DataFrame:
    """Return ``pair`` with its main kernels, launches per call, and whether the names are equal."""
    is_target, launches = pl.col(C.side) == Role.TARGET.value, pl.col(C.launches_per_call)
    return lowered.group_by(C.pair).agg(
        pl.col(C.kernel).filter(is_target).first(),
        pl.col(C.kernel).filter(~is_target).first().alias(C.reference_kernel),
        (pl.col(C.found_in) == "both").all().alias(C.same_kernels),
        launches.filter(is_target).sum().alias(C.launches_per_call),
        launches.filter(~is_target).sum().alias(C.reference_launches_per_call),
    )
