"""The types of findings and results."""

import pytest
from pydantic import ValidationError

from jarvis.findings import AnalysisResult, Finding, Impact, Priority, Range, Status


def make(**values) -> Finding:
    texts = {
        name: name for name in ("check", "category", "title", "issue", "algorithmic", "kernel")
    }
    priorities = {"priority_local": Priority.LOW, "priority": Priority.HIGH}
    return Finding(**{**texts, **priorities, **values})


def test_priorities_are_ordered_and_marked() -> None:
    assert sorted(Priority, key=lambda p: p.rank) == list(Priority)
    assert Priority.CRITICAL.rank == 0
    assert len({p.icon for p in Priority}) == 4
    assert Priority.CRITICAL.lowered() is Priority.HIGH
    assert Priority.LOW.lowered() is Priority.LOW
    assert Priority.CRITICAL.at_most(Priority.MEDIUM) is Priority.MEDIUM
    assert Priority.LOW.at_most(Priority.MEDIUM) is Priority.LOW


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_hold_are_rejected(value: float) -> None:
    with pytest.raises(ValidationError):
        Range(low=value, mid=0.0, high=0.0)
    with pytest.raises(ValidationError):
        make(evidence={"Time (ms)": value})


def test_findings_are_frozen_and_closed() -> None:
    with pytest.raises(ValidationError):
        make().title = "other"
    with pytest.raises(ValidationError):
        make(severty="HIGH")


def test_a_result_survives_json_with_its_types() -> None:
    span = Range(low=0.0, mid=1.0, high=2.0)
    gain = Impact(time_ms=3.0, saved_ms=span, compute_pct=span, e2e_pct=span, method="upper bound")
    result = AnalysisResult(
        key="gemm",
        title="GEMM",
        tier="compute",
        status=Status.OK,
        findings=(make(impact=gain, evidence={"calls": 3, "gpu_time_ms": 4.0, "kernel": "`k`"}),),
        metrics={"a": [1, None, {"b": 2.5}]},
    )
    back = AnalysisResult.model_validate_json(result.model_dump_json())
    assert back == result
    assert isinstance(back.findings[0].evidence["calls"], int)
    assert isinstance(back.findings[0].evidence["gpu_time_ms"], float)
