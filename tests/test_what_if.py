"""``jarvis what-if`` and ``jarvis.what_if``: changes by name, and what they save."""

import json
from pathlib import Path

import pytest

import jarvis
from jarvis import cli
from jarvis.core.errors import ChangeError, NotSimulatedError
from jarvis.pipeline import analyze, simulated
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.savings import per_step
from jarvis.text.format import MINUS
from tests.builders import TraceBuilder, trace

Capture = pytest.CaptureFixture[str]


def built() -> TraceBuilder:
    """Two steps of a host-bound operator, a product, and a wait for the GPU."""
    made = trace(device="AMD Instinct MI300X")
    for step in range(2):
        made.annotation(f"ProfilerStep#{step}")
        made.child("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=900).up()
        made.child("aten::slow_host", us=400).up()
        made.child("aten::add", [[1024], [1024]]).launches("vectorized_add", us=20).up()
        made.runtime("cudaDeviceSynchronize", us=1_000).up()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built().write(tmp_path_factory.mktemp("what-if") / "trace.json")


@pytest.fixture(scope="module")
def run(source: Path) -> Run:
    return analyze(source, output_dir=source.parent / "run")


def test_a_slower_kernel_moves_the_step_and_a_hidden_one_does_not(run: Run) -> None:
    product = simulated(run, ["scale=aten::mm:0.5"])
    assert product.step_ms.recorded - product.saved_ms == pytest.approx(product.step_ms.simulated)
    assert 0 < product.saved_ms <= product.kernel_time_saved_ms / product.steps
    assert simulated(run, []).saved_ms == 0


def test_changes_are_simulated_together(run: Run) -> None:
    changes = ["scale=aten::mm:0.5", "host=aten::slow_host:0", "no-wait=*Synchronize"]
    together = simulated(run, changes)
    assert [each.change for each in together.changes] == changes
    assert together.saved_ms >= max(each.saved_ms for each in together.changes)
    assert sum(part.pct for part in together.critical_path) == pytest.approx(100)


def test_the_path_is_that_of_the_steps(tmp_path: Path) -> None:
    built = trace()
    for _ in range(2):
        built.annotation("ProfilerStep#1", us=100).child("aten::mm").launches("gemm", us=400).up(2)
    ahead = analyze(built.write(tmp_path / "t.json"), output_dir=tmp_path / "run")
    recorded = ahead.simulation.recorded
    assert sum(recorded.steps_ns) == 800_000 < recorded.window_ns
    found = simulated(ahead, [])
    assert sum(part.ms for part in found.critical_path) == pytest.approx(0.8)
    assert sum(part.pct for part in found.critical_path) == pytest.approx(100)


def test_a_category_is_the_sum_of_its_operations(run: Run) -> None:
    gemm, mm = simulated(run, ["scale=gemm:0"]), simulated(run, ["scale=aten::mm:0"])
    assert gemm.saved_ms == mm.saved_ms > 0


def test_a_target_is_that_of_the_roofline(run: Run) -> None:
    (row,) = run.table("operations").filter(name="aten::mm").to_dicts()
    result = simulated(run, ["target=aten::mm:80"])
    share = 1 - row["pct_roofline"] / 80
    saved_ms = share * row["kernel_time_us"] / 1e3
    assert result.kernel_time_saved_ms == pytest.approx(saved_ms, rel=1e-4)


def test_every_finding_with_a_saving_is_a_change(run: Run) -> None:
    saving = [each for each in recommendations(run) if each.finding.impact is not None]
    assert saving
    for each in saving:
        assert simulated(run, [f"finding={each.label}"]).saved_ms >= 0


def test_a_finding_saves_as_much_as_on_the_overview(tmp_path: Path) -> None:
    """Of steps of unequal length, and of communication of which compute can hide a part only."""
    made = trace(device="AMD Instinct MI300X")
    for step, us in enumerate((900, 1_500, 700)):
        made.annotation(f"ProfilerStep#{step}")
        made.child("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=us).up()
        made.runtime("cudaDeviceSynchronize", us=us)
        made.child("nccl:all_reduce").launches("ncclDevKernel_AllReduce", us=2_000, stream=8).up()
        made.child("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=300).up()
        made.runtime("cudaDeviceSynchronize", us=2_000).up()
    run = analyze(made.write(tmp_path / "t.json"), output_dir=tmp_path / "run")
    gains = {each.finding.check: each for each in recommendations(run) if each.finding.impact}
    assert {"exposed_communication", "poor_overlap"} < gains.keys()
    for each in gains.values():
        gain = per_step(each.finding.impact, run.manifest.totals)
        (alone,) = simulated(run, [f"finding={each.label}"]).changes
        assert alone.saved_ms == pytest.approx(gain.gain_ms, rel=1e-3), each.finding.check


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("faster=gemm:2", "Unknown change 'faster=gemm:2'. A change is one of finding=P1"),
        ("scale", "Unknown change 'scale'"),
        ("merge-launches=all", "Unknown change"),
        ("scale=gemm", "Write scale=NAME:FACTOR: a name, a colon and a number."),
        ("scale=gemm:fast", "'fast' is not a number of 0 or more"),
        ("scale=gemm:-1", "'-1' is not a number of 0 or more"),
        ("scale=gemm:inf", "'inf' is not a number of 0 or more"),
        ("scale=aten::mmm:1", "No operation or category is named 'aten::mmm'. Similar names: aten"),
        ("target=gemm:0", "A target is above 0 and at most 100 percent, not 0."),
        ("target=gemm:101", "not 101"),
        ("finding=P99", "There is no finding 'P99'; the findings are P1 to P"),
        ("host=foo:0", "No operator, annotation or Python frame matches 'foo'"),
        ("no-wait=foo", "The calls that wait are cudaDeviceSynchronize."),
        ("collective=all_reduce:hidden", "No collective matches 'all_reduce'. The trace has none."),
    ],
)
def test_a_change_that_is_not_possible_says_why(run: Run, change: str, reason: str) -> None:
    with pytest.raises(ChangeError) as caught:
        simulated(run, [change])
    assert reason in str(caught.value)


def test_at_most_a_hundred_changes(run: Run) -> None:
    with pytest.raises(ChangeError, match="At most 100 changes"):
        simulated(run, ["merge-launches"] * 101)


def test_a_run_of_an_earlier_release_says_what_to_do(run: Run) -> None:
    manifest = run.manifest.model_copy(update={"simulation": None})
    old = Run(manifest, run.results, run.tables, run.paths_by_category)
    with pytest.raises(NotSimulatedError, match="analyze the trace again"):
        simulated(old, [])


def test_a_report_is_not_simulated(run: Run, tmp_path: Path) -> None:
    assert run.root is not None
    imported = analyze(run.root / "perf_report_csvs", output_dir=tmp_path / "imported")
    with pytest.raises(NotSimulatedError, match="the input is a report, which has no events"):
        simulated(imported, [])


def test_the_api_takes_a_trace_or_a_run(source: Path, run: Run) -> None:
    assert run.root is not None
    before = sorted(source.parent.iterdir())
    changes = ["scale=aten::mm:0.5"]
    of_trace = jarvis.what_if(source, changes, platform="MI300X")
    assert of_trace == jarvis.what_if(run.root, changes) == jarvis.what_if(run, changes)
    assert sorted(source.parent.iterdir()) == before


def test_the_command_prints_the_step(run: Run, tmp_path: Path, capsys: Capture) -> None:
    changes = tmp_path / "changes.json"
    changes.write_text('["scale=aten::mm:0.5"]')
    words = ["what-if", str(run.root), "--changes", str(changes), "--change", "merge-launches"]
    assert cli.main(words) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"Step {MINUS}")
    assert second.startswith(f"Kernel time {MINUS}")
    assert any("merge-launches" in line for line in rest)
    assert cli.main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= {"step_ms", "saved_ms", "kernel_time_saved_ms", "grade", "critical_path"}
    assert [each["change"] for each in result["changes"]] == [
        "scale=aten::mm:0.5",
        "merge-launches",
    ]


def test_a_file_of_changes_has_to_be_a_list(run: Run, tmp_path: Path, capsys: Capture) -> None:
    changes = tmp_path / "changes.json"
    changes.write_text('{"scale": 1}')
    assert cli.main(["what-if", str(run.root), "--changes", str(changes)]) == 1
    assert "is not a list of changes. Write JSON such as" in capsys.readouterr().err
