"""The report for stakeholders: its parts, lengths, order and links."""

import re
from pathlib import Path

import polars as pl
import pytest

from jarvis.findings import COPIES_POOL, IDLE_POOL, Finding, Priority
from jarvis.impact import as_interval, bounded_impact, modelled_impact, of_steps
from jarvis.pipeline import analyze
from jarvis.reports.account import account_of, compute_note
from jarvis.reports.details import details_of
from jarvis.reports.fair import MAX_WORDS, fair_markdown
from jarvis.reports.ranking import recommendations
from jarvis.reports.sections import trace_stem
from jarvis.reports.summary import paragraph
from jarvis.savings import per_step
from jarvis.text.format import milliseconds, percent
from jarvis.text.messages import to_text
from tests.builders import trace
from tests.reports.conftest import Analyzed
from tests.reports.markdown import (
    LINK,
    anchors,
    changed,
    finding,
    headings,
    section,
    uids_of,
    with_findings,
)

SENTENCE = re.compile(r"(?<=[.]) (?=[A-Z])")


@pytest.fixture(scope="module")
def fair(sample: Analyzed) -> str:
    return sample.text("standalone_analysis_fair.md")


def cards_of(fair: str) -> list[str]:
    return re.split(r"^### ", section(fair, "Recommendations"), flags=re.MULTILINE)[1:]


def test_title_and_sections_of_the_fair_report(fair: str) -> None:
    assert fair.startswith("# Tiny - MI300X Standalone Analysis\n")
    wanted = ["Executive Summary", "Recommendations", "Detailed Analysis"]
    wanted += ["What Is Not Known", "Appendix"]
    assert [h for h in headings(fair, 2) if h != "Warnings"] == wanted
    assert headings(section(fair, "Appendix"), 3) == ["Hardware Reference"]
    assert len(fair.split()) <= MAX_WORDS


def test_the_summary_has_five_sentences_about_the_step_and_what_costs_most(
    fair: str, sample: Analyzed
) -> None:
    summary = section(fair, "Executive Summary")
    text = summary.strip().splitlines()[2]
    assert len(SENTENCE.split(text)) <= 5
    account = account_of(sample.run)
    assert account is not None
    first = recommendations(sample.run)[0].finding
    assert first.impact is not None
    assert first.impact.step_ms is not None
    assert text.startswith("One step takes ")
    of_step = per_step(first.impact, sample.run.manifest.totals)
    saved = f"{milliseconds(of_step.gain_ms)} ({percent(first.impact.gain_pct)} of each step)"
    assert f'The first finding, "{to_text(first.title)}", saves {saved}' in text
    assert "simulated trace" not in text
    assert "MI300X" not in text
    for row in sample.run.table("operations")["kernels"]:
        assert not any(kernel["name"] in text for kernel in row)
    for name in ("Total Compute Time", "GPU Utilization", "Top Bottleneck Category"):
        assert f"| {name} |" in summary
    assert "| Flash Attention Usage | Partly (2 findings on unfused attention) |" in summary
    assert len(re.findall(r"^\| \d+ \|", summary, re.MULTILINE)) == 5


def test_the_second_cost_is_one_that_does_not_share_time_with_the_first(sample: Analyzed) -> None:
    first, second, *_ = uids_of(sample.run, "elementwise")
    run = with_findings(
        sample.run,
        finding("elementwise", first, saved_ms=3.0, title="First"),
        finding("elementwise", first, second, saved_ms=2.0, title="Shares"),
        finding("gemm", uids_of(sample.run, "gemm")[0], saved_ms=1.0, title="Apart"),
    )
    text = paragraph(run, details_of(run))
    assert 'The first finding, "First", saves 3.00 ms (15.0% of the GPU window). ' in text
    assert 'Next is "Apart"' in text
    assert "Shares" not in text


def test_what_comes_before_kernels_does_not_contradict_the_first_finding(
    hostile: Analyzed,
) -> None:
    uid = uids_of(hostile.run, "gemm")[0]
    system = finding("multi_kernel", saved_ms=5.0, time_pool=COPIES_POOL)
    lesser = system.model_copy(update={"priority": Priority.MEDIUM})
    unknown = finding("gemm", uid, saved_ms=1.0, impact=None)
    other = finding("cpu_idle", saved_ms=5.0, time_pool="idle before")
    kernel = finding("gemm", uid, saved_ms=1.0)
    output = re.compile("address .*exposed (?:communication|copies).* before single kernels")
    cases = (((system, kernel), True), ((kernel,), False), ((other, kernel), False))
    cases += (((lesser, kernel), True), ((lesser, unknown), False))
    for findings, is_said in cases:
        run = with_findings(hostile.run, *findings)
        assert bool(output.search(paragraph(run, details_of(run)))) is is_said


