"""Digits in shapes, strides, tiles and quoted names, looked up where they come from."""

import re
from collections.abc import Iterator

from tests.arithmetic.printed import COMMENT, LINK, QUOTED, SHAPE, SIDES
from tests.arithmetic.run_directory import Row, RunDirectory

CUT = "…"
EXAMPLES = ("schedule(wait=1, warmup=3, active=3)",)
"""Code that the reports suggest."""


def shape_problems(line: str, rows: list[Row]) -> Iterator[str]:
    """Shapes and strides outside of quotes that no tensor of the card's rows has, and sides of
    filters and tiles that neither parameters nor kernel names hold."""
    text = QUOTED.sub("", LINK.sub("", COMMENT.sub("", line)))
    for shape in SHAPE.findall(text):
        dims = tuple(int(dim) for dim in re.findall(r"\d+", shape))
        if not any(dims in row.dims for row in rows):
            yield f"no tensor of the card is {shape}"
    for sides in SIDES.findall(SHAPE.sub("", text)):
        if not any(_has_sides(row, sides) for row in rows):
            yield f"nothing of the card is {sides}"


def _has_sides(row: Row, sides: str) -> bool:
    dims = [int(side) for side in sides.split("x")]
    filter_sides = list((row.parameters.get("filter_shape") or ())[2:])
    dilation = list(row.parameters.get("dilation") or ())
    is_tile = any(re.search(rf"(?<!\d){sides}(?!\d)", _tile_text(k["name"])) for k in row.kernels)
    return dims in (filter_sides, dilation) or is_tile


def _tile_text(kernel: str) -> str:
    """A kernel's name with the separators of its tile alike."""
    return kernel.replace("_", "x")


def name_problems(line: str, names: list[str]) -> Iterator[str]:
    """Quoted names with digits of their own that the run's files do not hold."""
    for quoted in QUOTED.findall(LINK.sub("", line)):
        name = quoted.strip("`")
        parts = [part for part in name.split(CUT) if re.search(r"\d", part)]
        if (
            parts
            and name not in EXAMPLES
            and not any(all(part in whole for part in parts) for whole in names)
        ):
            yield f"no name in the run's files is `{name}`"


def names_of(run: RunDirectory) -> list[str]:
    """All names that a report of the run may quote."""
    found: set[str] = set()
    for row in run.rows.values():
        found |= {row.name, *(kernel["name"] for kernel in row.kernels)}
        found |= {row.cells[column] for column in ("entry_point", "module_path", "called_from")}
        found |= {kernel["name"] for kernel in run.kernels_of[row.uid]}
    for table, columns in TABLES.items():
        found |= {str(row[column]) for row in run.table(table) for column in columns}
    return [" ".join(name.replace("`", "'").split()) for name in found]


TABLES = {
    "idle_gaps": ("launch_name", "launcher_name", "host_call", "host_op"),
    "fusion_chains": ("scope_name",),
    "fusion_steps": ("name", "kernel"),
    "gpu_work": ("name", "launcher_name"),
}
"""Columns of names beside those of the rows."""
