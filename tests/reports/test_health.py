"""Trace health in the Markdown reports and on the command line."""

from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest

from jarvis.cli import main
from jarvis.reports.fair import fair_markdown
from jarvis.reports.health import health_line, health_of, health_table
from jarvis.trace_health import Fact, Severity
from tests.builders import trace
from tests.reports.conftest import Analyzed


def test_the_line_counts_by_severity() -> None:
    facts = [Fact("a", "A", "a.", severity=severity) for severity in (*Severity, Severity.NOTE)]
    assert health_line(facts) == "1 warning, 2 notes, 1 fact in order"
    assert health_line(facts[:1]) == "1 fact in order"


def test_the_table_quotes_names_and_says_what_to_do() -> None:
    fact = Fact("a", "A", "`x|y` is odd.", 1.0, "", Severity.NOTE, "It is left out.", "Mend it.")
    assert health_table([fact]).splitlines()[-1] == (
        r"| note | A | `x\|y` is odd. | It is left out. | Mend it. |"
    )


def test_the_report_for_auditors_tells_every_fact(sample: Analyzed) -> None:
    facts = health_of(sample.run)
    rough = sample.text("standalone_analysis_rough.md")
    assert {fact.key for fact in facts} >= {"linked_gpu_time", "graph_replay", "steps", "repairs"}
    for fact in facts:
        assert f"| {fact.title} | {fact.summary.split('`')[0]}" in rough
        assert f"\n| {fact.key} |" in rough
    assert "Trace health: " in rough


def test_stakeholders_read_each_odd_fact_once_and_what_to_do(sample: Analyzed) -> None:
    facts = [
        Fact(kind, kind, f"Fact {kind}.", 1.0, "", kind, f"Affects {kind}.", f"Mend {kind}.")
        for kind in Severity
    ]
    health = pl.DataFrame([asdict(fact) for fact in facts])
    run = replace(sample.run, tables={**sample.run.tables, "trace_health": health})
    fair = fair_markdown(run, sample.root)
    assert "- Fact warning. Affects warning. Mend warning." in fair
    assert "| note | note | Fact note. | Affects note. | Mend note. |" in fair
    assert [fair.count(f"Fact {kind}.") for kind in ("warning", "note", "ok")] == [1, 1, 0]
    assert "1 warning, 1 note, 1 fact in order; the rough report lists each. See Warnings" in fair


@pytest.fixture
def unlinked(tmp_path: Path) -> Path:
    built = trace(device="AMD Instinct MI300X").op("aten::mm", [[8, 8], [8, 8]])
    return built.launches("gemm", us=60).unlinked("early", us=40).write(tmp_path / "t.json")


@pytest.mark.parametrize(
    "command", [["report", "--output_csvs_dir"], ["analyze", "--output-dir"]], ids=lambda c: c[0]
)
def test_commands_warn_in_one_line(
    command: list[str], unlinked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, output = command
    assert main([name, str(unlinked), output, str(tmp_path / "out")]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert said == [
        "warning: 60.0% of GPU time, summed over all streams, is linked to host calls of the "
        "trace, 40.0% (40.0 µs) is not. The timeline and all tables exclude the unlinked work. "
        "Synchronize the GPU before the recording begins, and add warm-up steps to the profiler's "
        "`schedule`."
    ]
