"""Operations of both sides: times, ratios, and expected ratios."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.comparison.expected import (
    HardwareRatios,
    hardware_ratios,
    has_tiny_roofline,
    is_launch_bound,
    log_ratios,
)
from jarvis.comparison.matching import MatchedBy, Matches, match
from jarvis.comparison.sides import Role, Side
from jarvis.schemas import dtypes
from jarvis.schemas.names import C

SAME_WORK = 1.1
"""Maximum factor between the FLOPs of calls at one place that do the same work."""

SAME_WORKLOAD_PCT = 50.0
"""Minimum share of the target's time with a counterpart for two runs of the same workload."""

MAX_UNLINKED_PCT = 50.0
"""A side with more GPU work in no operation is not comparable by operation."""

NAMES_SHOWN = 3

_READ = (
    C.uid,
    C.name,
    C.category,
    C.input_dims,
    C.input_types,
    C.operation_count,
    C.kernel_time_us,
    C.comm_time_us,
    C.flops,
    C.bytes,
    C.compute,
    C.roofline_time_us,
    C.bound,
    C.roofline_note,
    C.params,
    C.kernels,
)
_DTYPES = dtypes("operations")


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
            self.matches.members.filter(pl.col(C.side) == role.value).join(
                self.rows[role], on=C.uid, maintain_order="left"
            )
            for role in Role
        ]
        shared = (C.kernel_time_us, C.operation_count)
        return pl.concat(parts).with_columns(pl.col(name) * pl.col("share") for name in shared)

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """One row per pair, most target time first: ``comparison_operations`` without outcomes."""
        of = {role: _summed(self.members.filter(pl.col(C.side) == role.value)) for role in Role}
        reference = of[Role.REFERENCE]
        joined = self.matches.pairs.join(of[Role.TARGET], on=C.pair).join(
            reference.rename({n: f"reference_{n}" for n in reference.columns if n != "pair"}),
            on=C.pair,
        )
        return (
            _with_expected(_with_times(joined, self.target.compute_ms), self.ratios)
            .sort(C.target_ms, C.uid, descending=[True, False])
            .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(C.row))
        )

    @cached_property
    def unmatched(self) -> pl.DataFrame:
        """The table ``comparison_unmatched``: work without a pair, most time first."""
        sides = {Role.TARGET: self.target, Role.REFERENCE: self.reference}
        parts = []
        for role, side in sides.items():
            rest = self.matches.rest.filter(pl.col(C.side) == role.value)
            time_ms = pl.col(C.kernel_time_us) * pl.col("share") / 1e3
            share = pl.when(side.compute_ms > 0).then(100 * time_ms / side.compute_ms)
            parts.append(
                rest.join(self.rows[role], on=C.uid, maintain_order="left").with_columns(
                    whole(pl.col(C.operation_count)).alias(C.calls),
                    time_ms.alias(C.time_ms),
                    share.alias(C.percent_of_compute),
                    pl.col(C.kernels).list.first().struct.field(C.name).alias(C.kernel),
                )
            )
        return pl.concat(parts).sort(C.time_ms, C.side, C.uid, descending=[True, True, False])


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
        .filter(pl.col(C.kernel_time_us) > 0)
        .sort(C.kernel_time_us, C.uid, descending=[True, False])
    )


def _summed(members: pl.DataFrame) -> pl.DataFrame:
    """Sum the rows of one side in each pair; other columns are those of the heaviest row."""
    time, count = pl.col(C.kernel_time_us), pl.col(C.operation_count)
    share = time / time.sum()
    total = {name: (pl.col(name) * count) for name in (C.flops, C.bytes, C.roofline_time_us)}

    def complete(values: pl.Expr) -> pl.Expr:
        return pl.when(values.is_not_null().all()).then(values.sum())

    def one_or_none(name: str) -> pl.Expr:
        return pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first())

    names = pl.col(C.name).unique(maintain_order=True)
    return (
        members.sort(C.pair, C.kernel_time_us, C.uid, descending=[False, True, False])
        .group_by(C.pair, maintain_order=True)
        .agg(
            pl.col(C.uid, C.category, C.bound, C.compute, C.calls).first(),
            one_or_none(C.input_dims),
            one_or_none(C.input_types),
            **{
                C.name: names.head(NAMES_SHOWN).str.join(", ")
                + pl.when(names.len() > NAMES_SHOWN).then(pl.lit(", …")).otherwise(pl.lit("")),
                C.uids: pl.col(C.uid),
                "ms": time.sum() / 1e3,
                C.flops: complete(total[C.flops]),
                C.bytes: complete(total[C.bytes]),
                "roofline_us": complete(total[C.roofline_time_us]),
                C.dtype: pl.col(C.compute).first().str.extract(r"_([^_]+)$"),
                C.log_least: complete(share * pl.col(C.log_least)),
                C.log_most: complete(share * pl.col(C.log_most)),
            },
        )
    )


