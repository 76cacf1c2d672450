"""Every page draws without an exception, shows its numbers, and handles errors."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Dataframe

from jarvis import impact
from jarvis.analyses import load_analyses
from jarvis.core.request import Targets
from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding, Status
from jarvis.pipeline import at_targets
from jarvis.reports.ranking import nested, recommendations
from jarvis.run import Run
from jarvis.server.submission import Submission, submit
from jarvis.text.format import milliseconds
from jarvis.text.markdown import prose
from tests.builders import trace
from tests.dashboard.conftest import Draw, stored_in
from tests.dashboard.copied import copied_url

ANALYSES = load_analyses()
FILED = ["ingest", "overview", "timeline", "report"]


@pytest.fixture(scope="module")
def unknown_gpu_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a trace of one GEMM on an unknown GPU."""
    built = trace(device="Homebrew 9000").op("aten::mm", [[64, 32], [32, 16]])
    path = built.launches("gemm_kernel", us=12).write(tmp_path_factory.mktemp("t") / "tiny.json")
    return stored_in(home, Submission(path))


def operations(page: AppTest) -> Dataframe:
    """Return the metrics table of a category page."""
    return next(d for d in page.dataframe if "state" in d.value.columns)


def selected_places(page: AppTest) -> list[int]:
    """Return the indices of the selected rows of the metrics table."""
    state = page.session_state[operations(page).key]
    return list(state["selection"]["rows"])


def metric(page: AppTest, label: str) -> str:
    return str(next(m.value for m in page.metric if m.label == label))


@pytest.mark.parametrize("key", list(ANALYSES))
def test_every_registered_analysis_has_a_page(registered: Draw, key: str) -> None:
    page = registered(key)
    assert not page.exception
    assert not page.error
    assert ANALYSES[key].title in page.title[0].value


@pytest.mark.parametrize("key", list(ANALYSES))
def test_every_page_does_without_hardware_and_without_rows(
    registered: Draw, unknown_gpu_id: str, key: str
) -> None:
    page = registered(key, analysis=unknown_gpu_id)
    assert not page.exception
    assert not page.error
    assert any("Homebrew 9000" in warning.value for warning in page.warning)
    if ANALYSES[key].tier == "compute" and key != "gemm":
        assert f"no operations of the category {ANALYSES[key].title}." in page.info[0].value


def test_without_hardware_there_is_no_efficiency_and_the_page_says_why(
    registered: Draw, unknown_gpu_id: str
) -> None:
    page = registered("gemm", analysis=unknown_gpu_id)
    assert metric(page, "Weighted efficiency") == "not available"
    unknown = {m.label: m.delta for m in page.metric if m.value == "not available"}
    assert len(unknown) == 3
    assert set(unknown.values()) == {"no efficiency is known"}
    assert not any("state" in table.value.columns for table in page.dataframe)
    assert any("the hardware is not known" in note.value for note in page.info)


@pytest.mark.parametrize("name", FILED)
def test_every_file_page_draws(filed: Draw, sample_id: str, name: str) -> None:
    page = filed(name, analysis=sample_id)
    assert not page.exception
    assert not page.error
    assert page.title


def test_the_sidebar_names_the_hardware_and_the_origin(filed: Draw, sample_id: str) -> None:
    page = filed("overview", analysis=sample_id)
    captions = " ".join(caption.value for caption in page.sidebar.caption)
    assert "MI300X" in captions
    assert "5.30 TB/s" in captions
    assert any("simulated sample" in badges.value for badges in page.sidebar.markdown)


def test_the_head_of_a_page_says_what_it_is_about(registered: Draw, sample_id: str) -> None:
    about = registered("gemm").main.caption[0].value
    for part in ("Sample model", "MI300X", "simulated-training-step", sample_id):
        assert part in about


def test_the_saving_follows_the_slider_and_the_formula(registered: Draw, sample_run: Run) -> None:
    rows = sample_run.category_operations("gemm")
    page = registered("gemm")
    for target in (60, 95):
        page.slider(key="target").set_value(target).run()
        saved_ms = float(rows.select(saved=impact.saved_us(target))["saved"].sum()) / 1000
        assert metric(page, f"Kernel saving at {target}%") == milliseconds(saved_ms)


