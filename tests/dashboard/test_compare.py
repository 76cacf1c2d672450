"""The Compare page: two analyses in the link, and numbers checked with Polars."""

import zipfile
from pathlib import Path
from urllib.parse import parse_qs

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.comparison import SLOWER, Comparison
from jarvis.dashboard.pages.compare.charts import VIEWS
from jarvis.dashboard.pages.compare.metric_cards import Time, change, of_steps
from jarvis.dashboard.pages.compare.tables import row_addresses
from jarvis.pipeline import compare
from jarvis.reports.comparative.fair import fair_markdown
from jarvis.reports.comparative.subject import Subject
from jarvis.run import Run
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.jobs.kinds import Compare, job_file, request_of
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit
from jarvis.text.format import milliseconds, percent
from tests.builders import trace
from tests.dashboard.conftest import SHARED, Draw
from tests.dashboard.copied import copied_parameters
from tests.dashboard.inline_jobs import do_jobs_at_once
from tests.dashboard.table_widths import PAGE_PX, used_px

BIG, MM = [[8192, 8192], [8192, 8192]], [[4096, 4096], [4096, 4096]]
H100, MI300X = "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"
MEMORY_RATIO = 3350 / 5300


def analyzed(path: Path, device: str, add: float, mul: float, mm: float, own: str) -> str:
    """Return the id of a trace with three operations of both sides, and one of its own."""
    built = trace(device=device)
    for name, dims, us in (
        ("aten::add", BIG, add),
        ("aten::mul", BIG, mul),
        ("aten::mm", MM, mm),
        (own, BIG[:1], 80.0),
    ):
        built.op(name, dims).launches(f"{name}_{device}", us=us)
    return submit(Submission(built.write(path))).id


