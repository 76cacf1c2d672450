"""What the analyses of the system tier write: grades, sections, items and their numbers."""

import json
import re
from typing import Any

import pytest

from jarvis.analyses.system.cpu_idle import gpu_idle
from jarvis.analyses.system.multi_kernel import measure
from jarvis.analyses.system.multi_kernel.communication import exposed_communication, poor_overlap
from jarvis.analyses.system.multi_kernel.copies import memory_copies
from jarvis.core.workspace import RunPaths
from jarvis.findings import Priority, Severity
from jarvis.reports.agent_layout.findings import findings_markdown
from jarvis.reports.details import details_of
from jarvis.reports.ranking import recommendations
from jarvis.run.agent_layout.priorities import Recommended
from tests.analyses.rows import operation, operations, system, table, totals
from tests.analyses.test_multi_kernel import comm, copy, memory_copies_table
from tests.reports.conftest import Analyzed
from tests.reports.markdown import finding, section, with_findings
from tests.requirements.conftest import COPIES
from tests.worded import worded

KEY = "multi_kernel"
TRAINING = {"operations": operations(operation("aten::mm", time_us=10.0, direction="backward"))}


@pytest.fixture(scope="module")
def text(busy: Analyzed) -> str:
    return busy.text("system_findings/multi_kernel_findings.md")


def metrics(busy: Analyzed) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RunPaths(busy.root).metrics(KEY).read_text())
    return found


def test_the_metrics_have_their_keys(busy: Analyzed) -> None:
    found = metrics(busy)
    assert found["status"] == "SUCCESS"
    assert set(found) >= {
        "memcpy_assessment",
        "nccl_blocking_assessment",
        "overlap_assessment",
        "patterns_detected",
    }
    assert found["patterns_detected"]
    for pattern in found["patterns_detected"]:
        assert pattern["severity"] in set(Severity)
        assert pattern["description"]


def test_prepared_data_hold_copies_communication_and_overlap(busy: Analyzed) -> None:
    data = json.loads(RunPaths(busy.root).system_data(KEY).read_text())
    directions = data["memcpy_summary"]["by_direction"]
    assert {name: entry["count"] for name, entry in directions.items()} == COPIES
    assert data["nccl_summary"]["total_count"] == 1
    assert data["overlap_analysis"]["exposed_comm_time_us"] == pytest.approx(3000)
    assert RunPaths(busy.root).metadata(KEY).is_file()


def test_findings_are_about_the_system_and_about_no_single_kernel(busy: Analyzed) -> None:
    result = busy.run.results[KEY]
    assert result.tier == "system"
    assert result.findings
    assert all(f.operations == () for f in result.findings)
    assert all("Efficiency" not in key for f in worded(result.findings) for key in f.evidence)


@pytest.mark.parametrize(
    ("count", "severity"),
    [(101, "CRITICAL"), (51, "HIGH"), (11, "MEDIUM"), (6, "LOW"), (5, "ACCEPTABLE")],
)
@pytest.mark.parametrize("direction", ["D2H", "H2D"])
def test_grades_of_the_number_of_copies(direction: str, count: int, severity: str) -> None:
    tables = {"memory_copies": memory_copies_table(copy(direction, count, 1.0))}
    (issue,) = measure(system(KEY, totals(1000.0), tables=tables))["memcpy_assessment"]["issues"]
    assert issue["severity"] == severity


@pytest.mark.parametrize(
    ("share", "severity"),
    [(10.1, "CRITICAL"), (5.1, "HIGH"), (2.1, "MEDIUM"), (0.6, "LOW"), (0.5, "ACCEPTABLE")],
)
def test_grades_of_the_time_of_copies(share: float, severity: str) -> None:
    tables = {"memory_copies": memory_copies_table(copy("D2H", 1, share * 1000))}
    (issue,) = measure(system(KEY, totals(100.0), tables=tables))["memcpy_assessment"]["issues"]
    assert issue["severity"] == severity


@pytest.mark.parametrize(
    ("exposed_ms", "severity"),
    [(20.1, "CRITICAL"), (10.1, "HIGH"), (5.1, "MEDIUM"), (2.1, "LOW"), (2.0, "ACCEPTABLE")],
)
def test_grades_of_exposed_communication(exposed_ms: float, severity: str) -> None:
    base = comm(exposed_ms, exposed_ms, compute_ms=100.0 - exposed_ms)
    assert measure(system(KEY, base))["nccl_blocking_assessment"]["severity"] == severity


@pytest.mark.parametrize(
    ("overlap_pct", "severity"),
    [(29.0, "CRITICAL"), (49.0, "HIGH"), (69.0, "MEDIUM"), (71.0, "GOOD")],
)
def test_grades_of_overlap(overlap_pct: float, severity: str) -> None:
    found = measure(system(KEY, comm(100 - overlap_pct, 100.0)))["overlap_assessment"]
    assert found["severity"] == severity
    assert found["target_percent"] == 70.0


def test_only_exposed_communication_is_on_the_critical_path() -> None:
    assert list(exposed_communication(system(KEY, comm(30.0, 40.0))))
    assert not list(exposed_communication(system(KEY, comm(0.0, 40.0))))