def test_the_highlight_changes_count_and_badges(registered: Draw, sample_run: Run) -> None:
    rows = sample_run.category_operations("gemm")
    for below in (10, 70):
        page = registered("gemm", below=str(below))
        poor = rows.filter(pl.col("pct_roofline") < below).height
        assert poor > 0
        assert metric(page, f"Below {below}%") == str(poor)
        table = operations(page)
        assert [s[0] for s in table.value["state"]].count("below threshold") == poor
        settings = json.loads(table.proto.columns)
        options = {o["value"]: o["color"] for o in settings["state"]["type_config"]["options"]}
        assert [name for name, color in options.items() if "#" in color] == ["below threshold"]
        assert settings["pct_roofline"]["type_config"]["type"] == "progress"


def test_filters_choose_rows_and_say_so(registered: Draw, sample_run: Run) -> None:
    rows = sample_run.category_operations("gemm")
    bound = rows.filter(pl.col("bound") == "memory")
    assert 0 < bound.height < rows.height
    page = registered("gemm", gemm_bound="memory")
    assert len(operations(page).value) == bound.height
    page = registered("gemm", gemm_search="BMM")
    assert {name[:3] for name in operations(page).value["name"]} == {"bmm"}
    assert not operations(page).value[["name", "arguments"]].duplicated().any()
    page = registered("gemm", gemm_min="5")
    assert len(operations(page).value) == rows.filter(pl.col("percent_of_category") >= 5).height
    page = registered("gemm", gemm_search="no such thing")
    assert any("The filters hide every row." in note.value for note in page.info)
    page.button(key="gemm_clear").click().run()
    assert len(operations(page).value) == rows.height
    assert "gemm_clear" not in [button.key for button in page.button]


def test_figures_charts_and_findings_follow_the_filters(registered: Draw, sample_run: Run) -> None:
    rows = sample_run.category_operations("gemm")
    shown = rows.filter(pl.col("bound") == "memory")
    page = registered("gemm", gemm_bound="memory")
    assert metric(page, "Time of these rows") == milliseconds(
        float(shown["kernel_time_us"].sum()) / 1000
    )
    assert metric(page, "Calls") == str(shown["operation_count"].sum())
    covers = f"{shown.height} of {rows.height} rows shown"
    assert any(covers in m.value for m in page.markdown)
    assert any("With these rows at 80% the step" in m.value for m in page.markdown)
    uids = set(shown["uid"])
    findings = sample_run.results["gemm"].findings
    covered = [f for f in findings if not f.row_uids or f.row_uids & uids]
    assert 0 < len(covered) < len(findings)
    titles = [prose(finding.title) for finding in findings]
    labels = [expander.label for expander in page.expander]
    assert [any(title in label for label in labels) for title in titles] == [
        finding in covered for finding in findings
    ]
    hidden = len(findings) - len(covered)
    assert any(f"hide the rows of {hidden} finding" in c.value for c in page.caption)


def test_colors_stay_where_filters_leave_fewer_values(registered: Draw) -> None:
    scales = [
        json.loads(registered("gemm", **given).get("vega_lite_chart")[2].proto.spec)["layer"][0][
            "encoding"
        ]["color"]["scale"]
        for given in ({}, {"gemm_search": "bmm"})
    ]
    assert len(scales[0]["domain"]) > 1
    assert scales[0] == scales[1]


def test_a_selected_row_shows_its_details_and_projections(
    registered: Draw, sample_run: Run
) -> None:
    row = sample_run.category_operations("gemm").row(2, named=True)
    page = registered("gemm", gemm_op=str(row["uid"]), gemm_target="65")
    assert row["name"] == f"aten::{page.subheader[-1].value}"
    assert any(row["name"] in text.value for text in page.markdown)
    table = next(d.value for d in page.dataframe if "target_pct" in d.value.columns)
    assert table["target_pct"].to_list() == [20.0, 50.0, 65.0, 70.0, 100.0]
    totals = sample_run.manifest.totals
    expected = impact.project(
        row["kernel_time_us"] / 1000,
        row["pct_roofline"],
        100,
        compute_ms=totals.compute_time_ms,
        total_ms=totals.total_time_ms,
    )
    assert table["saved_ms"].to_list()[-1] == pytest.approx(expected.saved_ms)
    kernels = next(d.value for d in page.dataframe if "mean_us" in d.value.columns)
    assert kernels["name"].to_list() == [kernel["name"] for kernel in row["kernels"]]


