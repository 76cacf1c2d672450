"""What the report for those who audit it works out: savings, priorities, joins."""

import re
from dataclasses import replace

from jarvis.findings import Priority
from jarvis.impact import bounded_impact, modelled_impact
from jarvis.reports.rough import rough_markdown
from tests.reports.conftest import Analyzed
from tests.reports.markdown import finding, uids_of, with_findings


def test_the_rough_report_works_out_each_saving_and_priority(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    totals = sample.run.manifest.totals
    bases = {"compute_ms": totals.compute_time_ms, "total_ms": totals.total_time_ms}
    modelled = modelled_impact(0.5, 40.0, 80.0, **bases)
    waiting = bounded_impact(0.4, 0.2, mid_ms=0.2, **bases)
    run = with_findings(
        sample.run,
        finding("gemm", uid, saved_ms=1.0, impact=modelled, priority_local=Priority.MEDIUM),
        finding("gemm", uid, saved_ms=1.0, impact=bounded_impact(0.3, 0.1, mid_ms=0.1, **bases)),
        finding("cpu_idle", saved_ms=1.0, impact=waiting, severity="HIGH"),
        finding("cpu_idle", saved_ms=1.0, impact=None, severity="HIGH"),
    )
    rough = rough_markdown(run)
    lines = re.findall(r"^- (P\d, .*)$", rough, re.MULTILINE)
    assert len(lines) == 4
    assert "saving 0.500 ms x (1 - 40.0% / 80.0%) = 0.250 ms; 0.250 ms / " in lines[0]
    assert "in the top operations" in lines[0]
    assert lines[0].endswith("efficiency 40.0% → High (Medium within the analysis).")
    assert "saving 0.200 ms of 0.400 ms (upper bound); 0.200 ms / " in lines[1]
    assert "compute" not in lines[1]
    assert lines[1].endswith("Grade HIGH → High.")
    assert "saving 0.100 ms of 0.300 ms (upper bound); 0.100 ms / " in lines[2]
    assert "not quantifiable from trace data." in lines[3]
    assert "Together, " in rough
    estimated = replace(run, manifest=run.manifest.model_copy(update={"simulation": None}))
    assert "Sum, 0.225 ms of each step: P1, P2. The others" in rough_markdown(estimated)


def test_a_saving_that_other_ranks_decide_has_only_ends(sample: Analyzed) -> None:
    totals = sample.run.manifest.totals
    bases = {"compute_ms": totals.compute_time_ms, "total_ms": totals.total_time_ms}
    unknown = bounded_impact(0.4, 0.4, mid_ms=0.17, **bases)
    unknown = unknown.model_copy(update={"is_interval": True})
    run = with_findings(
        sample.run, finding("multi_kernel", saved_ms=1.0, impact=unknown, severity="HIGH")
    )
    (line,) = re.findall(r"^- (P1, .*)$", rough_markdown(run), re.MULTILINE)
    assert "saving 0 to 0.400 ms, depending on the other ranks; 0.400 ms / " in line
    assert "0.170" not in line


def test_the_rough_report_joins_the_top_operations_with_their_rows(sample: Analyzed) -> None:
    top = sample.run.manifest.top_operations[0]
    row = (
        sample.text("standalone_analysis_rough.md")
        .split("| Rank | Operation | Time")[1]
        .splitlines()[2]
    )
    assert row.startswith(f"| 1 | `{top.name}` |")
    shown = row.split("|")[-2].split(" and ")[0].split(",")
    assert [int(uid) for uid in shown] == list(top.operation_uids[: len(shown)])
    assert set(top.operation_uids) <= set(sample.run.table("operations")["uid"])
