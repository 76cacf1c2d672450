"""The capture traces of a folder, an archive or a list of files, and what each is a capture of."""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import polars as pl

from jarvis.capture.windows import Window, capture_bounds, is_capture_trace, read_capture
from jarvis.core.errors import JarvisError
from jarvis.core.unpacking import DAMAGE, TooLargeError, open_archive, pieces, unpacked_member
from jarvis.perf_models.step_annotation import captured_batch
from jarvis.schemas.names import C
from jarvis.trace import SUFFIXES, Trace
from jarvis.trace.links import GRAPH_LAUNCHES

DETAILS = "execution_details.json"
"""File beside the captures with the batch size of each, which some engines write."""

FULL, PIECEWISE = "FULL", "PIECEWISE"

_BATCH = re.compile(r"(?:^|_)bs_?(\d+)")
_QUERY = re.compile(r"_q_?(\d+)")
_RANK = re.compile(r"rank_?(\d+)")


class CaptureError(JarvisError):
    """Capture traces cannot be used."""


@dataclass(frozen=True)
class Capture:
    """A capture trace: its file and what was captured; None where nothing states it.

    ``batch`` is the number of tokens of the graph, ``phase`` a word of the annotation,
    ``unpaired`` the number of calls that begin or end a capture without a counterpart.
    """

    file: str
    trace: Trace
    batch: int | None
    rank: int | None
    query_length: int | None
    phase: str | None

    @cached_property
    def windows(self) -> list[Window]:
        """The captures in the file, by start."""
        return [Window(self.trace, bounds) for bounds in self._bounds[0]]

    @property
    def unpaired(self) -> int:
        """Begins and ends of a capture without a counterpart, whose calls are left out."""
        return self._bounds[1]

    @property
    def mode(self) -> str:
        """PIECEWISE if the file has several captures, as parts of a step, else FULL."""
        return PIECEWISE if len(self.windows) > 1 else FULL

    @cached_property
    def _bounds(self) -> tuple[list[Any], int]:
        return capture_bounds(self.trace.runtime)


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
            f"{listed}: no file records the capture of a graph. Pass the traces that the engine "
            "writes while it captures graphs."
        )
    return found


@contextmanager
def _folder_or_file(place: Path) -> Iterator[Path]:
    """Yield a folder or a trace; an archive with several files is unpacked to a folder for now."""
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
                            file.writelines(pieces(unpacked_member(archive, member, size)))
        except (*DAMAGE, TooLargeError) as error:
            raise CaptureError(f"{place} cannot be unpacked: {error}.") from error
        yield Path(folder)


def _captures_of(place: Path) -> Iterator[Capture]:
    if not place.is_dir():
        yield _capture(place, {})
        return
    details = _details(place / DETAILS)
    files = sorted(p for p in place.iterdir() if p.name.endswith(SUFFIXES) and p.name != DETAILS)
    for path in files:
        if not details or path.name in details:
            yield _capture(path, details.get(path.name, {}))


def _details(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of DETAILS by file name; empty without a valid file."""
    try:
        entries = orjson.loads(path.read_bytes())
        return {PurePosixPath(entry["file"]).name: entry for entry in entries}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _capture(path: Path, details: dict[str, Any]) -> Capture:
    trace = read_capture(path)
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
    """Return the most frequent first dimension of all arguments."""
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
