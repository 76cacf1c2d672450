"""Sums over either side: timeline, bounds, categories, modules, collectives, kernels."""

import polars as pl

from jarvis.comparison.matching import VIEW
from jarvis.comparison.operations import Paired, difference, difference_pct
from jarvis.comparison.sides import Role, Side
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX

_UNBOUND = "not known"
_SIDES = ("reference", "target")
_COLLECTIVE = ("collective", "dtype", "group_size", "message_mb")


def with_difference(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the difference of ``reference_ms, target_ms``; null counts as 0."""
    target, reference = pl.col("target_ms"), pl.col("reference_ms")
    return rows.with_columns(pl.col("reference_ms", "target_ms").fill_null(0.0)).with_columns(
        difference(target, reference), difference_pct=difference_pct(target, reference)
    )


def found_in(rows: pl.DataFrame, counts: str) -> pl.DataFrame:
    """Add ``found_in`` by the columns ``reference_<counts>, target_<counts>``; null counts as 0."""
    names = [f"{side}_{counts}" for side in _SIDES]
    has = {name: pl.col(name) > 0 for name in names}
    return rows.with_columns(pl.col(names).fill_null(0)).with_columns(
        found_in=pl.when(has[names[0]] & has[names[1]])
        .then(pl.lit("both"))
        .when(has[names[1]])
        .then(pl.lit(Role.TARGET.value))
        .otherwise(pl.lit(Role.REFERENCE.value))
    )


def totals(target: Side, reference: Side) -> pl.DataFrame:
    """Return both GPU timelines in the order of that sheet; no rows if a side has none."""
    of = {
        side: table.rows("gpu_timeline").select(
            "type",
            pl.col("time_ms").alias(f"{side}_ms"),
            pl.col("percent").alias(f"{side}_percent"),
        )
        for side, table in zip(_SIDES, (reference, target), strict=True)
    }
    return with_difference(of["target"].join(of["reference"], on="type", maintain_order="left"))


def bounds(paired: Paired) -> pl.DataFrame:
    """Return the operations' time of each side by their bound on that side."""
    known = pl.col("bound").is_in(["memory", "compute"]).fill_null(value=False)
    kind = pl.when(known).then("bound").otherwise(pl.lit(_UNBOUND))
    return _by_kind(paired, pl.DataFrame({"bound": ["memory", "compute", _UNBOUND]}), kind)


def _by_kind(paired: Paired, kinds: pl.DataFrame, kind: pl.Expr) -> pl.DataFrame:
    """Return the operations' time of each side by ``kind``; ``kinds`` is a column of all kinds."""
    (name,) = kinds.columns
    rows = kinds
    for side in _SIDES:
        time = pl.col("kernel_time_us")
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
    keys = pl.concat(paired.rows[role].select("category") for role in Role).unique()
    titles = {**paired.reference.titles, **paired.target.titles}
    unexplained = operations.group_by("category").agg(pl.col("unexplained_ms").sum())
    rows = _by_kind(paired, keys, pl.col("category")).join(
        unexplained, on="category", how="left", nulls_equal=True
    )
    for role in Role:
        only = (
            unmatched.filter(pl.col("side") == role.value)
            .group_by("category")
            .agg(pl.col("time_ms").sum().alias(f"only_in_{role.value}_ms"))
        )
        rows = rows.join(only, on="category", how="left", nulls_equal=True)
    parts = ("unexplained_ms", *(f"only_in_{role.value}_ms" for role in Role))
    return rows.with_columns(
        pl.col(parts).fill_null(0.0),
        title=pl.coalesce(
            pl.col("category").replace_strict(titles, default=None, return_dtype=pl.String),
            "category",
        ),
    ).sort("target_ms", "reference_ms", "category", descending=[True, True, False])


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
                pl.col("count").sum().alias(f"{side}_count"),
                (pl.col("us").sum() / 1e3).alias(f"{side}_ms"),
            )
        )
    both = of["target"].join(
        of["reference"], on=_COLLECTIVE, how="full", coalesce=True, nulls_equal=True
    )
    if not (has_communication_data(target) and has_communication_data(reference)):
        both = both.clear()
    rows = with_difference(found_in(both, "count"))
    descending = [True, True, *[False] * len(_COLLECTIVE)]
    return rows.sort("target_ms", "reference_ms", *_COLLECTIVE, descending=descending)


def has_communication_data(side: Side) -> bool:
    """Return whether the collectives of a side are known, even if there are none."""
    return any(side.table(name) is not None for name in ("collectives", "coll_analysis"))


