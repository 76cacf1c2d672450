"""What can be taken home from a run directory, made when it is asked for."""

import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import polars as pl

from jarvis.analyses.operations import weighted_efficiency
from jarvis.replay.package import package_bytes, replay_entries
from jarvis.reports import load_reporters
from jarvis.run import Run
from jarvis.workspace import RunPaths

REPLAY_OFFERED_PCT = 1.0
"""Operators from this share of compute on are listed for replay."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every member has this date, so that the same files give the same archive."""


@dataclass(frozen=True, slots=True)
class Replay:
    """An operator and its package: one was made with the analysis, one can be made, or ``reason``
    says why it cannot."""

    name: str
    percent_of_compute: float
    efficiency_pct: float | None
    is_ready: bool
    reason: str | None


def zipped(root: Path, parts: Iterable[Path] | None = None) -> bytes:
    """A zip of ``parts`` (files or folders in ``root``; default all of it), named from ``root``.

    Parts that the run does not have are left out.
    """
    chosen = [root] if parts is None else list(parts)
    files = {file for part in chosen for file in _files(part)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files):
            member = zipfile.ZipInfo(str(file.relative_to(root)), _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, file.read_bytes())
    return buffer.getvalue()


def exported(run: Run, format_name: str) -> bytes:
    """The file that a report format of one file writes."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        load_reporters()[format_name].render(run, out)
        return out.read_bytes()


def replays(run: Run, root: Path) -> list[Replay]:
    """The operators that take much of compute, most first, and what became of their packages."""
    index = RunPaths(root).replay_index
    noted = orjson.loads(index.read_bytes())["operations"] if index.is_file() else []
    by_name = {entry["op_name"]: entry for entry in noted}
    groups = run.table("operations").partition_by("name", maintain_order=True)
    found = [
        _replay(rows, by_name)
        for rows in groups
        if rows["percent_of_compute"].sum() >= REPLAY_OFFERED_PCT or rows["name"][0] in by_name
    ]
    return sorted(found, key=lambda replay: -replay.percent_of_compute)


def replay_package(run: Run, name: str) -> bytes | str:
    """The package of one operator, or the sentence that says why it cannot have one."""
    rows = run.table("operations").filter(pl.col("name") == name)
    entries, reasons = replay_entries(rows.iter_rows(named=True))
    return package_bytes(name, entries) if entries else reasons[0]


def _replay(rows: pl.DataFrame, noted: dict[str, dict[str, object]]) -> Replay:
    name = str(rows["name"][0])
    entry = noted.get(name)
    is_ready = entry is not None and entry["package"] is not None
    entries, reasons = ([], []) if is_ready else replay_entries(rows.iter_rows(named=True))
    return Replay(
        name,
        float(rows["percent_of_compute"].sum()),
        weighted_efficiency(rows),
        is_ready,
        None if is_ready or entries else reasons[0],
    )


def _files(part: Path) -> Iterable[Path]:
    return [part] if part.is_file() else (p for p in part.rglob("*") if p.is_file())
