"""A distributed run as one file: the report as HTML, or a trace of several ranks."""

from collections.abc import Mapping
from pathlib import Path

from jarvis.core.errors import JarvisError
from jarvis.core.output import write_output
from jarvis.ranks.run import DistributedRun
from jarvis.reports.perfetto import FORMAT, PerfettoReporter

HTML, PERFETTO = "html", FORMAT
SUFFIXES = {HTML: ".html", PERFETTO: PerfettoReporter.suffix}
"""The end of the name of a file, by format."""


def check_ranks_format(name: str, more: tuple[str, ...] = ()) -> None:
    """Raise JarvisError if there is no such format, nor one of ``more``."""
    if name not in (known := (*SUFFIXES, *more)):
        raise JarvisError(
            f"There is no format {name!r} of a distributed run. Choose one of {', '.join(known)}."
        )


def write_ranks_export(
    run: DistributedRun, format_name: str, members: Mapping[int, Path], out: Path
) -> None:
    """Write a distributed run in a format.

    Args:
        run: The distributed run.
        format_name: One of ``SUFFIXES``.
        members: The run directories of the ranks that the trace has.
        out: The file.

    Raises:
        RankChoiceError: A rank cannot be put on the clock of the others.
        TooLargeTraceError: The trace would be too large.
    """
    if format_name == PERFETTO:
        from jarvis.reports.perfetto.several_ranks import write_ranks_trace  # compiled kernels

        write_ranks_trace(run, members, out)
        return
    from jarvis.reports.html.ranks import ranks_html  # loads charts

    write_output(out, ranks_html(run))
