"""The drawings of the document, each with a title that says what it shows."""

from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from jarvis.analyses.wording import counted
from jarvis.charts import state
from jarvis.charts.palette import BELOW_THRESHOLD
from jarvis.charts.rooflines import over_intensity, over_size, suits_intensity
from jarvis.charts.svg import category_bars, roofline, stacked_bar, waterfall_bars
from jarvis.charts.svg.roofline import MAX_POINTS
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT, share_pct
from jarvis.reports.details import Details
from jarvis.reports.figures import (
    category_times,
    gpu_time_parts,
    savings,
    total_ms,
    waterfall_rows,
)
from jarvis.reports.quantities import efficiency, milliseconds, percent
from jarvis.run import Run


@dataclass(frozen=True, slots=True)
class CaptionedDrawing:
    """A drawing with what it says and how it is read."""

    title: str
    note: str
    svg: Markup


def gpu_time(run: Run) -> CaptionedDrawing | None:
    """One bar of all GPU time."""
    parts = gpu_time_parts(run.manifest.totals)
    whole_ms = run.manifest.totals.total_time_ms
    if not whole_ms:
        return None
    most = parts.sort("time_ms", descending=True).row(0, named=True)
    title = (
        f"{most['part'].capitalize()} takes {percent(most['percent'])} of "
        f"{milliseconds(whole_ms)} GPU time"
    )
    texts = [
        f"{milliseconds(time_ms)} ({percent(share)})"
        for time_ms, share in parts["time_ms", "percent"].iter_rows()
    ]
    note = (
        "Each moment counts once: as compute where any runs, else as communication, else as a "
        "copy, else as idle."
    )
    return CaptionedDrawing(
        title, note, Markup(stacked_bar(parts.with_columns(text=pl.Series(texts)), title))
    )


def categories(run: Run) -> CaptionedDrawing | None:
    """Kernel time and projected saving of each category."""
    rows = category_times(run, run.target_pct).filter(pl.col("gpu_time_ms") > 0)
    if rows.is_empty():
        return None
    whole_ms = float(rows["gpu_time_ms"].sum())
    first = rows.row(0, named=True)
    share = percent(share_pct(first["gpu_time_ms"], whole_ms))
    title = f"{first['title']} takes {share} of kernel time"
    texts = [_with_saving(*row) for row in rows["gpu_time_ms", "saved_ms", "is_judged"].iter_rows()]
    note = (
        f"Pale: kernel time. Strong: what the operations below {run.target_pct:g}% of the roofline "
        "would save if they reached it."
        if rows["is_judged"].any()
        else "Kernel time. No efficiency is known, so no saving."
    )
    svg = category_bars(rows.with_columns(text=pl.Series(texts)), title)
    return CaptionedDrawing(title, note, Markup(svg))


def projection(run: Run, kept: list[Details]) -> CaptionedDrawing | None:
    """From the GPU time now to the one that remains after the findings of the report."""
    now_ms = run.manifest.totals.total_time_ms
    found = savings([(d.recommendation, d.finding) for d in kept], now_ms)
    if not found:
        return None
    left_ms = now_ms - total_ms(found)
    title = f"{milliseconds(now_ms)} of GPU time could become {milliseconds(left_ms)}"
    note = (
        f"Middle estimates of {counted(len(found), 'finding')} of this report, largest first. "
        "Findings that draw on the same time count once. Savings of kernels that run beside others "
        "may be smaller."
    )
    return CaptionedDrawing(
        title, note, Markup(waterfall_bars(waterfall_rows(now_ms, found), title))
    )


def category_roofline(run: Run, key: str) -> CaptionedDrawing | None:
    """The operations of one category under their ceilings; None where none has a rate."""
    if key not in run.results or run.results[key].tier != "compute":
        return None
    rows = run.category_operations(key)
    rated = rows.filter(pl.col("tb_per_s") > 0)
    if rated.is_empty():
        return None
    judged = _judged(rows, run.target_pct)
    placed = over_intensity(judged) if suits_intensity(rated) else over_size(judged)
    if placed.points.is_empty():
        return None
    below = placed.points.filter(state=BELOW_THRESHOLD).height
    shown = placed.points.height
    title = (
        f"{below} of {counted(shown, 'row')} of distinct arguments reach less than "
        f"{BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline"
    )
    hidden = (
        f" The {MAX_POINTS} with most time are drawn." if placed.points.height > MAX_POINTS else ""
    )
    note = (
        "Solid: what the GPU can do. Dashed: "
        f"{run.target_pct:g}% of it. The size of a mark is its kernel time.{hidden}"
    )
    return CaptionedDrawing(title, note, Markup(roofline(placed, run.target_pct, title)))


def _judged(rows: pl.DataFrame, target_pct: float) -> pl.DataFrame:
    texts = [
        f"{milliseconds(time_us / 1000)}, {efficiency(reached)} of the roofline"
        for time_us, reached in rows["kernel_time_us", "pct_roofline"].iter_rows()
    ]
    return rows.with_columns(
        state=state(target_pct, BOTTLENECK_EFFICIENCY_PCT), text=pl.Series(texts, dtype=pl.String)
    )


def _with_saving(time_ms: float, saved_ms: float, is_judged: bool) -> str:
    saving = f", saving {milliseconds(saved_ms)}" if is_judged else ""
    return f"{milliseconds(time_ms)}{saving}"
