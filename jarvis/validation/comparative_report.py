"""Checks of the comparative reports: their layout, and that they say what their data say."""

import re
from collections.abc import Iterator

from jarvis.schemas.comparison import SCHEMAS
from jarvis.validation.cards import long_card, long_summary, missing_lines
from jarvis.validation.check import Check, Problem
from jarvis.validation.markdown import Part, plain
from jarvis.validation.run_files import COMPARISON_KINDS, Json, RunFiles

ROLES = ("reference", "target")
PARTS = ("Executive Summary", "Recommendations for {target}", "Detailed Comparison", "Appendix")
INNER_PARTS = {
    "Executive Summary": ("Key Findings",),
    "Appendix": ("Hardware Reference", "What Is Not Compared, and Why", "Methodology"),
}
CARD = re.compile(r"Priority (\d+) \(")
CARD_LABELS = ("Gap", "Action A", "Action B", "Impact")
DETAILS = ("Metric", "Reference", "Target", "Δ", "Expected?")
NUMBERED = re.compile(r"\d+\. ")
METRICS = {
    "Total Compute": "computation_time",
    "Exposed Communication": "exposed_comm_time",
    "Exposed Memory Copies": "exposed_memcpy_time",
    "GPU Idle": "idle_time",
    "Total GPU Wall Time": "total_time",
}
"""Rows of the summary's table, and the part of the GPU timeline that they are of."""

TIME = re.compile(r"(\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?) (ms|µs)")
RATIO = re.compile(r"= (\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?) per call")
ROUNDING = 0.006
"""Part by which a number of three digits may be off."""

EXACT = 1e-6
MUCH_SLOWER = 2.0
SLOWER = ("slower", "much slower")
JUDGED = (*SLOWER, "as expected", "faster", "much faster")


def comparative_reports_are_there(run: RunFiles) -> Iterator[Problem]:
    """Where there is a reference, both comparative reports are there, and the data behind them."""
    if not run.has_reference:
        return
    paths = run.paths
    expected = [
        *(paths.comparative_report(kind) for kind in COMPARISON_KINDS),
        paths.comparison,
        *map(paths.comparison_table, SCHEMAS),
    ]
    for path in expected:
        if not path.is_file():
            yield Problem(run.name(path), "The file is missing, though there is a reference.")


def comparative_reports_name_both_sides(run: RunFiles) -> Iterator[Problem]:
    """The comparative reports have the title of their data, which names the model and both GPUs."""
    facts = run.comparison
    if facts is None:
        return
    labels = " vs ".join(facts["sides"][role]["label"] for role in ROLES)
    if not facts["title"].endswith(f" Performance Comparison: {labels}"):
        text = f"The title is {facts['title']!r}; a comparison of {labels} was expected."
        yield Problem(run.name(run.paths.comparison), text)
    for kind, report in _reports(run):
        found = [plain(title) for _, title in report.headings(1)]
        expected = facts["title"] + (" (Rough)" if kind == "rough" else "")
        if found != [" ".join(expected.split())]:
            yield Problem(report.file, f"Its titles are {found}; {expected!r} expected.")


def comparative_parts_are_in_order(run: RunFiles) -> Iterator[Problem]:
    """The comparative report has its parts: summary, recommendations, details and appendix."""
    report, facts = run.comparative("fair"), run.comparison
    if report is None or facts is None:
        return
    target = facts["sides"]["target"]["label"]
    expected = [part.format(target=target) for part in PARTS]
    found = [plain(title) for _, title in report.headings(2)]
    if found != expected:
        yield Problem(report.file, f"Its parts are {found}; {', '.join(expected)} expected.")
    for title, inner in INNER_PARTS.items():
        part = report.part(title)
        headings = [plain(heading) for _, heading in part.headings(3)] if part else []
        for missing in (name for name in inner if part and name not in headings):
            text = f"{title} lacks the part {missing!r}."
            yield Problem(report.file, text, part.number if part else None)


def comparative_summary_is_short(run: RunFiles) -> Iterator[Problem]:
    """The executive summary of the comparative report takes at most
    {jarvis.validation.cards.MAX_SUMMARY_LINES} lines.
    """
    report = run.comparative("fair")
    part = report.part(PARTS[0]) if report else None
    if part:
        yield from long_summary(part)


def comparative_cards_are_complete(run: RunFiles) -> Iterator[Problem]:
    """Each recommendation has gap, action on both paths, impact and link, in at most
    {jarvis.validation.cards.MAX_CARD_LINES} lines.
    """
    for card in _cards(run):
        yield from missing_lines(card, CARD_LABELS)
        yield from long_card(card)


def comparative_cards_are_the_findings(run: RunFiles) -> Iterator[Problem]:
    """Every finding of the comparison is recommended under its number, with its title."""
    report, facts = run.comparative("fair"), run.comparison
    if report is None or facts is None:
        return
    told = {
        int(found[1]): plain(card.title).partition(": ")[2]
        for card in _cards(run)
        if (found := CARD.search(card.title))
    }
    part = _recommendations(run) or report
    for table in part.tables:
        told |= {int(r.cells["Priority"]): plain(r.cells["Finding"]) for r in table.rows}
    titles = [plain(finding["title"]) for finding in facts["findings"]]
    expected = dict(enumerate(titles, start=1))
    if told != expected:
        yield Problem(report.file, f"It recommends {told}; {expected} expected.", part.number)


