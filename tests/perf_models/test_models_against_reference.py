"""The formulas against the roofline sheets and unified rows that TraceLens gives for real traces.

Every number and every parameter must be equal, but for the deviations named here.
"""

import ast
import csv
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from jarvis.perf_models import OpCost, OpSignature, find_model
from jarvis.tracelens.models import is_in_tracelens

csv.field_size_limit(sys.maxsize)

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
ARGUMENTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
KERNEL_NAME = re.compile(r"'name': '([^']*)'")
FAMILIES = (
    "GEMM",
    "SDPA_fwd",
    "CONV_fwd",
    "CONV_bwd",
    "UnaryElementwise",
    "BinaryElementwise",
    "Reduce_fwd",
    "Reduce_bwd",
    "Normalization",
)
NUMBERS = frozenset({"flops", "bytes"})
WEIGHTLESS = "the reference takes an absent weight or bias for a given one"
NORM_FLAGS = frozenset({"flops", "bytes", "has_bias", "is_affine"})


@dataclass(frozen=True)
class Deviation:
    """Where we are right and the reference is not: which cells, for which calls, and why."""

    fields: frozenset[str]
    reason: str
    applies: Callable[[OpSignature], bool]


def _absent(*indices: int) -> Callable[[OpSignature], bool]:
    return lambda op: any(not op.input_dims[i] for i in indices)


DEVIATIONS = {
    "aten::convolution": Deviation(
        NUMBERS | {"bias"},
        "the reference sees no bias in a call that lists nine arguments",
        lambda op: bool(op.input_dims[2]),
    ),
    "aten::mean": Deviation(
        frozenset({"bytes", "num_output_elems"}),
        "the reference does not read dims that are recorded as text",
        lambda op: op.concrete_inputs[1] not in ("", "[]"),
    ),
    "aten::sum": Deviation(
        frozenset({"bytes", "num_output_elems"}),
        "the reference does not read dims that are recorded as text",
        lambda op: op.concrete_inputs[1] not in ("", "[]"),
    ),
    "aten::batch_norm": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(1, 2)),
    "aten::native_batch_norm": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(1, 2)),
    "aten::instance_norm": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(1, 2)),
    "aten::layer_norm": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(2, 3)),
    "aten::group_norm": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(2, 3)),
    "aten::_fused_rms_norm": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(2)),
    "aten::_fused_rms_norm_backward": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(4)),
    "aten::native_batch_norm_backward": Deviation(NORM_FLAGS, WEIGHTLESS, _absent(2)),
    "aten::native_group_norm_backward": Deviation(
        frozenset({"bytes", "num_channels", "has_bias", "is_affine"}),
        "the reference divides the channels by the groups, and takes an absent weight for given",
        lambda op: True,
    ),
    "triton": Deviation(
        frozenset({"bytes", "compute"}),
        "the reference has no peak for its dtype text, and adds a write that is already counted",
        lambda op: True,
    ),
}


@dataclass(frozen=True)
class Row:
    """One row of a reference report."""

    source: str
    op: OpSignature
    gflops: str
    data_moved_mib: str
    compute: str
    params: dict[str, Any]


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def _signature(row: dict[str, str], suffix: str, kernels: str) -> OpSignature:
    dims, types, strides, concrete = (
        _tuples(ast.literal_eval(row[f"{column}{suffix}"])) for column in ARGUMENTS
    )
    names = tuple(KERNEL_NAME.findall(kernels))
    return OpSignature(row["name"], dims, types, strides, concrete, kernel_names=names)


