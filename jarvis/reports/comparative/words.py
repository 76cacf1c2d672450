"""Differences, verdicts and gaps of a comparison in words; how each is calculated."""

import math
from collections.abc import Mapping

from jarvis.comparison import FASTER, SLOWER, MatchedBy, Outcome, Role
from jarvis.comparison import basis as evidence
from jarvis.comparison.basis import REFERENCE_TIME, UNEXPLAINED_TIME
from jarvis.comparison.expected import roofline_us
from jarvis.comparison.findings import OTHER_TYPE
from jarvis.comparison.timeline import OUTSIDE_COMPUTE
from jarvis.findings import Finding
from jarvis.impact import TINY_ROOFLINE_US
from jarvis.reports.comparative.subject import Row, Subject
from jarvis.reports.messages import time_range
from jarvis.savings import per_step
from jarvis.schemas.names import C
from jarvis.text.format import (
    MISSING,
    counted,
    decimal,
    microseconds,
    milliseconds,
    percent,
    quoted,
)
from jarvis.text.messages import Message, to_text

KNOWN = ("memory", "compute")
ONE_GPU = "the same GPU on both sides"
MEAN = "mean of the expected ratios of its operations on both sides, weighted by time"


def actual(row: Row) -> str:
    """Return ``221 µs / 169 µs = 1.31``: per call, the target over the reference."""
    target, reference = row[C.target_us_per_call], row[C.reference_us_per_call]
    times = f"{microseconds(target)} / {microseconds(reference)}"
    return f"{times} = {decimal(row[C.time_ratio])} per call"


def expected(subject: Subject, row: Row) -> str:
    """Return the expected ratio, or range of ratios, and the peaks behind it."""
    least, most = row[C.expected_ratio_least], row[C.expected_ratio_most]
    if most is None:
        return MISSING
    if row[C.expected_ratio] is None:
        return f"{decimal(least)} to {decimal(most)} ({_why_range(subject, row)})"
    return f"{decimal(most)} ({_figures(subject, row, most)})"


def _why_range(subject: Subject, row: Row) -> str:
    if row[C.bound] not in KNOWN or row[C.reference_bound] not in KNOWN:
        return "its bound is not known, so any peak of both GPUs may apply"
    ratio = row[
        C.expected_ratio_most if row[C.expected_ratio_least] == 1 else C.expected_ratio_least
    ]
    return f"launch overhead dominates on at least one side: 1, or {_figures(subject, row, ratio)}"


def _figures(subject: Subject, row: Row, ratio: float) -> str:
    """Return the two peaks whose ratio is ``ratio``; a mean if it comes from several operations."""
    if subject.is_one_gpu:
        return ONE_GPU
    if any((roofline_us(row, role) or math.inf) < TINY_ROOFLINE_US for role in Role):
        return "a roofline below a microsecond explains nothing: launch bound"
    for text, value in (_rooflines(row), _peaks(subject, row)):
        if value is not None and math.isclose(value, ratio, rel_tol=1e-6):
            return text
    return MEAN


def _peaks(subject: Subject, row: Row) -> tuple[str, float | None]:
    """Return bandwidths or compute peaks, reference over target."""
    ratios = subject.comparison.ratios
    if ratios is None or row[C.bound] != row[C.reference_bound]:
        return "", None
    target, reference = ratios.target, ratios.reference
    if row[C.bound] == "memory":
        figures = (reference.tb_per_s, target.tb_per_s)
        return f"bandwidth {_over(*figures)} TB/s", ratios.memory
    compute = subject.operations[Role.TARGET][row[C.uid]].get("compute") or ""
    value = ratios.compute(compute)
    if value is None:
        return "", None
    peaks = (reference.peak_tflops(compute), target.peak_tflops(compute))
    return f"{quoted(compute)} {_over(*peaks)} TFLOP/s", value


def _over(reference: float | None, target: float | None) -> str:
    return f"{reference:g} / {target:g}"


def _rooflines(row: Row) -> tuple[str, float | None]:
    """Return the roofline times of a call that is memory bound on one side and compute bound on the
    other."""
    target, reference = roofline_us(row, Role.TARGET), roofline_us(row, Role.REFERENCE)
    is_same_call = row[C.matched_by] == MatchedBy.ARGUMENTS.value
    if not (is_same_call and target and reference) or row[C.bound] == row[C.reference_bound]:
        return "", None
    text = (
        f"rooflines {microseconds(target)} ({row[C.bound]} bound) / {microseconds(reference)} "
        f"({row[C.reference_bound]} bound)"
    )
    return text, target / reference