def test_a_button_of_a_finding_selects_its_row(registered: Draw, sample_run: Run) -> None:
    finding = next(f for f in sample_run.results["gemm"].findings if f.operations)
    uid = finding.operations[0].uid
    page = registered("gemm")
    number = sample_run.results["gemm"].findings.index(finding)
    page.button_group(key=f"gemm_finding_{number}_operations").set_value(uid).run()
    (place,) = selected_places(page)
    assert sample_run.category_operations("gemm")["uid"][place] == uid


def test_every_finding_shows_both_paths(registered: Draw, sample_run: Run) -> None:
    findings = sample_run.results["convolution"].findings
    assert findings
    opened = {f"convolution_finding_{number}": "true" for number in range(1, len(findings))}
    texts = [markdown.value for markdown in registered("convolution", **opened).markdown]
    assert sum("**Change the model**" in text for text in texts) == len(findings)
    assert sum("**Improve the kernel**" in text for text in texts) == len(findings)


def test_a_link_carries_which_findings_are_open(registered: Draw, sample_run: Run) -> None:
    findings = sample_run.results["gemm"].findings
    assert len(findings) > 1

    def drawn(page: AppTest) -> int:
        return sum("**Improve the kernel**" in markdown.value for markdown in page.markdown)

    closed = registered("gemm")
    assert drawn(closed) == 1
    opened = registered("gemm", gemm_finding_1="true")
    assert drawn(opened) == 2
    assert "gemm_finding_1=true" in copied_url(opened)
    assert "gemm_finding_1" not in copied_url(closed)
    bad = registered("gemm", gemm_finding_1="perhaps")
    assert drawn(bad) == 1
    assert any("perhaps" in warning.value for warning in bad.warning)


def test_the_note_on_the_numbers_is_drawn_when_it_is_opened(registered: Draw) -> None:
    output = "compute bound above"
    assert not any(output in m.value for m in registered("gemm").markdown)
    assert any(output in m.value for m in registered("gemm", gemm_method="true").markdown)


def test_the_overview_ranks_all_findings_and_leads_to_their_cards(
    filed: Draw, registered: Draw, sample_id: str, sample_run: Run
) -> None:
    page = filed("overview", analysis=sample_id, target="70")
    table = next(d.value for d in page.dataframe if "page" in d.value.columns)
    run = at_targets(sample_run, Targets(70.0))
    ranked = recommendations(run)
    labels = [label.removeprefix("↳ ") for label in table["rank"]]
    assert labels == [r.label for r, _ in nested(ranked)]
    own = [(r, r.result.findings.index(r.finding)) for r in ranked if r.result.tier == "compute"]
    item, place = next((item, place) for item, place in own if place > 0)
    key = item.result.key
    link = dict(zip(labels, table["page"], strict=True))[item.label]
    assert link == f"{key}?analysis={sample_id}&target=70&{key}_finding={place + 1}"
    shown = registered(key, target="70", **{f"{key}_finding": str(place + 1)})
    bodies = " ".join(m.value for m in shown.markdown)
    assert prose(item.finding.issue) in bodies
    assert prose(item.result.findings[0].issue) not in bodies


@pytest.mark.parametrize("view", ["fair", "rough"])
def test_the_report_page_shows_the_report(filed: Draw, sample_id: str, view: str) -> None:
    page = filed("report", analysis=sample_id, report_view=view)
    assert any("Sample model" in m.value and "# " in m.value for m in page.markdown)


def test_the_report_page_shows_the_findings_of_each_analysis(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id, report_view="findings", report_category="gemm")
    assert any(m.value.startswith("# GEMM") for m in page.markdown)


def test_an_unknown_analysis_is_a_sentence_with_a_next_step(registered: Draw) -> None:
    page = registered("gemm", analysis="notthere")
    assert not page.exception
    assert "There is no analysis 'notthere'" in page.error[0].value
    assert page.get("page_link")
    assert page.sidebar.selectbox[0].value is None


def test_ingest_can_be_used_with_a_link_to_an_unknown_analysis(filed: Draw) -> None:
    page = filed("ingest", analysis="notthere")
    assert not page.error
    assert page.button


def test_a_server_without_analyses_sends_to_ingest(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path))
    page = filed("overview")
    assert not page.exception
    assert "No analysis yet" in page.error[0].value


