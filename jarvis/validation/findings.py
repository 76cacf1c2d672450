"""Checks of the findings in ``results.json`` against the tables."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import isclose
from typing import Any, TypeGuard

from jarvis.preconditions import Facts, Subject
from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import Json, RunFiles

ROUNDING = 1e-6
ENDS = ("low", "mid", "high")
GAINS = ("saved_ms", "compute_pct", "e2e_pct")
TEXTS = ("title", "issue", "algorithmic", "kernel")
"""The required texts of a finding."""

EFFICIENCIES = (
    "efficiency_pct",
    "baseline_pct",
    "best_row_pct",
    "best_pct",
    "reached_pct",
    "convolving_pct",
    "pct_roofline",
    "estimated_bandwidth_pct",
    "slower_pct",
    "expected_pct",
)
"""Percentages that may exceed 100 because they are not shares of a whole."""

OVERLAPPING = ("compute_pct", "category_pct", "batch_norm_pct")
"""Shares of compute: kernels that run at the same time count in full."""

KERNELS = ("kernel", "main_kernel", "kernels", "helpers")
"""Values of messages that name kernels."""


def results_are_the_manifest(run: RunFiles) -> Iterator[Problem]:
    """Every analysis of the manifest has its results, with as many findings."""
    file = run.name(run.paths.results)
    expected = {entry["key"]: entry["finding_count"] for entry in run.manifest["categories"]}
    found = {key: len(result["findings"]) for key, result in run.results.items()}
    if found != expected:
        yield Problem(file, f"It has {found} findings; {expected} expected.")


def findings_are_complete(run: RunFiles) -> Iterator[Problem]:
    """Every finding has a title, an issue, an action on both paths, and the key of its analysis; an
    analysis that failed has none.
    """
    file = run.name(run.paths.results)
    for key, result in run.results.items():
        for finding in result["findings"]:
            if missing := [name for name in TEXTS if not finding[name]]:
                yield Problem(file, f"{_title(finding)} has no {', '.join(missing)}.")
            if finding["category"] != key or result["status"] != "OK":
                text = f"{_title(finding)} is of {finding['category']}, but listed under {key}"
                yield Problem(file, f"{text}, whose status is {result['status']}.")


def findings_are_distinct(run: RunFiles) -> Iterator[Problem]:
    """No two findings of an analysis repeat the same statement about the same rows: a saving is
    stated once."""
    subjects = Counter(map(_subject, run.findings))
    for (check, category, title, *_), count in subjects.items():
        if count > 1:
            text = f"{title!r} of the check {check} in {category} occurs {count} times."
            yield Problem(run.name(run.paths.results), text)


def savings_are_ranges(run: RunFiles) -> Iterator[Problem]:
    """Low, middle and high of a saving are ordered and at least 0, and their shares are those of
    the run."""
    wholes = {
        "compute_pct": run.time_ms("computation_time"),
        "e2e_pct": run.time_ms("total_time"),
    }
    file = run.name(run.paths.results)
    for finding in _quantified(run):
        impact = finding["impact"]
        for name in GAINS:
            values = [impact[name][end] for end in ENDS]
            if values != sorted(values) or values[0] < 0:
                text = f"{_title(finding)} has {name} {values}; 0 or more, low to high, expected."
                yield Problem(file, text)
        for name, whole_ms in wholes.items():
            expected = [_percent(impact["saved_ms"][end], whole_ms) for end in ENDS]
            found = [impact[name][end] for end in ENDS]
            if not _all_close(found, expected):
                text = f"{_title(finding)} has {name} {found}; {expected} expected."
                yield Problem(file, text)


def impacts_stay_within_their_share(run: RunFiles) -> Iterator[Problem]:
    """No finding saves more than the GPU time of the operations that it concerns."""
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
                text = f"{_title(finding)} has {name} {value:.4g}; at most {limit:.4g} expected."
                yield Problem(run.name(run.paths.results), text)


def savings_add_up_to_less_than_the_total(run: RunFiles) -> Iterator[Problem]:
    """Savings of different time add up to at most the GPU's time, those of operations to at most
    theirs; kernels that overlap count in full."""
    everything = _everything_ms(run)
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


def shares_are_at_most_everything(run: RunFiles) -> Iterator[Problem]:
    """No share is below 0 or above 100%; kernels that overlap count in full."""
    computed_ms = run.time_ms("computation_time")
    overlap = max(1.0, _everything_ms(run) / computed_ms) if computed_ms else 1.0
    for finding in run.findings:
        for name, value in _numbers(finding):
            if not name.endswith("_pct") or name in EFFICIENCIES:
                continue
            limit = 100 * (overlap if name in OVERLAPPING else 1.0)
            if not -ROUNDING <= value <= limit * (1 + ROUNDING):
                text = f"{_title(finding)} has {name} {value:.4g}; 0 to {limit:.4g} expected."
                yield Problem(run.name(run.paths.results), text)


def counts_times_means_are_the_totals(run: RunFiles) -> Iterator[Problem]:
    """Calls times their mean time equal the GPU time, and calls those of the operations."""
    file = run.name(run.paths.results)
    for finding in run.findings:
        values = dict(_quantities(finding))
        calls, total_ms = values.get("calls"), values.get("gpu_time_ms")
        mean_us = values.get("mean_kernel_time_us", values.get("mean_gpu_time_us"))
        if not (isinstance(calls, int) and isinstance(total_ms, float)):
            continue
        if isinstance(mean_us, float) and not isclose(calls * mean_us / 1000, total_ms):
            text = f"{_title(finding)}: {calls} calls of {mean_us} µs are not {total_ms} ms."
            yield Problem(file, text)
        counted = sum(operation["operation_count"] for operation in finding["operations"])
        if finding["operations"] and counted != calls:
            yield Problem(file, f"{_title(finding)} has {calls} calls; {counted} expected.")


def operations_exist(run: RunFiles) -> Iterator[Problem]:
    """Every operation of a finding is a row of the table, with its name, calls and time."""
    file = run.name(run.paths.results)
    for finding in run.findings:
        for operation in finding["operations"]:
            row = run.operations.get(operation["uid"])
            found = operation["name"], operation["operation_count"]
            if row is None or found != (row["name"], row["operation_count"]):
                text = f"{_title(finding)} is about {found}, which is no row {operation['uid']} of"
                yield Problem(file, f"{text} the operations.")
        for uid in finding.get("shared_uids") or ():
            if uid not in run.operations:
                yield Problem(file, f"{_title(finding)} shares the time of row {uid}: no such row.")


def operations_of_a_finding_take_its_time(run: RunFiles) -> Iterator[Problem]:
    """The operations of a finding take the time that the finding states."""
    for finding in run.findings:
        total_ms = dict(_quantities(finding)).get("gpu_time_ms")
        if isinstance(total_ms, float) and finding["operations"]:
            expected = sum(
                run.operations.get(operation["uid"], {}).get("kernel_time_us") or 0.0
                for operation in finding["operations"]
            )
            if not isclose(total_ms, expected / 1000, rel_tol=ROUNDING, abs_tol=ROUNDING):
                text = f"{_title(finding)} gives {total_ms} ms; {expected / 1000} ms expected."
                yield Problem(run.name(run.paths.results), text)


def kernels_exist(run: RunFiles) -> Iterator[Problem]:
    """Every kernel that a message names runs in the trace."""
    known = {
        kernel["name"] for row in run.operations.values() for kernel in row["kernels"] or ()
    } | {row["name"] for row in run.operations.values()}
    everything = "\n".join(sorted(known))
    for finding in run.findings:
        for name, value in _values(finding):
            named = value if isinstance(value, list) else [value]
            for kernel in filter(_is_text, named) if name in KERNELS else ():
                is_known = kernel in known or kernel.rstrip("…") in everything
                if not is_known:
                    text = f"{_title(finding)} names the kernel {kernel!r}, which does not run."
                    yield Problem(run.name(run.paths.results), text)


def actions_meet_their_preconditions(run: RunFiles) -> Iterator[Problem]:
    """What a finding advises has its preconditions in the tables; they name known facts."""
    facts = Facts(cache(run.table))
    file = run.name(run.paths.results)
    for finding in run.findings:
        operations = [operation["uid"] for operation in finding["operations"]]
        uids = tuple(operations or finding.get("shared_uids") or ())
        subject = Subject(uids, dict(_quantities(finding)).get("direction"))
        needs = {need: None for message in _messages(finding) for need in message.get("needs", ())}
        for need in needs:
            try:
                holds = facts.hold([need], subject)
            except ValueError as error:
                yield Problem(file, f"{_title(finding)}: {error}.")
            else:
                if not holds:
                    text = f"{_title(finding)} advises what needs {need}, which does not hold."
                    yield Problem(file, text)


def _subject(finding: Json) -> tuple[str, ...]:
    """Return check, analysis and title first; then what else distinguishes findings."""
    uids = [operation["uid"] for operation in finding["operations"]]
    others = (finding["title"], finding["issue"], uids, finding.get("shared_uids"))
    return finding["check"], finding["category"], *map(str, others)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _title(finding: Json) -> str:
    return repr(finding["title"])


def _quantified(run: RunFiles) -> list[Json]:
    return [finding for finding in run.findings if finding.get("impact")]


def _quantities(finding: Json) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each quantity; none for a file of an earlier version."""
    for quantity in finding.get("quantities", ()):
        yield quantity["name"], quantity["value"]


