"""Checks of ``analysis.md`` and ``priority_data.json``, the layout that other tools read."""

import re
from collections import Counter
from collections.abc import Iterator

from jarvis.validation.check import Check, Problem
from tests.layout import findings_files, markers
from tests.layout.markdown import Part, plain
from tests.layout.rendered import Rendered

SUMMARY, APPENDIX = "Executive Summary", "Appendix"
COMPUTE = "Compute Kernel Optimizations"
FUSION = "Kernel Fusion Opportunities (Experimental)"
SYSTEM = "System-Level Optimizations"
DETAILS = "Detailed Analysis"
PARTS = (SUMMARY, COMPUTE, FUSION, SYSTEM, DETAILS, APPENDIX)
OPTIONAL_PART = "Warnings"

METRICS = (
    "Total Time",
    "Compute %",
    "Idle %",
    "Exposed Communication %",
    "Top Bottleneck Category",
)
EMPTY_VALUES = ("", "—", "-", "...", "N/A", "None", "TBD", "XX", "X.X")

FUSION_IMPACT = re.compile(
    r"impact_score: \d+(?:\.\d+)?(?: \(perf-model coverage \d+/\d+ kernels\))|Not quantifiable"
)
SCORES = {"low": "impact_score_low", "mid": "impact_score", "high": "impact_score_high"}
"""Fields of a marker, and their names in the priority data."""

SCORE_TOLERANCE = 0.005


def analysis_report_has_its_parts(run: Rendered) -> Iterator[Problem]:
    """The report for other tools has its six parts in their order."""
    for report in _report(run):
        titles = [title for _, title in report.headings(2) if title != OPTIONAL_PART]
        if titles != list(PARTS):
            yield Problem(report.file, f"Its parts are {titles}; {', '.join(PARTS)} expected.")


def analysis_report_has_its_metrics(run: Rendered) -> Iterator[Problem]:
    """Its summary has a table of exactly five metrics, each with a value."""
    for part in _parts(run, SUMMARY):
        table = part.table("Metric", "Value")
        rows = {plain(row.cells["Metric"]): row for row in table.rows} if table else {}
        if tuple(rows) != METRICS:
            text = f"The metrics are {', '.join(rows) or 'missing'}; {', '.join(METRICS)} expected."
            yield Problem(part.file, text, part.number)
        for name, row in rows.items():
            if plain(row.cells.get("Value", "")) in EMPTY_VALUES:
                yield Problem(part.file, f"The metric {name} has no value.", row.number)


def analysis_items_have_their_labels(run: Rendered) -> Iterator[Problem]:
    """Each of its recommendations has insight, action and impact."""
    for title in (COMPUTE, FUSION, SYSTEM):
        for part in _parts(run, title):
            for item in part.parts(3):
                if markers.items(item):
                    yield from findings_files.missing_labels(item)


def analysis_items_are_numbered_without_gaps(run: Rendered) -> Iterator[Problem]:
    """The recommendations of each of its tiers are numbered P1, P2, P3 and so on."""
    for title in (COMPUTE, FUSION, SYSTEM):
        for part in _parts(run, title):
            numbers = [number for _, number in markers.items(part)]
            if numbers != list(range(1, len(numbers) + 1)):
                text = f"The items are numbered {numbers}; P1 to P{len(numbers)} expected."
                yield Problem(part.file, text, part.number)


def analysis_quotes_the_metrics(run: Rendered) -> Iterator[Problem]:
    """Arguments, kernel paths and kernel names of its tables are values of the metrics."""
    operations = [o for c in run.categories for o in run.metrics(c).get("operations", ())]
    for part in _parts(run, DETAILS):
        yield from findings_files.unknown_cells(part, operations)


def fusion_impacts_name_their_coverage(run: Rendered) -> Iterator[Problem]:
    """The impact of a fusion is a score with the share of kernels that perf models cover."""
    for part in _parts(run, FUSION):
        for item in part.parts(3):
            impact = next((line for line in item.lines if "**Impact**" in line.text), None)
            if impact and not FUSION_IMPACT.search(plain(impact.text)):
                text = "'impact_score: X.X (perf-model coverage Y/Z kernels)' expected."
                yield Problem(part.file, text, impact.number)


def analysis_impacts_are_marked(run: Rendered) -> Iterator[Problem]:
    """Its impact markers come in pairs, those of recommendations name their category."""
    for report in _report(run):
        yield from markers.malformed(report)
        for marker in markers.impacts(report, "p_item"):
            if not marker.fields.get("category"):
                text = "The marker of a recommendation names no category."
                yield Problem(report.file, text, marker.number)


