"""Checks of each findings file: recommendations, their details, markers and tables."""

import re
from collections.abc import Iterator

from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import Json
from tests.layout import markers
from tests.layout.markdown import Part
from tests.layout.rendered import SUCCEEDED, Rendered

RECOMMENDATIONS, DETAILS = "Recommendations", "Detailed Analysis"
NOT_QUANTIFIED = re.compile("not quantifiable from trace data", re.IGNORECASE)

ITEM_LABELS = (("Insight", "Issue"), ("Action",), ("Impact", "Expected Impact"))
"""Labels of a recommendation; one of each group is required."""

DETAIL_LABELS = (
    "Identification",
    "Data",
    "Reasoning for Slowdown",
    "Resolution",
    "Impact estimate",
)
DATA_COLUMNS = (
    "Operation",
    "Args",
    "Kernel Path",
    "Kernel Name",
    "Time (ms)",
    "%E2E",
    "Count",
    "FLOPS/Byte",
    "Efficiency",
    "Bound",
)
QUOTED_COLUMNS = {
    "Args": "args",
    "Kernel Path": "launcher_path",
    "Kernel Name": "kernel_name_trunc",
}
"""Columns of a data table whose cells are exact values of the metrics."""

MISSING = "—"


def recommendations_come_before_details(run: Rendered) -> Iterator[Problem]:
    """Every findings file has its recommendations, and after them their details."""
    for _, document in run.findings_files():
        titles = [title for _, title in document.headings(2)]
        found = [title for title in titles if title in (RECOMMENDATIONS, DETAILS)]
        if found != [RECOMMENDATIONS, DETAILS]:
            text = f"The parts are {found}; {RECOMMENDATIONS}, then {DETAILS} expected."
            yield Problem(document.file, text)


def findings_are_recommendations(run: Rendered) -> Iterator[Problem]:
    """A findings file has a recommendation for each finding of the metrics."""
    for category, document in run.findings_files():
        findings = run.metrics(category)["category_findings"]
        if findings and not markers.items(document):
            text = f"It has no recommendation; {len(findings)} expected."
            yield Problem(document.file, text)


def recommendations_have_their_labels(run: Rendered) -> Iterator[Problem]:
    """Each recommendation of a findings file has insight, action and impact."""
    for _, document in run.findings_files():
        for item in _items(document):
            yield from missing_labels(item)


def details_match_recommendations(run: Rendered) -> Iterator[Problem]:
    """Each recommendation has marked details, with its number for rank and the file's tier."""
    for category, document in run.findings_files():
        tier = "compute" if category["tier"] == "compute_kernel" else category["tier"]
        numbers = [number for _, number in markers.items(document)]
        found = markers.candidates(document)
        if (ranks := [rank for _, _, rank in found]) != numbers:
            text = f"It marks details of the ranks {ranks}; {numbers} expected."
            yield Problem(document.file, text)
        for line, marked_tier, _ in found:
            if marked_tier != tier:
                text = f"The tier of these details is {marked_tier!r}; {tier!r} expected."
                yield Problem(document.file, text, line)


def details_have_their_table(run: Rendered) -> Iterator[Problem]:
    """The details of a compute recommendation have a table that starts with the ten columns."""
    for category, document in run.findings_files():
        if category["tier"] == "compute_kernel":
            for detail in details_of(document):
                headers = [table.headers[: len(DATA_COLUMNS)] for table in detail.tables]
                if DATA_COLUMNS not in headers:
                    text = f"The details have no table {', '.join(DATA_COLUMNS)}."
                    yield Problem(document.file, text, detail.number)


def tables_quote_the_metrics(run: Rendered) -> Iterator[Problem]:
    """Arguments, kernel path and kernel name of a data table are values of the metrics."""
    for category, document in run.findings_files():
        operations = run.metrics(category).get("operations", [])
        if category["tier"] == "compute_kernel":
            for part in details_of(document):
                yield from unknown_cells(part, operations)


