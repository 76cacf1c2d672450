"""Tables of a comparison of a target with a reference.

A difference is target minus reference, in percent of the reference. In a run the names of these
tables start with ``comparison_``.
"""

from jarvis.schemas.columns import (
    Column,
    count,
    flag,
    integer,
    microseconds,
    milliseconds,
    number,
    percent,
    text,
    uids,
)
from jarvis.schemas.names import C
from jarvis.schemas.sheets import BOUND_MEANING


def _times(meaning: str) -> tuple[Column, ...]:
    """Return columns for the time of both sides, and the difference in ms and in percent."""
    return (
        milliseconds(C.reference_ms, "Reference", f"{meaning} on the reference"),
        milliseconds(C.target_ms, "Target", f"{meaning} on the target"),
        milliseconds(C.difference_ms, "Difference", "target minus reference"),
        percent(
            C.difference_pct,
            "Difference",
            "target minus reference, in percent of the reference; empty if that takes no time",
            "+,.1f",
        ),
    )


def _counts(name: str, label: str, meaning: str) -> tuple[Column, ...]:
    return (
        count(f"reference_{name}", f"Reference {label}", f"{meaning} on the reference"),
        count(f"target_{name}", f"Target {label}", f"{meaning} on the target"),
    )


_CATEGORY = text(C.category, "Category", "key of the analysis that handles the operation")
_DIMS = text(C.input_dims, "Input dims", "shapes of the arguments; empty if they differ")
_TYPES = text(C.input_types, "Input types", "dtypes of the arguments; empty if they differ")
_PAIR = integer(C.pair, "Pair", "number of the row in `comparison_operations`")
_SIDE = text(C.side, "Side", "target or reference")
_FOUND_IN = text(C.found_in, "Found in", "both, target or reference")
_UNEXPLAINED = milliseconds(
    C.unexplained_ms,
    "Not explained",
    "time beyond the attainable time, of rows that are slower than the hardware explains; 0 for "
    "other rows",
)

