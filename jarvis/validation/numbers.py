"""Checks of the numbers: shares, sums, ranks and savings, worked out anew from the files."""

import re
from collections.abc import Iterator

from jarvis.validation.check import Check, Problem
from jarvis.validation.markdown import Part, plain
from jarvis.validation.run_files import Json, RunFiles

SHARE_TOLERANCE_PCT = 1.0
SUM_TOLERANCE_PCT = 10.0
ROUNDING = 1e-6

PEAK_TOLERANCE = 0.005
SUMMARY, APPENDIX, HARDWARE = "Executive Summary", "Appendix", "Hardware Reference"
PEAK = re.compile(r"(\d[\d,]*(?:\.\d+)?) (?:TB/s|TFLOPS)")
_SHARE = r"(\d+(?:\.\d+)?)%"
TOLD_SHARES = (
    (re.compile(rf"{_SHARE} computing"), "computation_time"),
    (re.compile(rf"{_SHARE} idle"), "idle_time"),
    (re.compile(rf"^Compute % {_SHARE}"), "computation_time"),
    (re.compile(rf"^Idle % {_SHARE}"), "idle_time"),
)
"""How a summary gives a share, and the row of the GPU timeline that it is of."""

TIMELINE_SHARES = {
    "computation_time_percent": "computation_time",
    "exposed_comm_time_percent": "exposed_comm_time",
    "exposed_memcpy_time_percent": "exposed_memcpy_time",
    "idle_time_percent": "idle_time",
}
"""Shares of the category manifest, and the rows of the GPU timeline that they are of."""


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


def reports_give_the_shares_of_the_timeline(run: RunFiles) -> Iterator[Problem]:
    """The shares of compute and idle time that a summary gives are the GPU timeline's."""
    for document in (run.fair, run.document(run.paths.analysis_report)):
        summary = document.part(SUMMARY) if document else None
        for table in summary.tables if summary else ():
            for row in table.rows:
                told = " ".join(plain(cell) for cell in row.cells.values())
                for pattern, kind in TOLD_SHARES:
                    found = pattern.search(told)
                    expected = run.gpu_timeline.get(kind, (0.0, None))[1]
                    if found and not agree(float(found[1]), expected):
                        text = f"It gives {kind} as {found[1]}%; {expected}% expected."
                        yield Problem(summary.file if summary else "", text, row.number)


def hardware_is_told(run: RunFiles) -> Iterator[Problem]:
    """The appendices name the GPU, its bandwidth and its compute peaks, as the run used them."""
    for document in (run.fair, run.document(run.paths.analysis_report)):
        appendix = document.part(APPENDIX) if document else None
        part = appendix.part(HARDWARE, level=3) if appendix else None
        if document is not None and run.hardware is not None:
            yield from _hardware(run.hardware, part or document)


def category_times_add_up(run: RunFiles) -> Iterator[Problem]:
    """The GPU times of the categories add up to the computation time, within
    {SUM_TOLERANCE_PCT}%.
    """
    computed_ms = run.time_ms("computation_time")
    sum_ms = sum(category.get("gpu_kernel_time_ms") or 0.0 for category in run.categories)
    if abs(sum_ms - computed_ms) > SUM_TOLERANCE_PCT / 100 * computed_ms:
        text = f"The categories take {sum_ms:.3f} ms in all; {computed_ms:.3f} ms expected."
        yield Problem(run.name(run.paths.category_manifests[0]), text)


def ranks_are_contiguous(run: RunFiles) -> Iterator[Problem]:
    """The top operations are ranked 1, 2, 3 and so on, most time first."""
    file = run.name(run.paths.category_manifests[0])
    operations = run.category_manifest.get("top_operations", [])
    ranks = [operation["rank"] for operation in operations]
    if ranks != list(range(1, len(ranks) + 1)):
        yield Problem(
            file, f"The top operations have the ranks {ranks}; 1 to {len(ranks)} expected."
        )
    times = [operation["time_ms"] for operation in operations]
    if times != sorted(times, reverse=True):
        yield Problem(file, f"The top operations take {times} ms; falling times expected.")


