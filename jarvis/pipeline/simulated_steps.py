"""The time of a step under changes that a user names."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import translate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import polars as pl
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from jarvis.changes import (
    COMPUTE,
    AtRoofline,
    Change,
    Collective,
    CollectiveMode,
    RemoveWait,
    ScaleGpu,
    ScaleHost,
    Work,
)
from jarvis.core.errors import ChangeError
from jarvis.pipeline.analysis import analyze
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.simulation.merging import merged_launches
from jarvis.simulation.of_findings import finding_changes, united_spans
from jarvis.simulation.path import HOST_PARTS
from jarvis.simulation.quality import Grade
from jarvis.simulation.simulation import Simulation
from jarvis.text.format import MINUS, listed, milliseconds, percent

MAX_CHANGES = 100
NOTHING_PCT = 0.01
"""A step that changes by less than this counts as unchanged."""

MIN_HOST_PCT = 50.0
"""Share of the critical path from which on the host is named as what limits the step."""

MERGE_LAUNCHES = "merge-launches"
FORMS = (
    "finding=P1",
    "target=NAME:PERCENT",
    "scale=NAME:FACTOR",
    "host=PATTERN:FACTOR",
    "no-wait=PATTERN",
    MERGE_LAUNCHES,
    "collective=KIND:hidden|transfer|FACTOR",
)
"""What a change can be in text. NAME is an operation, a category or ``compute``, PATTERN a glob of
operators, annotations, Python frames or waiting calls, KIND a glob of collectives."""

Changes: TypeAlias = tuple[Change, ...]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class StepTime(_Frozen):
    """The time of a step in ms: the mean of the recorded steps, and the same in the replay.

    Where marks time the steps, the last one ends with its mark, but gains what its GPU work after
    the mark gains.
    """

    recorded: float
    simulated: float


class PathShare(_Frozen):
    """A part of the critical path of the simulated steps: its time, and its share of their time."""

    name: str
    ms: float
    pct: float


class ChangeAlone(_Frozen):
    """A change, and what it alone would save."""

    change: str
    saved_ms: float
    kernel_time_saved_ms: float


class WhatIf(_Frozen):
    """What the changes together would save.

    ``saved_ms`` is that of a step, ``kernel_time_saved_ms`` that of the GPU work of all steps.
    The trace of one rank does not separate waiting for other ranks from transfer: collectives last
    as recorded in ``saved_ms``, and as long as the fastest of their kind, group and size in
    ``saved_up_to_ms``, which is None without collectives.
    """

    step_ms: StepTime
    steps: int
    saved_ms: float
    kernel_time_saved_ms: float
    saved_up_to_ms: float | None = None
    grade: Grade
    critical_path: tuple[PathShare, ...]
    changes: tuple[ChangeAlone, ...]

    @property
    def headline(self) -> str:
        """What the step gains, with its recorded and its simulated time."""
        about = "about " if self.grade is Grade.FAIR else ""
        recorded, after = self.step_ms.recorded, self.step_ms.simulated
        if self.is_unchanged:
            return f"Step unchanged ({milliseconds(recorded)}){self.held_up_by}."
        sign = MINUS if self.saved_ms > 0 else "+"
        saved, share = abs(self.saved_ms), 100 * abs(self.saved_ms) / recorded
        return (
            f"Step {about}{sign}{milliseconds(saved)} ({sign}{percent(share)}): "
            f"{milliseconds(recorded)} → {milliseconds(after)}."
        )

    @property
    def is_unchanged(self) -> bool:
        """Whether the step takes as long as recorded."""
        return abs(self.saved_ms) <= NOTHING_PCT / 100 * self.step_ms.recorded

    @property
    def held_up_by(self) -> str:
        """What takes most of the critical path, as the end of a sentence."""
        host_pct = sum(part.pct for part in self.critical_path if part.name in HOST_PARTS)
        if host_pct >= MIN_HOST_PCT:
            return f": {percent(host_pct)} of its critical path is host time"
        longest = next(iter(self.critical_path), None)
        return f": {percent(longest.pct)} of its critical path is {longest.name}" if longest else ""

    @property
    def small_print(self) -> str:
        """The kernel time that is saved; of a single step, how much of it other work hides."""
        return " ".join(filter(None, (self._kernel_time, self._up_to)))

    @property
    def _up_to(self) -> str | None:
        most_ms, recorded = self.saved_up_to_ms, self.step_ms.recorded
        if most_ms is None or most_ms - self.saved_ms < NOTHING_PCT / 100 * recorded:
            return None
        return (
            f"Up to {MINUS}{milliseconds(most_ms)} if collectives then take no longer than the "
            "fastest of their kind, which depends on the other ranks."
        )

    @property
    def _kernel_time(self) -> str:
        kernel_ms = self.kernel_time_saved_ms
        if not kernel_ms:
            return "Kernel time unchanged."
        text = f"Kernel time {MINUS if kernel_ms > 0 else '+'}{milliseconds(abs(kernel_ms))}"
        if self.steps > 1:
            return f"{text} in the {self.steps} steps, over all streams."
        hidden_ms = kernel_ms - self.saved_ms
        if kernel_ms > 0 and hidden_ms > NOTHING_PCT / 100 * kernel_ms and self.saved_ms >= 0:
            text += f"; {milliseconds(hidden_ms)} of it is hidden by other work"
        return f"{text}."


def what_if(source: Run | Path | str, changes: Iterable[str] = (), **options: Any) -> WhatIf:
    """Return how long a step would take under changes that are made together.

    Args:
        source: A run, its directory, or a trace, which is analyzed.
        changes: One of FORMS each.
        options: For a trace, as in ``analyze``.

    Raises:
        NotSimulatedError: The step times of the run cannot be simulated.
        ChangeError: A change is unknown, or not possible in this trace.
    """
    if isinstance(source, Run):
        return simulated(source, changes)
    path = Path(source)
    if path.is_dir():
        return simulated(Run.load(path), changes)
    with TemporaryDirectory(prefix="jarvis-") as folder:
        return simulated(analyze(path, output_dir=Path(folder) / "run", **options), changes)


def simulated(run: Run, changes: Iterable[str]) -> WhatIf:
    """Return how long a step of a run would take under changes; raise as ``what_if``."""
    texts = tuple(changes)
    _ = run.simulation.recorded  # raises NotSimulatedError before any other error
    if len(texts) > MAX_CHANGES:
        raise ChangeError(f"At most {MAX_CHANGES} changes can be simulated together.")
    return simulated_changes(run, [(text, parse_change(text, run)) for text in texts])


def simulated_changes(run: Run, parsed: Sequence[tuple[str, Changes]]) -> WhatIf:
    """Return how long a step of a run would take under changes, each with its text."""
    simulation = run.simulation
    recorded = simulation.recorded
    replay = simulation.replay([change for _, found in parsed for change in found])
    info = run.manifest.simulation
    steps_ns = sum(replay.steps_ns)
    return WhatIf(
        step_ms=StepTime(recorded=recorded.step_ns / 1e6, simulated=replay.step_ns / 1e6),
        steps=len(recorded.steps_ns),
        saved_ms=(recorded.step_ns - replay.step_ns) / 1e6,
        kernel_time_saved_ms=(recorded.gpu_time_ns - replay.gpu_time_ns) / 1e6,
        saved_up_to_ms=_saved_up_to_ms(run, [change for _, found in parsed for change in found]),
        grade=info.quality.grade if info else Grade.NOT_SIMULATED,
        critical_path=tuple(
            PathShare(
                name=part.name,
                ms=part.ns / 1e6,
                pct=100 * part.ns / steps_ns if steps_ns else 0.0,
            )
            for part in simulation.path_parts(replay)
        ),
        changes=tuple(_alone(text, found, simulation) for text, found in parsed),
    )


def _saved_up_to_ms(run: Run, changes: Sequence[Change]) -> float | None:
    """Return what a step saves if collectives also take only their transfer time."""
    uids = run.table("collectives")[C.uid].to_list()
    if not uids or not changes:
        return None
    transfer = Collective(uids=tuple(uids), mode=CollectiveMode.TRANSFER)
    simulation = run.simulation
    saved_ns = simulation.recorded.step_ns - simulation.replay([*changes, transfer]).step_ns
    return saved_ns / 1e6


def _alone(text: str, changes: Changes, simulation: Simulation) -> ChangeAlone:
    replay, recorded = simulation.replay(changes), simulation.recorded
    return ChangeAlone(
        change=text,
        saved_ms=(recorded.step_ns - replay.step_ns) / 1e6,
        kernel_time_saved_ms=(recorded.gpu_time_ns - replay.gpu_time_ns) / 1e6,
    )


def read_changes(path: Path) -> tuple[str, ...]:
    """Return the changes of a JSON file: a list of texts.

    Raises:
        ChangeError: The file holds something else.
    """
    try:
        return TypeAdapter(tuple[str, ...]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise ChangeError(
            f"{path} is not a list of changes. Write JSON such as "
            '["finding=P1", "scale=compute:0.5"].'
        ) from error


def parse_change(text: str, run: Run) -> Changes:
    """Return the changes that a text names.

    Raises:
        ChangeError: It is none of FORMS, or names nothing in the run.
    """
    kind, _, argument = text.partition("=")
    parse = _PARSERS.get(kind)
    if parse is None or (not argument) != (kind == MERGE_LAUNCHES):
        raise ChangeError(f"Unknown change {text!r}. A change is one of {', '.join(FORMS)}.")
    return parse(argument, run)


def _finding(label: str, run: Run) -> Changes:
    known = {each.label: each.finding for each in recommendations(run)}
    if label not in known:
        last = f"P1 to P{len(known)}" if known else "none"
        raise ChangeError(f"There is no finding {label!r}; the findings are {last}.")
    changes = finding_changes(known[label], run.simulation)
    if not changes:
        raise ChangeError(f"The finding {label} has no saving that could be simulated.")
    return changes


def _target(argument: str, run: Run) -> Changes:
    name, percent = _split(argument, "target=NAME:PERCENT")
    if not 0 < percent <= 100:
        raise ChangeError(f"A target is above 0 and at most 100 percent, not {percent:g}.")
    work = _work(name, run)
    if not run.simulation.has_efficiency(work):
        raise ChangeError(f"The efficiency of {name} is not known, so it has no target.")
    return (AtRoofline(work=work, target_pct=percent),)


def _scale(argument: str, run: Run) -> Changes:
    name, factor = _split(argument, "scale=NAME:FACTOR")
    return (ScaleGpu(work=_work(name, run), factor=factor),)


def _work(name: str, run: Run) -> Work:
    """Return the GPU work of an operation by name, of a category, or all computation."""
    operations = run.table("operations")
    categories = operations[C.category].unique().drop_nulls().to_list()
    if name == COMPUTE or name in categories:
        return Work(category=name)
    rows = operations.filter(pl.col(C.name) == name)
    if rows.is_empty():
        names = [COMPUTE, *categories, *operations[C.name].unique().to_list()]
        raise ChangeError(f"No operation or category is named {name!r}.{_similar(name, names)}")
    return Work(operations=tuple(rows[C.uid].to_list()))


def _host(argument: str, run: Run) -> Changes:
    pattern, factor = _split(argument, "host=PATTERN:FACTOR")
    spans = _spans(pattern, run)
    if spans.is_empty():
        names = run.table("sim_spans")[C.name].unique().to_list()
        raise ChangeError(
            f"No operator, annotation or Python frame matches {pattern!r}."
            f"{_similar(pattern, names)}"
        )
    return (ScaleHost(spans=united_spans(spans), factor=factor),)


def _no_wait(pattern: str, run: Run) -> Changes:
    """Return the removal of waits by the name of the call, or of a span around it."""
    waiting = pl.DataFrame({C.uid: run.simulation.waiting_calls})
    calls = run.table("sim_spans").join(waiting, on=C.uid, how="semi")
    around = _spans(pattern, run).select(
        C.thread, from_ns=pl.col(C.start_ns), to_ns=pl.col(C.end_ns)
    )
    inside = (pl.col(C.start_ns) >= pl.col("from_ns")) & (pl.col(C.end_ns) <= pl.col("to_ns"))
    found = calls.join_where(around, pl.col(C.thread) == pl.col("thread_right"), inside)
    if found.is_empty():
        names = listed(sorted(calls[C.name].unique().to_list()), 5)
        raise ChangeError(
            f"No call that waits for the GPU matches {pattern!r}, nor does what is around one."
            + (f" The calls that wait are {names}." if names else " No call waits.")
        )
    return (RemoveWait(calls=tuple(found[C.uid].unique().sort().to_list())),)


def _merge_launches(_: str, run: Run) -> Changes:
    changes = merged_launches(run.simulation)
    if not changes:
        raise ChangeError("No two launches follow each other without a wait between them.")
    return changes


def _collective(argument: str, run: Run) -> Changes:
    pattern, _, how = argument.rpartition(":")
    collectives = run.table("collectives")
    name = pl.coalesce(C.collective, C.name)
    own = collectives.filter(_matches(name, pattern, collectives))
    if own.is_empty():
        names = collectives.select(name).to_series().unique().drop_nulls().to_list()
        known = f" There are {listed(sorted(names), 5)}." if names else " The trace has none."
        raise ChangeError(f"No collective matches {pattern!r}.{known}")
    uids = tuple(own[C.uid].to_list())
    if how in (CollectiveMode.HIDDEN, CollectiveMode.TRANSFER):
        return (Collective(uids=uids, mode=CollectiveMode(how)),)
    factor = _number(how, "collective=KIND:hidden|transfer|FACTOR")
    return (Collective(uids=uids, mode=CollectiveMode.SCALE, factor=factor),)


_PARSERS: dict[str, Callable[[str, Run], Changes]] = {
    "finding": _finding,
    "target": _target,
    "scale": _scale,
    "host": _host,
    "no-wait": _no_wait,
    MERGE_LAUNCHES: _merge_launches,
    "collective": _collective,
}


def _spans(pattern: str, run: Run) -> pl.DataFrame:
    """Return the host spans whose name matches a glob."""
    spans = run.table("sim_spans")
    return spans.filter(_matches(pl.col(C.name), pattern, spans))


def _matches(name: pl.Expr, pattern: str, table: pl.DataFrame) -> pl.Expr:
    """Return whether a name matches a glob; each distinct name is tested once."""
    names = table.select(name).to_series().drop_nulls().unique()
    is_match = re.compile(translate(pattern)).match
    return name.is_in([each for each in names if is_match(each)])


def _split(argument: str, form: str) -> tuple[str, float]:
    """Return the name before the last colon, and the number after it."""
    name, colon, figure = argument.rpartition(":")
    if not colon or not name:
        raise ChangeError(f"Write {form}: a name, a colon and a number.")
    return name, _number(figure, form)


def _number(text: str, form: str) -> float:
    number = non_negative(text)
    if number is None:
        raise ChangeError(f"{text!r} is not a number of 0 or more. Write {form}.")
    return number


def non_negative(text: str) -> float | None:
    """Return the finite number of 0 or more that a text is; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _similar(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(set(names)), n=3, cutoff=0.6)
    return f" Similar names: {listed(near, 3)}." if near else ""