def off_by(row: Row) -> str:
    """Return actual over expected ratio (of a range, over its nearest end) in four digits, because
    many are close to the tolerance."""
    if not has_efficiency(row):
        return MISSING
    least, most = row[C.expected_ratio_least], row[C.expected_ratio_most]
    within = min(max(row[C.time_ratio], least), most)
    nearest = most if row[C.expected_ratio] is not None else within
    return f"{row[C.time_ratio] / nearest:,.4g}"


def attainable(row: Row) -> str:
    """Return ``24 calls x 113 µs x 0.661 = 1.80 ms``, or the number of calls times the target's
    roofline."""
    if row[C.attainable_ms] is None:
        return MISSING
    calls, total = counted(row[C.target_calls], "call"), milliseconds(row[C.attainable_ms])
    if row[C.is_roofline_capped]:
        return f"{calls} x roofline {microseconds(roofline_us(row, Role.TARGET))} = {total}"
    per_call = microseconds(row[C.reference_us_per_call])
    return f"{calls} x {per_call} x {decimal(row[C.expected_ratio_most])} = {total}"


def calculation_text(subject: Subject, row: Row) -> str:
    """Return the whole calculation in sentences, for an operation that has an expectation."""
    text = (
        f"Actual: {actual(row)}. Expected: {expected(subject, row)}. Actual / expected = "
        f"{off_by(row)}, tolerance {subject.comparison.tolerance:g}: {row[C.outcome]}."
    )
    if row[C.outcome] not in SLOWER:
        return text
    return (
        f"{text} Attainable: {attainable(row)}. Not explained: "
        f"{milliseconds(row[C.target_ms])} - {milliseconds(row[C.attainable_ms])} = "
        f"{milliseconds(row[C.unexplained_ms])}."
    )


def has_efficiency(row: Row) -> bool:
    """Return whether the operation has an expected ratio."""
    return row[C.outcome] not in (Outcome.UNKNOWN.value, Outcome.SHORT.value)


YES, NO = "Yes", "No"
VERDICTS: Mapping[str, str] = {
    Outcome.EXPECTED.value: YES,
    Outcome.SHORT.value: "Not compared: launch overhead dominates",
    Outcome.UNKNOWN.value: "Not known",
}
"""The cell ``Expected?`` by outcome; other outcomes are unexpected."""

ROUNDING_PCT = 1e-9
"""Smaller changes count as none."""

NOTHING_EXPECTED = "what the hardware explains is not known"


def delta(change_pct: float | None) -> str:
    """Return a change with its sign: ``+12.3%``; empty if the reference has none."""
    if change_pct is None:
        return MISSING
    change = 0.0 if abs(change_pct) < ROUNDING_PCT else change_pct
    return f"{'+' if change > 0 else ''}{percent(change)}"


def change_pct(target: float | None, reference: float | None) -> float | None:
    """Return the target minus the reference, in percent of the reference."""
    if target is None or not reference:
        return None
    return 100 * (target - reference) / reference


def is_unexpected(row: Row) -> bool:
    """Return whether the hardware does not explain the time of this operation."""
    return row[C.outcome] in (*SLOWER, *FASTER)


def verdict(row: Row) -> str:
    """Return the cell ``Expected?``: whether the hardware explains the difference."""
    if not is_unexpected(row):
        return VERDICTS[row[C.outcome]]
    return f"{NO}: {_expected_change(row)} expected"


def _expected_change(row: Row) -> str:
    is_slower = row[C.outcome] in SLOWER
    limit = row[C.expected_ratio_most if is_slower else C.expected_ratio_least]
    if math.isclose(limit, 1.0):
        return "no more time" if is_slower else "no less time"
    if row[C.expected_ratio] is not None:
        return f"about {delta(100 * (row[C.expected_ratio] - 1))}"
    return f"at {'most' if is_slower else 'least'} {delta(100 * (limit - 1))}"


def speed(change: float) -> str:
    """Return ``12.3% slower`` for 12.3% more time, ``12.3% faster`` for less."""
    if abs(change) < ROUNDING_PCT:
        return "as fast as the reference"
    return f"{percent(abs(change))} {'slower' if change > 0 else 'faster'}"


