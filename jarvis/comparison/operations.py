"""Operations of both sides: times, ratios, and expected ratios."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.comparison.expected import (
    HardwareRatios,
    hardware_ratios,
    is_launch_bound,
    log_ratios,
)
from jarvis.comparison.matching import MatchedBy, Matches, match
from jarvis.comparison.sides import Role, Side
from jarvis.schemas import columns

SAME_WORK = 1.1
"""Maximum factor between the FLOPs of calls at one place that do the same work."""

SAME_WORKLOAD_PCT = 50.0
"""Minimum share of the target's time with a counterpart for two runs of the same workload."""

NAMES_SHOWN = 3

_READ = (
    "uid",
    "name",
    "category",
    "input_dims",
    "input_types",
    "operation_count",
    "kernel_time_us",
    "comm_time_us",
    "flops",
    "bytes",
    "compute",
    "roofline_time_us",
    "bound",
    "roofline_note",
    "params",
    "kernels",
)
_DTYPES = {column.name: column.dtype for column in columns("operations")}


@dataclass(frozen=True, eq=False)
class Paired:
    """Pairs of two sides and unmatched work: the part that does not depend on the tolerance."""

    target: Side
    reference: Side

    @cached_property
    def ratios(self) -> HardwareRatios | None:
        """The ratios that the two GPUs explain, or None."""
        return hardware_ratios(self.target.hardware, self.reference.hardware)

    @cached_property
    def rows(self) -> Mapping[Role, pl.DataFrame]:
        """Operations with GPU time of each side, with their expected ratios.

        No rows if a side has no operations at all.
        """
        sides = {Role.TARGET: self.target, Role.REFERENCE: self.reference}
        rows = {role: log_ratios(_timed(side), self.ratios) for role, side in sides.items()}
        if any(of_side.is_empty() for of_side in rows.values()):
            return {role: of_side.clear() for role, of_side in rows.items()}
        return rows

    @cached_property
    def matches(self) -> Matches:
        """The matches between these operations."""
        return match(self.target, self.reference, self.rows)

    @cached_property
    def members(self) -> pl.DataFrame:
        """The rows of each pair with their columns; times are scaled by their share."""
        parts = [
            self.matches.members.filter(pl.col("side") == role.value).join(
                self.rows[role], on="uid", maintain_order="left"
            )
            for role in Role
        ]
        shared = ("kernel_time_us", "operation_count")
        return pl.concat(parts).with_columns(pl.col(name) * pl.col("share") for name in shared)

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """One row per pair, most target time first: ``comparison_operations`` without outcomes."""
        of = {role: _summed(self.members.filter(pl.col("side") == role.value)) for role in Role}
        reference = of[Role.REFERENCE]
        joined = self.matches.pairs.join(of[Role.TARGET], on="pair").join(
            reference.rename({n: f"reference_{n}" for n in reference.columns if n != "pair"}),
            on="pair",
        )
        return (
            _with_expected(_with_times(joined, self.target.compute_ms), self.ratios)
            .sort("target_ms", "uid", descending=[True, False])
            .with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
        )

    @cached_property
    def unmatched(self) -> pl.DataFrame:
        """The table ``comparison_unmatched``: work without a pair, most time first."""
        sides = {Role.TARGET: self.target, Role.REFERENCE: self.reference}
        parts = []
        for role, side in sides.items():
            rest = self.matches.rest.filter(pl.col("side") == role.value)
            time_ms = pl.col("kernel_time_us") * pl.col("share") / 1e3
            share = pl.when(side.compute_ms > 0).then(100 * time_ms / side.compute_ms)
            parts.append(
                rest.join(self.rows[role], on="uid", maintain_order="left").with_columns(
                    calls="operation_count",
                    time_ms=time_ms,
                    percent_of_compute=share,
                    kernel=pl.col("kernels").list.first().struct.field("name"),
                )
            )
        return pl.concat(parts).sort("time_ms", "side", "uid", descending=[True, True, False])


def _timed(side: Side) -> pl.DataFrame:
    """Return the operations of a side with GPU time, most first; missing columns are null."""
    table = side.rows("operations")
    dtypes = {**_DTYPES, "category": pl.String()}
    chosen = (
        pl.col(name) if name in table.columns else pl.lit(None, dtypes[name]).alias(name)
        for name in _READ
    )
    return (
        table.select(*chosen)
        .filter(pl.col("kernel_time_us") > 0)
        .sort("kernel_time_us", "uid", descending=[True, False])
    )


def _summed(members: pl.DataFrame) -> pl.DataFrame:
    """Sum the rows of one side in each pair; other columns are those of the heaviest row."""
    time, count = pl.col("kernel_time_us"), pl.col("operation_count")
    share = time / time.sum()
    total = {name: (pl.col(name) * count) for name in ("flops", "bytes", "roofline_time_us")}

    def complete(values: pl.Expr) -> pl.Expr:
        return pl.when(values.is_not_null().all()).then(values.sum())

    def one_or_none(name: str) -> pl.Expr:
        return pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first())

    names = pl.col("name").unique(maintain_order=True)
    return (
        members.sort("pair", "kernel_time_us", "uid", descending=[False, True, False])
        .group_by("pair", maintain_order=True)
        .agg(
            pl.col("uid", "category", "bound", "compute", "calls").first(),
            one_or_none("input_dims"),
            one_or_none("input_types"),
            name=names.head(NAMES_SHOWN).str.join(", ")
            + pl.when(names.len() > NAMES_SHOWN).then(pl.lit(", …")).otherwise(pl.lit("")),
            uids="uid",
            ms=time.sum() / 1e3,
            flops=complete(total["flops"]),
            bytes=complete(total["bytes"]),
            roofline_us=complete(total["roofline_time_us"]),
            log_least=complete(share * pl.col("log_least")),
            log_most=complete(share * pl.col("log_most")),
        )
    )