def test_each_symptom_has_its_usual_remedies() -> None:
    def both(found: Any) -> str:
        (card,) = worded(found)
        return f"{card.hypothesis} {card.algorithmic} {card.kernel}".lower()

    def copies(direction: str, size: int = 4) -> str:
        value = {"kind": "copy", "linked": True, "ts_ns": 0, "dur_ns": 50_000, "bytes": size}
        tables = {
            "memory_copies": memory_copies_table(copy(direction, 60, 3000.0)),
            "gpu_work": table("gpu_work", value | {"direction": direction}),
        }
        return both(memory_copies(system(KEY, totals(100.0), tables=tables)))

    blocking = both(exposed_communication(system(KEY, comm(30.0, 40.0), tables=TRAINING)))
    overlap = both(poor_overlap(system(KEY, comm(30.0, 40.0), tables=TRAINING)))
    expected = {
        copies("D2H"): (".item()", "single values", "logging", "on the device", "batches"),
        copies("D2H", 4096): (".cpu()", "on the device", "batches"),
        copies("H2D"): ("not pinned", "on the fly", "data is loaded", "pin the", "preallocate"),
        blocking: ("for the other ranks", "asynchronously during the backward", "split the batch"),
        overlap: ("asynchronously during the backward", "buckets", "one part of the batch"),
    }
    for text, remedies in expected.items():
        for remedy in remedies:
            assert remedy in text


def test_what_can_be_recovered_is_a_number(busy: Analyzed) -> None:
    for card in busy.run.results[KEY].findings:
        assert card.impact is not None
        assert card.impact.saved_ms.high > 0
        assert card.impact.saved_ms.high <= busy.run.manifest.totals.total_time_ms
    found = metrics(busy)
    assert found["nccl_blocking_assessment"]["recoverable_ms"] == pytest.approx(3.0)


def test_copies_are_described_by_direction(text: str) -> None:
    part = section(text, "Memory Copy Analysis")
    for direction, count in COPIES.items():
        own = part[part.index(f"### {direction} ") :].split("\n### ")[0]
        assert f"- **Count**: {count} transfers" in own
        assert re.search(r"\*\*Total Time\*\*: [\d.]+ [mµ]s \([\d.]+% of total GPU time\)", own)
        assert re.search(r"\*\*Assessment\*\*: [A-Z]+", own)
        assert "**Likely cause (hypothesis)**" in own


def test_blocking_and_overlap_are_reported_with_their_times(text: str) -> None:
    part = section(text, "Communication Blocking Analysis")
    assert re.search(r"\*\*Exposed Communication Time\*\*: 3\.00 ms \([\d.]+% of total\)", part)
    assert "**Total Communication Time**: 3.00 ms" in part
    assert "**Impact**: GPU compute blocked for 3.00 ms" in part
    assert "**Overlap Ratio**: 0.0% (target > 70.0%)" in part
    assert "Reaching the target would hide 2.10 ms more" in part
    assert part.count("**Assessment**: CRITICAL") == 2


def test_each_pattern_has_severity_evidence_impact_and_recommendation(
    text: str, busy: Analyzed
) -> None:
    part = section(text, "Detected Patterns")
    patterns = re.findall(r"^\d+\. \*\*.+\*\* - ([A-Z]+)$", part, re.MULTILINE)
    assert len(patterns) == len(busy.run.results[KEY].findings)
    for label in ("Evidence", "Impact", "Likely cause (hypothesis)", "Recommendation"):
        assert part.count(f"   - {label}: ") == len(patterns)


def test_each_item_has_issue_action_and_impact(text: str) -> None:
    items = re.split(r"^### System P\d+: ", section(text, "Recommendations"), flags=re.MULTILINE)[
        1:
    ]
    assert items
    for item in items:
        for label in ("**Insight** (issue): ", "**Action**: (A) ", "**Impact**: "):
            assert item.count(label) == 1
        assert re.search(
            r"; saving (up to )?[\d.]+ [mµ]s \([\d.]+% of the (step|recording)\)", item
        )


def test_technical_details_list_collectives_and_all_directions(text: str) -> None:
    part = section(text, "Technical Details")
    assert re.search(r"^\| 1 \| `ncclDevKernel_Generic` \| 3,000 \| 9 \| allreduce \|", part, re.M)
    for direction, count in COPIES.items():
        assert re.search(
            rf"^\| {direction} \| {count} \| [\d.]+ \| 4\.10 kB \| [A-Z]+ \|$", part, re.MULTILINE
        )


def test_collectives_are_reported_with_types_and_sizes_of_one_rank_only(busy: Analyzed) -> None:
    findings = worded(busy.run.results[KEY].findings)
    card = next(f for f in findings if f.check == "exposed_communication")
    assert card.evidence["Largest by time"].startswith("1 x allreduce of 2.10 MB over 8 ranks")
    assert card.evidence["Total communication (ms)"] == pytest.approx(3.0)
    assert "this rank cannot say how much of the 3.00 ms is transfer" in card.algorithmic
    assert "topology" in card.kernel


def test_items_are_numbered_without_those_of_low_priority(busy: Analyzed) -> None:
    run = with_findings(
        busy.run,
        finding("cpu_idle", saved_ms=1.0, priority=Priority.LOW),
        finding("multi_kernel", saved_ms=5.0),
        finding("multi_kernel", saved_ms=2.0),
    )
    labels = [(r.finding.category, r.local_label) for r in recommendations(run)]
    assert labels == [
        ("multi_kernel", "System P1"),
        ("multi_kernel", "System P2"),
        ("cpu_idle", "System P2"),
    ]


def test_a_pattern_of_low_priority_points_to_no_item(busy: Analyzed) -> None:
    run = with_findings(busy.run, finding("cpu_idle", saved_ms=1.0, priority=Priority.LOW))
    text = findings_markdown(Recommended(run), run.results["cpu_idle"], details_of(run))
    assert "Recommendation: none, since its priority is low" in text
    assert "see System" not in text


def test_single_gaps_are_left_to_a_timeline_viewer() -> None:
    (card,) = worded(gpu_idle(system("cpu_idle", totals(40.0, idle_ms=60.0))))
    assert card.caveat is not None
    assert "open the trace in a timeline viewer such as Perfetto to see each gap" in card.caveat