def gap(subject: Subject, finding: Finding) -> str:
    """Return how far the target is from what the hardware explains, as a sentence."""
    row = subject.row_of(finding)
    if finding.check in OUTSIDE_COMPUTE:
        return to_text(finding.issue)
    if row is None:
        return (
            f"Target alone spends {milliseconds(_number(finding, evidence.TARGET_TIME))} on "
            f"{_operators(finding)} (no counterpart on the reference, which spends "
            f"{milliseconds(_number(finding, REFERENCE_TIME))} on other work there)."
        )
    actual = speed(_number(finding, evidence.SLOWER_PCT))
    covered = finding.title[0].values.get("subject")
    named = to_text(covered) if isinstance(covered, Message) else _operators(finding)
    return f"Target is {actual} on {named} ({_should(subject, finding, row)})."


def _should(subject: Subject, finding: Finding, row: Row) -> str:
    if finding.check == OTHER_TYPE:
        return f"not like for like: {row[C.dtype]} against {row[C.reference_dtype]}"
    if row[C.expected_ratio_most] is None:
        return NOTHING_EXPECTED
    if subject.is_one_gpu:
        return "unexpected: should be no slower on the same GPU"
    expected = _number(finding, evidence.EXPECTED_PCT)
    if abs(expected) < ROUNDING_PCT:
        return "unexpected: should be no slower, based on hardware"
    about = "about" if row[C.expected_ratio] is not None else "at most"
    return f"unexpected: should be {about} {speed(expected)}, based on hardware"


def _operators(finding: Finding) -> str:
    names = list(dict.fromkeys(quoted(each.name) for each in finding.operations))
    more = f" and {counted(len(names) - 1, 'more operator')}" if len(names) > 1 else ""
    return f"{names[0]}{more}"


def headline(subject: Subject, finding: Finding) -> str:
    """Return the finding and the step time that it would save, in one sentence."""
    found = gap(subject, finding).removesuffix(".")
    if finding.check in OUTSIDE_COMPUTE:
        values = finding.issue[0].values
        cause = values.get("cause")
        most = f" (main cause: {cause.values['cause']})" if isinstance(cause, Message) else ""
        times = (f"{milliseconds(_float(values[name]))}" for name in ("time_ms", "reference_ms"))
        found = f"{to_text(finding.title)}: {' against '.join(times)}{most}"
    gain = finding.impact
    assert gain is not None, "every finding of a comparison says what it would save"
    of_step = per_step(gain, subject.totals)
    saved, share = of_step.step_ms or gain.saved_ms, gain.step_pct or gain.e2e_pct
    return (
        f"{found}; closing the gap saves at most {milliseconds(saved.high)} "
        f"({percent(share.high)} of {subject.whole})."
    )


def impact(subject: Subject, finding: Finding) -> str:
    """Return what closing the gap would save: of the step, and of GPU time."""
    gain = finding.impact
    assert gain is not None, "every finding of a comparison says what it would save"
    saved, of_step = gain.saved_ms, per_step(gain, subject.totals)
    span = to_text(time_range(saved.low, saved.high))
    is_outside = finding.check in OUTSIDE_COMPUTE
    end = "the whole difference" if is_outside else "all unexplained time"
    of_gpu = "" if is_outside else " less GPU time"
    if of_step.step_ms is None or gain.step_pct is None:
        share = percent(gain.e2e_pct.mid)
        saving = f"{milliseconds(saved.mid)}{of_gpu}, {share} of the GPU window"
        return f"about {saving} (range {span}; the upper end is {end})."
    if not of_step.step_ms.high:
        return f"nothing of {subject.whole}, as the host does not wait for this work."
    step = f"{milliseconds(of_step.step_ms.mid)} of {subject.whole} ({percent(gain.step_pct.mid)})"
    return f"about {step}; {span}{of_gpu}, the upper end is {end}."


def short_gap(finding: Finding) -> str:
    """Return the time that the hardware does not explain."""
    return milliseconds(_number(finding, UNEXPLAINED_TIME))


def _float(value: object) -> float:
    assert isinstance(value, int | float), "times are numbers"
    return value


def _number(finding: Finding, name: str) -> float:
    return _float(finding.evidence[name])
