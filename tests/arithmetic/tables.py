"""Tables in reports, cell by cell against what their rows must hold."""

import html
import math
import re
from collections.abc import Iterator
from typing import Any

from tests.arithmetic.documents import Line
from tests.arithmetic.evidence import fact_of
from tests.arithmetic.facts_groups import steps_of
from tests.arithmetic.printed import numbers, reading
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.savings import projected
from tests.arithmetic.sentences import problems
from tests.arithmetic.units import Facts, share, time_ms

MISSING = "—"
PROJECTION = ("Op Time", "Op Improvement", "Compute Improvement", "E2E Improvement")
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


def evidence_problems(line: Line, run: RunDirectory, facts: Facts) -> Iterator[str]:
    """A line of the evidence, by its label."""
    assert line.finding is not None
    label, cell = line.cells
    value = line.finding["evidence"].get(label)
    if label == "Part of a chain to fuse":
        yield from chain_problems(cell, run, {op["uid"] for op in line.finding["operations"]})
    elif label == "Longest kernels":
        yield from _longest_problems(cell, facts)
    elif isinstance(value, str):
        yield from problems(f"{label}: {cell}", facts)
    if isinstance(value, str):
        return
    expected = facts.get(fact_of(line.finding["check"], label))
    if not expected:
        yield f"nothing accounts for {label}"
    elif problem := differs(cell, expected[0]):
        yield f"{label}: {problem}"


CHAIN = re.compile(
    r"(?:([\d.,]+ .s) in )?((?:`[^`]*`(?:, )?)+ behind `[^`]*` in )?`([^`]*)` "
    r"\(([\d,]+) kernels?, ([\d,]+) instances?, ([\d.,]+ .s) in all\)"
)


def chain_problems(text: str, run: RunDirectory, uids: set[int]) -> Iterator[str]:
    """Chains by name with their kernels, instances and time, and the part of it that ``uids``
    take."""
    text, *feeding = re.split(r"(?= makes what attention reads)", text)
    told = CHAIN.findall(text)
    if len(told) < text.count(" in all)") or len(list(numbers(text))) != 4 * len(told) - sum(
        not part for part, *_ in told
    ):
        yield "nothing accounts for all numbers"
    for part, behind, name, kernels, instances, time in told:
        (chain,) = [c for c in run.fusion_chains if (_behind(c), c["scope_name"]) == (behind, name)]
        steps = steps_of(run, chain)
        own_us = math.fsum(s["kernel_time_us"] for s in steps if s["operation_uid"] in uids)
        expected = (
            (kernels, chain["kernel_count"] / chain["instance_count"]),
            (instances, chain["instance_count"]),
            (time, math.fsum(step["kernel_time_us"] for step in steps) / 1000),
            *([(part, own_us / 1000)] if part else []),
        )
        for cell, value in expected:
            if problem := differs(cell, value):
                yield f"{name}: {problem}"
        for tail in feeding:
            yield from _feeding_problems(tail, chain, run)


def _behind(chain: dict[str, Any]) -> str:
    """The steps of a chain and the product that they follow; empty where they follow none."""
    if chain["product_name"] is None:
        return ""
    steps = ", ".join(f"`{name}`" for name in chain["step_names"])
    return f"{steps} behind `{chain['product_name']}` in "


def _feeding_problems(text: str, chain: dict[str, Any], run: RunDirectory) -> Iterator[str]:
    """How many instances of a chain attention reads, no more than it has calls, and their time."""
    told = re.search(r" in ([\d,]+) of them, ([\d.,]+ .s);", text)
    count, time_ms = chain["attention_count"], chain["attention_time_us"] / 1000
    calls = sum(row.calls for row in run.category("sdpa_fwd"))
    if not 0 < count <= min(chain["instance_count"], calls):
        yield f"attention reads {count} of {chain['instance_count']} in {calls} calls"
    if time_ms > chain["kernel_time_us"] / 1000 * (1 + 1e-9):
        yield f"a part of {time_ms} ms is more than the whole"
    if told:
        for cell, value in ((told[1], count), (told[2], time_ms)):
            if problem := differs(cell, value):
                yield problem
    elif list(numbers(text)) or count != chain["instance_count"]:
        yield f"attention reads {count} of {chain['instance_count']}"


def _longest_problems(cell: str, facts: Facts) -> Iterator[str]:
    """How often and how long the calls of the first rows run, row by row."""
    told = re.findall(r"([\d,]+) x (\S+ .s) of `", cell)
    for place, (calls, mean) in enumerate(told):
        if differs(calls, facts["row_calls"][place]) or differs(mean, facts["row_mean_ms"][place]):
            yield f"{calls} x {mean} is not row {place + 1}"


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
    if "% of Category" in cells:
        yield from _argument_problems(cells["Operation"], row)


def _argument_problems(cell: str, row: Row) -> Iterator[str]:
    """The arguments behind an operator's name, perhaps cut in the middle."""
    told = re.sub(r"^`[^`]*`", "", cell).strip()
    first, _, last = told.partition("…")
    known = row.cells["arguments"]
    if told != "(scalars)" and not (known.startswith(first) and known.endswith(last)):
        yield f"Operation: {told} in place of {known}"


def tool_problems(line: Line, row: Row, run: RunDirectory) -> Iterator[str]:
    """What a table for other tools has beside: names, arguments, the share of GPU wall time."""
    cells = dict(zip(line.columns, map(html.unescape, line.cells), strict=True))
    if problem := differs(cells["%E2E"], share(row.time_us / 1000, run.total_ms)):
        yield f"%E2E: {problem}"
    if cells["Operation"] != row.name:
        yield f"Operation: {cells['Operation']} in place of {row.name}"
    told = re.findall(r"(?:(\d+) x )?\(([\d,]+)\)", cells["Args"])
    if [(count, _dims(shape)) for count, shape in told] != _arguments(row):
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
    place, told, per_call, mean, of_row = line.cells
    parts = told.strip("`").split("…")
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
            (mean, total_us / count / 1000),
            (of_row, share(total_us, row.time_us)),
        )
        is_named = all(part in _joined(name) for part in parts)
        if is_named and all(differs(cell, value) is None for cell, value in expected):
            return
    yield f"no kernel of row {place} has these numbers"


def shown(rows: list[Row], run: RunDirectory) -> list[Row]:
    """The rows of a stakeholder's table: the first six, and any above 5% of compute."""
    return [
        row
        for place, row in enumerate(rows)
        if place < 6 or share(row.time_us / 1000, run.compute_ms) >= 5
    ]