def comparative_details_say_what_is_expected(run: RunFiles) -> Iterator[Problem]:
    """Each compared operation has its table, and an analysis where its time is not expected."""
    report = run.comparative("fair")
    part = report.part("Detailed Comparison") if report else None
    for section in part.parts(3) if part else []:
        if not NUMBERED.match(section.title):
            continue
        table = section.table(*DETAILS)
        if table is None:
            if section.table("Operation", "Calls", "Time") is None:
                text = f"The operation has no table of {', '.join(DETAILS)}."
                yield Problem(section.file, text, section.number)
            continue
        cells = [row.cells["Expected?"] for row in table.rows if row.cells["Metric"][:4] == "Time"]
        is_odd = any(cell.startswith("No:") for cell in cells)
        if is_odd != ("**Analysis**" in section.text):
            what = "lacks an" if is_odd else "has an"
            text = f"The operation {what} analysis; one is expected where the time is not."
            yield Problem(section.file, text, section.number)


def comparative_summary_gives_the_timelines(run: RunFiles) -> Iterator[Problem]:
    """The times of the summary are those of both GPU timelines."""
    report = run.comparative("fair")
    if report is None:
        return
    part = report.part(PARTS[0])
    table = part.table("Metric", "Reference", "Target", "Δ") if part else None
    times = {row["type"]: row for row in run.comparison_rows("comparison_totals")}
    for row in table.rows if table else ():
        kind = METRICS.get(row.cells["Metric"])
        if kind not in times:
            continue
        for role in ROLES:
            expected_ms = float(times[kind][f"{role}_ms"])
            cell = row.cells[role.capitalize()]
            if not _is_near(_time_ms(cell), expected_ms):
                text = f"It gives {kind} of the {role} as {cell}; {expected_ms:.4g} ms expected."
                yield Problem(report.file, text, row.number)


def differences_are_target_less_reference(run: RunFiles) -> Iterator[Problem]:
    """Every difference is the target less the reference, in percent of the reference."""
    for name in SCHEMAS:
        file = run.name(run.paths.comparison_table(name))
        for number, row in enumerate(run.comparison_rows(name), start=2):
            if not row.get("difference_ms"):
                continue
            reference, target = (float(row[f"{role}_ms"]) for role in ROLES)
            difference = target - reference
            if not _agree(float(row["difference_ms"]), difference, abs(target) + abs(reference)):
                text = f"The difference is {row['difference_ms']} ms; {difference} expected."
                yield Problem(file, text, number)
            elif row["difference_pct"] and not _agree(
                float(row["difference_pct"]), 100 * difference / reference, 100
            ):
                text = f"The difference is {row['difference_pct']}%; another share was expected."
                yield Problem(file, text, number)


def compared_times_add_up(run: RunFiles) -> Iterator[Problem]:
    """On either side, what is compared and what is not take as long as all categories."""
    operations = run.comparison_rows("comparison_operations")
    if not operations:
        return
    for role in ROLES:
        alone = [r for r in run.comparison_rows("comparison_unmatched") if r["side"] == role]
        found = _sum(operations, f"{role}_ms") + _sum(alone, "time_ms")
        expected = _sum(run.comparison_rows("comparison_categories"), f"{role}_ms")
        if not _agree(found, expected, expected):
            text = f"The operations of the {role} take {found:.4f} ms; {expected:.4f} expected."
            yield Problem(run.name(run.paths.comparison_table("comparison_operations")), text)


def expectations_follow_from_the_hardware(run: RunFiles) -> Iterator[Problem]:
    """Memory-bound calls are expected to scale with the bandwidths of the two GPUs."""
    sides = (run.comparison or {}).get("sides", {})
    specs = [sides.get(role, {}).get("hardware") for role in ROLES]
    if not all(specs):
        return
    reference, target = specs
    ratio = reference["mem_bw_gbps"] / target["mem_bw_gbps"]
    file = run.name(run.paths.comparison_table("comparison_operations"))
    for number, row in enumerate(run.comparison_rows("comparison_operations"), start=2):
        is_memory = row["bound"] == row["reference_bound"] == "memory"
        is_one_call = row["matched_by"] == "arguments" and "," not in row["uids"]
        if is_memory and is_one_call and row["expected_ratio"]:
            found = float(row["expected_ratio"])
            if not _agree(found, ratio, ratio):
                text = f"Expected is {found:.4g}; the bandwidths give {ratio:.4g}."
                yield Problem(file, text, number)


