"""Checks of the numbers of a whole run: shares, sums, ranks and scores, from its files alone."""

from collections.abc import Iterator
from math import isclose

from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import Json, RunFiles

SHARE_TOLERANCE_PCT = 1.0
SUM_TOLERANCE_PCT = 10.0
SCORE_SUM_TOLERANCE = 0.02
SCORES = ("impact_score_low", "impact_score", "impact_score_high")

HEURISTIC = "heuristic"
MODEL_FACTS = ("model", "architecture", "scale", "precision")

TIMELINE_SHARES = {
    "computation_time_percent": "computation_time",
    "exposed_comm_time_percent": "exposed_comm_time",
    "exposed_memcpy_time_percent": "exposed_memcpy_time",
    "idle_time_percent": "idle_time",
}
"""Shares of the category manifest, and their rows of the GPU timeline."""


def shares_equal_the_timeline(run: RunFiles) -> Iterator[Problem]:
    """The shares of the category manifest are within {SHARE_TOLERANCE_PCT} point of the GPU
    timeline's.
    """
    shares = run.category_manifest.get("gpu_utilization", {})
    for name, row in TIMELINE_SHARES.items():
        expected = run.gpu_timeline.get(row, (0.0, None))[1]
        found = shares.get(name)
        if not agree(found, expected):
            text = f"{name} is {found}; {expected} of the GPU timeline expected."
            yield Problem(run.name(run.paths.category_manifests[0]), text)


def category_times_add_up(run: RunFiles) -> Iterator[Problem]:
    """The GPU times of the categories add up to the computation time, within
    {SUM_TOLERANCE_PCT}%.
    """
    computed_ms = run.time_ms("computation_time")
    sum_ms = sum(category.get("gpu_kernel_time_ms") or 0.0 for category in run.categories)
    if abs(sum_ms - computed_ms) > SUM_TOLERANCE_PCT / 100 * computed_ms:
        text = f"The categories take {sum_ms:.3f} ms in all; {computed_ms:.3f} ms expected."
        yield Problem(run.name(run.paths.category_manifests[0]), text)


def category_rows_are_the_operations(run: RunFiles) -> Iterator[Problem]:
    """The rows of a category are the operations of that category, with their times."""
    for category in run.categories:
        if not category.get("csv_file"):
            continue
        found = run.category_times_us(category)
        expected = {
            uid: row["kernel_time_us"]
            for uid, row in run.operations.items()
            if row["category"] == category["name"]
        }
        file = run.name(run.paths.operations_csv(category["name"]))
        if others := sorted(found.keys() ^ expected.keys()):
            yield Problem(file, f"The rows {others[:5]} are here or in the table, not in both.")
        for uid in found.keys() & expected.keys():
            if not isclose(found[uid], expected[uid] or 0.0, rel_tol=1e-6, abs_tol=1e-6):
                yield Problem(file, f"Row {uid} takes {found[uid]} µs; {expected[uid]} expected.")


def ranks_are_contiguous(run: RunFiles) -> Iterator[Problem]:
    """The top operations are ranked 1, 2, 3 and so on, most time first."""
    file = run.name(run.paths.category_manifests[0])
    operations = run.category_manifest.get("top_operations", [])
    yield from _ranks(file, "rank of the top operations", operations, "rank")
    times = [operation["time_ms"] for operation in operations]
    if times != sorted(times, reverse=True):
        yield Problem(file, f"The top operations take {times} ms; descending times expected.")


def priorities_are_sorted_and_add_up(run: RunFiles) -> Iterator[Problem]:
    """The priority data rank findings and priorities 1, 2, 3 and so on, and each priority is the
    sum of its findings."""
    file, data = run.name(run.paths.priority_data[0]), run.priority_data
    findings, priorities = data["findings"], data["priorities"]
    yield from _ranks(file, "global_rank of the findings", findings, "global_rank")
    yield from _ranks(file, "rank of the priorities", priorities, "rank")
    for finding in findings:
        known = [finding[key] for key in SCORES if finding[key] is not None]
        if known != sorted(known) or len(known) not in (0, len(SCORES)):
            text = f"{finding['title']!r} has the scores {known}; all three, low to high, or none."
            yield Problem(file, text)
    for priority in priorities:
        yield from _sums(file, priority, findings)


def model_facts_are_complete(run: RunFiles) -> Iterator[Problem]:
    """The model facts of the trace include a model, an architecture, a scale and a precision."""
    facts = run.json(run.paths.model_info) or {}
    for name in MODEL_FACTS:
        if not facts.get(name):
            yield Problem(run.name(run.paths.model_info), f"There is no {name!r}.")


def agree(found: float | None, expected: float | None) -> bool:
    """Return whether two percentages are within a point of each other, or both unknown."""
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= SHARE_TOLERANCE_PCT


def _ranks(file: str, what: str, entries: list[Json], key: str) -> Iterator[Problem]:
    ranks = [entry[key] for entry in entries]
    if ranks != list(range(1, len(ranks) + 1)):
        yield Problem(file, f"The {what} runs {ranks}; 1 to {len(ranks)} expected.")


def _sums(file: str, priority: Json, findings: list[Json]) -> Iterator[Problem]:
    category = priority["category"]
    for key in SCORES:
        known = [
            finding[key]
            for finding in findings
            if finding["category"] == category
            and finding["estimate_method"] != HEURISTIC
            and finding[key] is not None
        ]
        if priority[key] is None and not known:
            continue
        if priority[key] is None or abs(priority[key] - sum(known)) > SCORE_SUM_TOLERANCE:
            text = f"{key} of {category} is {priority[key]}; {sum(known):.2f} expected."
            yield Problem(file, text)


CHECKS = (
    Check(shares_equal_the_timeline),
    Check(category_times_add_up, is_warning=True),
    Check(category_rows_are_the_operations),
    Check(ranks_are_contiguous),
    Check(priorities_are_sorted_and_add_up),
    Check(model_facts_are_complete),
)
