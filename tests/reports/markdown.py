"""Reading Markdown reports, and runs with findings of a test."""

import re

from markdown_it import MarkdownIt

from jarvis.findings import AnalysisResult, Finding, OpRef, Priority
from jarvis.impact import bounded_impact
from jarvis.run import Run

PARSER = MarkdownIt("commonmark").enable("table")
LINK = re.compile(r"\]\(#([^)]+)\)")


def changed(
    run: Run, *, results: dict[str, AnalysisResult] | None = None, **manifest: object
) -> Run:
    return Run(
        run.manifest.model_copy(update=manifest),
        results if results is not None else run.results,
        run.tables,
        run.paths_by_category,
    )


def headings(markdown: str, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.+)$", markdown, re.MULTILINE)


def section(markdown: str, heading: str) -> str:
    start = markdown.index(f"\n## {heading}\n")
    end = markdown.find("\n## ", start + 1)
    return markdown[start : end if end > 0 else None]


def github_anchor(rendered_heading: str) -> str:
    """An independent reading of how anchors are made from the text of a heading."""
    text = "".join(c for c in rendered_heading.lower() if c.isalnum() or c in " -_")
    return "-".join(text.split(" "))


def anchors(markdown: str) -> list[str]:
    tokens = PARSER.parse(markdown)
    inlines = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "heading_open"]
    texts = ["".join(child.content for child in t.children or []) for t in inlines]
    return [github_anchor(text) for text in texts]


def finding(category: str, *uids: int, saved_ms: float, **values: object) -> Finding:
    facts: dict[str, object] = {
        "check": "c",
        "category": category,
        "title": f"Of {category}",
        "operations": tuple(OpRef(uid=uid, name="op", operation_count=1) for uid in uids),
        "issue": "It is slow.",
        "algorithmic": "Do less.",
        "kernel": "Do it faster.",
        "priority_local": Priority.HIGH,
        "priority": Priority.HIGH,
        "impact": bounded_impact(9.0, saved_ms, mid_ms=saved_ms, compute_ms=10.0, total_ms=20.0),
    }
    return Finding.model_validate(facts | values)


def with_findings(run: Run, *findings: Finding) -> Run:
    """A run whose analyses have these findings only."""
    results = {key: r.model_copy(update={"findings": ()}) for key, r in run.results.items()}
    for one in findings:
        old = results[one.category]
        results[one.category] = old.model_copy(update={"findings": (*old.findings, one)})
    return changed(run, results=results)


def uids_of(run: Run, key: str) -> list[int]:
    return run.category_operations(key)["uid"].to_list()