def outcomes_follow_from_the_ratios(run: RunFiles) -> Iterator[Problem]:
    """What is expected, and what is not explained, follow from the ratios and the tolerance."""
    tolerance = (run.comparison or {}).get("tolerance", 1.0)
    file = run.name(run.paths.comparison_table("comparison_operations"))
    for number, row in enumerate(run.comparison_rows("comparison_operations"), start=2):
        if row["outcome"] not in JUDGED:
            continue
        outcome = _outcome(row, tolerance)
        gap_ms = float(row["target_ms"]) - float(row["attainable_ms"])
        expected_ms = max(gap_ms, 0.0) if outcome in SLOWER else 0.0
        found_ms = float(row["unexplained_ms"])
        if row["outcome"] != outcome:
            text = f"The outcome is {row['outcome']!r}; {outcome!r} expected."
            yield Problem(file, text, number)
        elif not _agree(found_ms, expected_ms, float(row["target_ms"])):
            text = f"{found_ms} ms are not explained; {expected_ms} expected."
            yield Problem(file, text, number)


def savings_of_a_comparison_are_disjoint(run: RunFiles) -> Iterator[Problem]:
    """No two findings concern one operation, and none saves more than its time."""
    facts = run.comparison
    if facts is None:
        return
    file, seen = run.name(run.paths.comparison), dict[str, str]()
    for finding in facts["findings"]:
        title, gain = finding["title"], finding["impact"]
        if gain["saved_ms"]["high"] > gain["time_ms"] * (1 + EXACT):
            yield Problem(file, f"{title!r} saves more than the time that it concerns.")
        key = f"{finding['check']} {[each['uid'] for each in finding['operations']]}"
        if key in seen:
            yield Problem(file, f"{title!r} concerns what {seen[key]!r} does already.")
        seen[key] = title
    saved_ms = sum(finding["impact"]["saved_ms"]["high"] for finding in facts["findings"])
    compute_ms = facts["sides"]["target"]["compute_ms"]
    if saved_ms > compute_ms * (1 + EXACT):
        text = f"The findings save {saved_ms:.4g} ms; at most {compute_ms:.4g} expected."
        yield Problem(file, text)


def every_compared_operation_is_worked_out(run: RunFiles) -> Iterator[Problem]:
    """The rough report works out expected against actual of every compared operation."""
    report = run.comparative("rough")
    operations = run.comparison_rows("comparison_operations")
    if report is None or not operations:
        return
    table = report.table("Pair", "Operation", "Expected", "Outcome")
    rows = table.rows if table else ()
    if len(rows) != len(operations):
        text = f"It works out {len(rows)} operations; {len(operations)} expected."
        yield Problem(report.file, text, table.number if table else None)
    for row, operation in zip(rows, operations, strict=False):
        found = RATIO.search(row.cells["Actual: target / reference"])
        expected = float(operation["time_ratio"])
        told = float(found[1].replace(",", "")) if found else None
        if not _is_near(told, expected) or row.cells["Outcome"] != operation["outcome"]:
            text = f"It has {told} as {row.cells['Outcome']!r}; {expected:.4g} as "
            yield Problem(report.file, f"{text}{operation['outcome']!r} expected.", row.number)


def _reports(run: RunFiles) -> Iterator[tuple[str, Part]]:
    for kind in COMPARISON_KINDS:
        if (report := run.comparative(kind)) is not None:
            yield kind, report


def _cards(run: RunFiles) -> Iterator[Part]:
    part = _recommendations(run)
    yield from (card for card in (part.parts(3) if part else ()) if CARD.search(card.title))


def _recommendations(run: RunFiles) -> Part | None:
    report = run.comparative("fair")
    parts = report.parts(2) if report else ()
    return next((part for part in parts if part.title.startswith("Recommendations")), None)


def _time_ms(cell: str) -> float | None:
    found = TIME.search(cell)
    if found is None:
        return None
    return float(found[1].replace(",", "")) * (1e-3 if found[2] == "µs" else 1.0)


def _is_near(told: float | None, expected: float) -> bool:
    return told is not None and abs(told - expected) <= ROUNDING * max(abs(expected), EXACT)


def _agree(found: float, expected: float, scale: float) -> bool:
    return abs(found - expected) <= EXACT * max(abs(scale), EXACT)


def _sum(rows: list[Json], column: str) -> float:
    return sum(float(row[column]) for row in rows)


def _outcome(row: Json, tolerance: float) -> str:
    ratio = float(row["time_ratio"])
    slower = ratio / float(row["expected_ratio_most"])
    faster = float(row["expected_ratio_least"]) / ratio
    off, word = max((slower, "slower"), (faster, "faster"))
    if off <= tolerance:
        return "as expected"
    return f"much {word}" if off > max(MUCH_SLOWER, tolerance) else word


CHECKS = (
    Check(comparative_reports_are_there),
    Check(comparative_reports_name_both_sides),
    Check(comparative_parts_are_in_order),
    Check(comparative_summary_is_short),
    Check(comparative_cards_are_complete),
    Check(comparative_cards_are_the_findings),
    Check(comparative_details_say_what_is_expected),
    Check(comparative_summary_gives_the_timelines),
    Check(differences_are_target_less_reference),
    Check(compared_times_add_up),
    Check(expectations_follow_from_the_hardware),
    Check(outcomes_follow_from_the_ratios),
    Check(savings_of_a_comparison_are_disjoint),
    Check(every_compared_operation_is_worked_out),
)
