"""The account of a step on the Overview page, and the table of the steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from jarvis import charts
from jarvis.analyses.severity import grade, with_findings
from jarvis.analyses.system.cpu_idle.causes import IDLE_PCT
from jarvis.analyses.system.multi_kernel.communication import EXPOSED_PCT
from jarvis.dashboard.pages.system.multi_kernel import uneven_note
from jarvis.dashboard.session.state import Opened, cached, of_opened, of_stored, palette
from jarvis.dashboard.widgets.elements import (
    LOSS_WORDS,
    SHARE_WORDS,
    lazy_expander,
    metric_card,
    render_chart,
    scale_note,
)
from jarvis.dashboard.widgets.table import small_table
from jarvis.findings import COMMUNICATION_POOL, IDLE_POOL, Finding, Severity
from jarvis.perf_report import Totals
from jarvis.perf_report.timeline.step_account import LABELS, MEANING, StepAccount
from jarvis.perf_report.timeline.step_gaps import SLOW_STEP_PCT
from jarvis.reports.account import (
    OUTDATED,
    account_of,
    basis,
    compute_note,
    is_outdated,
    rates,
    title,
    unlinked_compute_ns,
    with_unlinked,
)
from jarvis.reports.figures import gpu_time_parts
from jarvis.schemas import INTEGER, NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.format import counted, listed, milliseconds, percent
from jarvis.text.markdown import escape

WINDOW = "The GPU window extends from the first start to the last end of GPU work that host calls "
WINDOW += "of the trace launch."
_MAX_CACHED = 64
_STEPS_SHOWN = 8
SLOW_PX = 200
SLOW_NAMED = 3
_OPEN_KEY = "overview_steps"


Card = tuple[str, str, str, str, Severity | None]
"""Label, value, the line below, meaning and grade."""


@cached(_MAX_CACHED, of_stored)
def _compute_note(now: Opened) -> str:
    return compute_note(now.run)


@cached(_MAX_CACHED, of_stored)
def _rates(now: Opened) -> str:
    account = StepAccount.of(now.run.table("steps"))
    return "" if account is None else rates(now.run, account)


def time_cards(now: Opened, columns: Sequence[DeltaGenerator]) -> None:
    """Draw a card in each column: the step time, and how it is spent."""
    for column, card in zip(columns, _time_cards(now), strict=True):
        label, value, below, meaning, severity = card
        with column:
            metric_card(label, value, below, help_text=meaning, severity=severity)


@cached(_MAX_CACHED, of_opened)
def _time_cards(now: Opened) -> Sequence[Card]:
    run, account = now.run, account_of(now.run)
    median = None if account is None else StepAccount.of_median(run.table("steps"))
    findings = [finding for result in run.results.values() for finding in result.findings]
    return list(_cards(account, median, run.manifest.totals, findings, _compute_note(now)))


def _cards(
    account: StepAccount | None,
    median: StepAccount | None,
    totals: Totals,
    findings: Sequence[Finding],
    unlinked: str,
) -> Iterator[Card]:
    """Yield the cards of step time, busy time, exposed communication and idle time; ``unlinked`` is
    ``compute_note``."""
    window = milliseconds(totals.total_time_ms)
    if account is None:
        whole = "the GPU window"
        compute, busy, idle = totals.compute_pct, totals.busy_pct, totals.idle_pct
        comm, comm_ms = totals.exposed_comm_pct, totals.exposed_comm_time_ms
        idle_ms = totals.idle_time_ms
        yield "GPU window", window, "no steps", WINDOW, None
    else:
        whole, comm_ns = "the step time", account.parts_ns[C.exposed_comm_ns]
        compute, idle = account.pct(account.parts_ns[C.compute_ns]), account.pct(account.idle_ns)
        busy, comm, comm_ms = 100 - idle, account.pct(comm_ns), account.mean_ms(comm_ns)
        idle_ms = account.mean_ms(account.idle_ns)
        meaning = f"Step time: {basis(account)}. GPU window: {window}. {WINDOW}"
        if account.carried_in_ns:
            meaning += f" Not counted: {milliseconds(account.carried_in_ns / 1e6)} in which the "
            meaning += "GPU finished work from before the recording."
        label = "Step time" if account.is_marked else "Recording"
        below = f"window {window}"
        if account.step_count > 1 and median is not None:
            below = f"median {milliseconds(median.step_ms)}"
        yield label, milliseconds(account.step_ms), below, meaning, None
    of_idle = of_comm = None
    if idle is not None:
        of_idle = with_findings(grade(idle, IDLE_PCT, Severity.GOOD), findings, IDLE_POOL)
    has_comm = comm is not None and totals.total_comm_time_ms > 0
    if has_comm:
        of_comm = grade(comm or 0.0, EXPOSED_PCT, Severity.GOOD)
        of_comm = with_findings(of_comm, findings, COMMUNICATION_POOL)
    is_waiting = of_comm not in (None, Severity.GOOD)
    of_busy, share = None if is_waiting else of_idle, percent(compute)
    yield (
        "GPU busy",
        percent(busy),
        _graded(
            SHARE_WORDS, of_busy, f"compute {share}" if share != percent(busy) else "all compute"
        ),
        f"Time in which any kernel, copy or fill runs, in percent of {whole}, communication that "
        "waits for other ranks too. "
        f"Compute runs in {share} of {whole}. {unlinked}".rstrip(),
        of_busy,
    )
    yield (
        "Exposed comm.",
        percent(comm),
        _graded(LOSS_WORDS, of_comm, milliseconds(comm_ms) if has_comm else "no communication"),
        f"Communication time without concurrent compute, in percent of {whole}. "
        f"{scale_note(EXPOSED_PCT)}",
        of_comm,
    )
    yield (
        "Idle",
        percent(idle),
        _graded(LOSS_WORDS, of_idle, milliseconds(idle_ms)),
        f"Time in which no GPU event runs, in percent of {whole}. {scale_note(IDLE_PCT)}",
        of_idle,
    )


def _graded(words: Mapping[Severity, str], severity: Severity | None, text: str) -> str:
    return text if severity is None else f"{words[severity]} · {text}"


def parts_bar(now: Opened) -> None:
    """Draw the parts of a step as one bar, and name the slow steps; the parts of the GPU window if
    there are no steps."""
    with st.container(border=True):
        if not now.run.manifest.totals.total_time_ms:
            st.markdown("**No GPU time**: the trace has no GPU work")
            return
        parts = _parts(now, palette())
        if not parts.has_steps and is_outdated(now.run):
            st.caption(OUTDATED)
        st.markdown(parts.title, help=MEANING)
        render_chart(parts.drawing, "Parts of the time")
        if parts.has_steps:
            if parts.slow:
                st.markdown(parts.slow)
            if uneven := uneven_note(now):
                st.markdown(uneven)
            st.caption(f"{_rates(now)}. {_compute_note(now)}".rstrip())


@dataclass(frozen=True, slots=True)
class _Parts:
    """The bar of the parts of a step, and its slow steps; of the GPU window without steps."""

    title: str
    drawing: charts.EncodedDrawing
    has_steps: bool = False
    slow: str = ""


@cached(_MAX_CACHED, of_stored)
def _parts(now: Opened, colors: charts.Palette) -> _Parts:
    run, totals = now.run, now.run.manifest.totals
    account = account_of(run)
    shown = None if account is None else _shown(account, run.table("steps"))
    parts = gpu_time_parts(totals) if shown is None else shown.rows()
    largest = parts.sort(C.time_ms, descending=True).row(0, named=True)
    text = (
        f"**{title(largest['part'])} takes {percent(largest[C.percent])}** of "
        f"{_whole(account, shown, totals)}"
    )
    if shown is not None and account is not None:
        parts = with_unlinked(parts, account.pct(unlinked_compute_ns(run)))
    shares = [f"{part} {percent(share)}" for part, share in parts["part", C.percent].iter_rows()]
    labeled = parts.with_columns(part=pl.Series(shares))
    drawing = charts.drawing_of(charts.parts_of_time(labeled, colors)).encoded()
    if account is None:
        return _Parts(text, drawing)
    return _Parts(text, drawing, has_steps=True, slow=slow_steps(run.table("steps")))


def _shown(account: StepAccount, steps: pl.DataFrame) -> StepAccount:
    """Return the mean step, as in the cards; the median step if the mean has slow ones."""
    return (StepAccount.of_median(steps) if steps[C.is_slow].any() else None) or account


def _whole(account: StepAccount | None, shown: StepAccount | None, totals: Totals) -> str:
    """Return the time that the parts add up to, with its name."""
    if account is None or shown is None:
        return f"{milliseconds(totals.total_time_ms)} GPU window"
    mean = milliseconds(account.step_ms)
    if not account.is_marked:
        return f"{mean}, {basis(account)}"
    if shown is account:
        return f"one step of {mean} ({basis(account)})"
    return f"the median step of {milliseconds(shown.step_ms)} ({mean} is the {basis(account)})"


def slow_steps(steps: pl.DataFrame) -> str:
    """Return the slow steps in Markdown, the slowest first, each with what exceeds the median;
    empty if there are none."""
    slow = step_rows(steps.filter(pl.col(C.is_slow))).sort(C.excess_ns, descending=True)
    texts = [
        f"{escape(name)} +{milliseconds(excess_ms)}{f' ({escape(why)})' if why else ''}"
        for name, excess_ms, why in slow.select(C.name, C.excess_ns, "slow").iter_rows()
    ]
    if not texts:
        return ""
    return f"**{counted(len(texts), 'slow step')}**: {listed(texts, SLOW_NAMED)}"


def steps_table(now: Opened) -> None:
    """Draw an expander with the steps, their parts, and why some are slow."""
    if is_outdated(now.run):
        return
    steps = now.run.table("steps")
    if steps.is_empty() or not steps[C.name].count():
        return
    slow = int(steps[C.is_slow].sum())
    words = f"Steps: {steps.height}" + (f", {slow or 'none'} slow" if steps.height > 1 else "")
    expander = lazy_expander(words, _OPEN_KEY, icon=":material/steps:")
    if not expander.open:
        return
    with expander:
        st.caption(
            f"Times in ms. A slow step exceeds the median by more than {SLOW_STEP_PCT:g}%; the "
            "table names the part that exceeds its median most and, for idle time, the cause."
        )
        hidden = [] if steps[C.tokens].count() else [C.tokens, C.tokens_per_s]
        hidden += [] if slow else ["slow"]
        small_table(
            step_rows(steps),
            charts.columns_of(_COLUMNS),
            "Steps with the parts of their time",
            [column.name for column in _COLUMNS if column.name not in hidden],
            {"slow": SLOW_PX},
            max_rows=_STEPS_SHOWN,
        )


_TIMES = {
    C.dur_ns: ("Step time", "of the step"),
    C.compute_ns: ("Compute", ""),
    C.exposed_comm_ns: ("Exposed comm.", ""),
    C.exposed_copy_ns: ("Exposed copies", ""),
    C.idle_before_ns: ("Idle before", ""),
    C.idle_between_ns: ("Idle between", ""),
    C.idle_after_ns: ("Idle after", ""),
    C.excess_ns: ("Over median", "step time minus the median"),
    C.gpu_dur_ns: (
        "GPU time",
        "from the first start to the last end of the GPU work that the step "
        "launches, which an asynchronous host may run in a later step",
    ),
    C.host_dur_ns: ("Host time", "duration of the step's mark"),
}
_COLUMNS = (
    Column(C.step, "Step", INTEGER, meaning="position in the recording, from 0"),
    Column(C.name, "Name", TEXT, meaning="annotation that marks the step"),
    Column("slow", "Slow because", TEXT, meaning="of a slow step: part, cause and host call"),
    *(
        Column(name, label, NUMBER, "ms", ",.3f", meaning or LABELS.get(name, ""))
        for name, (label, meaning) in _TIMES.items()
    ),
    Column(C.tokens, "Tokens", INTEGER, format=",d", meaning="unknown if empty"),
    Column(C.tokens_per_s, "Tokens/s", NUMBER, "1/s", ",.0f", "tokens / step time"),
)


def step_rows(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with times in ms, the reason why a step is slow, and its token rate."""
    part = pl.concat_str(C.slow_part, pl.lit("_ns")).replace(dict(LABELS))
    cause = pl.col(C.slow_cause).str.replace_all("_", " ")
    return steps.with_columns(
        pl.concat_str(part, cause, C.slow_call, separator=": ", ignore_nulls=True)
        .replace("", None)
        .alias("slow"),
        (1e9 * pl.col(C.tokens) / pl.col(C.dur_ns)).alias(C.tokens_per_s),
        *(pl.col(name) / 1e6 for name in _TIMES),
    )
