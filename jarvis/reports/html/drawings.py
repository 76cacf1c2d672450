"""The charts of the document, each with a title that states its message."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl
from markupsafe import Markup

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts.palette import BELOW_THRESHOLD
from jarvis.charts.svg import CSS, Chart, to_svg
from jarvis.charts.waterfall import waterfall
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT, share_pct
from jarvis.perf_report.timeline.step_account import MEANING
from jarvis.reports.account import (
    account_of,
    basis,
    title,
    unlinked_compute_ns,
    with_unlinked,
)
from jarvis.reports.details import Details
from jarvis.reports.figures import (
    bounds_note,
    category_times,
    gpu_time_parts,
    replayed_or_added,
    savings,
    target_words,
    total_ms,
    waterfall_rows,
)
from jarvis.run import Run
from jarvis.savings import over_steps, whole_ms, whole_name
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, percent

MAX_POINTS = 400
"""Operations of a roofline, those with most time, to limit the document's size."""

_COLUMNS = charts.columns_of(TABLES["operations"], DETAILS, charts.PROJECTED)


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its title and how to read it."""

    title: str
    note: str
    chart: Chart


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure whose chart is markup."""

    title: str
    note: str
    svg: Markup


def render_charts(figures: Sequence[Figure | None]) -> list[Drawing | None]:
    """Return the figures of a document with their charts rendered together; None for None."""
    images = iter(to_svg([(figure.chart, figure.title) for figure in figures if figure]))
    return [Drawing(f.title, f.note, Markup(next(images))) if f else None for f in figures]


def step_time(run: Run) -> Figure | None:
    """Return one bar of the step time; of the GPU window if there are no steps."""
    totals, account = run.manifest.totals, account_of(run)
    if not totals.total_time_ms:
        return None
    if account is None:
        parts, whole = gpu_time_parts(totals), f"{milliseconds(totals.total_time_ms)} GPU window"
    else:
        parts = with_unlinked(account.rows(), account.pct(unlinked_compute_ns(run)))
        whole = f"{milliseconds(account.step_ms)}, {basis(account)}"
    most = parts.sort(C.time_ms, descending=True).row(0, named=True)
    heading = f"{title(most['part'])} takes {percent(most[C.percent])} of {whole}"
    labels = [
        f"{part} {milliseconds(time_ms)} ({percent(share)})"
        for part, time_ms, share in parts["part", C.time_ms, C.percent].iter_rows()
    ]
    labeled = parts.with_columns(part=pl.Series(labels))
    # Labels with time and share are too long for four in a line.
    bar = charts.parts_of_time(labeled, CSS, columns=3, labelLimit=300)
    return Figure(heading, MEANING, bar)


def categories(run: Run) -> Figure | None:
    """Return kernel time and projected saving of each category."""
    rows = category_times(run).filter(pl.col("gpu_time_ms") > 0)
    if rows.is_empty():
        return None
    whole_ms = float(rows["gpu_time_ms"].sum())
    first = rows.row(0, named=True)
    share = percent(share_pct(first["gpu_time_ms"], whole_ms))
    title = f"{first[C.title]} takes {share} of kernel time"
    of_step = " of a step" if over_steps(run.manifest.totals) else ""
    note = (
        f"Pale: kernel time{of_step}. Strong: what the operations below {target_words(run)} of the "
        "roofline would save if they reached it."
        if rows["has_efficiency"].any()
        else f"Kernel time{of_step}. No efficiency is known, so there is no saving."
    )
    return Figure(title, note, charts.categories(rows, _COLUMNS, CSS))


def projection(run: Run, included: list[Details]) -> Figure | None:
    """Return the time now, the savings of the report's findings, and the remaining time."""
    totals = run.manifest.totals
    now_ms, whole = whole_ms(totals), whole_name(totals)
    found = savings([(d.recommendation, d.finding) for d in included], run)
    if not found:
        return None
    left_ms = now_ms - total_ms(found)
    title = f"{milliseconds(now_ms)} of {whole} could become {milliseconds(left_ms)}"
    count = sum(saving.findings for saving in found if not saving.is_bound)
    note = f"{counted(count, 'finding')} of this report. {replayed_or_added(run)}"
    note = f"{note} {bounds_note(found)}".rstrip()
    return Figure(title, note, waterfall(waterfall_rows(now_ms, found, whole), CSS))


def category_roofline(run: Run, key: str) -> Figure | None:
    """Return the operations of one category under their rooflines; None if none has a rate."""
    if key not in run.results or run.results[key].tier != "compute":
        return None
    rows = run.category_operations(key)
    target_pct = run.targets.of_category(key)
    rated = rows.with_columns(state=charts.state(target_pct, BOTTLENECK_EFFICIENCY_PCT))
    drawing = charts.roofline(rated, _COLUMNS, target_pct, CSS)
    if drawing is None:
        return None
    points = drawing.datasets["points"]
    slow = points.filter(state=BELOW_THRESHOLD).height
    verb = "reaches" if slow == 1 else "reach"
    title = (
        f"{slow} of {counted(points.height, 'row')} of distinct arguments {verb} less than "
        f"{BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline"
    )
    hidden = f" The {MAX_POINTS} with most time are shown." if points.height > MAX_POINTS else ""
    note = (
        f"Solid: roofline of the GPU. Dashed: {target_pct:g}% of it. Mark size is kernel "
        f"time.{hidden} {drawing.note}"
    )
    shown = {**drawing.datasets, "points": points.head(MAX_POINTS)}
    return Figure(title, note.rstrip(), replace(drawing, datasets=shown))
