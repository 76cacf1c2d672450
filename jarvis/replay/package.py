"""Replay packages: a zip with the calls of one operator and a program that times them.

Every operator that takes much of compute at a low efficiency gets a package, any other one on
demand. Building a package needs no framework; running it needs only torch.
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
from jarvis.core.errors import ReplayError
from jarvis.core.output import ZIP_EPOCH, write_output
from jarvis.core.workspace import RunPaths
from jarvis.recorded_calls.calls import replay_ir
from jarvis.recorded_calls.schema import is_single_kernel, operator_of
from jarvis.run import Run
from jarvis.schemas.names import C

AUTOMATIC_COMPUTE_PCT = 10.0
AUTOMATIC_EFFICIENCY_PCT = 30.0
"""Operators with a larger share of compute at a lower efficiency get a package automatically."""

RUNNER_FOLDER = Path(__file__).with_name("runner")
"""The program that a package includes; it does not import Jarvis."""

IR_NAME, RUNNER_NAME, README_NAME = "replay_ir.json", "batched_replay.py", "README.md"

README = """\
# Replay of {title}

The calls of {title} as recorded in a trace{gpu}: {entries} distinct sets of arguments, {calls}
calls. Shapes, dtypes, strides and plain values are as recorded; the contents of tensors are random,
and indices are within bounds. Intended for a kernel team to investigate and optimize.

    python {runner} {ir} --device cuda

`--device cuda` is any GPU that torch supports, `--device cpu` runs the calls without one.
`--op-filter TEXT` and `--op-limit N` select calls, `--warmup N` and `--iterations N` set how often
each one runs (default: 50 and 100), `--memory-limit GB` and `--work-limit GFLOP` skip calls above
these limits, `--stop-on-error` stops at the first failure, `--json` prints the results for a
program, `-v` prints arguments and errors. Requires only Python and torch. The exit code is 1 if a
call fails.

For each call it prints mean and median time in µs, the resulting arithmetic and bytes per second,
and the mean times the number of calls. On a GPU it also prints the share of the roofline, from the
FLOPs and bytes of the call and the peaks used in the analysis{peaks}, and the time of the same
call's kernels in the trace. A call of less than about 10 µs is shorter than its launch, so its time
here is longer than that of its kernels. Operators without a kernel for the device are replayed by
an equivalent, which is named and not timed.

`{ir}` is a list of calls: `op_name`, `count`, `gpu`, `trace_kernel_time_us` (mean of one call),
`flops`, `bytes`, `compute`, `peak_tflops`, `peak_tb_per_s`, `peaks_of`, and `replay_ir` with
`overload`, `list_pos_args` and `list_kwargs`. A tensor is `shape`, `dtype`, `strides` and `init`:
`normal`, `uniform` (0 to 1), `integers` (from `low`, else 0, below `high`), `offsets` and `ends`
(of equal pieces of `high`) or null (uninitialized). The dtype of tensors in lists is not recorded;
it is derived from kernel names, or one of the same size if these only copy.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The GPUs whose times and peaks are packaged with the calls: names, None if not known."""

    gpu: str | None
    peaks_of: str | None


UNKNOWN_ORIGIN = Origin(None, None)


def origin_of(run: Run) -> Origin:
    """Return the GPU of the trace, and the one whose peaks the run uses."""
    names, hardware = run.manifest.trace.device_names, run.manifest.hardware
    return Origin(names[0] if names else None, hardware.name if hardware else None)


@dataclass(frozen=True, slots=True)
class Package:
    """An operator with its package, or the reason why it has none.

    ``package`` is the file in the folder of packages, ``entries`` the calls in it, ``left_out`` its
    rows that cannot be replayed.
    """

    op_name: str
    percent_of_compute: float
    efficiency_pct: float | None
    entries: int
    left_out: int
    package: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row of the operations table that cannot be packaged."""

    uid: int
    op_name: str
    kernel_time_us: float
    reason: str