TOTALS = (
    text(C.type, "Part", "part of the GPU timeline, as in that sheet"),
    *_times("time"),
    percent(C.reference_percent, "Reference", "share of its total time", ",.1f"),
    percent(C.target_percent, "Target", "share of its total time", ",.1f"),
)
STEPS = (
    text(C.type, "Part", "part of the step time; the last row is their sum"),
    *_times("mean of the steps,"),
    percent(C.reference_percent, "Reference", "share of its step time", ",.1f"),
    percent(C.target_percent, "Target", "share of its step time", ",.1f"),
)
BOUNDS = (
    text(C.bound, "Bound", "memory, compute, or not known, on the hardware of each side"),
    *_times("GPU time of the operations with this bound"),
    percent(C.reference_percent, "Reference", "share of its operations' time", ",.1f"),
    percent(C.target_percent, "Target", "share of its operations' time", ",.1f"),
)
CATEGORIES = (
    _CATEGORY,
    text(C.title, "Title", "title of that analysis"),
    *_times("GPU time"),
    milliseconds(
        C.only_in_reference_ms,
        "Only in reference",
        "of operations of the reference without a counterpart",
    ),
    milliseconds(
        C.only_in_target_ms, "Only in target", "of operations of the target without a counterpart"
    ),
    _UNEXPLAINED,
)
OPERATIONS = (
    _PAIR,
    text(
        C.matched_by,
        "Matched by",
        "arguments: same name, shapes and dtypes; call tree: different work below the same call; "
        "product: a different operator for the same matrix product",
    ),
    text(C.name, "Operation", "operator on the target, or several, longest first"),
    text(C.reference_name, "Reference operation", "operator on the reference, likewise"),
    text(C.place, "Place", "call that both have in common, if matched by call tree"),
    _CATEGORY,
    _DIMS,
    _TYPES,
    integer(C.uid, "UID", "heaviest row of the target's operations table"),
    integer(C.reference_uid, "Reference UID", "likewise of the reference's"),
    uids(C.uids, "UIDs", "all rows of the target's operations table"),
    uids(C.reference_uids, "Reference UIDs", "likewise of the reference's"),
    text(C.bound, "Bound", BOUND_MEANING),
    text(C.reference_bound, "Reference bound", "the same on the reference"),
    text(C.dtype, "Type", "type in which the target's heaviest row computes"),
    text(C.reference_dtype, "Reference type", "the same on the reference"),
    *_counts("calls", "calls", "calls; if matched by call tree, those of the common call"),
    *_times("GPU busy time of all calls"),
    number(
        C.percent_of_compute,
        "% of compute",
        "%",
        "target's time / target's computation time",
        ",.2f",
    ),
    number(C.reference_us_per_call, "Reference (µs per call)", "µs", "mean on the reference"),
    number(C.target_us_per_call, "Target (µs per call)", "µs", "mean on the target"),
    number(C.reference_launches_per_call, "Reference launches per call", "", "GPU events", ",.2f"),
    number(C.launches_per_call, "Launches per call", "", "GPU events on the target", ",.2f"),
    number(
        C.time_ratio,
        "Target / reference",
        "",
        "time per call of the target / reference; above 1 the target is slower",
        ",.2f",
    ),
    number(
        C.expected_ratio,
        "Expected ratio",
        "",
        "ratio that the two GPUs explain: of bandwidths or of compute peaks, by the bound; empty "
        "if that is not a single number",
        ",.2f",
    ),
    number(
        C.expected_ratio_least,
        "Least expected ratio",
        "",
        "the same, or the lower end of a range: if the bound is not known, or one side is launch "
        "bound",
        ",.2f",
    ),
    number(
        C.expected_ratio_most,
        "Most expected ratio",
        "",
        "the upper end of that range; slower rows are not explained by the hardware",
        ",.2f",
    ),
    number(
        C.work_ratio,
        "Work ratio",
        "",
        "FLOPs (else bytes) per call of the target / reference; empty if either is not known",
        ",.2f",
    ),
    milliseconds(
        C.attainable_ms,
        "Attainable",
        "time on the target at the highest expected ratio, at least its roofline time",
    ),
    flag(
        C.is_roofline_capped,
        "At roofline",
        "the target's roofline time is longer than the expected time and is used",
    ),
    text(
        C.outcome,
        "Outcome",
        "much slower, slower, as expected, faster or much faster than the hardware explains, "
        "too short (launch-bound calls), or not known",
    ),
    flag(
        C.is_unexpected,
        "Unexpected",
        "slower or faster than the expected ratio by more than the tolerance; empty "
        "without an expected ratio",
    ),
    _UNEXPLAINED,
    text(C.explanation, "Explanation", "how much of the difference the hardware explains"),
    percent(C.efficiency_pct, "Efficiency", "share of the target's roofline", ",.1f"),
    percent(
        C.reference_efficiency_pct,
        "Reference efficiency",
        "share of the reference's roofline",
        ",.1f",
    ),
    text(C.kernel, "Main kernel", "kernel of the target with most time"),
    text(C.reference_kernel, "Reference main kernel", "kernel of the reference with most time"),
    flag(C.same_kernels, "Same kernels", "both launch kernels of the same names"),
)
UNMATCHED = (
    _SIDE,
    integer(C.uid, "UID", "row of that side's operations table"),
    text(C.name, "Operation", "operator"),
    _CATEGORY,
    _DIMS,
    _TYPES,
    text(C.bound, "Bound", BOUND_MEANING),
    count(C.calls, "Calls", "all calls"),
    milliseconds(C.time_ms, "GPU time", "GPU busy time without a counterpart"),
    number(C.percent_of_compute, "% of compute", "%", "that time / its computation time", ",.2f"),
    text(C.kernel, "Main kernel", "kernel with most time"),
    text(C.place, "Place", "nearest call above it that both have in common"),
)
KERNELS = (
    text(C.kernel, "Kernel", "name of the kernel, copy or fill"),
    _FOUND_IN,
    *_counts("launches", "launches", "launches"),
    *_times("GPU time"),
    number(C.reference_us_per_launch, "Reference (µs per launch)", "µs", "mean"),
    number(C.target_us_per_launch, "Target (µs per launch)", "µs", "mean"),
)
LOWERING = (
    _PAIR,
    text(C.name, "Operation", "operator on the target"),
    _DIMS,
    _TYPES,
    _SIDE,
    text(C.kernel, "Kernel", "kernel that the operation is lowered to on this side"),
    _FOUND_IN,
    number(C.launches_per_call, "Launches per call", "", "launches of it / calls", ",.2f"),
    microseconds(C.us_per_call, "Time per call", "its time / calls"),
    percent(C.percent, "Share", "share of the operation's kernel time", ",.1f"),
)
COLLECTIVES = (
    text(C.collective, "Collective", "kind of collective"),
    text(C.dtype, "Dtype", "element type"),
    integer(C.group_size, "Group size", "ranks that take part"),
    number(C.message_mb, "Message (MiB)", "MiB", "larger of the messages sent and received"),
    _FOUND_IN,
    *_counts("count", "count", "communication kernels"),
    *_times("duration, including waiting for other ranks,"),
)
MODULES = (
    text(C.module, "Module", "name of the module's class"),
    text(C.path, "Module path", "modules from the outermost to this one"),
    integer(C.depth, "Depth", "modules above it"),
    _FOUND_IN,
    *_counts("calls", "calls", "calls with GPU work"),
    *_times("sum of the durations of the GPU events below it,"),
)

SCHEMAS: dict[str, tuple[Column, ...]] = {
    "comparison_totals": TOTALS,
    "comparison_steps": STEPS,
    "comparison_bounds": BOUNDS,
    "comparison_categories": CATEGORIES,
    "comparison_operations": OPERATIONS,
    "comparison_unmatched": UNMATCHED,
    "comparison_kernels": KERNELS,
    "comparison_lowering": LOWERING,
    "comparison_collectives": COLLECTIVES,
    "comparison_modules": MODULES,
}

ABOUT = {
    "comparison_totals": "The GPU timelines of target and reference.",
    "comparison_steps": "What one step of target and reference consists of: the mean of the steps "
    "of each side, of the recording if it marks none. The parts add up to the step time.",
    "comparison_bounds": "Time of memory-bound and compute-bound operations on each side.",
    "comparison_categories": "GPU time by category on each side.",
    "comparison_operations": "Operations that both sides have, and how much of the difference the "
    "specifications of the two GPUs explain. No time counts twice: a row of an operations table is "
    "in one row, or in several with a share each. An unexplained difference is not necessarily "
    "caused by kernels: clocks, power limits and versions differ too.",
    "comparison_unmatched": "Operations that only one side has, with the time that has no "
    "counterpart.",
    "comparison_kernels": "GPU work of the operations by kernel name. Kernels of different "
    "libraries have different names, so for two vendors most rows have only one side.",
    "comparison_lowering": "Kernels that an operation of `comparison_operations` is lowered to on "
    "each side.",
    "comparison_collectives": "Communication by kind, element type, group size and message. Equal "
    "counts in every row mean that both sides use the same collectives.",
    "comparison_modules": "GPU time by the modules of the model, with modules of one class at one "
    "place merged. A module contains those below it, so the rows do not add up.",
}
