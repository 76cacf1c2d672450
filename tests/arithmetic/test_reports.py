"""Every number in the cards of the fair report and of the findings files, and in their tables."""

import re

from tests.arithmetic.categories import category_facts
from tests.arithmetic.conftest import RunOf
from tests.arithmetic.documents import FAIR, findings_file
from tests.arithmetic.printed import numbers, reading
from tests.arithmetic.rendered import of_analyses, of_findings
from tests.arithmetic.reports import Checker
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import disjoint_saving_ms, gain_of, ranked
from tests.arithmetic.steps import PARTS, account_ns, step_spans
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
        for each in composed
        for problem in values_of(checker.run, finding, []).of_message(
            each.message.model_dump(mode="json"), of_score(each.end)
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_sentences_about_analyses(run: RunDirectory) -> None:
    wrong = [
        f"{key}: {problem}"
        for key, composed in of_analyses(run).items()
        for values in [Values(run, "", category_facts(run, key), [], [])]
        for each in composed
        for problem in values.of_message(each.message.model_dump(mode="json"), OF_REPORT)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_cards_stand_in_the_order_of_their_savings(checker: Checker) -> None:
    report = checker.run.text(FAIR)
    titles = [finding["title"] for finding in ranked(checker.run.findings)]
    told = re.findall(r"^#### P(\d+)\. ", report, re.MULTILINE)
    listed = re.findall(r"^### \S+ ([P\d, and]+) \(|^\| (P\d+) \|", report, re.MULTILINE)
    cards, low = (
        [int(n) for each in labels for n in re.findall(r"P(\d+)", each)]
        for labels in zip(*listed, strict=True)
    )
    assert cards == sorted(cards)
    assert low == sorted(low)
    assert {*cards, *low} == {*range(1, len(titles) + 1)}
    assert len(set(told)) == len(told) <= len(titles)


def test_the_executive_summary(run: RunDirectory) -> None:
    summary = run.text(FAIR).partition("## Executive Summary")[2].partition("\n## ")[0]
    ordered = ranked(run.findings)
    whole_ms = run.manifest["totals"]["step"]["step_ms"] or run.total_ms
    if told := re.search(r"it saves (?:about|up to) (\S+ .s), (\S+) of (?:the|GPU)", summary):
        assert reading(told[1]).matches(gain_of(ordered[0]))
        assert reading(told[2]).matches(share(gain_of(ordered[0]), whole_ms))
    told = re.search(
        r"(\d+) findings?, (\S+) of them critical; .* add up to (\S+ .s) \((\S+) of [^)]+\)\.",
        summary,
    )
    assert told
    critical = sum(finding["priority"] == "Critical" for finding in ordered)
    saving_ms = disjoint_saving_ms(run, ordered)
    assert int(told[1]) == len(ordered)
    assert told[2] == (str(critical) if critical else "none")
    assert reading(told[3]).matches(saving_ms)
    assert reading(told[4]).matches(share(saving_ms, whole_ms))


def test_the_table_of_main_figures(run: RunDirectory) -> None:
    summary = run.text(FAIR).partition("## Executive Summary")[2].partition("\n## ")[0]
    cells = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", summary, re.MULTILINE))
    compute, total = numbers(cells["Total Compute Time"])
    assert compute.matches(run.compute_ms)
    assert total.matches(run.total_ms)
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
    for told in utilization.split(", "):
        number, _, word = told.partition(" ")
        part_ns = sum(parts_ns[part] for part in words[word])
        assert reading(number).matches(share(part_ns, total_ns)), told
    heaviest = max(map(run.category, run.results), key=time_ms)
    (of_compute,) = numbers(cells["Top Bottleneck Category"])
    assert of_compute.matches(compute_pct(heaviest, run))


def test_the_account_of_a_step(run: RunDirectory) -> None:
    section = run.text(FAIR).partition("### The Step")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (\S+ .?s) \| (\S+) \|$", section, re.MULTILINE)
    parts_ns, steps = account_ns(run), len(step_spans(run))
    times = [*parts_ns.values(), sum(parts_ns.values())]
    assert len(rows) == len(times)
    for (_, time, pct), time_ns in zip(rows, times, strict=True):
        assert reading(time).matches(time_ns / 1e6 / steps), time
        assert reading(pct).matches(share(time_ns, times[-1])), pct
    told = re.search(r"(?:One step|marks no steps,) takes (\S+ .?s)", run.text(FAIR))
    assert told
    assert reading(told[1]).matches(times[-1] / 1e6 / steps)


def test_the_table_of_top_operations(run: RunDirectory) -> None:
    part = run.text(FAIR).partition("### Top Operations")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| .* \| ([\d.,]+) \| (\S+) \|$", part, re.MULTILINE)
    tops = run.manifest["top_operations"]
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
