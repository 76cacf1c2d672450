"""Frames behind the charts of a whole run: GPU time and possible savings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.findings import Finding, Status
from jarvis.perf_report import Totals
from jarvis.reports.details import joined_labels
from jarvis.reports.ranking import Recommendation
from jarvis.run import Run
from jarvis.savings import added_savings, per_step, step_count
from jarvis.schemas.names import C
from jarvis.text.format import MINUS, listed, milliseconds, percent
from jarvis.text.messages import to_text


@dataclass(frozen=True, slots=True)
class Saving:
    """What a finding, or several, saves of each step that those before leave.

    ``alone_ms``: what it saves without them; of several, the sum of these. ``is_bound``: it is what
    a finding saves at most, depending on other ranks, and is not added to the others.
    """

    label: str
    title: str
    saved_ms: float
    alone_ms: float | None = None
    findings: int = 1
    is_bound: bool = False

    @property
    def differs_alone(self) -> bool:
        """Whether the finding alone saves another time."""
        alone_ms = self.saved_ms if self.alone_ms is None else self.alone_ms
        return milliseconds(alone_ms) != milliseconds(self.saved_ms)

    @property
    def tooltip(self) -> str:
        """The title, with the saving alone if it is another."""
        if self.alone_ms is None or not self.differs_alone:
            return self.title
        alone = "alone" if self.findings == 1 else "each alone, in sum"
        return f"{self.title} ({alone} {milliseconds(self.alone_ms)})"


def savings(projected: Iterable[tuple[Recommendation, Finding]], run: Run) -> list[Saving]:
    """Return what each finding adds to the saving, and what all others add (``added_savings``), in
    the order of the findings; upper bounds among them.

    Findings come with their recommendation, since a page projects them to its own target.
    """
    pairs = list(projected)
    places = {id(finding): place for place, (_, finding) in enumerate(pairs)}
    found: list[tuple[int, Saving]] = []
    findings = [finding for _, finding in pairs]
    totals = run.manifest.totals
    for added in added_savings(findings, totals, run.simulation_if_any):
        first, *others = added.findings
        if others:
            several = 1 + len(others)
            label = f"{several} more"
            gains = (per_step(f.impact, totals).gain_ms for f in added.findings if f.impact)
            saving = Saving(label, "smaller savings", added.saved_ms, sum(gains), several)
            found.append((len(pairs), saving))
            continue
        alone_ms = per_step(first.impact, totals).gain_ms if first.impact else None
        place = places[id(first)]
        found.append((place, Saving(*_names(pairs[place]), added.saved_ms, alone_ms)))
    for place, pair in enumerate(pairs):
        gain = pair[1].impact
        if gain is not None and gain.is_interval and gain.gain_ms > 0:
            high_ms = per_step(gain, totals).gain_ms
            found.append((place, Saving(*_names(pair), high_ms, is_bound=True)))
    return [saving for _, saving in sorted(found, key=lambda pair: pair[0])]


def _names(pair: tuple[Recommendation, Finding]) -> tuple[str, str]:
    """Return label and title of the saving of a finding."""
    item, finding = pair
    return f"{item.label} {item.result.title}", to_text(finding.title).replace("`", "")


def replayed_or_added(run: Run) -> str:
    """Return how ``savings`` come together, as sentences."""
    if run.simulation_if_any is not None:
        return (
            "Each bar is what a step gains if the recording is replayed with the changes of that "
            "finding and of those before it."
        )
    return (
        "Middle estimates, largest first, within what bounds the step. Savings of the same time "
        "count once."
    )


def total_ms(found: list[Saving]) -> float:
    """Return the sum of the savings in ms, without upper bounds."""
    return sum(saving.saved_ms for saving in found if not saving.is_bound)


def alone_note(found: list[Saving]) -> str:
    """Return which savings are others alone, as sentences; empty if none are."""
    differing = [saving for saving in found if saving.differs_alone]
    single = _note(
        [saving for saving in differing if saving.findings == 1],
        ("saves", "save"),
        "a different time alone (see the table): findings above already change part of it.",
    )
    more = (
        f"The {saving.label} would save {milliseconds(saving.alone_ms or 0.0)} if their savings "
        "alone added up, but most of it is time that other findings save, too."
        for saving in differing
        if saving.findings > 1 and (saving.alone_ms or 0.0) > 2 * saving.saved_ms
    )
    return " ".join(filter(None, (single, *more)))


def bounds_note(found: list[Saving]) -> str:
    """Return which savings are upper bounds, as a sentence; empty if none are."""
    return _note(
        [saving for saving in found if saving.is_bound],
        ("is an upper bound", "are upper bounds"),
        "(pale, not subtracted): a trace of one rank does not separate transfer from waiting for "
        "other ranks.",
    )


def _note(savings: list[Saving], verbs: tuple[str, str], rest: str) -> str:
    """Return a sentence about savings, with the verb for one and that for several."""
    if not savings:
        return ""
    labels = [saving.label.partition(" ")[0] for saving in savings]
    return f"{joined_labels(labels)} {verbs[len(labels) > 1]} {rest}"


def waterfall_rows(now_ms: float, found: list[Saving], whole: str) -> pl.DataFrame:
    """Return the bars of ``jarvis.charts.waterfall``: now, the savings, projected. ``whole`` names
    the time now."""
    from jarvis.charts.waterfall import BOUND, NOW, PROJECTED, SAVING

    rows = [("Now", f"{whole} now", NOW, 0.0, now_ms, milliseconds(now_ms))]
    high_ms = now_ms
    for saving in found:
        low_ms = max(high_ms - saving.saved_ms, 0.0)
        text = f"{MINUS}{milliseconds(saving.saved_ms)}"
        if saving.is_bound:
            text = f"≤ {milliseconds(saving.saved_ms)}"
            rows.append((saving.label, saving.tooltip, BOUND, low_ms, high_ms, text))
            continue
        rows.append((saving.label, saving.tooltip, SAVING, low_ms, high_ms, text))
        high_ms = low_ms
    share = percent(impact.share_pct(high_ms, now_ms))
    rest = f"what remains of {whole} ({share})"
    rows.append(("Projected", rest, PROJECTED, 0.0, high_ms, milliseconds(high_ms)))
    names = ["label", "finding", C.kind, "low_ms", "high_ms", "text"]
    return pl.DataFrame(rows, schema=names, orient="row")


def gpu_time_parts(totals: Totals) -> pl.DataFrame:
    """Return ``part, time_ms, percent``; overlapping time counts only for the first part in this
    order."""
    return pl.DataFrame(
        {
            "part": ["compute", "exposed communication", "exposed copies", "idle"],
            C.time_ms: [
                totals.compute_time_ms,
                totals.exposed_comm_time_ms,
                totals.exposed_memcpy_time_ms,
                totals.idle_time_ms,
            ],
            C.percent: [
                totals.compute_pct,
                totals.exposed_comm_pct,
                totals.exposed_memcpy_pct,
                totals.idle_pct,
            ],
        },
        schema_overrides={C.percent: pl.Float64},
    )


def target_words(run: Run) -> str:
    """Return the target efficiency, with those of categories that have their own."""
    titles = {key: result.title for key, result in run.results.items()}
    own = [f"{titles[key]} {pct:g}%" for key, pct in run.targets.own if key in titles]
    return f"{run.target_pct:g}%{f' ({listed(own, len(own))})' if own else ''}"


def category_times(run: Run) -> pl.DataFrame:
    """Return ``category, title, gpu_time_ms, rated_ms, saved_ms, has_efficiency`` of each category,
    most time first, and ``text`` with time and saving; ``rated_ms`` has known efficiencies. Times
    are the mean of the steps."""
    titles = {
        key: result.title
        for key, result in run.results.items()
        if result.tier == "compute" and result.status is not Status.NO_DATA
    }
    target, per_ms = impact.target_of_rows(run.targets), 1000 * step_count(run.manifest.totals)
    operations = run.table("operations").with_columns(impact.saved_us(target).alias(C.saved_us))
    return (
        operations.group_by(C.category)
        .agg(
            gpu_time_ms=pl.col(C.kernel_time_us).sum() / per_ms,
            saved_ms=pl.col(C.saved_us).sum() / per_ms,
            rated_ms=pl.col(C.kernel_time_us).filter(pl.col(C.saved_us).is_not_null()).sum()
            / per_ms,
            has_efficiency=pl.col(C.saved_us).is_not_null().any(),
        )
        .with_columns(pl.col(C.category).replace(titles).alias(C.title))
        .sort("gpu_time_ms", C.category, descending=[True, False])
        .with_columns(
            text=pl.struct("gpu_time_ms", "saved_ms", "rated_ms", "has_efficiency").map_elements(
                _with_saving, return_dtype=pl.String
            )
        )
    )


def _with_saving(times: Mapping[str, Any]) -> str:
    time = milliseconds(times["gpu_time_ms"])
    if not times["has_efficiency"]:
        return f"{time}, efficiency not known"
    saved = f"{time}, could save {milliseconds(times['saved_ms'])}"
    rated_pct = impact.share_pct(times["rated_ms"], times["gpu_time_ms"])
    return saved if rated_pct >= impact.NEARLY_ALL_PCT else f"{saved} ({percent(rated_pct)} known)"
