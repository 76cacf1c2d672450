"""Tables in reports, cell by cell against what their rows must hold."""

import html
import re
from collections.abc import Iterator
from typing import Any

from tests.arithmetic.documents import Line
from tests.arithmetic.printed import numbers, reading
from tests.arithmetic.rendered import printed
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.savings import projected
from tests.arithmetic.units import Facts, share, time_ms

MISSING = "—"
PROJECTION = ("Op Time", "Op Improvement", "Compute Improvement", "GPU Window Improvement")
TARGETS_PCT = (20.0, 50.0, 70.0, 100.0)


def differs(cell: str, value: float | None) -> str | None:
    """What is wrong with a cell that should print ``value``, given in the unit of its column."""
    if value is None:
        return None if cell == MISSING else f"{cell} where nothing is known"
    if cell == MISSING:
        return f"{MISSING} in place of {value}"
    found = list(numbers(cell))
    is_right = len(found) == 1 and found[0].matches(value)
    return None if is_right else f"{cell} in place of {value}"


def evidence_problems(line: Line) -> Iterator[str]:
    """A line of the evidence: the quantity with this label."""
    assert line.finding is not None
    label, cell = line.cells
    titles = {
        f"{q['label']} ({q['unit']})" if q["unit"] else q["label"]: q["value"]
        for q in line.finding["quantities"]
    }
    value = titles.get(label)
    if isinstance(value, str):
        if cell.replace("\\|", "|") != printed(value).replace("\\|", "|"):
            yield f"{label}: {cell} in place of {value}"
    elif problem := differs(cell, value):
        yield f"{label}: {problem}"


def projection_problems(line: Line, run: RunDirectory, facts: Facts) -> Iterator[str]:
    """A line of an impact projection: what a target would give."""
    assert line.finding is not None
    target = reading(line.cells[0])
    (time, *_), (own_pct, *_) = facts["impact_ms"], facts["start_pct"]
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
    if "% of Category" in cells:
        yield from _argument_problems(cells["Operation"], row)


def _argument_problems(cell: str, row: Row) -> Iterator[str]:
    """The arguments behind an operator's name, perhaps cut in the middle."""
    reported = re.sub(r"^`[^`]*`", "", cell).strip()
    first, _, last = reported.partition("…")
    known = row.cells["arguments"]
    if reported != "(scalars)" and not (known.startswith(first) and known.endswith(last)):
        yield f"Operation: {reported} in place of {known}"


def tool_problems(line: Line, row: Row, run: RunDirectory) -> Iterator[str]:
    """What a table for other tools has beside: names, arguments, the share of the GPU window."""
    cells = dict(zip(line.columns, map(html.unescape, line.cells), strict=True))
    if problem := differs(cells["%E2E"], share(row.time_us / 1000, run.total_ms)):
        yield f"%E2E: {problem}"
    if cells["Operation"] != row.name:
        yield f"Operation: {cells['Operation']} in place of {row.name}"
    reported = re.findall(r"(?:(\d+) x )?\(([\d,]+)\)", cells["Args"])
    if [(count, _dims(shape)) for count, shape in reported] != _arguments(row):
        yield f"Args: {cells['Args']} in place of {_arguments(row)}"
    for place, part in enumerate(cells["Kernel Name"].split("<br>"), start=1):
        name = part.removeprefix(f"Kernel {place}: ")
        if name != MISSING and not any(_joined(k["name"]).startswith(name) for k in row.kernels):
            yield f"Kernel Name: no kernel is {name}"


def _joined(name: str) -> str:
    return " ".join(name.split())


def _dims(shape: str) -> tuple[int, ...]:
    return tuple(int(dim) for dim in shape.split(",") if dim)


def _arguments(row: Row) -> list[tuple[str, tuple[int, ...]]]:
    """How many tensors and of which shape, for each argument that is one or a list of them."""
    return [
        (str(len(shape)), shape[0]) if isinstance(shape[0], tuple) else ("", shape)
        for shape in row.shapes
        if shape
    ]


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
    place, reported, per_call, time, of_row = line.cells
    parts = reported.strip("`").split("…")
    if not 0 < int(place) <= len(rows):
        yield f"there is no row {place}"
        return
    row = rows[int(place) - 1]
    kernels = run.kernels_of[row.uid]
    for name in {kernel["name"] for kernel in kernels}:
        same = [kernel for kernel in kernels if kernel["name"] == name]
        count = sum(kernel["count"] for kernel in same)
        total_us = sum(kernel["total_us"] for kernel in same)
        expected = (
            (per_call, count / row.calls),
            *_launch_times(time, same, total_us / count),
            (of_row, share(total_us, row.time_us)),
        )
        is_named = all(part in _joined(name) for part in parts)
        if is_named and all(differs(cell, value) is None for cell, value in expected):
            return
    yield f"no kernel of row {place} has these numbers"


def _launch_times(
    cell: str, kernels: list[dict[str, Any]], mean_us: float
) -> list[tuple[str, float]]:
    """The mean of a launch, or the range where the times of the calls lie apart."""
    shortest, is_range, longest = cell.partition(" to ")
    if not is_range:
        return [(cell, mean_us / 1000)]
    return [
        (shortest, min(kernel["min_us"] for kernel in kernels) / 1000),
        (longest, max(kernel["max_us"] for kernel in kernels) / 1000),
    ]
