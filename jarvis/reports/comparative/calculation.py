"""The calculation of each operation's expected ratio."""

import math

from jarvis.comparison import SLOWER, MatchedBy, Outcome, Role
from jarvis.reports.comparative.subject import Row, Subject
from jarvis.text.format import MISSING, counted, decimal, microseconds, milliseconds, quoted

KNOWN = ("memory", "compute")
MEAN = "mean of the expected ratios of its operations on both sides, weighted by time"


def actual(row: Row) -> str:
    """Return ``221 µs / 169 µs = 1.31``: per call, the target over the reference."""
    target, reference = row["target_us_per_call"], row["reference_us_per_call"]
    times = f"{microseconds(target)} / {microseconds(reference)}"
    return f"{times} = {decimal(row['time_ratio'])} per call"


def expected(subject: Subject, row: Row) -> str:
    """Return the expected ratio, or range of ratios, and the peaks behind it."""
    least, most = row["expected_ratio_least"], row["expected_ratio_most"]
    if most is None:
        return MISSING
    if row["expected_ratio"] is None:
        return f"{decimal(least)} to {decimal(most)} ({_why_range(subject, row)})"
    return f"{decimal(most)} ({_figures(subject, row, most)})"


def _why_range(subject: Subject, row: Row) -> str:
    if row["bound"] not in KNOWN or row["reference_bound"] not in KNOWN:
        return "its bound is not known, so any peak of both GPUs may apply"
    ratio = row[
        "expected_ratio_most" if row["expected_ratio_least"] == 1 else "expected_ratio_least"
    ]
    return f"launch overhead dominates on at least one side: 1, or {_figures(subject, row, ratio)}"


def _figures(subject: Subject, row: Row, ratio: float) -> str:
    """Return the two peaks whose ratio is ``ratio``; a mean if it comes from several operations."""
    for text, value in (_rooflines(row), _peaks(subject, row)):
        if value is not None and math.isclose(value, ratio, rel_tol=1e-6):
            return text
    return MEAN


def _peaks(subject: Subject, row: Row) -> tuple[str, float | None]:
    """Return bandwidths or compute peaks, reference over target."""
    ratios = subject.comparison.ratios
    if ratios is None or row["bound"] != row["reference_bound"]:
        return "", None
    target, reference = ratios.target, ratios.reference
    if row["bound"] == "memory":
        figures = (reference.tb_per_s, target.tb_per_s)
        return f"bandwidth {_over(*figures)} TB/s", ratios.memory
    compute = subject.operations[Role.TARGET][row["uid"]].get("compute") or ""
    value = ratios.compute(compute)
    if value is None:
        return "", None
    peaks = (reference.peak_tflops(compute), target.peak_tflops(compute))
    return f"{quoted(compute)} {_over(*peaks)} TFLOPS/s", value


def _over(reference: float | None, target: float | None) -> str:
    return f"{reference:g} / {target:g}"


def _rooflines(row: Row) -> tuple[str, float | None]:
    """Return the roofline times of a call that is memory bound on one side and compute bound on the
    other."""
    target, reference = roofline_us(row, Role.TARGET), roofline_us(row, Role.REFERENCE)
    is_same_call = row["matched_by"] == MatchedBy.ARGUMENTS.value
    if not (is_same_call and target and reference) or row["bound"] == row["reference_bound"]:
        return "", None
    text = (
        f"rooflines {microseconds(target)} ({row['bound']} bound) / {microseconds(reference)} "
        f"({row['reference_bound']} bound)"
    )
    return text, target / reference


def roofline_us(row: Row, role: Role) -> float | None:
    """Return the roofline time of one call on a side in µs."""
    prefix = "" if role is Role.TARGET else "reference_"
    efficiency: float | None = row[f"{prefix}efficiency_pct"]
    us_per_call: float = row[f"{role.value}_us_per_call"]
    return None if efficiency is None else efficiency / 100 * us_per_call


def off_by(row: Row) -> str:
    """Return actual over expected ratio (of a range, over its nearest end) in four digits, because
    many are close to the tolerance."""
    if not is_judged(row):
        return MISSING
    least, most = row["expected_ratio_least"], row["expected_ratio_most"]
    within = min(max(row["time_ratio"], least), most)
    nearest = most if row["expected_ratio"] is not None else within
    return f"{row['time_ratio'] / nearest:,.4g}"


def attainable(row: Row) -> str:
    """Return ``24 calls x 113 µs x 0.661 = 1.80 ms``, or the number of calls times the target's
    roofline."""
    if row["attainable_ms"] is None:
        return MISSING
    calls, total = counted(row["target_calls"], "call"), milliseconds(row["attainable_ms"])
    if row["is_roofline_capped"]:
        return f"{calls} x roofline {microseconds(roofline_us(row, Role.TARGET))} = {total}"
    per_call = microseconds(row["reference_us_per_call"])
    return f"{calls} x {per_call} x {decimal(row['expected_ratio_most'])} = {total}"


def calculation_text(subject: Subject, row: Row) -> str:
    """Return the whole calculation in sentences, for an operation that is judged."""
    text = (
        f"Actual: {actual(row)}. Expected: {expected(subject, row)}. Actual / expected = "
        f"{off_by(row)}, tolerance {subject.comparison.tolerance:g}: {row['outcome']}."
    )
    if row["outcome"] not in SLOWER:
        return text
    return (
        f"{text} Attainable: {attainable(row)}. Not explained: "
        f"{milliseconds(row['target_ms'])} - {milliseconds(row['attainable_ms'])} = "
        f"{milliseconds(row['unexplained_ms'])}."
    )


def is_judged(row: Row) -> bool:
    """Return whether the operation has an expected ratio."""
    return row["outcome"] not in (Outcome.UNKNOWN.value, Outcome.SHORT.value)