def _with_times(pairs: pl.DataFrame, compute_ms: float) -> pl.DataFrame:
    target, reference = pl.col("ms"), pl.col("reference_ms")
    return (
        pairs.with_columns(
            difference(target, reference),
            difference_pct=difference_pct(target, reference),
            percent_of_compute=pl.when(compute_ms > 0).then(100 * target / compute_ms),
            target_us_per_call=1e3 * target / pl.col("calls"),
            reference_us_per_call=1e3 * reference / pl.col("reference_calls"),
            efficiency_pct=pl.col("roofline_us") / target / 10,
            reference_efficiency_pct=pl.col("reference_roofline_us") / reference / 10,
            target_calls=_whole("calls"),
            target_roofline_us_per_call=pl.col("roofline_us") / pl.col("calls"),
            reference_roofline_us_per_call=pl.col("reference_roofline_us")
            / pl.col("reference_calls"),
        )
        .rename({"ms": "target_ms"})
        .with_columns(
            reference_calls=_whole("reference_calls"),
            time_ratio=pl.col("target_us_per_call") / pl.col("reference_us_per_call"),
        )
    )


def _whole(calls: str) -> pl.Expr:
    return pl.col(calls).round().clip(lower_bound=1).cast(pl.Int64)


def difference(target: pl.Expr, reference: pl.Expr) -> pl.Expr:
    """Return target minus reference, as ``difference_ms``."""
    return (target - reference).alias("difference_ms")


def difference_pct(target: pl.Expr, reference: pl.Expr) -> pl.Expr:
    """Return target minus reference in percent of the reference; null if that is 0."""
    return pl.when(reference > 0).then(100 * (target - reference) / reference)


def matched_pct(operations: pl.DataFrame, unmatched: pl.DataFrame) -> float | None:
    """Return how much of the target's time has a counterpart, in percent; None without any time.

    Args:
        operations: The table ``comparison_operations``.
        unmatched: The table ``comparison_unmatched``.
    """
    matched_ms = float(operations.select(pl.col("target_ms").sum()).item())
    only = unmatched.filter(pl.col("side") == Role.TARGET.value)
    whole_ms = matched_ms + float(only.select(pl.col("time_ms").sum()).item())
    return 100 * matched_ms / whole_ms if whole_ms > 0 else None


def _with_expected(pairs: pl.DataFrame, ratios: HardwareRatios | None) -> pl.DataFrame:
    """Return pairs with expected ratios and the ratio of their work.

    The expected ratio is the geometric mean over the operations of both sides, weighted by time. If
    the same call is memory bound on one GPU and compute bound on the other, it is the ratio of its
    roofline times. If one side is launch bound, the range includes 1.
    """
    is_same_call = pl.col("matched_by") == MatchedBy.ARGUMENTS.value
    has_flops = (pl.col("flops") > 0) & (pl.col("reference_flops") > 0)
    same_name = pl.col("name") == pl.col("reference_name")
    has_bytes = same_name & (pl.col("bytes") > 0) & (pl.col("reference_bytes") > 0)

    def per_call(name: str) -> pl.Expr:
        target = pl.col(name) / pl.col("target_calls")
        return target / (pl.col(f"reference_{name}") / pl.col("reference_calls"))

    work = pl.when(has_flops).then(per_call("flops")).when(has_bytes).then(per_call("bytes"))
    rooflines = pl.col("target_roofline_us_per_call") / pl.col("reference_roofline_us_per_call")
    is_mixed = (
        is_same_call
        & pl.all_horizontal(pl.col("bound", "reference_bound").is_in(["memory", "compute"]))
        & (pl.col("bound") != pl.col("reference_bound"))
        & pl.lit(ratios is not None)
    )
    is_alike = work.is_between(1 / SAME_WORK, SAME_WORK)
    is_comparable = is_same_call | pl.coalesce(is_alike, ~same_name)

    def expected(limit: str) -> pl.Expr:
        mean = ((pl.col(f"log_{limit}") + pl.col(f"reference_log_{limit}")) / 2).exp()
        return pl.when(is_mixed).then(rooflines).when(is_comparable).then(mean)

    is_short = is_launch_bound("target") | is_launch_bound("reference")
    least, most = expected("least"), expected("most")
    return pairs.with_columns(
        work_ratio=work,
        expected_ratio_least=pl.when(is_short).then(least.clip(upper_bound=1.0)).otherwise(least),
        expected_ratio_most=pl.when(is_short).then(most.clip(lower_bound=1.0)).otherwise(most),
    )
