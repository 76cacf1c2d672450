"""What the two sides do differently, and what can still be compared.

A step of another model, batch or type takes another time for that reason alone. Only what the
inputs record is stated: matrix work is the recorded operations with GPU time whose perf model has
FLOPs and a matrix peak (matrix products, convolutions, attention).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
import polars as pl

from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.operations import SAME_WORKLOAD_PCT, Paired, matched_pct
from jarvis.comparison.sides import Role, Side
from jarvis.impact import share_pct
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable

MESSAGES = MessageTable(
    "comparison_workload",
    {
        "differ": "The workloads differ, so the times of both sides are not like for like.",
        "models": "The models differ by name: {target} on the target, {reference} on the "
        "reference.",
        "ranks": "The job of the target has {target:count rank}, that of the reference "
        "{reference:count rank}.",
        "tokens": "A step has {target} tokens on the target, {reference} tokens on the reference.",
        "types": "Matrix work computes in {target} on the target, in {reference} on the reference.",
        "rows": "Matrix products with equal N and K have {ratio} times as many rows (M) on the "
        "target as on the reference; in the one with most FLOPs, {target} against {reference}.",
        "batch": "Convolutions have a batch of {target} on the target, of {reference} on the "
        "reference.",
        "flops": "Matrix work with known FLOPs does {target} {span} on the target, {reference} on "
        "the reference.",
        "span.step": "per step",
        "span.recording": "in the recording",
        "shapes": "Shapes of matrix products and convolutions: {shapes:,} in all, "
        "{both:,} of them on both sides.",
        "arguments": "Other recorded shapes or types on the two sides: "
        "{operations:count operation} of the same name, {target_pct} of the operations' time on "
        "the target.",
        "other": "Only {matched_pct} of the time of the target's operations has a counterpart: the "
        "two sides probably run different workloads, so work on only one side and differences of "
        "idle time are not findings.",
        "per_token": "Still comparable: the step time per token, {target} on the target, "
        "{reference} on the reference.",
        "per_row": "Still comparable: the step time per row of these products, {target} on the "
        "target, {reference} on the reference.",
        "per_image": "Still comparable: the step time per image of the batch, {target} on the "
        "target, {reference} on the reference.",
        "per_call": "Still comparable: the time per call of {operations:count operation} with the "
        "same name, recorded shapes and types on both sides, {target_pct} of the operations' time "
        "on the target, {reference_pct} on the reference.",
        "per_call.none": "No operation has the same name, recorded shapes and types on both sides, "
        "so times per call are not like for like either.",
    },
)

MIN_TYPE_PCT = 1.0
"""A type with a smaller share of the FLOPs of matrix work is not named."""

EQUAL = 1e-3
"""Relative difference of FLOPs or rows that rounding explains."""

_CONVOLVED = ("input_shape", "filter_shape")
_UNITS = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6))


@dataclass(frozen=True)
class Workload:
    """What both sides of a comparison do.

    ``operations`` and ``unmatched`` are the comparison's tables.
    """

    paired: Paired
    operations: pl.DataFrame
    unmatched: pl.DataFrame

    @cached_property
    def differences(self) -> tuple[Message, ...]:
        """Return what differs, except the number of steps, which is divided out."""
        return tuple(self._differences())

    @cached_property
    def comparable(self) -> tuple[Message, ...]:
        """Return what can be compared although the workloads differ."""
        return tuple(self._comparable())

    @cached_property
    def is_alike(self) -> bool:
        """Return whether no difference is recorded, and most of the target has a counterpart."""
        return not self.differences and not self._other

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Return what differs, and what can still be compared; none if nothing differs."""
        if self.is_alike:
            return ()
        differ = (MESSAGES("differ"), *self.differences) if self.differences else ()
        return (*differ, *self._other, *self.comparable)

    @property
    def _other(self) -> tuple[Message, ...]:
        matched = matched_pct(self.operations, self.unmatched)
        if matched is None or matched >= SAME_WORKLOAD_PCT:
            return ()
        return (MESSAGES("other", matched_pct=matched),)

    def _differences(self) -> Iterator[Message]:
        sides = self.paired.target, self.paired.reference
        models = [side.model for side in sides]
        if all(models) and models[0] != models[1]:
            yield _both("models", *models)
        ranks = [side.ranks for side in sides]
        if all(ranks) and ranks[0] != ranks[1]:
            yield _both("ranks", *ranks)
        if self._tokens is not None and self._tokens[0] != self._tokens[1]:
            yield _both("tokens", *(f"{tokens:,.10g}" for tokens in self._tokens))
        yield from self._types()
        yield from self._rows()
        yield from self._batch()
        yield from self._flops()
        yield from self._shapes()
        yield from self._arguments()

    def _types(self) -> Iterator[Message]:
        types = [self._matrix_types(role) for role in Role]
        if all(types) and set(types[0]) != set(types[1]):
            yield _both("types", *(" and ".join(each) for each in types))

    def _matrix_types(self, role: Role) -> list[str]:
        """Return the types of matrix work, most FLOPs first."""
        flops = self._matrix[role].group_by(C.compute).agg(pl.col("all_flops").sum())
        ordered = flops.sort("all_flops", C.compute, descending=[True, False])
        least = float(ordered["all_flops"].sum()) * MIN_TYPE_PCT / 100
        shown = ordered.filter(pl.col("all_flops") >= least)[C.compute]
        return [compute.removeprefix("matrix_") for compute in shown]

    def _rows(self) -> Iterator[Message]:
        if self._scaled_rows is not None:
            target, reference = self._scaled_rows
            ratio = f"{target / reference:.3g}"
            yield MESSAGES("rows", ratio=ratio, target=f"{target:,}", reference=f"{reference:,}")

    def _batch(self) -> Iterator[Message]:
        if self._batches is not None and self._batches[0] != self._batches[1]:
            yield _both("batch", *(f"{batch:,}" for batch in self._batches))

    def _flops(self) -> Iterator[Message]:
        flops = [float(self._matrix[role]["all_flops"].sum()) / self._steps(role) for role in Role]
        if all(flops) and not math.isclose(*flops, rel_tol=EQUAL):
            span = MESSAGES("span.step" if self._has_steps else "span.recording")
            target, reference = map(_flop_text, flops)
            yield MESSAGES("flops", span=span, target=target, reference=reference)

    def _shapes(self) -> Iterator[Message]:
        target, reference = (self._matrix_shapes(role) for role in Role)
        if target and reference and target != reference:
            both = len(target & reference)
            yield MESSAGES("shapes", shapes=len(target | reference), both=both)

    def _arguments(self) -> Iterator[Message]:
        """Yield that operations of the same name have other arguments, if they take most time."""
        of_reference = self.paired.rows[Role.REFERENCE].select(
            pl.col(C.uid).alias(C.reference_uid), pl.col(C.input_dims).alias("reference_dims")
        )
        is_other = (
            (pl.col(C.matched_by) != MatchedBy.ARGUMENTS.value)
            & (pl.col(C.name) == pl.col(C.reference_name))
            & (pl.col(C.input_dims) != pl.col("reference_dims"))
        )
        rows = self.operations.join(of_reference, on=C.reference_uid).filter(is_other)
        target_pct = self._share_pct(rows, Role.TARGET)
        if not rows.is_empty() and target_pct >= SAME_WORKLOAD_PCT:
            yield MESSAGES("arguments", operations=rows.height, target_pct=target_pct)

    def _share_pct(self, rows: pl.DataFrame, role: Role) -> float:
        """Return the share of matched rows in the time of a side's operations."""
        alone = self.unmatched.filter(pl.col(C.side) == role.value)[C.time_ms]
        column = f"{role.value}_ms"
        whole_ms = float(self.operations[column].sum()) + float(alone.sum())
        return share_pct(float(rows[column].sum()), whole_ms)

    def _matrix_shapes(self, role: Role) -> set[tuple[Any, ...]]:
        products = {key for key, _, _ in self._products[role]}
        return products | {key for key, _ in self._convolutions[role]}

    def _comparable(self) -> Iterator[Message]:
        times_ms = [
            None if account is None or not self._has_steps else account.step_ms
            for account in self._accounts
        ]
        units = {"per_token": self._tokens, "per_row": self._scaled_rows}
        if self._scaled_rows is None:
            units["per_image"] = self._batches
        for key, counts in units.items():
            if counts is None or counts[0] == counts[1]:
                continue
            per_us = [
                1e3 * time_ms / count
                for time_ms, count in zip(times_ms, counts, strict=True)
                if time_ms is not None
            ]
            if len(per_us) == len(counts):
                yield _both(key, *map(_unit_time, per_us))
        if not self.operations.is_empty() or not self.unmatched.is_empty():
            yield self._per_call()

    def _per_call(self) -> Message:
        is_same = (pl.col(C.matched_by) == MatchedBy.ARGUMENTS.value) & pl.col(
            C.input_dims
        ).is_not_null()
        rows = self.operations.filter(is_same)
        if rows.is_empty():
            return MESSAGES("per_call.none")
        shares = {f"{role.value}_pct": self._share_pct(rows, role) for role in Role}
        return MESSAGES("per_call", operations=rows.height, **shares)

    @cached_property
    def _matrix(self) -> Mapping[Role, pl.DataFrame]:
        """The matrix work of each side, with ``all_flops`` of all calls."""
        is_matrix = pl.col(C.compute).str.starts_with("matrix_") & (pl.col(C.flops) > 0)
        flops = (pl.col(C.flops) * pl.col(C.operation_count)).alias("all_flops")
        return {
            role: rows.filter(is_matrix).with_columns(flops)
            for role, rows in self.paired.rows.items()
        }

    @cached_property
    def _products(self) -> Mapping[Role, list[tuple[tuple[int, ...], float, float]]]:
        """``(M, N, K, B)``, calls and FLOPs of the matrix products of each side."""
        return {
            role: [
                (key, calls, flops)
                for params, calls, flops in self._params(role)
                if (key := _dimensions(params)) is not None
            ]
            for role in Role
        }

    @cached_property
    def _convolutions(self) -> Mapping[Role, list[tuple[tuple[tuple[int, ...], ...], float]]]:
        """Shapes of input and filter, and FLOPs of the convolutions of each side."""
        return {
            role: [
                (tuple(tuple(params[name]) for name in _CONVOLVED), flops)
                for params, _, flops in self._params(role)
                if all(params.get(name) for name in _CONVOLVED)
            ]
            for role in Role
        }

    def _params(self, role: Role) -> Iterator[tuple[dict[str, Any], float, float]]:
        rows = self._matrix[role].select(C.params, C.operation_count, "all_flops")
        for params, calls, flops in rows.iter_rows():
            if params is not None:
                yield orjson.loads(params), calls, flops

    @cached_property
    def _scaled_rows(self) -> tuple[int, int] | None:
        """The M of the same product on both sides, if all products differ by this factor alone.

        None if the products with N and K of both sides are less than half of the FLOPs of the
        matrix products of a side, or the factor is 1 or not the same for all.
        """
        rows: dict[Role, dict[tuple[int, int], float]] = {}
        for role, products in self._products.items():
            sums = rows.setdefault(role, {})
            for (m, n, k, batch), calls, _ in products:
                sums[n, k] = sums.get((n, k), 0.0) + m * batch * calls / self._steps(role)
        common = rows[Role.TARGET].keys() & rows[Role.REFERENCE].keys()
        ratios = [rows[Role.TARGET][key] / rows[Role.REFERENCE][key] for key in common]
        if not ratios or math.isclose(ratios[0], 1, rel_tol=EQUAL):
            return None
        if any(not math.isclose(ratio, ratios[0], rel_tol=EQUAL) for ratio in ratios):
            return None
        heaviest = []
        for role in Role:
            shared = [each for each in self._products[role] if each[0][1:3] in common]
            all_flops = sum(flops for _, _, flops in self._products[role])
            if 2 * sum(flops for _, _, flops in shared) < all_flops:
                return None
            heaviest.append(max(shared, key=lambda each: (each[2], each[0]))[0])
        (m, *weights), (other_m, *other_weights) = heaviest
        if weights != other_weights or not math.isclose(m / other_m, ratios[0], rel_tol=EQUAL):
            return None
        return m, other_m

    @cached_property
    def _batches(self) -> tuple[int, int] | None:
        """The batch of the convolutions of both sides, if each has one, and equal filters."""
        found = [self._convolutions[role] for role in Role]
        batches = [{shapes[0][0] for shapes, _ in each} for each in found]
        filters = [{shapes[1] for shapes, _ in each} for each in found]
        if any(len(each) != 1 for each in batches) or filters[0] != filters[1]:
            return None
        return batches[0].pop(), batches[1].pop()

    @cached_property
    def _tokens(self) -> tuple[float, float] | None:
        """The mean number of tokens of a step of both sides, if they are known."""
        tokens = [
            None if each is None or each.tokens is None else each.tokens / each.step_count
            for each in self._accounts
        ]
        return None if tokens[0] is None or tokens[1] is None else (tokens[0], tokens[1])

    @cached_property
    def _accounts(self) -> tuple[StepAccount | None, ...]:
        return tuple(
            StepAccount.of(side.rows("steps"))
            for side in (self.paired.target, self.paired.reference)
        )

    @property
    def _has_steps(self) -> bool:
        return None not in (self.paired.target.steps, self.paired.reference.steps)

    def _steps(self, role: Role) -> float:
        """Return the number of steps that the sums of a side's operations still cover."""
        side: Side = self.paired.target if role is Role.TARGET else self.paired.reference
        return (side.steps or 1) / side.divisor if self._has_steps else 1.0


def _both(key: str, target: object, reference: object) -> Message:
    return MESSAGES(key, target=target, reference=reference)


def _dimensions(params: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return ``(M, N, K, B)`` of a matrix product, or None."""
    found = [params.get(name) for name in ("M", "N", "K")]
    if not all(isinstance(each, int) and each > 0 for each in found):
        return None
    batch = params.get("B")
    return (*found, batch if isinstance(batch, int) else 1)  # type: ignore[arg-type]


def _flop_text(flops: float) -> str:
    for unit, scale in _UNITS:
        if flops >= scale:
            return f"{flops / scale:.4g} {unit}"
    return f"{flops:.4g} FLOP"


def _unit_time(us: float) -> str:
    return f"{us:.3g} µs" if us < 1e3 else f"{us / 1e3:.3g} ms"
