"""The account of a step: in reports, on the page, and beside that of a reference."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.comparison import Side, compare
from jarvis.dashboard.pages.overview.step import slow_steps, step_rows
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.pipeline import analyze
from jarvis.reports import account
from jarvis.reports.account import OUTDATED, account_parts
from jarvis.reports.summary import metrics, paragraph
from jarvis.schemas import columns
from jarvis.trace import read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace
from tests.reports.conftest import Analyzed

DETAILED = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk400sqsq4sqsk400)"


def steps(*host_us: float, name: str = "ProfilerStep#1", gpu_us: float = 100) -> pl.DataFrame:
    return TraceLensReport(builder(*host_us, name=name, gpu_us=gpu_us).read(), None).steps


def builder(*host_us: float, name: str, gpu_us: float) -> TraceBuilder:
    made = trace()
    for us in host_us:
        made.annotation(name, us=us + gpu_us + 50).python("train.py(30): preprocess", us=us).up()
        made.child("aten::mm").launches("gemm", us=gpu_us).up(2)
    return made


def of(rows: pl.DataFrame) -> StepAccount:
    found = StepAccount.of(rows)
    assert found is not None
    return found


def words(rows: pl.DataFrame, gaps: pl.DataFrame | None = None) -> str:
    none = pl.DataFrame(schema={column.name: column.dtype for column in columns("idle_gaps")})
    return account.sentence(of(rows), rows, none if gaps is None else gaps)


def test_the_parts_add_up_to_the_mean_step() -> None:
    rows = steps(300, 500)
    found = of(rows)
    assert sum(found.parts_ns.values()) == found.total_ns
    assert found.rows()["time_ms"].sum() == pytest.approx(found.step_ms, rel=1e-12)
    assert found.rows()["percent"].sum() == pytest.approx(100)
    assert found.step_ms == pytest.approx((450 + 650) / 2000)
    assert words(rows).startswith(
        "One step takes 0.550 ms on average over 2 steps (1.10 ms together): idle before the "
    )
    assert account.basis(found) == "mean of 2 profiler steps"


@pytest.mark.parametrize(
    ("host_us", "median_us"), [((300, 500), 550), ((300, 900, 500), 650), ((300,), 450)]
)
def test_the_median_step_is_that_in_the_middle(host_us: tuple[int, ...], median_us: int) -> None:
    rows = steps(*host_us)
    found = StepAccount.of_median(rows)
    assert found is not None
    assert found.step_ms == pytest.approx(median_us / 1000) == rows["dur_ns"].median() / 1e6
    assert found.rows()["time_ms"].sum() == pytest.approx(found.step_ms, rel=1e-12)
    assert StepAccount.of_median(rows.clear()) is None


def test_the_page_names_slow_steps_with_part_and_cause() -> None:
    rows = steps(300, 300, 500, 300)
    rows = rows.with_columns(name=pl.format("ProfilerStep#{}", pl.int_range(pl.len())))
    assert slow_steps(rows).startswith("**1 slow step**: ProfilerStep#2 +0.200 ms (idle before")
    assert slow_steps(rows.clear()) == slow_steps(steps(300, 300)) == ""


def test_slow_steps_are_named() -> None:
    marked = steps(300, 300, 500, 300)
    marked = marked.with_columns(name=pl.format("ProfilerStep#{}", pl.int_range(pl.len())))
    slow = "(2.00 ms together; slow: `ProfilerStep#2`, up to 0.200 ms over the median): "
    assert slow in words(marked)


def test_a_host_that_runs_ahead_is_stated_with_its_marks() -> None:
    built = trace()
    for _ in range(2):
        built.annotation("ProfilerStep#1", us=100).child("aten::mm").launches("gemm", us=400).up(2)
    rows = TraceLensReport(built.read(), None).steps
    found = of(rows)
    assert found.step_ms == pytest.approx(0.4)
    assert "compute 100.0%; the host runs ahead of the GPU, so its marks of a step are" in words(
        rows
    )
    assert account.basis(found).endswith("the marks of the host, which runs ahead, take 0.100 ms")
    assert "ahead" not in words(steps(300)) + account.basis(of(steps(300)))


def test_one_step_and_a_recording_are_no_mean() -> None:
    assert account.basis(of(steps(300))) == "1 profiler step"
    unmarked = steps(300, name="forward")
    assert account.basis(of(unmarked)) == "the recording, which marks no steps"
    assert words(unmarked).startswith("The recording, which marks no steps, takes ")


def test_the_wait_during_carried_in_work_is_named(reference_root: Path) -> None:
    read = read_trace(reference_root / "traces" / "sglang-qwen3-8b-decode.json.gz")
    tables = TraceLensReport(read, None)
    assert words(tables.steps, tables.idle_gaps).endswith(
        " Not included are 463 ms in which the GPU finished work from before the recording, "
        "while the host waited in `hipMemcpyWithStream` of `aten::copy_` in "
        "`srt/model_executor/cuda_graph_runner.py(276): populate_from_forward_batch`."
    )


def test_gpu_work_after_the_marks_is_stated(reference_root: Path) -> None:
    read = read_trace(reference_root / "traces" / "mi300-qwen1.5-0.5b.json.gz")
    tables = TraceLensReport(read, None)
    assert words(tables.steps, tables.idle_gaps).startswith(
        "One step takes 42.7 ms from mark to mark, and the GPU finishes 4.15 ms later: "
    )


def test_tokens_per_second_are_known_only_from_annotations() -> None:
    assert of(steps(300)).tokens_per_s is None
    assert "not known" in account.throughput(of(steps(300)))
    engine = of(steps(300, name=DETAILED))
    assert engine.tokens_per_s == pytest.approx(4e9 / engine.total_ns)


def test_a_trace_without_events_has_no_account() -> None:
    assert StepAccount.of(steps(300).clear()) is None


def test_a_slow_step_is_named_with_part_and_cause() -> None:
    rows = step_rows(steps(300, 300, 300, 5000))
    assert rows["slow"].to_list() == [
        *[None] * 3,
        "idle before the first GPU event: host work: train.py(30): preprocess",
    ]
    assert rows["dur_ns"][0] == pytest.approx(0.45)


def test_both_sides_of_a_comparison_have_their_steps() -> None:
    target, reference = steps(300, 500), steps(200)
    compared = compare(*(Side("GPU", None, {"steps": rows}) for rows in (target, reference))).steps
    *parts, whole = compared.to_dicts()
    for side in ("target_ms", "reference_ms", "difference_ms"):
        assert sum(part[side] for part in parts) == pytest.approx(whole[side])
    assert whole["target_ms"] == pytest.approx(0.55)
    assert whole["reference_ms"] == pytest.approx(0.35)
    assert compare(Side("A", None, {"steps": target}), Side("B", None, {})).steps.is_empty()


def test_a_run_of_an_older_version_says_so(sample: Analyzed) -> None:
    tables = {name: sample.run.table(name) for name in sample.run.manifest.tables}
    del tables["steps"]
    old = sample.run.__class__(
        manifest=sample.run.manifest.model_copy(update={"tables": tuple(tables)}),
        results=sample.run.results,
        tables=tables,
        paths_by_category=sample.run.paths_by_category,
        root=sample.run.root,
    )
    assert account_parts(old) == {"step_basis": None, "step": OUTDATED}
    assert "One step takes" not in paragraph(old, [])
    assert "One step takes" in paragraph(sample.run, [])


def test_work_without_a_launch_counts_inside_the_steps_only(tmp_path: Path) -> None:
    built = trace().unlinked("early", us=40).annotation("ProfilerStep#1", us=200)
    built.child("aten::mm", [[8, 8], [8, 8]]).launches("gemm", us=60).launches("tail", us=130)
    run = analyze(built.write(tmp_path / "t.json"), output_dir=tmp_path / "r")
    found = account.account_of(run)
    assert found is not None
    assert found.parts_ns["compute_ns"] == 200_000
    more = "; 40.0 µs more in the steps is not linked to host calls"
    assert dict(metrics(run))["Total Compute Time"].endswith(more)
    assert account.compute_note(run).startswith("Compute includes 40.0 µs (20.0% of the step time)")
