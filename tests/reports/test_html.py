"""The report as one HTML file: complete, self-contained, and nothing of a trace becomes markup."""

import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from jarvis.core.workspace import RunPaths
from jarvis.reports import load_reporters
from jarvis.reports.account import account_of
from jarvis.reports.edits import Edits
from jarvis.reports.html import html_document
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.text.format import milliseconds, percent
from jarvis.text.markdown import Markdown
from tests.reports.conftest import HOSTILE, Analyzed

VOID = {"meta"}


class Outline(HTMLParser):
    """Checks that elements nest, and keeps tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.words: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def drawings(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


@pytest.fixture(scope="module")
def sample_text(sample: Analyzed) -> str:
    return html_document(sample.run, sample.root)


@pytest.fixture(scope="module")
def hostile_text(hostile: Analyzed) -> str:
    return html_document(hostile.run, hostile.root)


@pytest.mark.parametrize("which", ["sample_text", "hostile_text"])
def test_the_document_nests_runs_nothing_and_fetches_nothing(
    which: str, request: pytest.FixtureRequest
) -> None:
    text: str = request.getfixturevalue(which)
    outline = Outline(text)
    assert not outline.tags & {"script", "img", "link", "iframe", "object", "image", "use", "base"}
    names = {name for name, _ in outline.attributes}
    assert not [name for name in names if name.startswith("on")]
    assert not names & {"src", "xlink:href", "srcset", "action"}
    links = [value for name, value in outline.attributes if name == "href"]
    targets = {value for name, value in outline.attributes if name == "id"}
    assert {link.removeprefix("#") for link in links} <= targets
    places = re.findall(r"url\((#?)([^)]*)\)", text)  # what clips a roofline is in the document
    assert all(sign == "#" and name in targets for sign, name in places)
    assert "default-src 'none'" in text
    assert drawings(text)


def test_what_a_trace_says_is_shown_letter_by_letter(hostile_text: str) -> None:
    outline = Outline(hostile_text)
    assert "<img src=x onerror=alert(1)>" in "".join(outline.words)
    assert HOSTILE.partition("`")[0] in "".join(outline.words)


def test_the_document_has_every_card_and_a_roofline_for_each_category_with_rates(
    sample: Analyzed, sample_text: str
) -> None:
    words = " ".join("".join(Outline(sample_text).words).split())
    labels = re.findall(r"^### \S+ (P\d+) ", sample.text("standalone_analysis_fair.md"), re.M)
    assert labels
    assert all(f"{label}: " in words for label in labels)
    rated = [
        key
        for key, result in sample.run.results.items()
        if result.tier == "compute" and result.findings
        if (sample.run.category_operations(key)["tb_per_s"] > 0).any()
    ]
    assert len(drawings(sample_text)) == 3 + len(rated)


@pytest.mark.parametrize("name", ["html", "fair"])
def test_a_report_written_elsewhere_knows_the_replay_packages_of_its_run(
    hostile: Analyzed, tmp_path: Path, name: str
) -> None:
    index = json.loads(RunPaths(hostile.root).replay_index.read_bytes())
    assert index["operations"]
    out = tmp_path / "report"
    load_reporters()[name].render(Run.load(hostile.root), out)
    named = index["operations"][0]["package"] or "Replay"
    assert named in out.read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_document(
    sample: Analyzed, sample_text: str, tmp_path: Path
) -> None:
    assert html_document(sample.run, sample.root) == sample_text
    load_reporters()["html"].render(sample.run, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<svg") > 3


def test_a_finding_left_out_is_in_the_appendix(
    sample: Analyzed,
) -> None:
    first = recommendations(sample.run)[0]
    text = html_document(sample.run, sample.root, Edits(frozenset({first.key})))
    assert f"{first.label} {first.result.title}" not in text
    appendix = text.partition("Left out by the author")[2]
    assert f"<td>{first.label}</td>" in appendix


def test_a_summary_of_the_author_is_formatted_but_cannot_bring_tags_or_addresses(
    sample: Analyzed,
) -> None:
    words = "Fuse **norms**.\n\n- first <script>x</script>\n- ![i](http://e.example/i.png)"
    text = html_document(sample.run, sample.root, Edits(summary=Markdown(words)))
    outline = Outline(text)
    assert "<strong>norms</strong>" in text
    assert "script" not in outline.tags
    assert "img" not in outline.tags
    assert not any("e.example" in value for _, value in outline.attributes)
    assert "The author of this report wrote the summary." in text


def test_a_run_without_gpu_time_has_a_document_without_drawings(sample: Analyzed) -> None:
    totals = replace(sample.run.manifest.totals, total_time_ms=0.0)
    manifest = sample.run.manifest.model_copy(update={"totals": totals})
    empty = sample.run.table("operations").clear()
    tables = {
        name: frame.clear() if name.startswith("category_") else frame
        for name, frame in sample.run.tables.items()
    }
    run = replace(sample.run, manifest=manifest, tables={**tables, "operations": empty}, results={})
    text = html_document(run, sample.root)
    assert not drawings(text)
    assert "No check found a problem" in text


def test_without_a_known_efficiency_no_saving_is_drawn(sample: Analyzed) -> None:
    operations = sample.run.table("operations")
    unknown = operations.with_columns(pct_roofline=pl.lit(None, dtype=pl.Float64))
    run = replace(sample.run, tables={**sample.run.tables, "operations": unknown})
    text = html_document(run, sample.root)
    assert "No efficiency is known, so there is no saving." in text
    titles = [title.text or "" for d in drawings(text) for title in d.iter("title")]
    assert any(title.startswith("Category: ") for title in titles)
    assert {t.partition("Saving (ms): ")[2] for t in titles if "Saving (ms)" in t} == {"0.000"}


def test_ids_of_one_drawing_are_not_those_of_another(sample_text: str) -> None:
    found = drawings(sample_text)
    ids = [part.get("id") for drawing in found for part in drawing.iter() if part.get("id")]
    assert len(ids) == len(set(ids)) > 1


def test_one_process_draws_all_charts_of_a_document(
    sample: Analyzed, sample_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, started = subprocess.run, []

    def counted(*given: Any, **options: Any) -> Any:
        started.append(given)
        return run(*given, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    assert html_document(sample.run, sample.root) == sample_text
    assert len(started) == 1
    assert len(drawings(sample_text)) > 3


def test_each_point_of_a_roofline_says_what_it_is(sample: Analyzed, sample_text: str) -> None:
    rows = sample.run.category_operations("gemm").filter(pl.col("tb_per_s") > 0)
    titles = [title.text or "" for d in drawings(sample_text) for title in d.iter("title")]
    for name, arguments in rows["name", "arguments"].iter_rows():
        assert any(f": {name} · " in title and f": {arguments} · " in title for title in titles)


def test_figures_are_those_of_the_step_and_the_bar_names_all_its_parts(
    sample: Analyzed, sample_text: str
) -> None:
    account = account_of(sample.run)
    assert account is not None
    figures = re.findall(r"<dt>(.*?)</dt><dd><b>(.*?)</b>", sample_text)
    idle_pct = account.pct(account.idle_ns)
    assert dict(figures)["GPU busy"] == percent(100 - idle_pct)
    assert dict(figures)["Idle"] == percent(idle_pct)
    assert figures[0][1] == milliseconds(account.step_ms)


def test_findings_without_rows_have_no_kernel_to_improve(
    sample: Analyzed, sample_text: str
) -> None:
    cards = sample_text.split("<article")[1:]
    parts = {each.label: each.finding for each in recommendations(sample.run)}
    for card in cards:
        finding = parts[re.search(r"(P\d+): ", card)[1]]  # type: ignore[index]
        assert ("Improve the kernel" in card) == bool(finding.row_uids)
