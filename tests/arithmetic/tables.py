"""Tables in reports, cell by cell against what their rows must hold."""

from collections.abc import Iterator

from tests.arithmetic.documents import Line
from tests.arithmetic.evidence import fact_of
from tests.arithmetic.printed import numbers, reading
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.savings import projected
from tests.arithmetic.sentences import problems
from tests.arithmetic.units import Facts, share, time_ms

MISSING = "—"
PROJECTION = ("Op Time", "Op Improvement", "Compute Improvement", "E2E Improvement")
TARGETS_PCT = (20.0, 50.0, 70.0, 100.0)


def differs(cell: str, value: float | None, factor: float = 1.0) -> str | None:
    """What is wrong with a cell that should print ``value``, given in the unit of its column;
    ``factor`` makes that the base unit of what the cell prints."""
    if value is None:
        return None if cell == MISSING else f"{cell} where nothing is known"
    if cell == MISSING:
        return f"{MISSING} in place of {value}"
    number = reading(cell)
    return None if number.matches(value * factor) else f"{cell} in place of {value * factor}"


def evidence_problems(line: Line, facts: Facts) -> Iterator[str]:
    """A line of the evidence, by its label."""
    assert line.finding is not None
    label, cell = line.cells
    value = line.finding["evidence"].get(label)
    if isinstance(value, str):
        yield from problems(f"{label}: {cell}", facts)
        return
    expected = facts.get(fact_of(line.finding["check"], label))
    if not expected:
        yield f"nothing accounts for {label}"
    elif problem := differs(cell, expected[0]):
        yield f"{label}: {problem}"


def projection_problems(line: Line, run: RunDirectory, facts: Facts) -> Iterator[str]:
    """A line of an impact projection: what a target would give."""
    assert line.finding is not None
    target = reading(line.cells[0])
    (time, *_), own_pct = facts["impact_ms"], _own_pct(facts)
    aims = [*TARGETS_PCT, *facts["target_pct"]]
    exact = [aim for aim in aims if target.matches(aim)]
    if not exact:
        yield f"{target.text} is no target"
        return
    expected = projected(time, own_pct, exact[0], run)
    if expected is None:
        if line.cells[1] != "reached already":
            yield f"{line.cells[1]} in place of 'reached already'"
        return
    for name, cell, value in zip(PROJECTION, line.cells[1:], expected, strict=True):
        if problem := differs(cell, value):
            yield f"{name}: {problem}"


def _own_pct(facts: Facts) -> float:
    """The efficiency that a projection starts from; of a chain that of one fused kernel."""
    if "fused_ms" in facts:
        floor_ms = facts["instances"][0] * 2.0 / 1000
        return share(max(facts["fused_ms"][0], floor_ms), facts["time_ms"][0])
    return facts["efficiency_pct"][0]


def operation_problems(line: Line, rows: list[Row], category: list[Row]) -> Iterator[str]:
    """A line of a table of operations; ``rows`` are those that the table shows, in order."""
    row = rows[line.row]
    cells = dict(zip(line.columns, line.cells, strict=True))
    expected: dict[str, float | None] = {
        "#": line.row + 1,
        "Count": row.calls,
        "Time (ms)": row.time_us / 1000,
        "% of Category": share(row.time_us / 1000, time_ms(category)),
        "%E2E": None,
        "FLOPS/Byte": row.flops_per_byte,
    }
    for name, value in expected.items():
        if name in cells and name != "%E2E" and (problem := differs(cells[name], value)):
            yield f"{name}: {problem}"
    yield from _efficiency_problems(cells["Efficiency"], row)


def share_problems(line: Line, row: Row, run: RunDirectory) -> Iterator[str]:
    """The share of GPU wall time in a table for other tools."""
    cell = dict(zip(line.columns, line.cells, strict=True))["%E2E"]
    if problem := differs(cell, share(row.time_us / 1000, run.total_ms)):
        yield f"%E2E: {problem}"


def _efficiency_problems(cell: str, row: Row) -> Iterator[str]:
    found = list(numbers(cell))
    if not found:
        if row.roofline_pct is not None and row.efficiency_pct is not None:
            yield f"Efficiency: {cell} in place of {row.efficiency_pct}"
        return
    if not found[0].matches(row.roofline_pct):
        yield f"Efficiency: {cell} in place of {row.roofline_pct}"
    for peak in found[1:]:
        known = row.peak_tflops if row.bound == "compute" else row.peak_tb_per_s
        if not peak.matches(known):
            yield f"Efficiency: the peak {peak.text} in place of {known}"


def kernel_problems(line: Line, rows: list[Row], run: RunDirectory) -> Iterator[str]:
    """A line of the kernels of the operations above it: its three numbers are one kernel's."""
    place, _, per_call, mean, of_row = line.cells
    row = rows[int(place) - 1]
    kernels = run.kernels_of[row.uid]
    for name in {kernel["name"] for kernel in kernels}:
        same = [kernel for kernel in kernels if kernel["name"] == name]
        count = sum(kernel["count"] for kernel in same)
        total_us = sum(kernel["total_us"] for kernel in same)
        expected = {
            per_call: count / row.calls,
            mean: total_us / count / 1000,
            of_row: share(total_us, row.time_us),
        }
        if all(differs(cell, value) is None for cell, value in expected.items()):
            return
    yield f"no kernel of row {place} has these numbers"


def shown(rows: list[Row], run: RunDirectory) -> list[Row]:
    """The rows of a stakeholder's table: the first six, and any above 5% of compute."""
    return [
        row
        for place, row in enumerate(rows)
        if place < 6 or share(row.time_us / 1000, run.compute_ms) >= 5
    ]
