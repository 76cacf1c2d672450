"""Tracks of what an analysis found: steps, findings, idle causes, critical path, simulated step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.changes import Change
from jarvis.core.errors import ChangeError, NotSimulatedError
from jarvis.findings import COMMUNICATION_POOL, IDLE_POOL, Finding
from jarvis.reports.perfetto.parts import TRACK, Part, Track, is_timed, texts
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.run import Run
from jarvis.run.replayed_steps import ReplayedSteps
from jarvis.run.timeline import Timeline
from jarvis.run.timeline_events import path_events, recorded_gaps
from jarvis.schemas.names import C
from jarvis.simulation.of_findings import finding_changes, own_gaps, own_work
from jarvis.text.markdown import one_line, shortened
from jarvis.text.messages import to_text

PROCESS = "Analysis"
"""Name of the process of these tracks."""

STEPS, IDLE_CAUSES, CRITICAL_PATH = "Steps", "Idle causes", "Critical path"
FINDING, SIMULATED_STEP = "Finding", "Simulated step"

MAX_FINDINGS = 20
"""Number of findings with a track, in the order of their numbers."""

MAX_TITLE = 80
"""Maximum length of a finding's title in the name of its track."""

_SPAN = {C.name: pl.String, C.ts_ns: pl.Int64, C.dur_ns: pl.Int64}


@dataclass
class AnalysisTracks:
    """The tracks of an analysis, and the reason for each that is missing."""

    parts: list[Part] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, category: str, spans: pl.DataFrame) -> None:
        """Add a track with spans ``name, ts_ns, dur_ns``; other columns are their arguments."""
        rows = spans.filter(is_timed()).with_columns(
            pl.lit(len(self.tracks), pl.Int64).alias(TRACK), pl.lit(None, pl.Int64).alias(C.uid)
        )
        columns = [column for column in spans.columns if column not in _SPAN]
        self.tracks.append(Track(PROCESS, name))
        self.parts.append(Part(category, rows, {column: texts(column) for column in columns}))


def analysis_tracks(run: Run, changes: Sequence[Change] | None) -> AnalysisTracks:
    """Return the tracks of a run.

    Args:
        run: The run.
        changes: What the simulated step replays; by default what all findings propose.
    """
    found = AnalysisTracks()
    found.add(STEPS, "step", _steps(run))
    listed = recommendations(run)
    for recommendation in listed[:MAX_FINDINGS]:
        _add_finding(found, run, recommendation)
    if len(listed) > MAX_FINDINGS:
        found.left_out["Findings"] = f"only P1 to P{MAX_FINDINGS} of {len(listed)} have a track"
    found.add(IDLE_CAUSES, "idle", _gaps(recorded_gaps(run)))
    try:
        simulation = run.simulation
    except NotSimulatedError as error:
        found.left_out |= dict.fromkeys((CRITICAL_PATH, SIMULATED_STEP), str(error))
        return found
    timeline = Timeline(run)
    path = path_events(simulation, timeline.gpu_events)
    shown = path.select(C.name, C.ts_ns, C.dur_ns, pl.col("what").alias("kind"), "operation")
    found.add(CRITICAL_PATH, "critical path", shown)
    try:
        _add_simulated_step(found, timeline, changes)
    except ChangeError as error:
        found.left_out[SIMULATED_STEP] = str(error)
    return found


def _steps(run: Run) -> pl.DataFrame:
    steps = run.tables.get("steps")
    if steps is None:
        return pl.DataFrame(schema=_SPAN)
    name = pl.coalesce(C.name, pl.format("Step {}", pl.col(C.step) + 1))
    return steps.select(name.alias(C.name), pl.col(C.start_ns).alias(C.ts_ns), C.dur_ns)


def _gaps(gaps: pl.DataFrame) -> pl.DataFrame:
    """Return gaps by the label of their cause."""
    labels = {key.value: words.label for key, words in CAUSES.items()}
    return gaps.select(
        pl.col(C.cause).replace(labels).alias(C.name),
        pl.col(C.start_ns).alias(C.ts_ns),
        C.dur_ns,
        pl.col(C.next_name).alias("next GPU event"),
        pl.col(C.host_call).alias("host call"),
    )


def _add_finding(found: AnalysisTracks, run: Run, recommendation: Recommendation) -> None:
    """Add the track of a finding: its GPU events, or its gaps."""
    finding, label = recommendation.finding, recommendation.label
    title = one_line(to_text(finding.title)).replace("`", "")
    spans = _concerned(run, finding).with_columns(pl.lit(f"{label}: {title}").alias(C.name))
    name = f"{FINDING} {label}: {shortened(title, MAX_TITLE)}"
    if spans.is_empty():
        found.left_out[f"{FINDING} {label}"] = "it concerns no single GPU events or gaps"
    else:
        found.add(name, "finding", spans)


def _concerned(run: Run, finding: Finding) -> pl.DataFrame:
    pool = finding.time_pool or ""
    if pool.startswith(IDLE_POOL):
        cause = pool.removeprefix(IDLE_POOL).strip()
        gaps = run.tables.get("step_gaps")
        return _gaps(run.table("idle_gaps") if gaps is None else own_gaps(cause, gaps))
    work = run.table("gpu_work")
    if pool.startswith(COMMUNICATION_POOL):
        work = work.filter(pl.col(C.uid).is_in(run.table("collectives")[C.uid].implode()))
    else:
        work = own_work(finding, work)
    return work.select(
        C.name,
        C.ts_ns,
        C.dur_ns,
        pl.col(C.name).alias("GPU event"),
        pl.col(C.launcher_name).alias("launched by"),
    )


def all_changes(run: Run) -> list[Change]:
    """Return what all findings with an estimated saving propose."""
    return [
        change
        for each in recommendations(run)
        if each.finding.impact is not None and not each.finding.impact.is_interval
        for change in finding_changes(each.finding, run.simulation)
    ]


def _add_simulated_step(
    found: AnalysisTracks, timeline: Timeline, changes: Sequence[Change] | None
) -> None:
    """Add the step with the median time as it is replayed, at the start of the recorded one."""
    run = timeline.run
    simulation = run.simulation
    times = simulation.node_times(all_changes(run) if changes is None else changes)
    steps = ReplayedSteps(timeline)
    number = steps.median
    step = steps.step(times, number)
    recorded = simulation.step_bounds(simulation.graph.time)
    begin_ns = int(recorded[number]) + simulation.graph.first_ns
    whole = {C.name: [steps.names[number]], C.ts_ns: [begin_ns], C.dur_ns: [step.length_ns]}
    found.add(SIMULATED_STEP, "simulated", pl.DataFrame(whole, schema=_SPAN))
    events = step.events.with_columns(pl.col(C.ts_ns) + begin_ns)
    rows = (
        events.select(C.row, "is_gpu", C.thread, C.device, C.stream)
        .unique(C.row)
        .sort("is_gpu", C.thread, C.device, C.stream, nulls_last=True)
    )
    for row, is_gpu, thread in rows.select(C.row, "is_gpu", C.thread).iter_rows():
        known = thread in timeline.threads[C.thread]
        label = timeline.thread_label(thread) if known and not is_gpu else row
        own = events.filter(pl.col(C.row) == row)
        found.add(
            f"{SIMULATED_STEP}: {label}",
            "simulated",
            own.select(C.name, C.ts_ns, C.dur_ns, pl.col("what").alias("kind"), "operation"),
        )
