"""``perf_improvement.png``: GPU time by category, for ``analysis.md`` and for slides.

Rendering takes half a second, so it happens on demand with lazy imports.
"""

from pathlib import Path

import polars as pl

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.reports import sections
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.schemas.names import C

REST = "not computing"
"""The part of the GPU window without compute, in gray."""

SCALE = 2.0
"""Image pixels per chart pixel, for sharpness."""


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
    """Return ``part, time_ms``: the categories, most time first, and the rest of the GPU window.

    Concurrent kernels count in each of their categories.
    """
    totals = run.manifest.totals
    parts = {result.title: result.gpu_time_ms for result in sections.compute_results(run)}
    parts[REST] = totals.total_time_ms - totals.compute_time_ms
    return pl.DataFrame({"part": list(parts), C.time_ms: list(parts.values())})


REPORTER = PlotReporter()
