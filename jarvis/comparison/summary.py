"""A comparison in sentences: the totals, what can be compared, and what cannot."""

from collections.abc import Iterator

import polars as pl

from jarvis.comparison.aggregates import tells_communication
from jarvis.comparison.judgement import FASTER, SLOWER, Outcome
from jarvis.comparison.operations import SAME_WORKLOAD_PCT, Paired, matched_pct
from jarvis.comparison.sides import Role, Side
from jarvis.wording import counted, ms, pct

_PARTS = {
    "computation_time": "Compute time",
    "total_memcpy_time": "Memory copies",
    "exposed_comm_time": "Exposed communication",
    "idle_time": "Idle time of the GPU",
    "total_time": "Total time",
}
_NEEDED = {
    "gpu_timeline": "totals are not compared",
    "operations": "operations, categories and kernels are not compared",
    "call_tree": "what names do not match is matched by the dimensions of matrix products alone, "
    "and modules are not compared",
}
_TABLES = {
    "gpu_timeline": "the GPU timeline",
    "operations": "the time of single operations",
    "call_tree": "the call tree",
    "collectives": "which collectives it runs",
}


def in_totals(totals: pl.DataFrame) -> tuple[str, ...]:
    """The parts of both timelines in neutral sentences."""
    return tuple(_totals(totals))


def key_points(
    bounds: pl.DataFrame,
    operations: pl.DataFrame,
    unmatched: pl.DataFrame,
    collectives: pl.DataFrame,
) -> tuple[str, ...]:
    """What bounds the work, what has a counterpart, and what the hardware explains of it.

    The arguments are the comparison's tables.
    """
    return (
        *_character(bounds),
        *_matched(operations, unmatched),
        *_calls(operations),
        *_judged(operations),
        *_collectives(collectives),
    )


def _totals(totals: pl.DataFrame) -> Iterator[str]:
    times = {row["type"]: row for row in totals.iter_rows(named=True)}
    for part, name in _PARTS.items():
        row = times.get(part)
        if row is None or not (row["target_ms"] or row["reference_ms"]):
            continue
        target, reference = ms(row["target_ms"]), ms(row["reference_ms"])
        yield f"{name}: {target} on the target, {reference} on the reference, {_by(row)}."


def _by(row: dict[str, float | None]) -> str:
    change = row["difference_pct"]
    if change is None:
        return "which has none"
    if change == 0:
        return "no difference"
    return f"{pct(abs(change))} {'more' if change > 0 else 'less'}"


def _character(bounds: pl.DataFrame) -> Iterator[str]:
    """Whether memory or compute bounds most of the time of the operations."""
    found = {}
    for role in Role:
        share = f"{role.value}_percent"
        top = bounds.sort(share, descending=True).row(0, named=True)
        if top[share] > 0:
            found[role] = top["bound"], pct(top[share])
    if len(found) < len(Role):
        return
    (bound, share), (other, other_share) = found[Role.TARGET], found[Role.REFERENCE]
    if bound == other:
        yield (
            f"{_work(bound).capitalize()} dominates: {share} of the operations' time on the "
            f"target, {other_share} on the reference."
        )
        return
    yield (
        f"{_work(bound).capitalize()} dominates on the target ({share} of its operations' time), "
        f"{_work(other)} on the reference ({other_share})."
    )


def _work(bound: str) -> str:
    return f"{bound}-bound work" if bound in ("memory", "compute") else "work of unknown bound"


def _matched(operations: pl.DataFrame, unmatched: pl.DataFrame) -> Iterator[str]:
    share = matched_pct(operations, unmatched)
    if share is not None:
        only = (
            ms(_sum(unmatched.filter(pl.col("side") == role.value), "time_ms")) for role in Role
        )
        yield (
            f"{pct(share)} of the time of the target's operations has a counterpart on the "
            "reference; {} are on the target only, {} on the reference only.".format(*only)
        )