@pytest.fixture(scope="module")
def pair(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Target and reference: the target's add takes more than twice the expected time, its mul
    1.24 times that, and its product what the GPUs explain."""
    folder = tmp_path_factory.mktemp("pair")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        reference = analyzed(folder / "reference.json", H100, 150, 150, 200, "aten::tanh")
        target = analyzed(folder / "target.json", MI300X, 240, 118, 270, "aten::relu")
    return target, reference


@pytest.fixture
def page(filed: Draw, pair: tuple[str, str]) -> AppTest:
    return drawn(filed, pair)


@pytest.fixture
def found(pair: tuple[str, str]) -> Comparison:
    target, reference = (Run.load(analysis_root(i)) for i in pair)
    return compare(target, reference)


def drawn(filed: Draw, pair: tuple[str, str], **parameters: str) -> AppTest:
    target, reference = pair
    page = filed("compare", analysis=target, reference=reference, **parameters)
    assert not page.exception
    assert not page.error
    return page


def link(page: AppTest) -> dict[str, str]:
    """Return the parameters of the sidebar's link."""
    return {k: v[0] for k, v in copied_parameters(page).items()}


def figures(page: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def table(page: AppTest, column: str = "outcome") -> pl.DataFrame:
    """Return the table of differences as sent to the browser."""
    frame = next(d.value for d in page.dataframe if column in d.value.columns)
    return pl.from_pandas(frame)


def output(page: AppTest) -> str:
    parts = (page.info, page.warning, page.success, page.markdown, page.caption, page.subheader)
    return " ".join(element.value for part in parts for element in part)


def test_the_figures_are_those_of_both_timelines(
    page: AppTest, pair: tuple[str, str], found: Comparison
) -> None:
    (step,) = found.steps.filter(pl.col("type") == "step time").to_dicts()
    parts = dict(found.steps.select("type", "target_ms").iter_rows())
    shown = figures(page)
    assert list(shown)[:4] == ["Recording", "GPU busy", "Exposed comm.", "Idle"]
    assert shown["Recording"] == milliseconds(step["target_ms"])
    idle_ms = sum(time_ms for part, time_ms in parts.items() if part.startswith("idle"))
    assert shown["Idle"] == milliseconds(idle_ms)
    assert shown["GPU busy"] == milliseconds(step["target_ms"] - idle_ms)
    assert shown["Exposed comm."] == milliseconds(0)
    change_ms, change_pct = step["difference_ms"], step["difference_pct"]
    assert page.metric[0].delta == f"{milliseconds(change_ms)} ({percent(change_pct)}) more"
    assert ":red-badge[:material/trending_up: worse]" in page.markdown[0].value
    assert f"reference {milliseconds(step['reference_ms'])}" in output(page)
    unexplained = (240 - 150 * MEMORY_RATIO + 118 - 150 * MEMORY_RATIO) / 1e3
    assert shown["Not explained"] == milliseconds(unexplained)
    assert found.operations["unexplained_ms"].sum() == pytest.approx(unexplained)
    matched = 240 + 118 + 270
    assert shown["Matched"] == f"{100 * matched / (matched + 80):.1f}%"


def test_the_tolerance_moves_figure_table_and_findings_at_once(
    filed: Draw, pair: tuple[str, str], found: Comparison
) -> None:
    outcomes = {}
    for pct in (20, 30):
        page = drawn(filed, pair, compare_tolerance=str(pct))
        at = found.at(1 + pct / 100)
        rows = table(page)
        assert (
            rows["outcome"].explode().to_list()
            == (
                at.operations.sort("unexplained_ms", descending=True, maintain_order=True)[
                    "outcome"
                ]
            ).to_list()
        )
        assert figures(page)["Not explained"] == milliseconds(at.operations["unexplained_ms"].sum())
        assert sum("slower than the hardware" in e.label for e in page.expander) == len(at.findings)
        slower = at.operations.filter(pl.col("outcome").is_in(SLOWER)).height
        assert f"{slower} of 3 comparable operations" in output(page)
        outcomes[pct] = slower
    assert outcomes == {20: 2, 30: 1}
    page.slider(key="compare_tolerance").set_value(20).run()
    assert "2 of 3 comparable operations" in output(page)


def test_titles_say_how_many_steps_times_are_of(sample_run: Run, found: Comparison) -> None:
    assert of_steps(compare(sample_run, sample_run)) == ", sum of 2 steps"
    assert of_steps(found) == ""


def test_without_a_reference_the_analysis_most_alike_is_suggested(
    filed: Draw, pair: tuple[str, str], sample_id: str
) -> None:
    target, reference = pair
    page = filed("compare", analysis=target)
    assert link(page) == {
        "analysis": target,
        **SHARED,
        "reference": reference,
        "compare_tolerance": "20",
        "compare_category": "all",
        "compare_judged": "all",
        "compare_bars": "ms",
        "compare_against": "reference",
        "compare_view": "matched",
        "compare_matched_sort": "unexplained_ms",
        "compare_matched_order": "descending",
    }
    options = page.selectbox(key="compare_reference").options
    assert any(sample_id in option for option in options)


def test_a_copied_link_opens_the_page_that_it_was_copied_from(
    filed: Draw, pair: tuple[str, str]
) -> None:
    page = drawn(
        filed,
        pair,
        compare_tolerance="35",
        compare_category="elementwise",
        compare_judged="slower",
        compare_search="add",
        compare_bars="%",
        compare_against="expected",
        compare_matched_op="1",
        compare_matched_sort="target_ms",
    )
    first = link(page)
    assert first["compare_matched_op"] == "1"
    again = filed("compare", **first)
    assert link(again) == first
    assert figures(again) == figures(page)
    assert table(again).equals(table(page))
    assert not again.warning or "link" not in again.warning[0].value


def test_the_button_swaps_the_sides_and_the_figures_mirror(
    page: AppTest, pair: tuple[str, str]
) -> None:
    before = figures(page)
    page.button(key="compare_swap").click().run()
    assert not page.exception
    assert (link(page)["analysis"], link(page)["reference"]) == pair[::-1]
    assert f"reference {before['Recording']}" in output(page)
    assert page.metric[0].delta.endswith(" less")
    assert "better" in page.markdown[0].value


def test_choosing_the_reference_in_the_sidebar_swaps_too(
    page: AppTest, pair: tuple[str, str]
) -> None:
    page.sidebar.selectbox[0].set_value(pair[1]).run()
    assert not page.exception
    assert (link(page)["analysis"], link(page)["reference"]) == pair[::-1]


def test_an_analysis_beside_itself_has_no_differences(filed: Draw, pair: tuple[str, str]) -> None:
    page = drawn(filed, (pair[0], pair[0]))
    assert "so there are no differences" in output(page)
    assert "No significant operation" in output(page)
    assert figures(page)["Not explained"] == milliseconds(0)
    assert set(table(page)["difference_ms"]) == {0.0}


def test_a_reference_that_is_gone_is_replaced_with_a_word(
    filed: Draw, pair: tuple[str, str]
) -> None:
    page = filed("compare", analysis=pair[0], reference="removed")
    assert not page.exception
    assert any("has no analysis 'removed' to compare with" in w.value for w in page.warning)
    assert link(page)["reference"] == pair[1]


def test_no_unlike_run_is_chosen_but_all_are_offered(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    own = analyzed(tmp_path / "own.json", MI300X, 10, 10, 10, "aten::relu")
    conv = trace(device=H100).op("aten::conv2d", BIG).launches("conv", us=10)
    unlike = submit(Submission(conv.write(tmp_path / "unlike.json"))).id
    other = Submission(conv.write(tmp_path / "other.json"), platform="MI300X", preset="datasheet")
    at_other_peaks = submit(other).id
    page = filed("compare", analysis=own)
    assert not page.exception
    assert page.selectbox(key="compare_reference").value is None
    assert not page.metric
    assert "none is chosen as the reference" in output(page)
    words = (
        "Different or unknown model; no main operator runs equally often in a step, so little can "
        "be compared:"
    )
    assert output(page).count(words) == 1
    assert "NVIDIA H100 80GB HBM3 ·" in page.button(key=f"compare_with_{unlike}").label
    with_preset = page.button(key=f"compare_with_{at_other_peaks}").label
    assert "NVIDIA H100 80GB HBM3 (peaks of MI300X (datasheet)) ·" in with_preset
    assert "reference" not in link(page)
    page.button(key=f"compare_with_{unlike}").click().run()
    assert not page.exception
    assert link(page)["reference"] == unlike
    assert page.metric
    alike = analyzed(tmp_path / "alike.json", H100, 20, 20, 20, "aten::relu")
    assert link(filed("compare", analysis=own))["reference"] == alike
    page = filed("compare", analysis=own, reference=unlike)
    assert link(page)["reference"] == unlike


def test_the_reference_of_another_target_is_stored_only_if_it_is_alike(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    first = analyzed(tmp_path / "first.json", MI300X, 10, 10, 10, "aten::relu")
    second = analyzed(tmp_path / "second.json", H100, 20, 20, 20, "aten::relu")
    conv = trace(device=H100).op("aten::conv2d", BIG).launches("conv", us=10)
    unlike = submit(Submission(conv.write(tmp_path / "unlike.json"))).id
    page = filed("compare", analysis=first, reference=second)
    page.sidebar.selectbox[0].set_value(unlike).run()
    assert not page.exception
    assert page.selectbox(key="compare_reference").value is None
    assert link(page)["analysis"] == unlike
    assert "reference" not in link(page)


def test_a_server_with_one_analysis_says_how_to_add_another(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    only = analyzed(tmp_path / "t.json", MI300X, 10, 10, 10, "aten::relu")
    for reference in ({}, {"reference": "removed"}):
        page = filed("compare", analysis=only, **reference)
        assert not page.exception
        assert "This server has no other analysis to compare with" in output(page)
        assert not page.metric
    page = filed("compare", analysis=only, reference=only)
    assert "so there are no differences" in output(page)


def test_other_models_and_little_in_common_are_warned_of(
    filed: Draw, pair: tuple[str, str], sample_id: str, tmp_path: Path
) -> None:
    built = trace(device=MI300X).op("aten::mm", MM).launches("gemm", us=10)
    named = submit(Submission(built.write(tmp_path / "named.json"), model_name="Another model")).id
    page = drawn(filed, (named, sample_id))
    (warning,) = (each.value for each in page.warning if "workloads differ" in each.value)
    assert "Another model on the target, Sample model on the reference" in warning
    assert "better" not in output(page)
    assert "worse" not in output(page)


def test_one_trace_on_another_gpu_says_that_times_are_equal(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    path = (
        trace(device=MI300X).op("aten::mm", MM).launches("gemm", us=10).write(tmp_path / "t.json")
    )
    first = submit(Submission(path)).id
    second = submit(Submission(path, platform="MI325X")).id
    page = filed("compare", analysis=first)
    assert link(page)["reference"] == second
    assert "of the same trace, so all measured times are equal" in output(page)
    assert page.metric[0].delta == "no difference"
    assert "badge" not in page.markdown[0].value


def test_without_operations_no_sentence_is_about_them(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    empty = [
        submit(Submission(trace().op("aten::view", [[n]]).write(tmp_path / f"{n}.json"))).id
        for n in (1, 2)
    ]
    page = drawn(filed, (empty[0], empty[1]))
    for text in (
        "slower than",
        "category",
        "Matched",
        "What to improve",
        "Differences",
        "Time per",
    ):
        assert text not in output(page), text
    assert "Matched" not in figures(page)


def test_more_runs_are_compared_on_the_runs_page(page: AppTest, pair: tuple[str, str]) -> None:
    links = [each.proto for each in page.get("page_link")]
    (more,) = (each for each in links if each.label == "Compare more runs")
    assert parse_qs(more.query_string)["runs_selected"] == [",".join(pair)]


def test_a_side_without_hardware_says_what_that_hides(
    filed: Draw, pair: tuple[str, str], tmp_path: Path
) -> None:
    unknown = analyzed(tmp_path / "unknown.json", "Homebrew 9000", 150, 150, 200, "aten::tanh")
    page = drawn(filed, (pair[0], unknown), compare_against="expected")
    assert "GPU of the reference is not described" in output(page)
    assert "No expected ratio is available for these operations" in output(page)
    assert figures(page)["Not explained"] == "—"


@pytest.mark.parametrize(
    ("control", "value", "names"),
    [
        ("compare_category", "gemm", ["mm"]),
        ("compare_judged", "slower", ["add", "mul"]),
        ("compare_judged", "as expected", ["mm"]),
        ("compare_search", "4096", ["mm"]),
        ("compare_search", "MUL", ["mul"]),
    ],
)
def test_filters_choose_rows(
    filed: Draw, pair: tuple[str, str], control: str, value: str, names: list[str]
) -> None:
    rows = table(drawn(filed, pair, **{control: value}))
    assert sorted(rows["name"]) == names


def test_no_row_left_by_the_filters_is_reported(filed: Draw, pair: tuple[str, str]) -> None:
    assert "No row passes the filters" in output(drawn(filed, pair, compare_search="no such thing"))


@pytest.mark.parametrize("key", list(VIEWS))
def test_every_view_has_its_rows(
    filed: Draw, pair: tuple[str, str], found: Comparison, key: str
) -> None:
    view = VIEWS[key]
    rows = view.rows(found)
    page = drawn(filed, pair, compare_view=key)
    assert link(page)["compare_view"] == key
    if rows.is_empty():
        assert "These two analyses have no such rows" in output(page)
        return
    shown = next(d for d in page.dataframe if view.names[0] in d.value.columns)
    assert len(shown.value) == rows.height
    assert used_px(shown) <= PAGE_PX
    assert f"{rows.height} of {rows.height} row" in output(page)


def test_rows_lead_to_the_pages_of_both_analyses(
    filed: Draw, pair: tuple[str, str], found: Comparison
) -> None:
    alone = found.only_in_reference
    category, uid = alone.select("category", "uid").row(0)
    assert row_addresses("only_reference", alone, *pair) == [
        f"{category}?analysis={pair[1]}&{category}_op={uid}"
    ]
    assert not any(row_addresses("matched", found.operations, *pair))  # its details have the links
    page = drawn(filed, pair, compare_view="only_reference")
    assert "Click a row to open it" in output(page)


def test_operations_of_one_side_have_titles_of_categories_and_short_names(
    filed: Draw, pair: tuple[str, str]
) -> None:
    alone = table(drawn(filed, pair, compare_view="only_reference"), "category")
    titles = {analysis.title for analysis in load_analyses().values()}
    assert set(alone["category"]) <= titles
    assert not any("::" in name for name in alone["name"])


def test_a_large_increase_is_a_ratio() -> None:
    assert change(Time(4.12, 0.0945, 4.0)) == "4.03 ms more (43.6 times)"
    assert change(Time(1.5, 1.0, 4.0)) == "0.500 ms (50.0%) more"


def test_a_selected_row_shows_its_working_and_kernels(
    filed: Draw, pair: tuple[str, str], found: Comparison
) -> None:
    row = found.operations.filter(pl.col("name") == "aten::add").row(0, named=True)
    page = drawn(filed, pair, compare_matched_op=str(row["pair"]))
    assert "aten::add` is much slower" in output(page)
    assert "expected 150 µs x 0.632 = 94.8 µs, measured 240 µs, which is 2.53 times" in output(page)
    assert "Not explained: 0.240 ms - 94.8 µs = 0.145 ms" in output(page)
    kernels = table(page, "launches_per_call")
    assert sorted(kernels["kernel"]) == [f"aten::add_{MI300X}", f"aten::add_{H100}"]
    assert kernels["us_per_call"].to_list() == [0.24, 0.15]  # in ms


def test_a_button_of_a_finding_selects_its_row(page: AppTest, found: Comparison) -> None:
    finding = found.findings[0]
    uid = finding.operations[0].uid
    page.button_group(key="compare_finding_0_operations").set_value(uid).run()
    assert not page.exception
    pair = found.operations.filter(pl.col("uid") == uid)["pair"][0]
    assert link(page)["compare_matched_op"] == str(pair)


def test_the_peaks_of_both_gpus_stand_beside_the_ratios_they_explain(page: AppTest) -> None:
    rows = {row["figure"]: row for row in table(page, "expected").iter_rows(named=True)}
    bandwidth = rows["Peak memory bandwidth (TB/s)"]
    assert (bandwidth["target"], bandwidth["reference"]) == (5.3, 3.35)
    assert bandwidth["expected"] == pytest.approx(MEMORY_RATIO)
    assert rows["Peak bf16 matrix (TFLOP/s)"]["expected"] == pytest.approx(990 / 708)
    assert rows["Memory size (GB)"]["expected"] is None


def test_a_bad_tolerance_is_corrected_with_a_word(filed: Draw, pair: tuple[str, str]) -> None:
    page = filed("compare", analysis=pair[0], reference=pair[1], compare_tolerance="1000")
    assert any("compare_tolerance = '1000'" in w.value for w in page.warning)
    assert page.slider(key="compare_tolerance").value == 20


@pytest.mark.parametrize("model", ["qwen1.5-0.5b", "bert-small"])
def test_recorded_pairs_show_what_polars_counts(
    reference_root: Path, filed: Draw, model: str
) -> None:
    ids = [
        submit(Submission(reference_root / "traces" / f"{gpu}-{model}.json.gz")).id
        for gpu in ("mi300", "h100")
    ]
    target, reference = (Run.load(analysis_root(i)) for i in ids)
    found = compare(target, reference).at(1.5)
    page = drawn(filed, (ids[0], ids[1]), compare_tolerance="50")
    assert figures(page)["Not explained"] == milliseconds(found.operations["unexplained_ms"].sum())
    assert sorted(table(page)["outcome"].explode()) == sorted(found.operations["outcome"])
    more_ms = sum(change for change in found.categories["difference_ms"] if change > 0)
    assert f" {milliseconds(more_ms)} more on the target" in output(page)


def test_a_job_makes_the_files_of_the_tolerance_on_the_page(
    filed: Draw, pair: tuple[str, str], found: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    page = drawn(filed, pair, compare_tolerance="30")
    page.button(key="compare_make_All files (zip)").click().run()
    assert not page.exception
    job = queue.find(database(), page.query_params["compare_job"])
    assert request_of(job.kind, job.parameters) == Compare(*pair, 1.3)
    file = job_file(job.result)
    assert file is not None
    (link,) = page.get("link_button")
    assert link.proto.label.startswith(file.name)
    rows = pl.read_csv(zipfile.ZipFile(file).read("comparison_data/comparison_operations.csv"))
    assert rows["outcome"].to_list() == found.at(1.3).operations["outcome"].to_list()
    page.slider(key="compare_tolerance").set_value(20).run()
    assert not page.get("link_button")
    assert "compare_job" not in page.query_params


def test_small_reports_are_made_at_once_under_the_tolerance(
    pair: tuple[str, str], found: Comparison
) -> None:
    target, reference = (Run.load(analysis_root(i)) for i in pair)
    strict, loose = (fair_markdown(Subject(at, target, reference)) for at in (found, found.at(1.3)))
    assert strict.count("`aten::mul`") > loose.count("`aten::mul`")