def communication(side: Side) -> pl.DataFrame:
    """Return kind, type, group size, message, ``count`` and ``us`` of a side's collectives.

    Without single kernels, they come from the summary by message.
    """
    if side.table("collectives") is not None:
        kernels = side.rows("collectives")
        return kernels.select(*_COLLECTIVE, count=pl.lit(1, pl.Int64), us="dur_us")
    message_mb = pl.max_horizontal("in_msg_mb", "out_msg_mb")
    named = side.rows("coll_analysis").with_columns(message_mb=message_mb)
    return named.select(*_COLLECTIVE, count="operation_count", us="dur_us_sum")


def modules(target: Side, reference: Side) -> pl.DataFrame:
    """Return GPU time by module in the order of the target's call tree, then of the reference's.

    No rows if a side has no modules.
    """
    keys = ["path", "module", "depth"]
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
    nodes = side.rows("call_tree").filter(pl.col("view") == VIEW).sort("node")
    above: dict[int | None, tuple[str, ...]] = {}
    rows = []
    columns = nodes.select("node", "parent", "kind", "name", "calls", "gpu_ns")
    for node, parent, kind, name, calls, gpu_ns in columns.iter_rows():
        path = above.get(parent, ())
        if kind == "module":
            path = (*path, name.removeprefix(MODULE_PREFIX))
            rows.append((" / ".join(path), path[-1], len(path) - 1, calls, gpu_ns / 1e6))
        above[node] = path
    schema = {
        "path": pl.String,
        "module": pl.String,
        "depth": pl.Int64,
        f"{prefix}_calls": pl.Int64,
        f"{prefix}_ms": pl.Float64,
    }
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.group_by("path", "module", "depth", maintain_order=True).sum()


def launched(operations: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each kernel of each operation: ``kernel, launches, us``, other columns."""
    return (
        operations.explode("kernels", empty_as_null=False)
        .drop_nulls("kernels")
        .with_columns(
            kernel=pl.col("kernels").struct.field("name"),
            launches=pl.col("kernels").struct.field("count").cast(pl.Float64),
            us=pl.col("kernels").struct.field("total_us"),
        )
        .drop("kernels")
    )


def kernels(paired: Paired) -> pl.DataFrame:
    """Return GPU work by kernel name, most time of the target first.

    No rows if the kernels of a side are not known.
    """
    of = {
        role: launched(paired.rows[role])
        .group_by("kernel")
        .agg(
            pl.col("launches").sum().cast(pl.Int64).alias(f"{role.value}_launches"),
            (pl.col("us").sum() / 1e3).alias(f"{role.value}_ms"),
        )
        for role in Role
    }
    both = of[Role.TARGET].join(of[Role.REFERENCE], on="kernel", how="full", coalesce=True)
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
        .sort("target_ms", "reference_ms", "kernel", descending=[True, True, False])
    )


def lowering(paired: Paired, operations: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of each pair on each side, longest first; ``operations`` are the pairs."""
    share = pl.col("share")
    work = (
        launched(paired.members)
        .group_by("pair", "side", "kernel")
        .agg(
            launches_per_call=(share * pl.col("launches")).sum() / pl.col("calls").first(),
            us_per_call=(share * pl.col("us")).sum() / pl.col("calls").first(),
        )
    )
    time = pl.col("us_per_call")
    sides = pl.col("side").n_unique().over("pair", "kernel")
    return (
        work.join(operations.select("pair", "row", "name", "input_dims", "input_types"), on="pair")
        .with_columns(
            percent=100 * time / time.sum().over("pair", "side"),
            found_in=pl.when(sides > 1).then(pl.lit("both")).otherwise("side"),
        )
        .sort("row", "side", "us_per_call", "kernel", descending=[False, True, True, False])
    )


def main_kernels(lowered: pl.DataFrame) -> pl.DataFrame:
    """Return ``pair`` with its main kernels, launches per call, and whether the names are equal."""
    is_target, launches = pl.col("side") == Role.TARGET.value, pl.col("launches_per_call")
    return lowered.group_by("pair").agg(
        kernel=pl.col("kernel").filter(is_target).first(),
        reference_kernel=pl.col("kernel").filter(~is_target).first(),
        same_kernels=(pl.col("found_in") == "both").all(),
        launches_per_call=launches.filter(is_target).sum(),
        reference_launches_per_call=launches.filter(~is_target).sum(),
    )
