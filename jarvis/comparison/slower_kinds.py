"""The kinds of findings about calls that are slower on the target, and what distinguishes them."""

from collections.abc import Iterator

import polars as pl

from jarvis.comparison.basis import FindingInput
from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.messages import MESSAGES
from jarvis.comparison.operations import SAME_WORK, differs_in_type
from jarvis.comparison.outcomes import SLOWER
from jarvis.comparison.slower import Slower
from jarvis.findings import Finding
from jarvis.schemas.names import C
from jarvis.text.messages import Message

FUSED_ON_REFERENCE, OTHER_TYPE = "fused_on_reference", "other_type"

MAX_LAUNCHES, MAX_SAVED_LAUNCHES = 30, 15
"""Maximum launches of a call on the target, and more than on the reference, for which fusion is a
likely reason for the difference."""


class Fused(Slower):
    """Operators at one place for which the reference launches fewer kernels."""

    @property
    def check(self) -> str:
        return FUSED_ON_REFERENCE

    @property
    def kind(self) -> str:
        """Last part of its message keys."""
        return "fused"

    @property
    def title(self) -> Message:
        return self._message("title.fused")

    def _algorithmic(self) -> Message:
        return self._message("algorithmic.fused")

    def _kernel(self) -> Message:
        return self._message("kernel.fused")

    def _hypothesis(self) -> Message:
        return MESSAGES("hypothesis.fused")


class OtherType(Slower):
    """Operators at one place that the reference computes faster in another type."""

    @property
    def check(self) -> str:
        return OTHER_TYPE

    @property
    def kind(self) -> str:
        """Last part of its message keys."""
        return "other_type"

    @property
    def title(self) -> Message:
        return self._message("title.other_type")

    def _algorithmic(self) -> Message:
        return self._message("algorithmic.other_type")

    def _kernel(self) -> Message:
        return self._message("kernel.other_type")

    def _hypothesis(self) -> None:
        return None


def slower(inputs: FindingInput, operations: pl.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each operator whose calls are slower than explained.

    Places at which the reference needs fewer kernels for the same work, or computes in another
    type, have their own findings.
    """
    is_slower = pl.col(C.outcome).is_in(SLOWER) & (pl.col(C.unexplained_ms) > 0)
    measured = _with_measured_gap(operations)
    is_measured = pl.col("is_measured") & (pl.col(C.time_ratio) > inputs.tolerance)
    fused = measured.filter(_needs_more_launches() & (is_slower | is_measured))
    rows = operations.filter(is_slower).join(fused, on=C.pair, how="anti", maintain_order="left")
    others = measured.filter(is_measured & differs_in_type()).join(
        fused, on=C.pair, how="anti", maintain_order="left"
    )
    kinds = (
        (Slower, rows, (C.category, C.name)),
        (Fused, fused, (C.pair,)),
        (OtherType, others, (C.pair,)),
    )
    for kind, part, keys in kinds:
        for group in part.partition_by(*keys, maintain_order=True):
            calls = kind(inputs, group.sort(C.unexplained_ms, C.pair, descending=[True, False]))
            if inputs.is_relevant(calls.time_ms, calls.unexplained_ms):
                yield calls.finding()


def _needs_more_launches() -> pl.Expr:
    """Return whether the target launches more kernels at a place, with different operators."""
    launches, reference = pl.col(C.launches_per_call), pl.col(C.reference_launches_per_call)
    return (
        (pl.col(C.matched_by) == MatchedBy.CALL_TREE.value)
        & (pl.col(C.name) != pl.col(C.reference_name))
        & (reference >= 1)
        & (launches > reference)
        & (launches <= MAX_LAUNCHES)
        & (launches - reference <= MAX_SAVED_LAUNCHES)
    )


def _with_measured_gap(operations: pl.DataFrame) -> pl.DataFrame:
    """Use the reference's own time as attainable time if no ratio is expected."""
    same_ms = pl.col(C.target_ms) / pl.col(C.time_ratio)
    is_same_work = pl.col(C.work_ratio).is_between(1 / SAME_WORK, SAME_WORK)
    is_measured = pl.col(C.expected_ratio_most).is_null() & is_same_work.fill_null(value=True)
    gap_ms = (pl.col(C.target_ms) - same_ms).clip(lower_bound=0.0)
    return operations.with_columns(
        is_measured=is_measured,
        **{
            C.attainable_ms: pl.when(is_measured).then(same_ms).otherwise(C.attainable_ms),
            C.unexplained_ms: pl.when(is_measured).then(gap_ms).otherwise(C.unexplained_ms),
        },
    )
