"""``perf_improvement.png``: where the time goes, for ``analysis.md`` and for slides.

It takes half a second, so it is made only on demand, and what it needs is imported only then.
"""

from pathlib import Path

import polars as pl

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.reports import sections
from jarvis.reports.reporter import Reporter
from jarvis.run import Run

REST = "not computing"
"""The part of the wall time that is no compute, in gray."""

SCALE = 2.0
"""Pixels of the file for each of the drawing, so that it stays sharp."""


class PlotReporter(Reporter):
    """One bar of GPU time by category, as an image."""

    name = "plot"
    suffix = ".png"
    in_run = False

    def place(self, paths: RunPaths) -> Path:
        return paths.perf_plot

    def render(self, run: Run, out: Path) -> None:
        import vl_convert

        from jarvis.charts import LIGHT
        from jarvis.charts.breakdown import time_breakdown

        chart = time_breakdown(time_parts(run), REST, LIGHT)
        write_output(out, vl_convert.vegalite_to_png(chart.to_dict(), scale=SCALE))


def time_parts(run: Run) -> pl.DataFrame:
    """``part, time_ms``: the categories, most time first, and what of the wall time is no compute.

    Kernels that run at once count in each of their categories.
    """
    totals = run.manifest.totals
    parts = {result.title: result.gpu_time_ms for result in sections.compute_results(run)}
    parts[REST] = totals.total_time_ms - totals.compute_time_ms
    return pl.DataFrame({"part": list(parts), "time_ms": list(parts.values())})


REPORTER = PlotReporter()