def impacts_stay_within_their_share(run: RunFiles) -> Iterator[Problem]:
    """No finding would save more than the GPU time of the operations that it concerns."""
    computed_ms, total_ms = run.time_ms("computation_time"), run.time_ms("total_time")
    for finding in _quantified(run):
        time_ms = _operations_ms(run, finding) if finding["operations"] else total_ms
        limits = {"saved_ms": time_ms}
        if finding["operations"]:
            limits["compute_pct"] = _percent(time_ms, computed_ms)
        limits["e2e_pct"] = _percent(time_ms, total_ms)
        for name, limit in limits.items():
            value = finding["impact"][name]["high"]
            if value > limit * (1 + ROUNDING) + ROUNDING:
                text = f"{finding['title']!r} has {name} {value:.4g}; at most {limit:.4g} expected."
                yield Problem(run.name(run.paths.results), text)


def savings_add_up_to_less_than_the_total(run: RunFiles) -> Iterator[Problem]:
    """Savings of different time add up to at most the GPU's time, those of operations to at most
    theirs; kernels that overlap count in full."""
    everything = sum(run.kernel_time_us.values()) / 1000
    computed_ms, total_ms = run.time_ms("computation_time"), run.time_ms("total_time")
    limits = {
        "operations": max(everything, computed_ms),
        "all findings": total_ms + max(0.0, everything - computed_ms),
    }
    savings = {"operations": 0.0, "all findings": 0.0}
    for finding in _disjoint(run):
        saved_ms = finding["impact"]["saved_ms"]["mid"]
        savings["all findings"] += saved_ms
        savings["operations"] += saved_ms if finding["operations"] else 0.0
    for what, saved_ms in savings.items():
        if saved_ms > limits[what] * (1 + ROUNDING):
            text = f"The savings of {what} are {saved_ms:.4g} ms; {limits[what]:.4g} ms at most."
            yield Problem(run.name(run.paths.results), text)


def agree(found: float | None, expected: float | None) -> bool:
    """Whether two percentages are within a point of each other, or both unknown."""
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= SHARE_TOLERANCE_PCT


def _hardware(hardware: Json, part: Part) -> Iterator[Problem]:
    told = [plain(line.text) for line in part.lines]
    if not any(hardware["name"] in line for line in told):
        yield Problem(part.file, f"The appendix does not name the {hardware['name']}.", part.number)
    known = {
        "HBM BW": [hardware["mem_bw_gbps"] / 1000],
        "MAF": list(hardware["max_achievable_tflops"].values()),
    }
    for label, expected in known.items():
        given = [
            (line.number, float(found[1].replace(",", "")))
            for line in part.lines
            if label in line.text and (found := PEAK.search(plain(line.text)))
        ]
        if expected and not given:
            yield Problem(part.file, f"The appendix gives no {label}.", part.number)
        for number, value in given:
            if not any(abs(value - peak) <= PEAK_TOLERANCE * peak for peak in expected):
                text = f"The {label} is {value:g}; one of {expected} expected."
                yield Problem(part.file, text, number)


def _disjoint(run: RunFiles) -> Iterator[Json]:
    """Findings of which no two share a row or a pool of time, largest savings first."""
    taken: set[int | str] = set()
    for finding in sorted(_quantified(run), key=lambda f: -f["impact"]["saved_ms"]["mid"]):
        claims: set[int | str] = {operation["uid"] for operation in finding["operations"]}
        claims.update(finding.get("shared_uids") or ())
        claims.update([finding["time_pool"]] if finding.get("time_pool") else [])
        if not claims & taken:
            taken |= claims
            yield finding


def _quantified(run: RunFiles) -> list[Json]:
    return [finding for finding in run.findings if finding.get("impact")]


def _operations_ms(run: RunFiles, finding: Json) -> float:
    """The GPU time of its own operations and of those that its time is shared with."""
    uids = {operation["uid"] for operation in finding["operations"]}
    uids.update(finding.get("shared_uids") or ())
    return sum(run.kernel_time_us.get(uid, 0.0) for uid in uids) / 1000


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


CHECKS = (
    Check(shares_equal_the_timeline),
    Check(reports_give_the_shares_of_the_timeline),
    Check(hardware_is_told),
    Check(category_times_add_up, is_warning=True),
    Check(ranks_are_contiguous),
    Check(impacts_stay_within_their_share),
    Check(savings_add_up_to_less_than_the_total),
)
