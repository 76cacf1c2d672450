"""Checks of a comparison: its tables and findings follow from both sides."""

from collections.abc import Iterator

from jarvis.schemas.comparison import SCHEMAS
from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import REPORT_KINDS, Json, RunFiles

ROLES = ("reference", "target")
EXACT = 1e-6
MUCH_SLOWER = 2.0
TINY_US = 1.0
SLOWER = ("slower", "much slower")
WITH_EXPECTATION = (*SLOWER, "as expected", "faster", "much faster")


def comparative_reports_are_there(run: RunFiles) -> Iterator[Problem]:
    """If there is a reference, both comparative reports and their data exist."""
    if not run.has_reference:
        return
    paths = run.paths
    expected = [
        *(paths.comparative_report(kind) for kind in REPORT_KINDS),
        paths.comparison,
        *map(paths.comparison_table, SCHEMAS),
    ]
    for path in expected:
        if not path.is_file():
            yield Problem(run.name(path), "The file is missing although there is a reference.")


def comparison_names_both_sides(run: RunFiles) -> Iterator[Problem]:
    """The title of a comparison names both GPUs, the reference first."""
    facts = run.comparison
    if facts is None:
        return
    labels = " vs ".join(facts["sides"][role]["label"] for role in ROLES)
    if not facts["title"].endswith(f" Performance Comparison: {labels}"):
        text = f"The title is {facts['title']!r}; a comparison of {labels} was expected."
        yield Problem(run.name(run.paths.comparison), text)


def differences_are_target_less_reference(run: RunFiles) -> Iterator[Problem]:
    """Every difference is the target minus the reference, in percent of the reference."""
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
    """On either side, compared and uncompared operations together take as long as all
    categories."""
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
    """Memory-bound calls are expected to scale with the bandwidths of the two GPUs.

    A call with a roofline below a microsecond is launch bound: the same time is expected.
    """
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
            found, by_figures = float(row["expected_ratio"]), 1.0 if _is_tiny(row) else ratio
            if not _agree(found, by_figures, by_figures):
                text = f"Expected is {found:.4g}; {by_figures:.4g} follows from the figures."
                yield Problem(file, text, number)


def outcomes_follow_from_the_ratios(run: RunFiles) -> Iterator[Problem]:
    """Outcomes and unexplained times follow from the ratios and the tolerance."""
    tolerance = (run.comparison or {}).get("tolerance", 1.0)
    file = run.name(run.paths.comparison_table("comparison_operations"))
    for number, row in enumerate(run.comparison_rows("comparison_operations"), start=2):
        if row["outcome"] not in WITH_EXPECTATION:
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
    """No two findings concern the same operation, and none saves more than its time."""
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
            yield Problem(file, f"{title!r} concerns the same operation as {seen[key]!r}.")
        seen[key] = title
    of_operations = [finding for finding in facts["findings"] if finding["operations"]]
    saved_ms = sum(finding["impact"]["saved_ms"]["high"] for finding in of_operations)
    compute_ms = facts["sides"]["target"]["compute_ms"]
    if saved_ms > compute_ms * (1 + EXACT):
        text = f"The findings save {saved_ms:.4g} ms; at most {compute_ms:.4g} expected."
        yield Problem(file, text)


def _agree(found: float, expected: float, scale: float) -> bool:
    return abs(found - expected) <= EXACT * max(abs(scale), EXACT)


def _is_tiny(row: Json) -> bool:
    return any(
        float(row[f"{prefix}efficiency_pct"]) / 100 * float(row[f"{role}_us_per_call"]) < TINY_US
        for role, prefix in (("reference", "reference_"), ("target", ""))
        if row[f"{prefix}efficiency_pct"]
    )


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
    Check(comparison_names_both_sides),
    Check(differences_are_target_less_reference),
    Check(compared_times_add_up),
    Check(expectations_follow_from_the_hardware),
    Check(outcomes_follow_from_the_ratios),
    Check(savings_of_a_comparison_are_disjoint),
)
