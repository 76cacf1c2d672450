"""Checks of shares, counts and means: each is that of its base, and none exceeds it."""

from collections.abc import Iterator
from itertools import chain
from math import inf, isclose
from typing import TypeGuard

from jarvis.validation.check import (
    Check,
    Problem,
    exceeds,
    is_close,
    messages,
    percent,
    quantities,
    title,
    values,
)
from jarvis.validation.run_files import Json, RunFiles

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

BASES = {
    "compute_pct": ("gpu_time_ms", "the compute time"),
    "category_pct": ("gpu_time_ms", "the category"),
    "wall_pct": ("total_ms", "the GPU window"),
    "step_pct": ("step_idle_ms", "step_ms"),
    "short_kernels_pct": ("short_kernels", "kernels"),
    "convolution_pct": ("transpose_ms", "convolution_ms"),
}
"""Shares with the quantity that they are a part of, and what they are a share of: another quantity
or a time of the run."""

COUNTS = ("calls", "count", "launches", "copies", "instances")
MEANS = {
    "mean_launch_ms": 1.0,
    "mean_ms": 1.0,
    "mean_time_ms": 1.0,
    "mean_us": 1e-3,
    "mean_kernel_time_us": 1e-3,
}
MEANS |= {"mean_gpu_time_us": 1e-3, "mean_kernel_us": 1e-3}
"""Mean times, with the factor that makes them ms."""

KERNEL_ROUNDING = 1e-3
"""Relative rounding of the times of single kernels in a report that is read."""

WHOLES = ("gpu_time_ms", "time_ms", "total_ms")
"""Times of everything that a finding or a message is about."""


def shares_are_at_most_everything(run: RunFiles) -> Iterator[Problem]:
    """No share is below 0 or above 100%; kernels that overlap count in full."""
    computed_ms = run.time_ms("computation_time")
    overlap = max(1.0, run.operations_ms() / computed_ms) if computed_ms else 1.0
    for finding in run.findings:
        for name, value in _numbers(finding):
            if not name.endswith("_pct") or name in EFFICIENCIES:
                continue
            limit = 100 * (overlap if name in OVERLAPPING else 1.0)
            if value < -1e-6 or exceeds(value, limit):
                text = f"{title(finding)} has {name} {value:.4g}; 0 to {limit:.4g} expected."
                yield Problem(run.name(run.paths.results), text)


def shares_are_those_of_their_base(run: RunFiles) -> Iterator[Problem]:
    """Every share of a finding names its base, and is that of the finding's own time in it."""
    file = run.name(run.paths.results)
    for finding in run.findings:
        for quantity in finding.get("quantities", ()):
            shown = f"{quantity['label']} ({quantity['unit']})"
            if quantity["name"].endswith("_pct") and " of " not in shown:
                yield Problem(file, f"{title(finding)} has {shown!r}, which does not name a base.")
        known = dict(quantities(finding))
        known["the compute time"] = run.time_ms("computation_time")
        known["the GPU window"] = run.time_ms("total_time")
        known["the category"] = run.results[finding["category"]]["gpu_time_ms"]
        for name, (part, whole) in BASES.items():
            if name not in known or not known.get(part) or not known.get(whole):
                continue
            expected = percent(known[part], known[whole])
            has_less = name == "compute_pct" and _has_copies(run, finding)
            if not is_close(known[name], expected) and not (has_less and known[name] < expected):
                text = f"{title(finding)} has {name} {known[name]}; {expected} of {whole} expected."
                yield Problem(file, text)


def _has_copies(run: RunFiles, finding: Json) -> bool:
    """Return whether operations of a finding have copies, which are no compute."""
    uids = {operation["uid"] for operation in finding["operations"]} & run.operations.keys()
    expected = percent(run.operations_ms(uids), run.time_ms("computation_time"))
    found = sum(run.operations[uid]["percent_of_compute"] or 0.0 for uid in uids)
    return not is_close(found, expected)


