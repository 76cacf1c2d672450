"""Read the capture traces of folders, archives and files, and identify what each has captured."""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import polars as pl

from jarvis.capture.windows import (
    Bounds,
    Window,
    capture_bounds,
    is_capture_trace,
    is_eager_trace,
    read_capture,
    with_launched_kernels,
)
from jarvis.core.errors import JarvisError
from jarvis.core.unpacking import DAMAGE, TooLargeError, chunks, open_archive, unpacked_member
from jarvis.perf_models.step_annotation import captured_batch
from jarvis.perf_report.serving.repetition import repeated_calls
from jarvis.perf_report.timeline.steps import StepSource, step_marks
from jarvis.schemas.names import C
from jarvis.trace import SUFFIXES, Trace
from jarvis.trace.links import GRAPH_LAUNCHES

DETAILS = "execution_details.json"
"""File beside the captures with the batch size of each, which some engines write."""

FULL, PIECEWISE, EAGER = "FULL", "PIECEWISE", "EAGER"

_BATCH = re.compile(r"(?:^|_)bs_?(\d+)")
_QUERY = re.compile(r"_q_?(\d+)")
_RANK = re.compile(r"rank_?(\d+)")


class CaptureError(JarvisError):
    """Capture traces cannot be used."""


@dataclass(frozen=True)
class Capture:
    """A capture trace: its file and what was captured; None where nothing states it.

    ``batch`` is the number of tokens of the graph, ``phase`` a word of the annotation. ``step`` is
    the time of one step of a trace without graphs, whose calls launched the kernels themselves.
    """

    file: str
    trace: Trace
    batch: int | None
    rank: int | None
    query_length: int | None
    phase: str | None
    step: Bounds | None = None

    @cached_property
    def windows(self) -> list[Window]:
        """The captures in the file, by start; or the step."""
        return [Window(self.trace, bounds) for bounds in self._bounds[0]]

    @property
    def unpaired(self) -> int:
        """Begins and ends of a capture without a counterpart, whose calls are left out."""
        return self._bounds[1]

    @property
    def mode(self) -> str:
        """PIECEWISE if the file has several captures, as parts of a step, else FULL; EAGER for a
        step without graphs."""
        if self.step is not None:
            return EAGER
        return PIECEWISE if len(self.windows) > 1 else FULL

    @cached_property
    def _bounds(self) -> tuple[list[Any], int]:
        return ([self.step], 0) if self.step else capture_bounds(self.trace.runtime)


def captures_sha256(places: Sequence[Path]) -> str:
    """Return the digest of the names and contents of all files in folders, and of single files.

    Raises:
        CaptureError: A file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for place in places:
            for path in sorted(place.iterdir()) if place.is_dir() else [place]:
                if path.is_file():
                    with path.open("rb") as file:
                        content = hashlib.file_digest(file, "sha256")
                    digest.update(f"{path.name}\n{content.hexdigest()}\n".encode())
    except OSError as error:
        raise CaptureError(f"{error.filename} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def read_captures(places: Sequence[Path]) -> list[Capture]:
    """Return the captures of files, folders and zip archives, by file name; nothing is written.

    Raises:
        CaptureError: A place does not exist, or none of its files is a capture trace.
        TraceError: A file cannot be read.
    """
    with ExitStack() as opened:
        found = [
            capture
            for place in places
            for capture in _captures_of(opened.enter_context(_folder_or_file(place)))
        ]
    if not any(capture.windows for capture in found):
        listed = ", ".join(str(place) for place in places)
        raise CaptureError(
            f"{listed}: no file records the capture of a graph, or the step without graphs. Pass "
            "the traces that the engine writes while it captures graphs."
        )
    return found


@contextmanager
def _folder_or_file(place: Path) -> Iterator[Path]:
    """Yield a folder or a trace; a zip archive is unpacked to a temporary folder."""
    if not place.exists():
        raise CaptureError(f"{place} does not exist. Pass a folder or files with capture traces.")
    if place.is_dir() or place.suffix != ".zip":
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="jarvis-captures-") as folder:
        try:
            with open_archive(place) as archive:
                for member in archive.infolist():
                    name = PurePosixPath(member.filename).name
                    if name.endswith((".json", ".json.gz")):
                        size = place.stat().st_size
                        with Path(folder, name).open("wb") as file:
                            file.writelines(chunks(unpacked_member(archive, member, size)))
        except (*DAMAGE, TooLargeError) as error:
            raise CaptureError(f"{place} cannot be unpacked: {error}.") from error
        yield Path(folder)


def _captures_of(place: Path) -> Iterator[Capture]:
    if not place.is_dir():
        yield from _captures(place, {})
        return
    details = _details(place / DETAILS)
    files = sorted(p for p in place.iterdir() if p.name.endswith(SUFFIXES) and p.name != DETAILS)
    for path in files:
        if not details or path.name in details:
            yield from _captures(path, details.get(path.name, {}))


def _details(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of DETAILS by file name; empty without a valid file."""
    try:
        entries = orjson.loads(path.read_bytes())
        return {PurePosixPath(entry["file"]).name: entry for entry in entries}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _captures(path: Path, details: dict[str, Any]) -> Iterator[Capture]:
    """Yield the capture of a file, or each step of one without graphs."""
    capture = _capture(path, read_capture(path), details)
    if not is_eager_trace(capture.trace):
        yield capture
        return
    trace = with_launched_kernels(capture.trace)
    for step, tokens in _steps(capture.trace):
        batch = capture.batch if tokens is None else tokens
        yield replace(capture, trace=trace, batch=batch, step=step)