def test_a_failed_analysis_keeps_its_page_with_the_reason(
    sample_id: str, sample_run: Run, home: Path, registered: Draw
) -> None:
    failed = sample_run.results["gemm"].model_copy(
        update={"status": Status.ERROR, "error": "ValueError: seven"}
    )
    root = home / "analyses" / "failed-gemm"
    _copy_run(home / "analyses" / sample_id, root, failed.model_dump_json())
    page = registered("gemm", analysis="failed-gemm")
    assert not page.exception
    assert "ValueError: seven" in page.error[0].value
    assert len(page.dataframe[0].value) == sample_run.category_operations("gemm").height


def test_perf_models_that_failed_are_listed(filed: Draw, sample_id: str, home: Path) -> None:
    root = home / "analyses" / "failed-model"
    shutil.copytree(home / "analyses" / sample_id, root)
    path = RunPaths(root).manifest
    manifest = json.loads(path.read_text())
    failure = {"name": "aten::odd", "input_dims": "((1,),)", "reason": "ValueError: rank 0"}
    path.write_text(json.dumps(manifest | {"perf_model_failures": [failure]}))
    page = filed("overview", analysis="failed-model")
    assert any("perf model failed for 1 " in w.value for w in page.warning)
    assert any("rank 0" in str(d.value.values) for d in page.dataframe)


def _copy_run(source: Path, target: Path, gemm_result: str) -> None:
    shutil.copytree(source, target)
    results = json.loads((target / "results.json").read_text())
    results["analyses"]["gemm"] = json.loads(gemm_result)
    (target / "results.json").write_text(json.dumps(results))


def test_a_reference_shows_what_the_gpus_do_not_explain(
    filed: Draw, home: Path, tmp_path: Path
) -> None:
    stored = []
    for name, us in (("reference", 10.0), ("target", 30.0)):
        built = trace(device="AMD Instinct MI300X").op("aten::mm", [[512, 512], [512, 512]])
        path = built.launches("gemm", us=us).write(tmp_path / f"{name}.json")
        reference = stored[-1] if stored else None
        stored.append(submit(Submission(path, reference=reference)).id)
    assert not any(
        h.value == "Against the reference" for h in filed("overview", analysis=stored[0]).subheader
    )
    page = filed("overview", analysis=stored[1])
    assert not page.exception
    table = next(d.value for d in page.dataframe if "time_ratio" in d.value.columns)
    assert table["time_ratio"].to_list() == pytest.approx([3.0])
    assert any(
        f"{stored[0]}; slower than" in caption.value and caption.value.endswith("explain: 1.")
        for caption in page.caption
    )


def test_a_trace_without_communication_and_copies_says_so(registered: Draw, tmp_path: Path) -> None:
    built = trace(device="AMD Instinct MI300X").op("aten::mm", [[64, 64], [64, 64]])
    path = built.launches("gemm", us=10.0).write(tmp_path / "compute.json")
    page = registered("multi_kernel", analysis=submit(Submission(path)).id)
    assert not page.exception
    assert not page.get("vega_lite_chart")
    assert any("no communication and no memory copies" in c.value for c in page.caption)


def test_evidence_in_words_is_not_cut(sample_run: Run) -> None:
    words = "3 x allreduce of 17.6 MB over 8 ranks, 8.93 ms each; " * 3
    known = next(iter(sample_run.results["gemm"].findings))
    finding = known.model_copy(update={"evidence": {"Largest by time": words}})

    def page(finding: "Finding", run: "Run") -> None:
        from jarvis.dashboard.widgets.finding_cards import finding_cards

        finding_cards((finding,), run, lambda _: None)

    drawn = AppTest.from_function(page, args=(finding, sample_run)).run()
    assert words.strip() in next(m.value for m in drawn.markdown if "| Evidence" in m.value)


def test_a_long_kernel_name_leaves_room_for_the_other_evidence(sample_run: Run) -> None:
    known = next(iter(sample_run.results["gemm"].findings))
    finding = known.model_copy(update={"evidence": {"Main kernel": f"first_{'x' * 1000}_last"}})

    def page(finding: "Finding", run: "Run") -> None:
        from jarvis.dashboard.widgets.finding_cards import finding_cards

        finding_cards((finding,), run, lambda _: None)

    drawn = AppTest.from_function(page, args=(finding, sample_run)).run()
    evidence = next(m.value for m in drawn.markdown if m.value.startswith("| Evidence"))
    assert "first" in evidence
    assert "last" in evidence
    assert len(evidence) < 200