def _read(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def _literal(text: str) -> Any:
    try:
        return _tuples(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text or None


def _sheet_rows(root: Path, family: str) -> Iterator[Row]:
    for path in sorted(root.glob(f"reference/*/default/{family}.csv")):
        for row in _read(path):
            yield Row(
                str(path.relative_to(root)),
                _signature(row, "_first", row["kernel_details__summarize_kernel_stats"]),
                row["GFLOPS_first"],
                row["Data Moved (MB)_first"],
                row["Compute Spec"],
                {
                    key.removeprefix("param: "): _literal(value)
                    for key, value in row.items()
                    if key.startswith("param: ")
                },
            )


def _unified_rows(root: Path) -> Iterator[Row]:
    for path in sorted(root.glob("reference/*/default/unified_perf_summary.csv")):
        for row in _read(path):
            if row["has_perf_model"] == "True" and row["GFLOPS"]:
                yield Row(
                    str(path.relative_to(root)),
                    _signature(row, "", row["kernel_details_summary"]),
                    row["GFLOPS"],
                    row["Data Moved (MB)"],
                    row["Compute Spec"],
                    _literal(row["perf_params"]),
                )


def _differences(row: Row, cost: OpCost) -> set[str]:
    found = set()
    assert cost.flops is not None
    if not math.isclose(cost.flops / 1e9, float(row.gflops), rel_tol=1e-12):
        found.add("flops")
    moved = math.nan if cost.bytes is None else cost.bytes / MIB
    if not math.isclose(moved, float(row.data_moved_mib or "nan"), rel_tol=1e-12):
        found.add("bytes")
    if cost.compute != row.compute:
        found.add("compute")
    ours = {key: _tuples(value) for key, value in cost.params.items()}
    keys = ours.keys() | {key for key, value in row.params.items() if value is not None}
    found |= {key for key in keys if ours.get(key) != row.params.get(key)}
    return found


def _check(row: Row, cost: OpCost) -> None:
    key = "triton" if row.op.name.startswith("triton_") else row.op.name
    deviation = DEVIATIONS.get(key)
    allowed = deviation.fields if deviation and deviation.applies(row.op) else frozenset()
    wrong = _differences(row, cost) - allowed
    assert not wrong, f"{row.source}: {row.op} differs in {sorted(wrong)}: {cost} against {row}"


@pytest.mark.parametrize("family", FAMILIES)
def test_roofline_sheets(reference_root: Path, family: str) -> None:
    rows = list(_sheet_rows(reference_root, family))
    assert rows
    for row in rows:
        model = find_model(row.op.name)
        assert model is not None
        assert model.sheet == family.removesuffix("_fwd").removesuffix("_bwd")
        own_backward = model.category.endswith("_bwd")
        formula = model.backward if family.endswith("_bwd") and not own_backward else model.cost
        assert formula is not None
        _check(row, formula(row.op))


def test_params_come_in_the_order_of_the_sheets(reference_root: Path) -> None:
    rows = [row for row in _unified_rows(reference_root) if row.params]
    assert len(rows) > 100
    for row in rows:
        model = find_model(row.op.name)
        assert model is not None
        assert list(model.cost(row.op).params) == list(row.params), row.source


def test_unified_rows(reference_root: Path) -> None:
    for row in _unified_rows(reference_root):
        model = find_model(row.op.name)
        assert model is not None
        assert is_in_tracelens(model)
        _check(row, model.cost(row.op))


def test_deviations_apply_to_rows_that_differ(reference_root: Path) -> None:
    """No deviation is named for nothing."""
    unused = set(DEVIATIONS)
    rows = [row for family in FAMILIES for row in _sheet_rows(reference_root, family)]
    for row in (*rows, *_unified_rows(reference_root)):
        key = "triton" if row.op.name.startswith("triton_") else row.op.name
        model = find_model(row.op.name)
        if key in unused and model is not None and _differences(row, model.cost(row.op)):
            unused.discard(key)
    assert not unused


def test_deviations_are_documented() -> None:
    documented = tomllib.loads((ROOT / "docs" / "deviations.toml").read_text())["deviation"]
    patterns = [pattern for entry in documented for pattern in entry["names"]]
    for name in DEVIATIONS:
        op = "triton_poi_fused_add_0" if name == "triton" else name
        assert any(fnmatchcase(op, pattern) for pattern in patterns), name