def _messages(finding: Json) -> Iterator[Json]:
    """Yield the messages, including nested messages."""
    pending: list[Json] = [m for texts in finding.get("messages", {}).values() for m in texts]
    while pending:
        message = pending.pop()
        for value in message["values"].values():
            inner = value if isinstance(value, list) else [value]
            pending += (each for each in inner if isinstance(each, dict))
        yield message


def _values(finding: Json) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each value of the messages, including nested messages."""
    for message in _messages(finding):
        yield from message["values"].items()


def _numbers(finding: Json) -> Iterator[tuple[str, float]]:
    for name, value in (*_quantities(finding), *_values(finding)):
        if isinstance(value, int | float):
            yield name, value


def _disjoint(run: RunFiles) -> Iterator[Json]:
    """Yield findings of which no two share a row or a pool of time, largest savings first."""
    taken: set[int | str] = set()
    for finding in sorted(_quantified(run), key=lambda f: -f["impact"]["saved_ms"]["mid"]):
        claims: set[int | str] = {operation["uid"] for operation in finding["operations"]}
        claims.update(finding.get("shared_uids") or ())
        claims.update([finding["time_pool"]] if finding.get("time_pool") else [])
        if not claims & taken:
            taken |= claims
            yield finding


def _everything_ms(run: RunFiles) -> float:
    return sum(row["kernel_time_us"] or 0.0 for row in run.operations.values()) / 1000


def _operations_ms(run: RunFiles, finding: Json) -> float:
    """Return the GPU time of its own operations and of those that share its time, in ms."""
    uids = {operation["uid"] for operation in finding["operations"]}
    uids.update(finding.get("shared_uids") or ())
    rows = (run.operations[uid] for uid in uids if uid in run.operations)
    return sum(row["kernel_time_us"] or 0.0 for row in rows) / 1000


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _all_close(found: list[float], expected: list[float]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING) for a, b in pairs)


CHECKS = (
    Check(results_are_the_manifest),
    Check(findings_are_complete),
    Check(findings_are_distinct),
    Check(savings_are_ranges),
    Check(impacts_stay_within_their_share),
    Check(savings_add_up_to_less_than_the_total),
    Check(shares_are_at_most_everything),
    Check(counts_times_means_are_the_totals),
    Check(operations_exist),
    Check(operations_of_a_finding_take_its_time),
    Check(kernels_exist),
    Check(actions_meet_their_preconditions),
)