def _calls(operations: pl.DataFrame) -> Iterator[str]:
    rows = operations.filter(pl.col("target_calls") != pl.col("reference_calls"))
    if not rows.is_empty():
        yield (
            f"The two sides differ in the number of calls of {counted(rows.height, 'operation')}: "
            "what is expected is judged per call, while differences are of all calls."
        )


def _judged(operations: pl.DataFrame) -> Iterator[str]:
    slower = operations.filter(pl.col("outcome").is_in(SLOWER))
    if not slower.is_empty():
        yield (
            f"Slower than the hardware explains: {_times(slower)}; "
            f"{ms(_sum(slower, 'unexplained_ms'))} of that are not explained."
        )
    elif operations["is_unexpected"].count():
        yield "No operation is slower than the hardware explains."
    kinds = (
        ("As the hardware explains", (Outcome.EXPECTED.value,)),
        ("Faster than the hardware explains", FASTER),
        ("Too short to judge, as launching decides", (Outcome.SHORT.value,)),
        ("Without anything to expect", (Outcome.UNKNOWN.value,)),
    )
    for words, outcomes in kinds:
        rows = operations.filter(pl.col("outcome").is_in(outcomes))
        if not rows.is_empty():
            yield f"{words}: {_times(rows)}."


def _times(rows: pl.DataFrame) -> str:
    target, reference = (ms(_sum(rows, f"{side}_ms")) for side in ("target", "reference"))
    return f"{counted(rows.height, 'operation')} of {target}, {reference} on the reference"


def _sum(rows: pl.DataFrame, column: str) -> float:
    return float(rows.select(pl.col(column).sum()).item())


def _collectives(collectives: pl.DataFrame) -> Iterator[str]:
    if collectives.is_empty():
        return
    both = collectives.filter(pl.col("found_in") == "both").height
    if is_same(collectives):
        yield "Both sides use the same collectives: kinds, types, sizes and counts are equal."
        return
    yield (
        f"The collectives differ: {both} of {counted(collectives.height, 'kind')} of one type and "
        "size are on both sides."
    )


def is_same(collectives: pl.DataFrame) -> bool:
    """Whether the collectives of both sides are equal in kind, type, size and count."""
    counts = collectives.select("reference_count", "target_count")
    return counts["reference_count"].equals(counts["target_count"], check_names=False)


def unknown(paired: Paired, matched: float | None) -> tuple[str, ...]:
    """What cannot be compared, or not well, and why; ``matched`` as ``matched_pct``."""
    sides = {Role.TARGET: paired.target, Role.REFERENCE: paired.reference}
    lacking = [text for role, side in sides.items() for text in _lacking(role, side)]
    if matched is not None and matched < SAME_WORKLOAD_PCT:
        lacking.append(
            f"Only {pct(matched)} of the time of the target's operations has a counterpart: the "
            "two sides hardly run the same workload, so what one side alone does makes no finding."
        )
    return tuple(lacking)


def _lacking(role: Role, side: Side) -> Iterator[str]:
    if side.hardware is None:
        yield f"The GPU of the {role} is not described, so nothing is expected of any operation."
    for table, effect in _NEEDED.items():
        if side.rows(table).is_empty():
            yield _without(role, side, table, effect)
    if not tells_communication(side):
        yield _without(role, side, "collectives", "collectives are not compared")
    operations = side.rows("operations")
    if operations.is_empty():
        return
    if operations["kernels"].list.len().fill_null(0).sum() == 0:
        yield f"The kernels of the {role} are not known, so they are not compared."
    if operations["input_dims"].null_count() == operations.height:
        yield f"The {role} records no shapes: operations match by name alone."


def _without(role: Role, side: Side, table: str, effect: str) -> str:
    reason = side.lacks.get(table)
    return (
        f"Of the {role}, {_TABLES[table]} is not known: {effect}.{f' {reason}' if reason else ''}"
    )
