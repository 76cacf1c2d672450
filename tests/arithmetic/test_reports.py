"""Every number in the cards of the fair report and of the findings files, and in their tables."""

import re

from tests.arithmetic.categories import category_facts
from tests.arithmetic.conftest import RunOf
from tests.arithmetic.documents import FAIR, findings_file
from tests.arithmetic.names import names_of
from tests.arithmetic.printed import numbers, reading
from tests.arithmetic.rendered import of_analyses, of_findings, printed
from tests.arithmetic.reports import Checker
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import ranked, sources_of
from tests.arithmetic.steps import PARTS, account_ns, step_spans, unlinked_compute_ns
from tests.arithmetic.test_results import values_of
from tests.arithmetic.units import compute_pct, share, time_ms
from tests.arithmetic.values import OF_REPORT, Values, of_score


def test_the_fair_report(checker: Checker) -> None:
    wrong = checker.fair()
    assert not wrong, "\n".join(wrong)


def test_the_findings_files(checker: Checker) -> None:
    wrong = [problem for key in checker.run.results for problem in checker.findings(key)]
    assert not wrong, "\n".join(wrong)


def test_the_sentences_around_findings(checker: Checker) -> None:
    wrong = [
        f"{finding['title']}: {problem}"
        for finding, composed in zip(checker.ordered, of_findings(checker.run), strict=True)
        for values in [values_of(checker.run, finding, [])]
        for each in composed
        for problem in values.of_message(each.message.model_dump(mode="json"), of_score(each.end))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_sentences_about_analyses(run: RunDirectory) -> None:
    names = names_of(run)
    wrong = [
        f"{key}: {problem}"
        for key, composed in of_analyses(run).items()
        for values in [Values(run, "", category_facts(run, key), [], names)]
        for each in composed
        for problem in values.of_message(each.message.model_dump(mode="json"), OF_REPORT)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_cards_stand_in_the_order_of_their_savings(checker: Checker) -> None:
    report = checker.run.text(FAIR)
    ordered = ranked(checker.run.findings)
    cards = [int(n) for n in re.findall(r"^### \S+ P(\d+) \(", report, re.MULTILINE)]
    listed = [int(n) for n in re.findall(r"^\| \[?P(\d+)\b", report, re.MULTILINE)]
    urgent = [n for n, f in enumerate(ordered, start=1) if f["priority"] != "Low"]
    assert listed == [*range(1, len(listed) + 1)]
    assert cards == urgent[: len(cards)]
    assert {*cards} <= {*listed}


def test_the_executive_summary(run: RunDirectory) -> None:
    summary = run.text(FAIR).partition("## Executive Summary")[2].partition("\n## ")[0]
    step = run.manifest["totals"]["step"]
    whole_ms, steps = step["step_ms"] or run.total_ms, max(1, step["steps"])
    urgent = [finding for finding in ranked(run.findings) if finding["priority"] != "Low"]
    apart = [f for f in urgent[1:] if not sources_of(f) & sources_of(urgent[0])]
    reported = re.findall(
        r'(?:The first finding,|Next is) "(.+?)"(?:, saves|:) (up to |at most )?(\S+ .?s) '
        r"\(([\d.]+%) of (?:each|the) ",
        summary,
    )
    known = [finding for finding in urgent[:1] + apart[:1] if finding["impact"]]
    for (title, bound, time, pct), finding in zip(reported, known, strict=True):
        gain_ms = finding["impact"]["step_ms"]["high" if bound else "mid"]
        assert bool(bound) == finding["impact"]["is_interval"]
        assert title == printed(finding["title"])
        assert reading(time).matches(gain_ms / steps)
        assert reading(pct).matches(share(gain_ms, whole_ms))


def test_the_table_of_main_figures(run: RunDirectory) -> None:
    summary = run.text(FAIR).partition("## Executive Summary")[2].partition("\n## ")[0]
    cells = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", summary, re.MULTILINE))
    whole, _, unlinked = cells["Total Compute Time"].partition("; ")
    time, _, steps = whole.partition(" over ")
    (compute,) = numbers(time)
    assert compute.matches(run.compute_ms)
    assert steps == (f"{len(step_spans(run))} steps" if len(step_spans(run)) > 1 else "")
    if unlinked:
        (more,) = numbers(unlinked)
        assert more.matches(unlinked_compute_ns(run) / 1e6)
    words = {
        "computing": PARTS[:1],
        "busy": PARTS[:3],
        "idle": PARTS[3:],
        "exposed communication": PARTS[1:2],
        "exposed copies": PARTS[2:3],
    }
    parts_ns = account_ns(run)
    total_ns = sum(parts_ns.values())
    utilization = cells["GPU Utilization"].partition(" (of the ")[0]
    for reported in utilization.split(", "):
        number, _, word = reported.partition(" ")
        part_ns = sum(parts_ns[part] for part in words[word])
        assert reading(number).matches(share(part_ns, total_ns)), reported
    heaviest = max(map(run.category, run.results), key=time_ms)
    of_category, _, more = cells["Top Bottleneck Category"].partition("; ")
    (of_compute,) = numbers(of_category)
    assert of_compute.matches(compute_pct(heaviest, run))
    longest = max(
        ("idle", "exposed communication", "exposed copies"),
        key=lambda word: sum(parts_ns[part] for part in words[word]),
    )
    longest_ns = sum(parts_ns[part] for part in words[longest])
    own_ns = sum(parts_ns[part] for part in words["computing"]) * of_compute.value / 100
    assert bool(more) == (longest_ns > own_ns)
    if more:
        assert more.startswith(f"{longest}{' time' * (longest == 'idle')} takes more (")
        (of_step,) = numbers(more)
        assert of_step.matches(share(longest_ns, total_ns))


def test_the_account_of_a_step(run: RunDirectory) -> None:
    text = run.text("standalone_analysis_rough.md").partition("What one step consists of")[2]
    section = text.partition("\nStep 4")[0]
    rows = re.findall(r"^\| ([^|]+) \| (\S+ .?s) \| (\S+) \|$", section, re.MULTILINE)
    parts_ns, steps = account_ns(run), len(step_spans(run))
    times = [*parts_ns.values(), sum(parts_ns.values())]
    assert len(rows) == len(times)
    for (_, time, pct), time_ns in zip(rows, times, strict=True):
        assert reading(time).matches(time_ns / 1e6 / steps), time
        assert reading(pct).matches(share(time_ns, times[-1])), pct
    reported = re.search(r"(?:One step|marks no steps,) takes (\S+ .?s)", run.text(FAIR))
    assert reported
    assert reading(reported[1]).matches(times[-1] / 1e6 / steps)


def test_the_table_of_top_operations(run: RunDirectory) -> None:
    part = run.text(FAIR).partition("### Top Operations")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| .* \| ([\d.,]+) \| (\S+) \|$", part, re.MULTILINE)
    tops = run.manifest["top_operations"][:5]
    assert len(rows) == len(tops)
    for (rank, time, of_compute), top in zip(rows, tops, strict=True):
        assert int(rank) == top["rank"]
        assert reading(time).matches(top["time_ms"])
        if top["percent_of_compute"] is None:
            assert of_compute == "—"
        else:
            assert reading(of_compute.lstrip("\\")).matches(top["percent_of_compute"])


def test_every_file_is_looked_at(run_of: RunOf) -> None:
    run = run_of("training-with-waits")
    checked = {FAIR, *(findings_file(run, key) for key in run.results)}
    folders = ("category_findings", "system_findings")
    found = {f"{folder}/{p.name}" for folder in folders for p in (run.root / folder).iterdir()}
    assert found <= checked
