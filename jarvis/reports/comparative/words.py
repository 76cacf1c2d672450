"""Differences, verdicts and gaps of a comparison as text."""

import math
from collections.abc import Mapping

from jarvis.comparison import FASTER, SLOWER, Outcome
from jarvis.comparison import basis as evidence
from jarvis.comparison.basis import REFERENCE_TIME, UNEXPLAINED_TIME
from jarvis.findings import Finding
from jarvis.reports.comparative.subject import Row
from jarvis.reports.messages import time_range
from jarvis.text.format import MISSING, counted, milliseconds, percent, quoted
from jarvis.text.messages import to_text

YES, NO = "Yes", "No"
VERDICTS: Mapping[str, str] = {
    Outcome.EXPECTED.value: YES,
    Outcome.SHORT.value: "Not judged: launch overhead dominates",
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
    return row["outcome"] in (*SLOWER, *FASTER)


def verdict(row: Row) -> str:
    """Return the cell ``Expected?``: whether the hardware explains the difference."""
    if not is_unexpected(row):
        return VERDICTS[row["outcome"]]
    return f"{NO}: {_expected_change(row)} expected"


def _expected_change(row: Row) -> str:
    if row["expected_ratio"] is not None:
        return f"about {delta(100 * (row['expected_ratio'] - 1))}"
    is_slower = row["outcome"] in SLOWER
    limit = row["expected_ratio_most" if is_slower else "expected_ratio_least"]
    if math.isclose(limit, 1.0):
        return "no more time" if is_slower else "no less time"
    return f"at {'most' if is_slower else 'least'} {delta(100 * (limit - 1))}"


def speed(change: float) -> str:
    """Return ``12.3% slower`` for 12.3% more time, ``12.3% faster`` for less."""
    if abs(change) < ROUNDING_PCT:
        return "as fast as the reference"
    return f"{percent(abs(change))} {'slower' if change > 0 else 'faster'}"


def gap(finding: Finding, row: Row | None) -> str:
    """Return how far the target is from what the hardware explains, as a sentence."""
    if row is None:
        return (
            f"Target alone spends {milliseconds(_number(finding, evidence.TARGET_TIME))} on "
            f"{_operators(finding)} (no counterpart on the reference, which spends "
            f"{milliseconds(_number(finding, REFERENCE_TIME))} on other work there)."
        )
    actual = speed(_number(finding, evidence.SLOWER_PCT))
    return f"Target is {actual} on {_operators(finding)} ({_should(finding, row)})."


def _should(finding: Finding, row: Row) -> str:
    if row["expected_ratio_most"] is None:
        return NOTHING_EXPECTED
    expected = _number(finding, evidence.EXPECTED_PCT)
    if abs(expected) < ROUNDING_PCT:
        return "unexpected: should be no slower, based on hardware"
    about = "about" if row["expected_ratio"] is not None else "at most"
    return f"unexpected: should be {about} {speed(expected)}, based on hardware"


def _operators(finding: Finding) -> str:
    names = list(dict.fromkeys(quoted(each.name) for each in finding.operations))
    more = f" and {counted(len(names) - 1, 'more operator')}" if len(names) > 1 else ""
    return f"{names[0]}{more}"


def impact(finding: Finding) -> str:
    """Return what closing the gap would save."""
    gain = finding.impact
    assert gain is not None, "every finding of a comparison says what it would save"
    saved = gain.saved_ms
    span = to_text(time_range(saved.low, saved.high))
    return (
        f"about {milliseconds(saved.mid)}: {percent(gain.compute_pct.mid)} of compute, "
        f"{percent(gain.e2e_pct.mid)} of GPU wall time (range {span}; the upper end is all "
        "unexplained time)."
    )


def short_gap(finding: Finding) -> str:
    """Return the time that the hardware does not explain."""
    return milliseconds(_number(finding, UNEXPLAINED_TIME))


def _number(finding: Finding, name: str) -> float:
    value = finding.evidence[name]
    assert isinstance(value, int | float), f"{name} is a number"
    return value
