"""The overview: consistent savings, links with controls, and facts."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis import impact, savings
from jarvis.core.request import Targets
from jarvis.dashboard.pages.overview.page import savings_of
from jarvis.dashboard.pages.overview.tables import of_whole_column, shown_title
from jarvis.pipeline import at_targets
from jarvis.reports import figures
from jarvis.reports.account import account_of, title
from jarvis.reports.details import details_of
from jarvis.reports.figures import Saving, alone_note, bounds_note, total_ms, waterfall_rows
from jarvis.reports.ranking import recommendations
from jarvis.reports.summary import first_sentences, paragraph
from jarvis.run import Run
from jarvis.server.submission import Submission, submit
from jarvis.text.format import milliseconds, percent
from jarvis.text.markdown import prose
from jarvis.text.messages import literal
from jarvis.trace import read_trace
from tests.builders import PID, trace
from tests.dashboard.conftest import Draw


def metric(page: AppTest, label: str) -> str:
    return str(next(m.value for m in page.metric if m.label == label))


def test_the_saving_of_the_card_is_that_of_the_waterfall_and_of_the_findings(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    totals = sample_run.manifest.totals
    for target in (80, 60):
        run = at_targets(sample_run, Targets(target))
        findings = [f for result in run.results.values() for f in result.findings]
        expected = savings.together_ms(findings, totals, run.simulation)
        assert total_ms(savings_of(run)) == pytest.approx(expected)
        page = filed("overview", analysis=sample_id, target=str(target))
        assert metric(page, "Saving") == milliseconds(expected)
        left = milliseconds(savings.whole_ms(totals) - expected)
        assert any(f"could become {left}**" in m.value for m in page.markdown)


@pytest.mark.parametrize("target", [80, 30])
def test_the_verdict_is_that_of_the_report_at_the_target(
    filed: Draw, sample_id: str, sample_run: Run, target: int
) -> None:
    run = at_targets(sample_run, Targets(target))
    step, first = first_sentences(run, details_of(run))
    assert paragraph(run, details_of(run)).startswith(f"{step} {first}")
    page = filed("overview", analysis=sample_id, target=str(target))
    assert prose(f"{step} {first}") in [m.value for m in page.markdown]


def test_the_share_of_top_operations_says_what_it_is_of(sample_run: Run) -> None:
    totals = sample_run.manifest.totals
    assert totals.step is not None
    steps = f"the time of the {totals.step.steps} steps"
    meaning = of_whole_column(totals).meaning
    assert meaning == (
        f"the GPU time beside it, which includes work outside the steps, in percent of {steps}"
    )
    unknown = of_whole_column(replace(totals, step=None))
    assert unknown.label == "% of GPU window"
    assert unknown.meaning == "the GPU time beside it in percent of the GPU window"


def test_top_operations_of_equal_short_names_have_what_differs(
    filed: Draw, home: Path, tmp_path: Path
) -> None:
    built = trace("AMD Instinct MI300X")
    for width in (16, 8):
        built.graph((f"void ns::norm_kernel<bf16, {width}>(T*)", 100), call="hipGraphLaunch")
    run_id = submit(Submission(built.write(tmp_path / "graphs.json"))).id
    page = filed("overview", analysis=run_id)
    tops = next(d.value for d in page.dataframe if "percent_of_compute" in d.value.columns)
    assert tops["name"].to_list() == ["norm_kernel <16>", "norm_kernel <8>"]


def test_a_title_that_is_too_long_is_cut_at_its_end(sample_run: Run) -> None:
    ranked = recommendations(sample_run)[0]

    def shown(text: str) -> str:
        finding = ranked.finding.model_copy(update={"title": (literal(text),)})
        return shown_title(replace(ranked, finding=finding), width_px=180)

    assert shown("Shapes missing: all of the GPU time is replayed") == (
        "Shapes missing: all of the GPU t…"
    )
    assert shown("Low efficiency: `aten::convolution_backward`") == "convoluti…ward: low efficiency"


def test_names_of_findings_use_the_room_of_a_wide_window(filed: Draw, sample_id: str) -> None:
    page = filed("overview", analysis=sample_id)
    narrow = page.dataframe[0].value["finding"].to_list()
    page.session_state["_is_wide"] = True
    wide = page.run().dataframe[0].value["finding"].to_list()
    name = "ScaledDotProductFlashAttentionBackward0 (backward): low efficiency"
    assert name not in narrow
    assert name in wide
    assert not any("…" in each for each in wide)


def test_the_bars_of_the_waterfall_follow_each_other(sample_run: Run) -> None:
    found = savings_of(sample_run)
    assert len(found) > 8
    rows = waterfall_rows(sample_run.manifest.totals.total_time_ms, found, "the step")
    assert rows["label"].n_unique() == rows.height
    steps = rows.filter(kind="saving")
    assert rows["high_ms"][0] == sample_run.manifest.totals.total_time_ms
    assert steps["high_ms"].to_list() == pytest.approx(
        [rows["high_ms"][0], *steps["low_ms"].to_list()[:-1]]
    )
    assert rows["high_ms"][-1] == pytest.approx(rows["high_ms"][0] - total_ms(found))


def test_several_savings_of_the_same_time_say_so() -> None:
    several = Saving("17 more", "smaller savings", 0.025, 7.8, 17)
    assert alone_note([Saving("P1 GEMM", "slow", 2.0, 2.0), several]) == (
        "The 17 more would save 7.80 ms if their savings alone added up, but most of it is time "
        "that other findings save, too."
    )
    assert not alone_note([Saving("2 more", "smaller savings", 1.0, 1.2, 2)])


def test_savings_together_are_no_more_than_the_time(sample_run: Run) -> None:
    totals = sample_run.manifest.totals
    from dataclasses import replace

    assert totals.step is not None
    short = replace(totals, step=replace(totals.step, step_ms=3.0))
    run = replace(
        sample_run,
        manifest=sample_run.manifest.model_copy(update={"totals": short, "simulation": None}),
    )
    assert total_ms(savings_of(run)) == pytest.approx(3.0 / totals.step.steps)


def test_the_bars_of_categories_add_up_the_saving_of_all_operations(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    operations = sample_run.table("operations")
    steps = savings.step_count(sample_run.manifest.totals)
    saved = float(operations.select(saved=impact.saved_us(70))["saved"].sum()) / 1000 / steps
    page = filed("overview", analysis=sample_id, target="70")
    rated = operations.filter(impact.has_efficiency())["kernel_time_us"].sum()
    part = percent(100 * rated / operations["kernel_time_us"].sum())
    words = f"at 70% of the roofline the {part} with a known efficiency would save "
    words += f"{milliseconds(saved)} of kernel time a step"
    assert any(words in m.value for m in page.markdown)
    times = operations.group_by("category").agg(pl.col("kernel_time_us").sum())
    share = 100 * times["kernel_time_us"].max() / times["kernel_time_us"].sum()
    assert any(f"takes {percent(share)} of kernel time**" in m.value for m in page.markdown)


def test_the_title_of_the_bar_says_what_takes_most_time(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    page = filed("overview", analysis=sample_id)
    account = account_of(sample_run)
    assert account is not None
    shares = dict(account.rows()["part", "percent"].iter_rows())
    most = max(shares, key=lambda part: shares[part])
    assert not sample_run.table("steps")["is_slow"].any()
    words = f"**{title(most)} takes {percent(shares[most])}** of one step of "
    words += f"{milliseconds(account.step_ms)} (mean of "
    assert any(m.value.startswith(words) for m in page.markdown)
    _, bar, *_ = page.get("vega_lite_chart")
    spec = json.loads(bar.proto.spec)
    labels = spec["encoding"]["color"]["scale"]["domain"]
    between = "idle between GPU events"
    assert f"{between} {percent(shares[between])}" in labels


def test_links_to_system_pages_carry_their_target(filed: Draw, tmp_path: Path) -> None:
    built = trace(device="AMD Instinct MI300X")
    for _ in range(40):
        built.op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=5).waits(200)
    analysis = submit(Submission(built.write(tmp_path / "idle.json"))).id
    page = filed("overview", analysis=analysis)
    table = next(d.value for d in page.dataframe if "page" in d.value.columns)
    link = f"cpu_idle?analysis={analysis}&cpu_idle_finding=1&cpu_idle_target=20"
    assert link in table["page"].to_list()


def test_the_first_card_is_the_step_where_steps_are_marked(filed: Draw, tmp_path: Path) -> None:
    built = trace(device="AMD Instinct MI300X")
    built.op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=10)
    unmarked = submit(Submission(built.write(tmp_path / "a.json"))).id
    span_ms = read_trace(tmp_path / "a.json").info.span_us / 1000
    assert metric(filed("overview", analysis=unmarked), "Recording") == milliseconds(span_ms)
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": PID, "tid": 1}
    built.events.append({**mark, "ts": 990, "dur": 500, "args": {}})
    marked = submit(Submission(built.write(tmp_path / "b.json"))).id
    assert metric(filed("overview", analysis=marked), "Step time") == "0.500 ms"


def test_a_trace_without_gpu_work_has_an_overview(filed: Draw, tmp_path: Path) -> None:
    path = trace().op("aten::mm", [[64, 64], [64, 64]]).write(tmp_path / "host.json")
    page = filed("overview", analysis=submit(Submission(path)).id)
    assert not page.exception
    assert any("No GPU time" in m.value for m in page.markdown)


def test_without_a_known_efficiency_no_saving_is_named(filed: Draw, tmp_path: Path) -> None:
    built = trace(device="Homebrew 9000").op("aten::mm", [[64, 64], [64, 64]])
    path = built.launches("gemm", us=10).write(tmp_path / "unknown.json")
    page = filed("overview", analysis=submit(Submission(path)).id)
    assert any("no efficiencies, so no saving" in m.value for m in page.markdown)


def test_the_waterfall_has_upper_bounds_in_the_order_of_the_findings(sample_run: Run) -> None:
    ranked = [(item, item.finding) for item in recommendations(sample_run)]
    item, first = ranked[0]
    assert first.impact is not None
    bound = first.model_copy(update={"impact": impact.as_interval(first.impact)})
    found = figures.savings([(item, bound), *ranked[1:]], sample_run)
    assert found[0].is_bound
    places = [int(each.label.split()[0].removeprefix("P")) for each in found[:-1]]
    assert places == sorted(places)
    bars = waterfall_rows(50.0, found, "each step")
    assert bars["text"][1].startswith("≤ ")
    assert bars["high_ms"][2] == 50.0
    left_ms = 50.0 - sum(each.saved_ms for each in found[1:])
    assert bars["high_ms"][-1] == pytest.approx(left_ms)
    assert bounds_note(found).startswith("P1 is an upper bound")
