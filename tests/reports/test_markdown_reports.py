"""The Markdown reports: gaps, and that a trace cannot break the layout."""

import re
from dataclasses import asdict, replace

import polars as pl

from jarvis.reports.gaps import gaps_of
from jarvis.run import PerfModelFailure
from jarvis.trace_health import Fact, Severity
from tests.reports.conftest import Analyzed
from tests.reports.markdown import (
    PARSER,
    changed,
    headings,
)


def test_gaps_lead_to_questions(sample: Analyzed) -> None:
    lacking = (
        Fact("operators", "", "The trace holds GPU events only.", severity=Severity.WARNING),
        Fact("stacks", "", "The trace holds no Python stacks.", severity=Severity.NOTE),
        Fact("repair_truncated", "", "The file is cut.", severity=Severity.WARNING),
        Fact("launched_before", "", "A part of another fact.", severity=Severity.NOTE),
    )
    failures = {
        "perf_model_failures": (PerfModelFailure(name="aten::x", input_dims=None, reason="r"),)
    }
    run = changed(sample.run, hardware=None, load_failures={"theirs": "no module"}, **failures)
    health = pl.DataFrame([asdict(fact) for fact in lacking])
    run = replace(run, tables={**run.tables, "trace_health": health})
    gaps = gaps_of(run)
    texts = " ".join(gap.text for gap in gaps)
    for missing in (
        "`theirs` of another package",
        "perf model of `aten::x` failed",
        "hardware is not known",
        "GPU events only",
        "no Python stacks",
    ):
        assert missing in texts
    assert "A part of another fact" not in texts
    assert [gap.text for gap in gaps if gap.is_grave and "GPU events" in gap.text]
    assert "Do the conclusions hold despite this: The file is cut?" in {
        gap.question for gap in gaps
    }
    assert all(gap.question.endswith("?") for gap in gaps)


def test_no_name_becomes_markup(hostile: Analyzed) -> None:
    assert hostile.run.results["gemm"].row_count
    for name, text in hostile.markdown().items():
        tokens = PARSER.parse(text)
        kinds = {token.type for token in tokens}
        kinds |= {child.type for token in tokens for child in token.children or []}
        html = [t.content for t in tokens if t.type == "html_block"]
        html += [c.content for t in tokens for c in t.children or [] if c.type == "html_inline"]
        ours = (
            r"<!-- (reasoning-candidate|impact-begin|impact-end|top-ops-row)[a-z0-9_=. ]*-->\n?"
            r'|<a id="detailed-analysis-[a-z]+-[pP]\d+">|</a>|<br>'
        )
        assert all(re.fullmatch(ours, content) for content in html), name
        assert "image" not in kinds, name
        links = [c.attrs["href"] for t in tokens for c in t.children or [] if c.type == "link_open"]
        ours = r"#.*|(?:category|system)_findings/\w+_findings\.md"
        assert all(re.fullmatch(ours, str(link)) for link in links), name
        assert set(headings(text, 1)) <= {text.splitlines()[0].removeprefix("# ")}
        assert "# heading" not in [line.strip() for line in text.splitlines()], name


def test_tables_keep_their_columns(hostile: Analyzed) -> None:
    for name, text in hostile.markdown().items():
        tokens = PARSER.parse(text)
        widths: list[int] = []
        for token in tokens:
            if token.type == "tr_open":
                widths.append(0)
            elif token.type in ("td_open", "th_open"):
                widths[-1] += 1
            elif token.type == "table_close":
                assert len(set(widths)) == 1, name
                widths = []
