"""Digits in shapes, strides, tiles and names, looked up where they come from."""

import re
from collections.abc import Iterator

from tests.arithmetic.printed import SHAPE, SIDES
from tests.arithmetic.run_directory import Row, RunDirectory

CUT = "…"


def shape_problems(text: str, rows: list[Row], *, is_tile: bool) -> Iterator[str]:
    """Shapes and strides that no tensor of the rows has, sides of filters that no parameter, and of
    tiles that no kernel name has."""
    for shape in SHAPE.findall(text):
        dims = tuple(int(dim) for dim in re.findall(r"\d+", shape))
        if not any(dims in row.dims for row in rows):
            yield f"no tensor of the finding is {shape}"
    for sides in SIDES.findall(SHAPE.sub("", text)):
        if not any(_has_sides(row, sides, is_tile) for row in rows):
            yield f"nothing of the finding is {sides}"


def _has_sides(row: Row, sides: str, is_tile: bool) -> bool:
    if is_tile:
        tile = rf"(?<!\d){sides}(?!\d)"
        return any(re.search(tile, _tile_text(kernel["name"])) for kernel in row.kernels)
    filter_sides = list((row.parameters.get("filter_shape") or ())[2:])
    dilation = list(row.parameters.get("dilation") or ())
    return [int(side) for side in sides.split("x")] in (filter_sides, dilation)


def _tile_text(kernel: str) -> str:
    """A kernel's name with the separators of its tile alike."""
    return kernel.replace("_", "x")


def name_problems(text: str, names: list[str]) -> Iterator[str]:
    """A name with digits that the files of the run do not hold."""
    name = " ".join(text.replace("`", " ").split())
    parts = [part for part in re.split(rf"{CUT}|\s(?=MT\d)", name) if re.search(r"\d", part)]
    if parts and not any(all(part in whole for part in parts) for whole in names):
        yield f"no name in the files of the run is {name!r}"


def names_of(run: RunDirectory) -> list[str]:
    """All names that a report of the run may quote."""
    found: set[str] = set()
    for row in run.rows.values():
        found |= {row.name, *(kernel["name"] for kernel in row.kernels)}
        found |= {row.cells[column] for column in ("entry_point", "module_path", "called_from")}
        found |= {kernel["name"] for kernel in run.kernels_of[row.uid]}
    for table, columns in TABLES.items():
        found |= {str(row.get(column)) for row in run.table(table) for column in columns}
    return [" ".join(name.replace("`", "'").split()) for name in found]


PLACE = ("host_call", "host_op", "host_frame", "host_annotation")
"""Columns on where the host is during a gap."""

TABLES = {
    "idle_gaps": ("launch_name", "launcher_name", *PLACE),
    "step_gaps": PLACE,
    "steps": ("name",),
    "fusion_chains": ("scope_name",),
    "fusion_steps": ("name", "kernel"),
    "gpu_work": ("name", "launcher_name"),
    "host_slices": ("name",),
}
"""Columns of names beside those of the rows."""
