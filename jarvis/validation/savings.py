"""Checks of savings: ranges, what bounds them, and the priorities that follow."""

from collections.abc import Iterator

import polars as pl

from jarvis.validation.check import (
    ENDS,
    ROUNDING,
    Check,
    Problem,
    exceeds,
    is_close,
    percent,
    quantified,
    title,
    uids,
)
from jarvis.validation.run_files import Json, RunFiles

OF_STEPS = ("step_ms", "step_pct")
GAINS = ("saved_ms", "compute_pct", "e2e_pct", *OF_STEPS)
WORDS = ("Low", "Medium", "High", "Critical")
CAPS = ((0.5, "Low"), (1.0, "Medium"), (5.0, "High"))
"""A finding that saves less than this percentage of the steps has at most the priority."""

FLOORS = ((40.0, "Critical"), (1.0, "High"), (0.5, "Medium"))
"""A finding that saves this percentage of the steps has at least the priority."""

IDLE_PARTS = ("idle_before_ns", "idle_between_ns", "idle_after_ns")
STEP_PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", *IDLE_PARTS)

POOLS = {"idle": "idle_ms", "exposed communication": "comm_ms", "exposed copies": "copies_ms"}
"""The bound of findings without operations, by the beginning of the name of their time."""


def savings_are_ranges(run: RunFiles) -> Iterator[Problem]:
    """Low, middle and high of a saving are ordered and at least 0, the middle of an estimate of
    step time is below its high end, and shares are those of the run."""
    wholes = {
        "compute_pct": ("saved_ms", run.time_ms("computation_time")),
        "e2e_pct": ("saved_ms", run.time_ms("total_time")),
        "step_pct": ("step_ms", run.step.get("step_ms", 0.0)),
    }
    file = run.name(run.paths.results)
    for finding in quantified(run):
        gain = finding["impact"]
        for name in filter(gain.get, GAINS):
            values = [gain[name][end] for end in ENDS]
            if values != sorted(values) or values[0] < 0:
                text = f"{title(finding)} has {name} {values}; 0 or more, low to high, expected."
                yield Problem(file, text)
            elif (
                name in OF_STEPS
                and not gain.get("is_replayed")
                and values[0] < values[1] == values[2]
            ):
                text = f"{title(finding)} has {name} {values}; a middle below the end expected."
                yield Problem(file, text)
        for name, (base, whole_ms) in wholes.items():
            if not gain.get(name):
                continue
            expected = [percent(gain[base][end], whole_ms) for end in ENDS]
            found = [gain[name][end] for end in ENDS]
            if not all(map(is_close, found, expected)):
                yield Problem(file, f"{title(finding)} has {name} {found}; {expected} expected.")


def impacts_stay_within_their_share(run: RunFiles) -> Iterator[Problem]:
    """No finding saves more than the GPU time of the operations that it concerns."""
    computed_ms, total_ms = run.time_ms("computation_time"), run.time_ms("total_time")
    for finding in quantified(run):
        time_ms = run.operations_ms(uids(finding)) if finding["operations"] else total_ms
        limits = {"saved_ms": time_ms}
        if finding["operations"]:
            limits["compute_pct"] = percent(time_ms, computed_ms)
        limits["e2e_pct"] = percent(time_ms, total_ms)
        for name, limit in limits.items():
            value = finding["impact"][name]["high"]
            if exceeds(value, limit):
                text = f"{title(finding)} has {name} {value:.4g}; at most {limit:.4g} expected."
                yield Problem(run.name(run.paths.results), text)


def savings_add_up_to_less_than_the_total(run: RunFiles) -> Iterator[Problem]:
    """Savings of different time add up to at most the GPU's time, those of operations to at most
    theirs; kernels that overlap count in full."""
    everything = run.operations_ms()
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


def steps_are_the_sum_of_their_parts(run: RunFiles) -> Iterator[Problem]:
    """The parts of every step add up to its time: compute, exposed communication and copies, and
    idle time before, between and after GPU work."""
    steps = run.columns("steps", "step", "dur_ns", *STEP_PARTS)
    for row in steps.drop_nulls("dur_ns").iter_rows(named=True):
        sum_ns = sum(row[part] for part in STEP_PARTS)
        if sum_ns != row["dur_ns"]:
            text = f"The parts of step {row['step']} are {sum_ns} ns; {row['dur_ns']} ns expected."
            yield Problem(run.name(run.paths.table("steps")), text)


def bounds_follow_from_the_tables(run: RunFiles) -> Iterator[Problem]:
    """What bounds the savings of step time are the parts of the steps; shorter kernels save at most
    the time in which the steps are not idle."""
    step, steps = run.step, run.columns("steps", "dur_ns", *STEP_PARTS)
    if not step or steps.is_empty():
        return
    parts = {
        "step_ms": ("dur_ns",),
        "idle_ms": IDLE_PARTS,
        "comm_ms": ("exposed_comm_ns",),
        "copies_ms": ("exposed_copy_ns",),
    }
    expected = {
        name: sum(int(steps[part].sum()) for part in columns) / 1e6
        for name, columns in parts.items()
    }
    file = run.name(run.paths.manifest)
    for name, value in expected.items():
        if not is_close(step[name], value):
            yield Problem(file, f"{name} of the steps is {step[name]}; {value} expected.")
    busy_ms = expected["step_ms"] - expected["idle_ms"]
    if exceeds(step["kernels_ms"], busy_ms):
        text = f"kernels_ms of the steps is {step['kernels_ms']}; {busy_ms} at most expected."
        yield Problem(file, text)


