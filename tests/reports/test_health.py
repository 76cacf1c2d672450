"""Trace health in the Markdown reports and on the command line."""

from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest

from jarvis.cli import main
from jarvis.reports.fair import fair_markdown
from jarvis.reports.health import health_line, health_of, health_table
from jarvis.run import Run
from jarvis.run.results import read_results, results_json
from jarvis.trace_health import Fact, Severity
from tests.analyses.rows import table
from tests.builders import trace
from tests.reports.conftest import Analyzed


def test_the_line_counts_by_severity() -> None:
    facts = [Fact("a", "A", "a.", severity=severity) for severity in (*Severity, Severity.NOTE)]
    assert health_line(facts) == "1 warning, 2 notes, 1 check passed"
    assert health_line(facts[:1]) == "1 check passed"


def test_the_table_quotes_names_and_says_what_to_do() -> None:
    fact = Fact("a", "A", "`x|y` is odd.", 1.0, "", Severity.NOTE, "It is left out.", "Fix it.")
    assert health_table([fact]).splitlines()[-1] == (
        r"| note | A | `x\|y` is odd. | It is left out. | Fix it. |"
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
        Fact(kind, kind, f"Fact {kind}.", 1.0, "", kind, f"Affects {kind}.", f"Fix {kind}.")
        for kind in Severity
    ]
    health = pl.DataFrame([asdict(fact) for fact in facts])
    run = replace(sample.run, tables={**sample.run.tables, "trace_health": health})
    fair = fair_markdown(run, sample.root)
    assert "- Fact warning. Affects warning. Fix warning." in fair
    assert "- Fact note. Fix note.\n" in fair.partition("## What Is Not Known")[2]
    assert [fair.count(f"Fact {kind}.") for kind in ("warning", "note", "ok")] == [1, 1, 0]


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
    message = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")
    ]
    assert message == [
        "warning: 60.0% of GPU time, summed over all streams, is linked to host calls of the "
        "trace, 40.0% (40.0 µs) is not: it has no recorded launch. The GPU window and the tables "
        "of operations exclude the unlinked work; the step time counts it as busy. Synchronize "
        "the GPU before the recording begins."
    ]


def with_models(run: Run, *rows: tuple[str, float, bool, str | None, float]) -> Run:
    """A run whose operations are ``name, kernel time, has a model, shapes, communication time``."""
    names = ["name", "kernel_time_us", "has_perf_model", "input_dims", "comm_time_us"]
    given = pl.DataFrame(rows, schema=names, orient="row")
    operations = run.table("operations").head(len(rows)).with_columns(*given)
    return run.with_tables({"operations": operations})


def no_perf_model(run: Run) -> Fact:
    (fact,) = (fact for fact in health_of(run) if fact.key == "no_perf_model")
    return fact


def test_time_without_a_perf_model_is_not_judged(sample: Analyzed) -> None:
    modelled = ("aten::mm", 900.0, True, "((8,8),)", 0.0)
    operator = ("mylib::op", 60.0, False, "((8,8),)", 0.0)
    kernel = ("some_kernel", 40.0, False, None, 0.0)
    collective = ("c10d::allreduce_", 500.0, False, "((8,),)", 500.0)
    replayed = ("cudaGraphLaunch->k (Synthetic Op)", 500.0, False, None, 0.0)
    others = (collective, replayed)
    fact = no_perf_model(with_models(sample.run, modelled, operator, kernel, *others))
    assert fact.severity is Severity.NOTE
    assert fact.summary == (
        "No perf model applies to 10.0% of the kernel time outside GPU graphs "
        "(0.100 ms): kernels without operators or shapes and `mylib::op`."
    )
    facts = health_of(with_models(sample.run, modelled, operator, kernel, *others))
    (of_graphs,) = (f.summary for f in facts if f.key == "replayed_without_shapes")
    assert of_graphs == (
        "GPU graphs replay 0.500 ms of kernels without shapes, so their efficiency is not known."
    )
    assert fact.remedy == "Where arguments are recorded, add perf models in an extension."
    fact = no_perf_model(with_models(sample.run, modelled, kernel))
    assert fact.remedy == "Record the operators with their shapes."
    assert "mylib::op" not in fact.summary
    assert "GPU graphs" not in fact.summary
    fact = no_perf_model(with_models(sample.run, modelled, *others))
    assert (fact.severity, fact.value) == (Severity.OK, 0.0)
    fact = no_perf_model(with_models(sample.run, modelled, ("a", 9.0, False, "()", 0.0)))
    assert fact.severity is Severity.OK


def test_replayed_kernels_of_an_operator_are_no_operators_without_a_model(sample: Analyzed) -> None:
    region = ("Torch-Compiled Region: 0/0", 500.0, False, None, 0.0)
    run = with_models(sample.run, ("aten::mm", 900.0, True, "((8,8),)", 0.0), region)
    uid = run.table("operations")["uid"][1]
    events = {"uid": 1, "operation_uid": uid, "dur_ns": 500_000}
    replays = table("inference_events", {"uid": 1, "graph_launch_uid": 7})
    assert no_perf_model(run).value > 30
    run = run.with_tables({"gpu_work": table("gpu_work", events), "inference_events": replays})
    assert (
        no_perf_model(run).summary
        == "100.0% of the kernel time outside GPU graphs has a perf model."
    )


def test_findings_of_earlier_releases_about_missing_models_are_not_loaded(
    sample: Analyzed, tmp_path: Path
) -> None:
    results = sample.run.results
    first, *others = results["gemm"].findings
    former = first.model_copy(update={"check": "no_perf_model"})
    stored = {"gemm": results["gemm"].model_copy(update={"findings": (former, *others)})}
    path = tmp_path / "results.json"
    path.write_bytes(results_json(stored))
    assert read_results(path, tmp_path)["gemm"].findings == tuple(others)