def _steps(trace: Trace) -> Iterator[tuple[Bounds, int | None]]:
    """Yield the time and the tokens of each step; the recording if nothing repeats."""
    marks = step_marks(trace)
    if (marks[C.source] == StepSource.RECORDING).any():
        called = repeated_calls(trace)
        marks = (
            called.with_columns(pl.lit(None, pl.Int64).alias(C.tokens)) if len(called) else marks
        )
    for start_ns, end_ns, tokens in marks.select(
        C.host_start_ns, "host_end_ns", C.tokens
    ).iter_rows():
        yield Bounds(start_ns, end_ns), tokens


def _capture(path: Path, trace: Trace, details: dict[str, Any]) -> Capture:
    annotated = next(
        (
            found
            for name in trace.annotations[C.name].unique(maintain_order=True)
            if (found := captured_batch(name))
        ),
        None,
    )
    stated = details.get("batch_size")
    batch = stated if isinstance(stated, int) else None
    if batch is None:
        batch = annotated.size if annotated else _number(_BATCH, path.name)
    return Capture(
        file=path.name,
        trace=trace,
        batch=_common_rows(trace.cpu_ops) if batch is None else batch,
        rank=_number(_RANK, path.name),
        query_length=_number(_QUERY, path.name),
        phase=annotated.text if annotated else None,
    )


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.search(name)
    return int(match[1]) if match else None


def _common_rows(cpu_ops: pl.DataFrame) -> int | None:
    """Return the most frequent first dimension of all arguments; None without any."""
    counts: dict[int, int] = {}
    for text, count in cpu_ops[C.input_dims].drop_nulls().value_counts().iter_rows():
        for dims in orjson.loads(text):
            if isinstance(dims, list) and dims and isinstance(dims[0], int):
                counts[dims[0]] = counts.get(dims[0], 0) + count
    return max(counts, key=lambda rows: (counts[rows], rows)) if counts else None


def capture_alone(trace: Trace) -> CaptureError | None:
    """Return the error for a capture trace that is given as the trace to analyze, else None.

    A program that captures its graphs and then replays them more than once can be analyzed.
    """
    if not is_capture_trace(trace):
        return None
    graphs = trace.runtime.filter(pl.col(C.name).is_in(GRAPH_LAUNCHES))[C.uid]
    launches = trace.launches[C.runtime_uid].unique().is_in(graphs.implode()).sum()
    if launches > len(capture_bounds(trace.runtime)[0]):
        return None
    return CaptureError(
        f"{trace.info.file_name} records how graphs were captured, not how they ran: its calls "
        "launch no GPU work. Pass the trace of the replay, and this file with --capture-folder."
    )
