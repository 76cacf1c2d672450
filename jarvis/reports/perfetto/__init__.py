"""A trace for Perfetto: the recorded slices, and what the analysis found as further tracks."""

from collections.abc import Sequence
from pathlib import Path

from jarvis.changes import Change
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.trace import OnProgress

FORMAT = "perfetto"


class PerfettoReporter(Reporter):
    """Written on demand; overlapping slices are on further lanes, so that none is dropped.

    Args:
        trace: The trace of the run, which has all slices and their arguments; None for those that
            the run has.
        changes: What the simulated step replays; by default what all findings propose.
        on_progress: Called while the trace is read.
    """

    name = FORMAT
    suffix = ".perfetto.json.gz"
    in_run = False

    def __init__(
        self,
        trace: Path | None = None,
        changes: Sequence[Change] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._trace, self._changes, self._on_progress = trace, changes, on_progress

    def render(self, run: Run, out: Path) -> None:
        from jarvis.reports.perfetto.trace_file import write_trace  # loads compiled kernels

        write_trace(run, out, self._trace, self._changes, self._on_progress)


REPORTER = PerfettoReporter()