def test_cards_are_short_complete_and_in_order(fair: str) -> None:
    cards = cards_of(fair)
    assert cards
    numbers = []
    for card in cards:
        lines = [line for line in card.splitlines() if line.strip()]
        assert len(lines) <= 10
        heading = re.match(r"(\S+) P(\d+) \((Critical|High|Medium)\): \S", lines[0])
        assert heading, lines[0]
        assert heading[1] == Priority(heading[3]).icon
        numbers.append(int(heading[2]))
        for label in ("Issue", "Action A", "Action B", "Impact"):
            assert sum(line.startswith(f"- **{label}**: ") for line in lines) == 1, (label, card)
    assert numbers == sorted(numbers)


def test_findings_beyond_the_words_of_all_cards_are_in_the_table(sample: Analyzed) -> None:
    uids = sample.run.table("operations")["uid"].to_list()
    issue, kernel = f"It takes {'very ' * 40}long.", f"Tune it {'much ' * 20}more"
    many = [
        finding(
            "gemm",
            uid,
            saved_ms=5.0 - n / 10,
            title=f"Number {n}",
            issue=issue,
            algorithmic=f"Do {n}.",
            kernel=f"{kernel} {n}.",
        )
        for n, uid in enumerate(uids[:30])
    ]
    text = fair_markdown(with_findings(sample.run, *many), sample.root)
    assert len(text.split()) <= MAX_WORDS
    count = len(cards_of(text))
    assert 5 < count < 12
    table = section(text, "Recommendations")
    assert f"| [P{count}](#" in table
    assert f"| [P{count + 1}](category_findings/gemm_findings.md) | Number {count} | " in table
    assert "18 more findings of low priority or small saving" in table


def test_an_action_is_not_repeated(sample: Analyzed) -> None:
    first, second, *_ = uids_of(sample.run, "gemm")
    run = with_findings(
        sample.run,
        finding("gemm", first, saved_ms=2.0),
        finding("gemm", second, saved_ms=1.0, kernel="Do another thing."),
    )
    text = fair_markdown(run, sample.root)
    assert text.count("- **Action A**: Do less.") == 1
    assert "- **Action A**: As for P1." in text
    assert "- **Action B**: Do another thing." in text


def test_every_link_leads_somewhere(fair: str, sample: Analyzed) -> None:
    links = LINK.findall(fair)
    assert links
    found = anchors(fair)
    assert len(found) == len(set(found))
    assert set(links) <= set(found)
    files = re.findall(r"\]\(([^)#]+)\)", fair)
    assert files
    assert all((sample.root / file).is_file() for file in files)


def test_detailed_analysis_lists_the_files_of_findings_with_shares(
    fair: str, sample: Analyzed
) -> None:
    details = section(fair, "Detailed Analysis")
    results = [r for r in sample.run.results.values() if r.findings]
    assert len(re.findall(r"^\d+\. \[", details, re.MULTILINE)) == len(results)
    for result in results:
        share = f" ({percent(result.percent_of_compute)} of compute)"
        title = result.title + (share if result.tier == "compute" else "")
        assert f"[{title}](" in details


def test_sections_with_nothing_are_left_out(sample: Analyzed) -> None:
    health = sample.run.table("trace_health").clear()
    operations = sample.run.table("operations").with_columns(has_perf_model=True)
    run = sample.run.with_tables({"trace_health": health, "operations": operations})
    text = fair_markdown(with_findings(run), sample.root)
    wanted = ["Executive Summary", "Recommendations", "Appendix"]
    assert headings(text, 2) == wanted
    assert "No check found a problem." in text
    assert "No finding is above low priority." in text


def test_low_priorities_get_a_row_and_no_card(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "reduce")[0]
    gain = modelled_impact(1.0, 50.0, 80.0, compute_ms=100.0, total_ms=200.0)
    low = finding("reduce", uid, saved_ms=1.0, priority=Priority.LOW, title="A trifle", impact=gain)
    text = fair_markdown(with_findings(sample.run, low), sample.root)
    assert "No finding is above low priority." in text
    assert "| [P1](category_findings/reduce_findings.md) | A trifle | 0.19% |" in text
    assert not cards_of(text)