def categories_share_the_operations(run: RunFiles) -> Iterator[Problem]:
    """The GPU time and the shares of a category are those of its operations, and the shares of
    compute of all categories add up to at most 100%."""
    file = run.name(run.paths.results)
    total_ms = run.time_ms("total_time")
    all_pct = sum(row["percent_of_compute"] or 0.0 for row in run.operations.values())
    if exceeds(all_pct, 100.0):
        yield Problem(file, f"All operations have {all_pct:.4g}% of compute; at most 100 expected.")
    for key, result in run.results.items():
        if result["tier"] != "compute" or result["status"] != "OK":
            continue
        rows = [uid for uid, row in run.operations.items() if row["category"] == key]
        time_ms = run.operations_ms(rows)
        shares = {
            "percent_of_compute": sum(
                run.operations[uid]["percent_of_compute"] or 0 for uid in rows
            ),
            "percent_of_total": percent(time_ms, total_ms),
        }
        if not is_close(result["gpu_time_ms"], time_ms):
            yield Problem(file, f"{key} takes {result['gpu_time_ms']} ms; {time_ms} ms expected.")
        for name, expected in shares.items():
            if result[name] is not None and not is_close(result[name], expected):
                yield Problem(file, f"{key} has {name} {result[name]}; {expected} expected.")


def counts_times_means_are_the_totals(run: RunFiles) -> Iterator[Problem]:
    """Calls times their mean time equal the GPU time, and calls those of the operations; in a
    sentence, they are at most the time that it is about."""
    file = run.name(run.paths.results)
    for finding in run.findings:
        found = dict(quantities(finding))
        calls, total_ms = found.get("calls"), found.get("gpu_time_ms")
        if isinstance(calls, int) and isinstance(total_ms, float):
            mean_us = found.get("mean_kernel_time_us", found.get("mean_gpu_time_us"))
            if isinstance(mean_us, float) and not isclose(calls * mean_us / 1000, total_ms):
                text = f"{title(finding)}: {calls} calls of {mean_us} µs are not {total_ms} ms."
                yield Problem(file, text)
            counted = sum(operation["operation_count"] for operation in finding["operations"])
            if finding["operations"] and counted != calls:
                yield Problem(file, f"{title(finding)} has {calls} calls; {counted} expected.")
        for message in messages(finding) if run.knows_steps else ():
            yield from _exceeding(file, title(finding), message["values"], total_ms)


def operations_take_their_calls(run: RunFiles) -> Iterator[Problem]:
    """The calls of an operation times their mean time equal its GPU time, the launches of a kernel
    times theirs at most that."""
    file = run.name(run.paths.table("operations"))
    for uid, row in run.operations.items():
        total_us, calls = row["kernel_time_us"] or 0.0, row["operation_count"]
        mean_us = row["kernel_time_us_mean"]
        if mean_us is not None and not is_close(calls * mean_us, total_us):
            text = f"Row {uid} has {calls} calls of {mean_us} µs; {total_us} µs expected."
            yield Problem(file, text)
        for kernel in row["kernels"] or ():
            kernel_us = kernel["count"] * (kernel["mean_us"] or 0.0)
            if kernel_us > total_us * (1 + KERNEL_ROUNDING):
                text = f"Row {uid} has {kernel_us} µs of {kernel['name']!r}; {total_us} µs at most."
                yield Problem(file, text)


def _exceeding(file: str, named: str, found: Json, total_ms: object) -> Iterator[Problem]:
    counts = [found[name] for name in COUNTS if isinstance(found.get(name), int)]
    means = [found[name] * to_ms for name, to_ms in MEANS.items() if _is_number(found.get(name))]
    if len(counts) != 1 or len(means) != 1:
        return
    totals = [*(found.get(name) for name in WHOLES), total_ms]
    most_ms = min((total for total in totals if _is_number(total)), default=inf)
    if exceeds(counts[0] * means[0], most_ms):
        text = f"{named}: {counts[0]} times {means[0]:.4g} ms; at most {most_ms:.4g} ms expected."
        yield Problem(file, text)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float)


def _numbers(finding: Json) -> Iterator[tuple[str, float]]:
    for name, value in chain(quantities(finding), values(finding)):
        if isinstance(value, int | float):
            yield name, value


CHECKS = (
    Check(shares_are_at_most_everything),
    Check(shares_are_those_of_their_base, needs_steps=True),
    Check(categories_share_the_operations, needs_steps=True),
    Check(counts_times_means_are_the_totals),
    Check(operations_take_their_calls),
)
