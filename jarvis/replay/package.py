"""Replay packages: a zip with the calls of one operator and a program that times them.

A package is made for every operator that takes much of compute at a low efficiency, and on demand
for any other. Building one needs no framework; running it needs torch and nothing else.
"""

import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from jarvis.analyses.operations import weighted_efficiency
from jarvis.errors import ReplayError
from jarvis.replay.calls import replay_ir
from jarvis.run import Run
from jarvis.workspace import RunPaths

AUTOMATIC_COMPUTE_PCT = 10.0
AUTOMATIC_EFFICIENCY_PCT = 30.0
"""An operator with a larger share of compute at a lower efficiency gets a package unasked."""

RUNNER = Path(__file__).with_name("runner.py")
IR_NAME, RUNNER_NAME, README_NAME = "replay_ir.json", "batched_replay.py", "README.md"
_EPOCH = (1980, 1, 1, 0, 0, 0)

README = """\
# Replay of {name}

The calls of `{name}` as a trace recorded them: {entries} distinct sets of arguments, {calls} calls.
Shapes, dtypes, strides and plain values are the recorded ones; the contents of tensors are drawn
at random. Made for a kernel team to investigate and optimize.

    python {runner} {ir} --device cuda

`--device cpu` tries the calls without a GPU, `--op-filter TEXT` and `--op-limit N` choose some of
them, `--stop-on-error` stops at the first failure, `-v` prints arguments and errors.

It needs Python and torch. For each call it prints mean and median time in µs over 100 iterations
after 50 warm-up iterations, and the mean times the number of calls. Exit code 1 where a call fails.

`{ir}` is a list of `{{"op_name", "count", "replay_ir": {{"list_pos_args", "list_kwargs"}}}}`; a
tensor is `{{"shape", "dtype", "strides", "init"}}`, where `init` is `normal`, `integers` (below
`high`) or null (left as it is).
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An operator with its package, or the reason why it has none.

    ``package`` is the file in the folder of packages, ``entries`` the calls in it, ``left_out``
    those of its rows that cannot be replayed.
    """

    op_name: str
    percent_of_compute: float
    efficiency_pct: float | None
    entries: int
    left_out: int
    package: str | None
    reason: str | None


def candidates(operations: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of each operator that gets a package unasked, most time first."""
    by_name = operations.sort("kernel_time_us", descending=True).partition_by(
        "name", maintain_order=True
    )
    for rows in by_name:
        efficiency = weighted_efficiency(rows)
        share = float(rows["percent_of_compute"].sum())
        if (
            efficiency is not None
            and share > AUTOMATIC_COMPUTE_PCT
            and efficiency < AUTOMATIC_EFFICIENCY_PCT
        ):
            yield rows


def write_packages(run: Run, root: Path) -> list[Package]:
    """Write the packages of a run below its directory ``root``, and an index of them."""
    packages = [write_package(rows, root) for rows in candidates(run.table("operations"))]
    packages.sort(key=lambda package: -package.percent_of_compute)
    index = RunPaths(root).replay_index
    index.parent.mkdir(parents=True, exist_ok=True)
    content = {"rule": automatic_rule(), "operations": [asdict(p) for p in packages]}
    index.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return packages


def automatic_rule() -> str:
    """The rule by which packages are made unasked, in words."""
    return (
        f"more than {AUTOMATIC_COMPUTE_PCT:g}% of compute below {AUTOMATIC_EFFICIENCY_PCT:g}% of "
        "its roofline"
    )


def write_package(rows: pl.DataFrame, root: Path) -> Package:
    """Write the package of one operator, given by its rows of the operations table.

    Rows that cannot be replayed are left out; without any other there is no package but a reason.
    """
    name = str(rows["name"][0])
    entries, reasons = replay_entries(rows.iter_rows(named=True))
    if entries:
        paths = RunPaths(root)
        path = paths.replay_package(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(package_bytes(name, entries))
        paths.replay_ir(name).write_bytes(_dumped(entries))
    return Package(
        op_name=name,
        percent_of_compute=float(rows["percent_of_compute"].sum()),
        efficiency_pct=weighted_efficiency(rows),
        entries=len(entries),
        left_out=len(reasons),
        package=path.name if entries else None,
        reason=reasons[0] if reasons else None,
    )


def replay_entries(rows: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The calls of operations rows, each set of arguments once, and why others are left out."""
    by_call: dict[bytes, dict[str, Any]] = {}
    reasons = []
    for row in rows:
        try:
            ir = replay_ir(row)
        except ReplayError as error:
            reasons.append(str(error))
            continue
        entry = {"op_name": row["name"], "count": 0, "replay_ir": ir}
        kept = by_call.setdefault(orjson.dumps(ir), entry)
        kept["count"] += row["operation_count"]
    return list(by_call.values()), reasons


def package_bytes(name: str, entries: list[dict[str, Any]]) -> bytes:
    """The zip: the calls, the program, and a readme; the same calls give the same bytes."""
    readme = README.format(
        name=name,
        entries=len(entries),
        calls=sum(entry["count"] for entry in entries),
        runner=RUNNER_NAME,
        ir=IR_NAME,
    )
    members = {
        IR_NAME: _dumped(entries),
        RUNNER_NAME: RUNNER.read_bytes(),
        README_NAME: readme.encode(),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, content in members.items():
            info = zipfile.ZipInfo(member, _EPOCH)
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _dumped(entries: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
