"""Findings that concern a part of the rows of another one."""

from jarvis import impact
from jarvis.findings import AnalysisResult, Finding, Priority, Status
from jarvis.reports.ranking import Recommendation, nested
from jarvis.text.messages import literal

RESULT = AnalysisResult(key="gemm", title="GEMM", tier="compute", status=Status.OK)


def item(
    number: int, uids: tuple[int, ...], saved_ms: float, kernels: tuple[str, ...] = ()
) -> Recommendation:
    gain = impact.bounded_impact(10.0, saved_ms, compute_ms=100.0, total_ms=100.0)
    words = dict.fromkeys(("title", "issue", "algorithmic", "kernel"), literal(str(number)))
    found = Finding(
        check="slow_kernel",
        category="gemm",
        shared_uids=uids,
        impact=gain,
        kernels=kernels,
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        **words,
    )
    return Recommendation(number, number, found, RESULT, f"gemm.{number}")


def test_a_finding_is_shown_below_the_outermost_that_contains_it() -> None:
    whole, part, inner = item(1, (1, 2, 3, 4), 9.0), item(3, (2, 3), 2.0), item(4, (3,), 1.0)
    other, larger = item(2, (5,), 5.0), item(5, (1,), 9.5)
    shown = [
        (each.number, is_part) for each, is_part in nested([whole, other, part, inner, larger])
    ]
    assert shown == [(1, False), (3, True), (4, True), (2, False), (5, False)]


def test_findings_without_rows_contain_nothing() -> None:
    pools = [item(1, (), 9.0), item(2, (), 5.0), item(3, (1,), 5.0), item(4, (1,), 5.0)]
    assert [is_part for _, is_part in nested(pools)] == [False] * 4


def test_a_finding_on_some_kernels_does_not_contain_others_on_the_same_rows() -> None:
    transposes = item(1, (1, 2, 3), 9.0, kernels=("batched_transpose",))
    assert [is_part for _, is_part in nested([transposes, item(2, (1, 2), 2.0)])] == [False] * 2