def test_no_table_is_repeated_nor_the_text_of_the_summary(fair: str) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", fair, re.MULTILINE)
    assert len(tables) == len(set(tables)) == 3
    text = section(fair, "Executive Summary").strip().splitlines()[2]
    reported = [sentence for sentence in SENTENCE.split(text) if len(sentence) > 30]
    assert len(reported) > 2
    assert all(fair.count(sentence) == 1 for sentence in reported)


def test_unsteady_times_are_a_warning(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    unsteady = finding("gemm", uid, saved_ms=1.0, check="high_variance", issue="Times vary.")
    fair = fair_markdown(with_findings(sample.run, unsteady), sample.root)
    assert "- P1 (Of gemm): calls with equal arguments differ widely in time." in section(
        fair, "Warnings"
    )
    assert fair.count("Times vary.") == 1


def test_without_hardware_nothing_is_invented(sample: Analyzed) -> None:
    run = changed(sample.run, hardware=None, model_name=None, platform_warning="Unknown GPU.")
    fair = fair_markdown(run, sample.root)
    assert fair.startswith("# sample - Hardware not known Standalone Analysis\n")
    assert "The title is its file name: no model was named." in fair
    assert "Peak MAF" not in fair
    assert "Unknown GPU." in section(fair, "Warnings")
    assert "not known" in section(fair, "Warnings")


@pytest.mark.parametrize(
    ("file_name", "title"),
    [
        ("bert.json.gz", "bert"),
        ("step.pt.trace.json", "step"),
        ("a.b.zip", "a.b"),
        (".json", ".json"),
        ("trace", "trace"),
    ],
)
def test_without_a_model_the_title_is_the_file_name(file_name: str, title: str) -> None:
    assert trace_stem(file_name) == title


def test_without_hardware_the_summary_says_how_to_have_efficiencies(tmp_path: Path) -> None:
    builder = trace(device="Strange 9000").op("aten::mm", [[512, 512], [512, 512]])
    path = builder.launches("k", us=500.0).write(tmp_path / "trace.json")
    analyze(path, output_dir=tmp_path / "r")
    fair = (tmp_path / "r" / "standalone_analysis_fair.md").read_text(encoding="utf-8")
    summary = section(fair, "Executive Summary")
    assert "peaks of" not in summary
    assert "Name the GPU (`--platform`) to get them." in summary
    assert ".," not in summary


def test_hostile_links_still_lead_somewhere(hostile: Analyzed) -> None:
    fair = hostile.text("standalone_analysis_fair.md")
    assert LINK.findall(fair)
    assert set(LINK.findall(fair)) <= set(anchors(fair))


def basis_of(sample: Analyzed, *findings: Finding) -> str:
    text = fair_markdown(with_findings(sample.run, *findings), sample.root)
    return section(text, "Recommendations").strip().splitlines()[2]


def test_the_basis_explains_what_differs_from_the_order_and_the_target(sample: Analyzed) -> None:
    first, second, *_ = uids_of(sample.run, "gemm")
    large = finding("gemm", first, saved_ms=2.0)
    small = finding("gemm", second, saved_ms=1.0, priority=Priority.MEDIUM)
    assert "Priorities also weigh" not in basis_of(sample, large, small)
    lesser = large.model_copy(update={"priority": Priority.MEDIUM})
    urgent = small.model_copy(update={"priority": Priority.HIGH})
    assert "Priorities also weigh efficiency" in basis_of(sample, lesser, urgent)
    for target_pct, is_usual in ((sample.run.target_pct, False), (15.0, True)):
        gain = large.impact.model_copy(update={"target_pct": target_pct}) if large.impact else None
        basis = basis_of(sample, large.model_copy(update={"impact": gain}))
        assert "have a target of 80% of the roofline" in basis
        assert ("or the usual efficiency that a finding states" in basis) is is_usual


def test_recorded_stacks_are_named_where_the_host_limits_the_first_finding(
    sample: Analyzed,
) -> None:
    idle = finding("cpu_idle", saved_ms=5.0, time_pool=IDLE_POOL)
    kernel = finding("gemm", uids_of(sample.run, "gemm")[0], saved_ms=6.0)
    loading = finding("cpu_idle", saved_ms=5.0, time_pool=f"{IDLE_POOL} kernel_loading")
    stacks = "Recording Python stacks lengthened the host's part of the recording."
    assert stacks in basis_of(sample, idle)
    for other in (kernel, loading):
        assert stacks not in basis_of(sample, other, idle)
    gain = of_steps(kernel.impact, 2.0, 20.0) if kernel.impact else None
    assert stacks in basis_of(sample, kernel.model_copy(update={"impact": gain}))


def test_a_saving_that_the_host_limits_says_so(sample: Analyzed) -> None:
    gain = bounded_impact(9.0, 5.0, compute_ms=10.0, total_ms=20.0)
    for limit_ms, is_said in ((2.0, True), (5.0, False)):
        limited = as_interval(of_steps(gain, limit_ms, 20.0))
        (found,) = details_of(
            with_findings(sample.run, finding("multi_kernel", saved_ms=5.0, impact=limited))
        )
        output = to_text(found.short_saving)
        assert output.startswith(f"up to {limit_ms / 2:.2f} ms")  # of each of two steps
        assert output.endswith("limited by the host") is is_said


def test_savings_of_kernels_that_are_not_known_are_named(sample: Analyzed) -> None:
    steps = sample.run.table("steps").with_columns(
        compute_ns=pl.col("dur_ns") * 7 // 10,
        idle_between_ns=pl.col("dur_ns") * 3 // 10,
        idle_before_ns=pl.lit(0),
        idle_after_ns=pl.lit(0),
        exposed_comm_ns=pl.lit(0),
        exposed_copy_ns=pl.lit(0),
    )
    idle = finding("cpu_idle", saved_ms=5.0, time_pool=IDLE_POOL)
    for impact, is_said in ((None, True), (idle.impact, False)):
        kernel = finding("gemm", uids_of(sample.run, "gemm")[0], saved_ms=1.0, impact=impact)
        run = with_findings(sample.run, idle, kernel).with_tables({"steps": steps})
        text = paragraph(run, details_of(run))
        assert "so address idle time before single kernels" in text
        assert ("for some of which the saving is not known" in text) is is_said


def test_kernels_that_checkpointing_repeats_are_named(sample: Analyzed) -> None:
    outer, inner = "torch/utils/checkpoint.py(1500): recompute_fn", "torch/utils/checkpoint.py(1)"
    slices, work = sample.run.table("host_slices"), sample.run.table("gpu_work")
    frame = slices.filter(kind="python").head(1).with_columns(ts_ns=slices["ts_ns"].min() or 0)
    (thread,) = frame["thread"]
    calls = slices.filter(thread=thread)
    first = work.join(calls.select(launch_uid="uid"), on="launch_uid", how="semi")
    until = slices["ts_ns"].max() or 0
    for name, is_said in ((outer, True), (inner, False)):
        whole = frame.with_columns(
            name=pl.lit(name), uid=pl.lit(-1), dur_ns=pl.lit(until) - pl.col("ts_ns") + 1
        )
        nested = whole.with_columns(uid=pl.lit(-2), dur_ns=pl.col("dur_ns") // 2)
        rows = pl.concat([slices, whole, nested], how="vertical_relaxed")
        text = fair_markdown(sample.run.with_tables({"host_slices": rows}), sample.root)
        expected = f"computes {milliseconds(first['dur_ns'].sum() / 1e6)} of kernels again in the"
        assert (expected in text) is is_said
        note = compute_note(sample.run.with_tables({"host_slices": rows}))
        assert ("Activation checkpointing repeats" in note) is is_said


def test_idle_time_of_many_small_causes_is_no_finding(sample: Analyzed) -> None:
    steps = sample.run.table("steps").with_columns(
        dur_ns=pl.lit(1000),
        idle_between_ns=pl.lit(65),
        idle_before_ns=pl.lit(0),
        idle_after_ns=pl.lit(0),
    )
    gaps = sample.run.table("step_gaps").head(2)
    for times, is_said in (([49, 16], True), ([50, 15], False)):
        own = gaps.with_columns(
            dur_ns=pl.Series(times), cause=pl.Series(["launch_bound", "queued"])
        )
        run = with_findings(sample.run).with_tables({"steps": steps.head(1), "step_gaps": own})
        text = paragraph(run, [])
        assert "No finding is above low priority" in text
        assert ("no cause of idle time takes 5% of the step time" in text) is is_said