def compute_items_are_the_findings(run: Rendered) -> Iterator[Problem]:
    """Its compute recommendations are the findings of the priority data: order and scores."""
    findings = run.priority_data["findings"]
    for part in _parts(run, COMPUTE):
        if len(markers.items(part)) != len(findings):
            text = f"It has {len(markers.items(part))} recommendations; {len(findings)} expected."
            yield Problem(part.file, text, part.number)
        marked = markers.impacts(part, "p_item")
        for marker, finding in zip(marked, findings, strict=False):
            if marker.fields.get("category") != finding["category"]:
                text = f"The item is of {marker.fields.get('category')}; that "
                text += f"of {finding['category']} expected."
                yield Problem(part.file, text, marker.number)
            for name, key in SCORES.items():
                if not _same(marker.fields.get(name), finding[key]):
                    text = f"{name} is {marker.fields.get(name)}; {finding[key]} expected."
                    yield Problem(part.file, text, marker.number)


def top_operations_are_the_priorities(run: Rendered) -> Iterator[Problem]:
    """Its table of top operations has a marked row for each priority, with the same scores."""
    priorities = run.priority_data["priorities"]
    for part in _parts(run, COMPUTE):
        rows = [row.number for table in part.tables[:1] for row in table.rows]
        marked = markers.top_rows(part)
        if not len(rows) == len(marked) == len(priorities):
            text = f"It has {len(rows)} top operations, {len(marked)} of them marked; "
            text += f"{len(priorities)} expected."
            yield Problem(part.file, text, part.number)
        for marker, priority in zip(marked, priorities, strict=False):
            for name in ("low", "high"):
                expected = priority[SCORES[name]]
                if not _same(marker.fields.get(name), expected):
                    text = f"{name} is {marker.fields.get(name)}; {expected} expected."
                    yield Problem(part.file, text, marker.number)


def analysis_details_are_marked(run: Rendered) -> Iterator[Problem]:
    """Its details have a marker for each heading, by tier, as many as recommendations."""
    for report in _report(run):
        items = {
            tier: sum(len(markers.items(part)) for part in [report.part(title)] if part)
            for tier, title in (("compute", COMPUTE), ("fusion", FUSION), ("system", SYSTEM))
        }
        part = report.part(DETAILS)
        if part is None:
            continue
        marked = Counter(tier for _, tier, _ in markers.candidates(part))
        for tier, number in items.items():
            if marked[tier] != number:
                text = f"It marks details of {marked[tier]} {tier} items; {number} expected."
                yield Problem(part.file, text, part.number)
        headings = len(part.headings(4))
        if headings != marked.total():
            text = f"It has {headings} details; {marked.total()} expected, as markers."
            yield Problem(part.file, text, part.number)


def appendix_has_the_model(run: Rendered) -> Iterator[Problem]:
    """The appendix has the model information of the trace."""
    facts = run.json(run.paths.model_info) or {}
    for part in _parts(run, APPENDIX):
        words = _words(" ".join(plain(line.text) for line in part.lines))
        for name, value in facts.items():
            if _words(str(value)) not in words:
                text = f"The appendix does not say the {name}, {value!r}."
                yield Problem(part.file, text, part.number)


def _words(text: str) -> str:
    """Return the letters and digits of ``text``; printing may escape or drop other signs."""
    return " ".join(re.findall(r"\w+", text))


def _same(text: str | None, expected: float | None) -> bool:
    if text is None or text == "null" or expected is None:
        return text == "null" and expected is None
    return abs(float(text) - expected) <= SCORE_TOLERANCE


def _report(run: Rendered) -> Iterator[Part]:
    report = run.document(run.paths.analysis_report)
    if report is not None:
        yield report


def _parts(run: Rendered, title: str) -> Iterator[Part]:
    for report in _report(run):
        part = report.part(title)
        if part is not None:
            yield part


CHECKS = (
    Check(analysis_report_has_its_parts),
    Check(analysis_report_has_its_metrics),
    Check(analysis_items_have_their_labels),
    Check(analysis_items_are_numbered_without_gaps),
    Check(analysis_quotes_the_metrics),
    Check(fusion_impacts_name_their_coverage),
    Check(analysis_impacts_are_marked),
    Check(compute_items_are_the_findings),
    Check(top_operations_are_the_priorities),
    Check(analysis_details_are_marked),
    Check(appendix_has_the_model),
)