def savings_stay_within_the_step(run: RunFiles) -> Iterator[Problem]:
    """No finding saves more step time than there is of its time, nor less GPU work more than a
    replay without the time of kernels."""
    step, work = run.step, run.columns("gpu_work", "operation_uid", "ts_ns", "dur_ns")
    of_operations = work.drop_nulls().partition_by("operation_uid", as_dict=True)
    without_kernels_ms: float | None = None
    for finding in quantified(run) if step else ():
        saving = finding["impact"].get("step_ms")
        if saving is None:
            yield Problem(run.name(run.paths.results), f"{title(finding)} has no step_ms.")
            continue
        pool = finding.get("time_pool")
        if pool is None and finding["impact"].get("is_replayed"):
            if without_kernels_ms is None:
                without_kernels_ms = _without_kernels_ms(run)
            limit = without_kernels_ms
        elif pool is None:
            found = (of_operations.get((uid,)) for uid in sorted(uids(finding)))
            own = pl.concat([work.clear(), *(events for events in found if events is not None)])
            running_ms = covered_ms(own, step["start_ns"], step["end_ns"])
            limit = min(step["kernels_ms"], finding["impact"]["saved_ms"]["high"])
            limit = limit if work.is_empty() else min(limit, running_ms)
        else:
            names = (name for start, name in POOLS.items() if pool.startswith(start))
            limit = step[next(names, "step_ms")]
        if exceeds(saving["high"], limit):
            text = f"{title(finding)} saves {saving['high']:.4g} ms of the step"
            yield Problem(run.name(run.paths.results), f"{text}; at most {limit:.4g} expected.")


def _without_kernels_ms(run: RunFiles) -> float:
    """Return what the steps gain in a replay in which no kernel takes time."""
    if (recorded := run.recorded_steps) is None:
        return 0.0
    work = run.columns("gpu_work", "uid", "kind")
    kernels = work.filter(pl.col("kind") == "compute")["uid"]
    return recorded.gain_ms(recorded.without(kernels.to_list()))


def priorities_follow_from_the_saving(run: RunFiles) -> Iterator[Problem]:
    """The share of the steps that a finding saves raises and bounds its priority; an interval from
    one rank is at most Medium."""
    for finding in quantified(run):
        gain = finding["impact"]
        if not gain.get("step_pct"):
            continue
        pct = gain["step_pct"]["high" if gain.get("is_interval") else "mid"]
        least = next((word for from_pct, word in FLOORS if pct >= from_pct), WORDS[0])
        most = next((word for below, word in CAPS if pct < below), WORDS[-1])
        if gain.get("is_interval"):
            most = min(most, "Medium", key=WORDS.index)
            least = min(least, most, key=WORDS.index)
        before = WORDS.index(finding.get("priority_before") or finding["priority"])
        bounded = min(max(before, WORDS.index(least)), WORDS.index(most))
        if finding["priority"] != WORDS[bounded]:
            text = f"{title(finding)} saves {pct:.3g}% of the steps and is {finding['priority']}"
            yield Problem(run.name(run.paths.results), f"{text}; {WORDS[bounded]} expected.")


def covered_ms(events: pl.DataFrame, start_ns: int, end_ns: int) -> float:
    """Return for how long at least one of the events runs between two times."""
    if events.is_empty():
        return 0.0
    begin, end = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns")
    spans = events.drop_nulls(["ts_ns", "dur_ns"]).select(
        begin=begin.clip(start_ns, end_ns), end=end.clip(start_ns, end_ns)
    )
    reached = pl.col("end").cum_max().shift(1).fill_null(start_ns)
    added = pl.col("end") - pl.max_horizontal("begin", reached)
    return int(spans.sort("begin").select(added.clip(lower_bound=0).sum()).item()) / 1e6


def _disjoint(run: RunFiles) -> Iterator[Json]:
    """Yield findings of which no two share a row or a pool of time, largest savings first."""
    taken: set[int | str] = set()
    for finding in sorted(quantified(run), key=lambda f: -f["impact"]["saved_ms"]["mid"]):
        pool = [finding["time_pool"]] if finding.get("time_pool") else []
        sources: set[int | str] = {*uids(finding), *pool}
        if not sources & taken:
            taken |= sources
            yield finding


CHECKS = (
    Check(savings_are_ranges),
    Check(impacts_stay_within_their_share),
    Check(savings_add_up_to_less_than_the_total),
    Check(steps_are_the_sum_of_their_parts, needs_steps=True),
    Check(bounds_follow_from_the_tables, needs_steps=True),
    Check(savings_stay_within_the_step, needs_steps=True),
    Check(priorities_follow_from_the_saving, needs_steps=True),
)