def impacts_are_marked(run: Rendered) -> Iterator[Problem]:
    """Impact markers come in pairs, with all fields or none; each recommendation has one."""
    for _, document in run.findings_files():
        yield from markers.malformed(document)
        items, marked = markers.items(document), markers.impacts(document, "p_item")
        if len(items) != len(marked):
            text = f"It marks {len(marked)} impacts; {len(items)} expected, as recommendations."
            yield Problem(document.file, text)


def details_estimate_their_impact(run: Rendered) -> Iterator[Problem]:
    """The details of each recommendation estimate the impact, or state that a trace cannot."""
    for _, document in run.findings_files():
        for detail in details_of(document):
            is_told = NOT_QUANTIFIED.search(detail.text)
            if not is_told and not markers.impacts(detail, "detail_estimate"):
                text = "The details have neither an estimate nor the sentence that there is none."
                yield Problem(document.file, text, detail.number)


def details_repeat_the_impact(run: Rendered) -> Iterator[Problem]:
    """A recommendation and its details give the same impact."""
    for _, document in run.findings_files():
        for item, detail in zip(_items(document), details_of(document), strict=False):
            stated = markers.impacts(item, "p_item")
            for estimate in markers.impacts(detail, "detail_estimate")[: len(stated)]:
                if any(estimate.fields.get(n) != stated[0].fields.get(n) for n in ("low", "high")):
                    text = f"The impact is not the one of the recommendation, line {item.number}."
                    yield Problem(document.file, text, estimate.number)


def details_have_their_labels(run: Rendered) -> Iterator[Problem]:
    """The details of each recommendation have their five labels, each on its own line."""
    for _, document in run.findings_files():
        for detail in details_of(document):
            for label in DETAIL_LABELS:
                if not _has_label(detail, label):
                    text = f"The details have no line {label!r}."
                    yield Problem(document.file, text, detail.number)


def failed_analyses_recommend_nothing(run: Rendered) -> Iterator[Problem]:
    """The findings file of an analysis that failed or found no data recommends nothing."""
    for category in run.categories:
        document = run.document(run.findings_file(category))
        if category["status"] not in SUCCEEDED and document and markers.items(document):
            line, _ = markers.items(document)[0]
            text = f"Its status is {category['status']}; no recommendation expected."
            yield Problem(document.file, text, line)


def missing_labels(item: Part) -> Iterator[Problem]:
    """Return the labels that a recommendation lacks."""
    for names in ITEM_LABELS:
        if not any(_has_label(item, name) for name in names):
            yield Problem(item.file, f"The recommendation has no label {names[0]!r}.", item.number)


def details_of(document: Part) -> list[Part]:
    """Yield the details of each recommendation, from their heading."""
    part = document.part(DETAILS)
    return part.parts(4) if part else []


def unknown_cells(part: Part, operations: list[Json]) -> Iterator[Problem]:
    """Yield cells of data tables that are not values of ``operations`` (``metrics.json``)."""
    for table in part.tables:
        if table.headers[: len(DATA_COLUMNS)] != DATA_COLUMNS:
            continue
        for column, key in QUOTED_COLUMNS.items():
            known = {operation.get(key) for operation in operations} | {MISSING}
            for row in table.rows:
                if row.cells.get(column) not in known:
                    text = f"The cell of {column} is in no {key} of the metrics."
                    yield Problem(part.file, text, row.number)


def _items(document: Part) -> list[Part]:
    part = document.part(RECOMMENDATIONS)
    return part.parts(3) if part else []


def _has_label(part: Part, label: str) -> bool:
    return any(re.match(rf"(?:[-*] )?\*\*{label}:?\*\*", line.text) for line in part.prose)


CHECKS = (
    Check(recommendations_come_before_details),
    Check(findings_are_recommendations),
    Check(recommendations_have_their_labels),
    Check(details_match_recommendations),
    Check(details_have_their_table),
    Check(tables_quote_the_metrics),
    Check(impacts_are_marked),
    Check(details_estimate_their_impact),
    Check(details_repeat_the_impact),
    Check(details_have_their_labels),
    Check(failed_analyses_recommend_nothing),
)