def candidates(operations: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each operator that gets a package automatically, most time first."""
    by_name = operations.sort(C.kernel_time_us, descending=True).partition_by(
        C.name, maintain_order=True
    )
    for rows in by_name:
        efficiency = weighted_efficiency(rows)
        share = float(rows[C.percent_of_compute].sum())
        if (
            efficiency is not None
            and share > AUTOMATIC_COMPUTE_PCT
            and efficiency < AUTOMATIC_EFFICIENCY_PCT
        ):
            yield rows


def automatic_operators(run: Run) -> frozenset[str]:
    """Return the operators that get a package automatically."""
    return frozenset(str(rows[C.name][0]) for rows in candidates(run.table("operations")))


def write_packages(run: Run, root: Path) -> list[Package]:
    """Write the packages of a run below its directory ``root``, and an index of them."""
    origin = origin_of(run)
    packages = [write_package(rows, root, origin) for rows in candidates(run.table("operations"))]
    packages.sort(key=lambda package: -package.percent_of_compute)
    index = RunPaths(root).replay_index
    index.parent.mkdir(parents=True, exist_ok=True)
    content = {"rule": automatic_rule(), "operations": [asdict(p) for p in packages]}
    write_output(index, orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return packages


def automatic_rule() -> str:
    """Return the rule for automatic packages, in words."""
    return (
        f"more than {AUTOMATIC_COMPUTE_PCT:g}% of compute below {AUTOMATIC_EFFICIENCY_PCT:g}% of "
        "its roofline"
    )


def write_package(rows: pl.DataFrame, root: Path, origin: Origin = UNKNOWN_ORIGIN) -> Package:
    """Write the package of one operator, given by its rows of the operations table.

    Rows that cannot be replayed are skipped; if none remain, the result has a reason instead of a
    package.
    """
    name = str(rows[C.name][0])
    entries, refusals = replay_entries(rows.iter_rows(named=True), origin)
    if entries:
        paths = RunPaths(root)
        path = paths.replay_package(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, package_bytes(f"`{name}`", entries))
        write_output(paths.replay_ir(name), _dumped(entries))
    return Package(
        op_name=name,
        percent_of_compute=float(rows[C.percent_of_compute].sum()),
        efficiency_pct=weighted_efficiency(rows),
        entries=len(entries),
        left_out=len(refusals),
        package=path.name if entries else None,
        reason=refusals[0].reason if refusals else None,
    )


def replay_entries(
    rows: Iterable[dict[str, Any]], origin: Origin = UNKNOWN_ORIGIN
) -> tuple[list[dict[str, Any]], list[Refusal]]:
    """Return the calls of operations rows, without duplicate arguments, and the skipped rows.

    Rows of the single kernels of one call are one entry, without a time from the trace.
    """
    by_call: dict[bytes, dict[str, Any]] = {}
    row_names = {}
    refusals = []
    for row in rows:
        try:
            ir = replay_ir(row)
        except ReplayError as error:
            name, time_us = operator_of(row[C.name]), row[C.kernel_time_us]
            refusals.append(Refusal(row[C.uid], name, time_us, str(error)))
            continue
        key = orjson.dumps((operator_of(row[C.name]), ir))
        if key not in by_call:
            by_call[key], row_names[key] = _entry(row, ir, origin), row[C.name]
        elif row_names[key] == row[C.name]:
            _add_calls(by_call[key], row)
    return list(by_call.values()), refusals


def _entry(row: dict[str, Any], ir: dict[str, Any], origin: Origin) -> dict[str, Any]:
    figures = (C.flops, C.bytes, C.compute, C.peak_tflops, C.peak_tb_per_s)
    is_whole = not is_single_kernel(row[C.name])
    return {
        "op_name": operator_of(row[C.name]),
        "count": row[C.operation_count],
        "gpu": origin.gpu,
        "trace_kernel_time_us": row[C.kernel_time_us_mean] if is_whole else None,
        **{figure: row[figure] if is_whole else None for figure in figures},
        "peaks_of": origin.peaks_of,
        "replay_ir": ir,
    }


def _add_calls(entry: dict[str, Any], row: dict[str, Any]) -> None:
    """Add the calls of another row with the same arguments; times are means over all calls."""
    before, more = entry["count"], row[C.operation_count]
    entry["count"] = before + more
    if entry["trace_kernel_time_us"] is not None:
        total_us = entry["trace_kernel_time_us"] * before + row[C.kernel_time_us_mean] * more
        entry["trace_kernel_time_us"] = total_us / entry["count"]


def tensors_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tensors among the arguments of a call, those of lists individually."""
    ir = entry["replay_ir"]
    values = [item["value"] for item in (*ir["list_pos_args"], *ir["list_kwargs"])]
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [one for one in flat if isinstance(one, dict)]


def package_bytes(title: str, entries: list[dict[str, Any]]) -> bytes:
    """Return the zip: the calls, the program, and a readme; equal calls give equal bytes."""
    gpu, peaks = entries[0]["gpu"], entries[0]["peaks_of"]
    readme = README.format(
        title=title,
        gpu=f" of {gpu}" if gpu else "",
        peaks=f" ({peaks})" if peaks else "",
        entries=len(entries),
        calls=sum(entry["count"] for entry in entries),
        runner=RUNNER_NAME,
        ir=IR_NAME,
    )
    programs = {path.name: path.read_bytes() for path in sorted(RUNNER_FOLDER.glob("*.py"))}
    members = {IR_NAME: _dumped(entries), **programs, README_NAME: readme.encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, content in members.items():
            info = zipfile.ZipInfo(member, ZIP_EPOCH)
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _dumped(entries: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
