"""Write the trace file of a run for Perfetto."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from jarvis.changes import Change
from jarvis.core.errors import OtherTraceError
from jarvis.core.product import product_version
from jarvis.reports.perfetto.analysis_tracks import analysis_tracks
from jarvis.reports.perfetto.document import Written, write_document
from jarvis.reports.perfetto.parts import TRACK
from jarvis.reports.perfetto.recorded import of_run, of_trace
from jarvis.run import Run
from jarvis.trace import OnProgress, read_trace

FROM_TRACE = "all slices of the trace"
FROM_RUN = "GPU events and host calls of the analysis: the trace is not available"


def write_trace(
    run: Run,
    out: Path,
    trace: Path | None,
    changes: Sequence[Change] | None = None,
    on_progress: OnProgress | None = None,
) -> Written:
    """Write a trace with the tracks of the analysis above the recorded ones.

    Args as in ``PerfettoReporter``.

    Raises:
        TraceError: The trace cannot be read.
        OtherTraceError: It is not the trace of the run.
    """
    info = run.manifest.trace
    if trace is None:
        recorded = of_run(run)
    else:
        read = read_trace(trace, on_progress)
        if read.info.sha256 != info.sha256:
            raise OtherTraceError(trace, info.file_name)
        recorded = of_trace(read)
    found = analysis_tracks(run, changes)
    above = len(found.tracks)
    below = [
        replace(part, rows=part.rows.with_columns(pl.col(TRACK) + above)) for part in recorded.parts
    ]
    notes = {
        "source": FROM_RUN if trace is None else FROM_TRACE,
        "trace": info.file_name,
        "trace_sha256": info.sha256,
        "analysis": run.manifest.analysis_id,
        "written_by": f"jarvis {product_version()}",
        "slices_without_time": recorded.without_time,
        "left_out": found.left_out,
    }
    tracks = [*found.tracks, *recorded.tracks]
    return write_document(out, [*found.parts, *below], tracks, recorded.arrows, notes)