def _with_times(pairs: pl.DataFrame, compute_ms: float) -> pl.DataFrame:
    target, reference = pl.col("ms"), pl.col(C.reference_ms)
    return (
        pairs.with_columns(
            difference(target, reference),
            **{
                C.difference_pct: difference_pct(target, reference),
                C.percent_of_compute: pl.when(compute_ms > 0).then(100 * target / compute_ms),
                C.target_us_per_call: 1e3 * target / pl.col(C.calls),
                C.reference_us_per_call: 1e3 * reference / pl.col(C.reference_calls),
                C.efficiency_pct: pl.col("roofline_us") / target / 10,
                C.reference_efficiency_pct: pl.col("reference_roofline_us") / reference / 10,
                C.target_calls: whole(pl.col(C.calls)),
                C.target_roofline_us_per_call: pl.col("roofline_us") / pl.col(C.calls),
            },
            reference_roofline_us_per_call=pl.col("reference_roofline_us")
            / pl.col(C.reference_calls),
        )
        .rename({"ms": C.target_ms})
        .with_columns(
            **{
                C.reference_calls: whole(pl.col(C.reference_calls)),
                C.time_ratio: pl.col(C.target_us_per_call) / pl.col(C.reference_us_per_call),
            },
        )
    )


def whole(count: pl.Expr) -> pl.Expr:
    """Return a count of calls as a whole number, at least 1: per step it may be a fraction."""
    return count.round().clip(lower_bound=1).cast(pl.Int64)


def difference(target: pl.Expr, reference: pl.Expr) -> pl.Expr:
    """Return target minus reference, as ``difference_ms``."""
    return (target - reference).alias(C.difference_ms)


def difference_pct(target: pl.Expr, reference: pl.Expr) -> pl.Expr:
    """Return target minus reference in percent of the reference; null if that is 0."""
    return pl.when(reference > 0).then(100 * (target - reference) / reference)


def matched_pct(operations: pl.DataFrame, unmatched: pl.DataFrame) -> float | None:
    """Return how much of the target's time has a counterpart, in percent; None without any time.

    Args:
        operations: The table ``comparison_operations``.
        unmatched: The table ``comparison_unmatched``.
    """
    matched_ms = float(operations.select(pl.col(C.target_ms).sum()).item())
    only = unmatched.filter(pl.col(C.side) == Role.TARGET.value)
    whole_ms = matched_ms + float(only.select(pl.col(C.time_ms).sum()).item())
    return 100 * matched_ms / whole_ms if whole_ms > 0 else None


def differs_in_type() -> pl.Expr:
    """Return whether the two sides of a pair compute in different types, as bf16 and fp8."""
    is_other = (pl.col(C.dtype) != pl.col(C.reference_dtype)).fill_null(value=False)
    return is_other & (pl.col(C.matched_by) != MatchedBy.ARGUMENTS.value)


def _with_expected(pairs: pl.DataFrame, ratios: HardwareRatios | None) -> pl.DataFrame:
    """Return pairs with expected ratios and the ratio of their work.

    The expected ratio is the geometric mean over the operations of both sides, weighted by time. If
    the same call is memory bound on one GPU and compute bound on the other, it is the ratio of its
    roofline times. If one side is launch bound, the range includes 1; rooflines below a microsecond
    explain no difference, so 1 is expected. Nothing is expected of different work or types.
    """
    is_same_call = pl.col(C.matched_by) == MatchedBy.ARGUMENTS.value
    has_flops = (pl.col(C.flops) > 0) & (pl.col("reference_flops") > 0)
    same_name = pl.col(C.name) == pl.col(C.reference_name)
    has_bytes = same_name & (pl.col(C.bytes) > 0) & (pl.col("reference_bytes") > 0)

    def per_call(name: str) -> pl.Expr:
        target = pl.col(name) / pl.col(C.target_calls)
        return target / (pl.col(f"reference_{name}") / pl.col(C.reference_calls))

    work = pl.when(has_flops).then(per_call(C.flops)).when(has_bytes).then(per_call(C.bytes))
    rooflines = pl.col(C.target_roofline_us_per_call) / pl.col("reference_roofline_us_per_call")
    is_mixed = (
        is_same_call
        & pl.all_horizontal(pl.col(C.bound, C.reference_bound).is_in(["memory", "compute"]))
        & (pl.col(C.bound) != pl.col(C.reference_bound))
        & pl.lit(ratios is not None)
    )
    is_alike = work.is_between(1 / SAME_WORK, SAME_WORK)
    is_comparable = is_same_call | (pl.coalesce(is_alike, ~same_name) & ~differs_in_type())

    def expected(limit: str) -> pl.Expr:
        mean = ((pl.col(f"log_{limit}") + pl.col(f"reference_log_{limit}")) / 2).exp()
        return pl.when(is_mixed).then(rooflines).when(is_comparable).then(mean)

    is_short = is_launch_bound("target") | is_launch_bound("reference")
    is_tiny = has_tiny_roofline()
    least, most = expected("least"), expected("most")
    return pairs.with_columns(
        **{
            C.work_ratio: work,
            C.expected_ratio_least: pl.when(is_tiny & least.is_not_null())
            .then(1.0)
            .when(is_short)
            .then(least.clip(upper_bound=1.0))
            .otherwise(least),
            C.expected_ratio_most: pl.when(is_tiny & most.is_not_null())
            .then(1.0)
            .when(is_short)
            .then(most.clip(lower_bound=1.0))
            .otherwise(most),
        },
    )
