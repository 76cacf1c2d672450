"""Idle time by cause: the sum of its gaps, and a finding for each relevant cause."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.severity import Ladder, grade, priority_of
from jarvis.analyses.system.cpu_idle.kernels import evidence, graph_replay_pct, kernels
from jarvis.analyses.system.cpu_idle.sources import (
    after_waits,
    blocking_hypothesis,
    is_mostly_in,
    loads_without_workers,
    main_place,
    placed,
    places,
    prevents_graph,
    slow_steps,
    waited_for,
    where,
    without_stacks,
)
from jarvis.analyses.system.cpu_idle.wording import CAUSES, MESSAGES, CauseWords
from jarvis.findings import (
    IDLE_POOL,
    EvidenceValue,
    Finding,
    Impact,
    Priority,
    Range,
    Severity,
)
from jarvis.perf_report.intervals import greatest_ns
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.step_account import StepAccount, steps_name
from jarvis.perf_report.timeline.step_gaps import Place
from jarvis.perf_report.timeline.steps import StepSource, TimedBy
from jarvis.schemas.names import C
from jarvis.text.messages import Message

IDLE_FINDING_PCT = 15.0
"""Share of the step time from which idle time without a finding of its own is reported."""

CAUSE_FINDING_PCT = 5.0
"""Share of the step time from which a cause has its own finding."""

LEADING_PCT = 10.0
"""Share of the step time from which LEADING causes come first."""

LEADING = (IdleCause.STALLED_QUEUE, IdleCause.KERNEL_LOADING)
"""Missing work, queued and not recorded, and warm-up: nothing else can be known before."""

IDLE_PCT: Ladder = (
    (70.0, Severity.CRITICAL),
    (50.0, Severity.HIGH),
    (30.0, Severity.MEDIUM),
    (20.0, Severity.LOW),
)
CAUSE_PCT: Ladder = (*IDLE_PCT[:-1], (0.0, Severity.LOW))
FEW_LAUNCHES = 0.1
"""Below this many late launches per kernel, most kernels are queued in time."""

MODEL_CODE = r"(?m): forward$|^nn\.Module: "
"""Pattern of the functions that are code of a model: the forward passes of modules."""

ZERO_GRAD = r"\bzero_grad\b"
"""Pattern of the functions and annotations that fill gradients with zeros."""

NEVER_IDLE = (IdleCause.UNLINKED_WORK, IdleCause.CARRIED_IN)
"""Causes in whose gaps the GPU certainly ran something."""


@dataclass(frozen=True)
class Cause:
    """The gaps of one cause (rows of ``step_gaps`` or ``idle_gaps``), the time in ms that they are
    a part of, and its texts."""

    cause: IdleCause
    gaps: pl.DataFrame
    whole_ms: float

    @property
    def words(self) -> CauseWords:
        """Return the texts of the cause."""
        return CAUSES[self.cause]

    @property
    def idle_ms(self) -> float:
        """Return the sum of the gaps in ms."""
        return float(self.gaps[C.dur_ns].sum()) / 1e6

    @property
    def share_pct(self) -> float:
        """Return the sum of the gaps in percent of the whole."""
        return impact.share_pct(self.idle_ms, self.whole_ms)

    @property
    def longest_ms(self) -> float:
        """Return the longest gap in ms."""
        return (greatest_ns(self.gaps[C.dur_ns]) or 0) / 1e6

    def waits_before(self) -> Message | None:
        """Return the operators or calls whose launch ended most of the time; None if unknown."""
        ended = self.gaps.drop_nulls(C.launcher_name).group_by(C.launcher_name)
        most = ended.agg(pl.col(C.dur_ns).sum()).sort(
            C.dur_ns, C.launcher_name, descending=[True, False]
        )
        return _listed(
            MESSAGES("evidence.wait", name=name, time_ms=ns / 1e6) for name, ns in most.iter_rows()
        )

    def host_calls(self) -> Message | None:
        """Return where the host is in the gaps, one line per place, most time first; None if
        unknown."""
        return _listed(places(self.gaps))

    def what(self, data: CategoryData) -> Message:
        """Return what happens in the gaps, as a part of a sentence."""
        if self.cause is IdleCause.DATA_LOADING and loads_without_workers(self.gaps):
            return MESSAGES("what.no_workers")
        if self.has_few_gaps(data):
            return MESSAGES("what.few_launches", kernels=kernels(data).height)
        return MESSAGES("what.model_code") if self.runs_model else self.words.message("what")

    @property
    def runs_model(self) -> bool:
        """Return whether the host works in the code of a model for most of the time."""
        return self.cause is IdleCause.HOST_WORK and is_mostly_in(self.gaps, MODEL_CODE)

    def algorithmic(self, data: CategoryData) -> tuple[Message, ...]:
        """Return the advice that may change the model."""
        if _may_load_kernels(data, self):
            return CAUSES[IdleCause.KERNEL_LOADING].texts("algorithmic")
        if self.runs_model:
            return MESSAGES.texts("algorithmic.model_code")
        if self.cause is IdleCause.LAUNCH_BOUND and is_mostly_in(self.gaps, ZERO_GRAD):
            return (MESSAGES("algorithmic.zero_grad"), *self.words.texts("algorithmic"))
        if self.has_few_gaps(data):
            waited = self.after_waits(data) is not None
            return MESSAGES.texts(f"algorithmic.{'after_waits' if waited else 'few_launches'}")
        if _waits_in_an_engine(data, self):
            return MESSAGES.texts("algorithmic.every_step")
        return self.words.texts("algorithmic")

    def has_few_gaps(self, data: CategoryData) -> bool:
        """Return whether launches come late before few of the kernels only."""
        is_few = self.gaps.height < FEW_LAUNCHES * kernels(data).height
        return self.cause is IdleCause.LAUNCH_BOUND and is_few

    def after_waits(self, data: CategoryData) -> Message | None:
        """Return the waits for the GPU after which launches come late before few kernels."""
        return after_waits(data, self.gaps) if self.has_few_gaps(data) else None

    def hypothesis(self, data: CategoryData) -> tuple[Message, ...]:
        """Return why the GPU waits."""
        if self.cause is IdleCause.SYNCHRONIZATION:
            return (blocking_hypothesis(data, self.gaps),)
        if self.has_few_gaps(data):
            waited = self.after_waits(data) is not None
            return (MESSAGES(f"hypothesis.{'after_waits' if waited else 'few_launches'}"),)
        if self.runs_model:
            return (MESSAGES("hypothesis.model_code"),)
        return self.words.texts("hypothesis")


def by_cause(gaps: pl.DataFrame, whole_ms: float) -> list[Cause]:
    """Return gaps by their cause, most time first."""
    found = [
        Cause(IdleCause(cause), rows, whole_ms)
        for (cause,), rows in gaps.group_by(C.cause, maintain_order=True)
    ]
    return sorted(found, key=lambda cause: (-cause.idle_ms, cause.cause))


def causes(data: CategoryData) -> list[Cause]:
    """Return the causes of the gaps in the GPU window, most time first."""
    if "idle_gaps" not in data.tables:
        return []
    return by_cause(data.tables["idle_gaps"], data.totals.total_time_ms)


def carried_in_ms(parts: Iterable[Cause]) -> float:
    """Return the time in ms in which the GPU finished work from before the recording."""
    return sum(part.idle_ms for part in parts if part.cause is IdleCause.CARRIED_IN)


def has_host_evidence(data: CategoryData) -> bool:
    """Return whether the trace records the launches that ended the gaps."""
    gaps = data.tables.get("idle_gaps")
    return gaps is not None and bool(gaps[C.launch_uid].is_not_null().any())


def account_of(data: CategoryData) -> StepAccount | None:
    """Return the account of the steps; None without their tables."""
    has_tables = "steps" in data.tables and "step_gaps" in data.tables
    return StepAccount.of(data.tables["steps"]) if has_tables else None


def reported_edges(data: CategoryData) -> Mapping[Place, pl.DataFrame]:
    """Return the gaps before the first and after the last GPU event of the steps, if they take
    enough of the step time for a finding."""
    account = account_of(data)
    if account is None or account.timed_by is TimedBy.GPU:
        return {}
    gaps = data.tables["step_gaps"]
    of_place = {
        place: gaps.filter(pl.col(C.place) == place.value) for place in (Place.BEFORE, Place.AFTER)
    }
    return {
        place: rows
        for place, rows in of_place.items()
        if account.pct(int(rows[C.dur_ns].sum())) >= CAUSE_FINDING_PCT
    }


def idle_parts(data: CategoryData) -> list[Cause]:
    """Return the idle time of the steps by cause, without that of ``reported_edges``."""
    account = account_of(data)
    if account is None:
        return []
    gaps = data.tables["step_gaps"]
    edges = [place.value for place in reported_edges(data)]
    return by_cause(gaps.filter(~pl.col(C.place).is_in(edges)), account.total_ns / 1e6)


def reported_causes(data: CategoryData) -> list[Cause]:
    """Return the causes that have their own finding: of idle time in the steps, and of gaps in the
    GPU window that are not idle."""
    if not has_host_evidence(data):
        return []
    in_window = [cause for cause in causes(data) if cause.cause in NEVER_IDLE]
    in_steps = [_launching(cause) for cause in idle_parts(data) if cause.cause not in NEVER_IDLE]
    return [cause for cause in (*in_window, *in_steps) if cause.share_pct >= CAUSE_FINDING_PCT]


def unreported(data: CategoryData) -> list[Cause]:
    """Return the causes of idle time in the steps that have no finding of their own."""
    reported = {cause.cause for cause in reported_causes(data)}
    return [
        Cause(cause.cause, rest, cause.whole_ms)
        for cause in idle_parts(data)
        for rest in [cause.gaps.filter(_is_at_end()) if cause.cause in reported else cause.gaps]
        if rest.height
    ]


def _launching(cause: Cause) -> Cause:
    """Return the gaps of a cause that a launch ends."""
    return Cause(cause.cause, cause.gaps.filter(~_is_at_end()), cause.whole_ms)


def _is_at_end() -> pl.Expr:
    """Return whether a gap is host work that no launch follows."""
    is_last = pl.col(C.place) == Place.AFTER.value
    return is_last & (pl.col(C.cause) == IdleCause.HOST_WORK.value)


def _may_load_kernels(data: CategoryData, cause: Cause) -> bool:
    """Return whether first uses of kernels may be part of host work: they lead the findings, and
    most of this time is before the last of them."""
    parts = (p for p in idle_parts(data) if p.cause is IdleCause.KERNEL_LOADING)
    loading = next((part for part in parts if part.share_pct >= LEADING_PCT), None)
    if cause.cause is not IdleCause.HOST_WORK or loading is None:
        return False
    early = cause.gaps.filter(pl.col(C.start_ns) < loading.gaps[C.start_ns].max())
    return bool(2 * early[C.dur_ns].sum() > cause.gaps[C.dur_ns].sum())


def idle_pct(data: CategoryData) -> float:
    """Return the idle time of the steps in percent of the step time, without gaps in which the GPU
    ran something; of the GPU window if the input has no events."""
    if (account := account_of(data)) is None:
        return data.totals.idle_pct or 0.0
    gaps = data.tables["step_gaps"].filter(~pl.col(C.cause).is_in([c.value for c in NEVER_IDLE]))
    return account.pct(int(gaps[C.dur_ns].sum()))


def idle_causes(data: CategoryData) -> Iterator[Finding]:
    """What the GPU waits for.

    Symptom: the GPU idles in the steps, and the gaps have one cause for a good part of the time.
    Rule: each gap has one cause, the first that fits what the trace records of the host and of the
    queue (see the table `step_gaps`); a finding covers all gaps of a cause, except those before the
    first and after the last GPU event of the steps where `step_edges` reports them, so no time is
    in two findings. Gaps in which the GPU ran work that the timeline excludes or that is from
    before the recording are those of the GPU window (`idle_gaps`).
    Threshold: from {CAUSE_FINDING_PCT}% of the step time on: LOW; above {CAUSE_PCT}%: CRITICAL /
    HIGH / MEDIUM. If the GPU may have been busy, the priority is HIGH at most, and LOW if it was.
    """
    for cause in reported_causes(data):
        yield _finding(data, cause)


def _finding(data: CategoryData, cause: Cause) -> Finding:
    words, idle_ms, share = cause.words, cause.idle_ms, cause.share_pct
    severity = Severity.LOW if cause.cause in NEVER_IDLE else grade(share, CAUSE_PCT)
    is_under_recorded, has_few_gaps = _is_under_recorded(data, cause), cause.has_few_gaps(data)
    waited = cause.after_waits(data)
    few_launches = "title.few_launches" if waited is None else "title.after_waits"
    priority = priority_of(severity)
    if not words.is_idle:
        cap = Priority.LOW if cause.cause in NEVER_IDLE else Priority.HIGH
        priority = priority.at_most(cap)
    is_carried = cause.cause is IdleCause.CARRIED_IN
    in_window = cause.cause in NEVER_IDLE
    return Finding(
        check="idle_causes",
        category=data.key,
        title=MESSAGES(few_launches) if has_few_gaps else words.message("title"),
        evidence={
            "excluded_ms" if in_window else "idle_ms": idle_ms,
            "excluded_pct" if in_window else "step_pct": share,
            **cause_evidence(data, cause),
        },
        issue=MESSAGES(
            "issue.carried_in" if is_carried else "issue.cause",
            idle_ms=idle_ms,
            idle_pct=share,
            gaps=cause.gaps.height,
            what=cause.what(data),
            host_call=longest_call(data, cause) if waited is None else waited,
            **(
                {}
                if is_carried
                else {
                    "whole": whole_of(None if in_window else account_of(data)),
                    "without_stacks": without_stacks(data, cause.cause),
                    "slow_steps": slow_steps(data, cause.cause),
                    "first_uses": MESSAGES("issue.first_uses")
                    if _may_load_kernels(data, cause)
                    else None,
                }
            ),
        ),
        algorithmic=MESSAGES("algorithmic.under_recorded")
        if is_under_recorded
        else cause.algorithmic(data),
        kernel=kernel_advice(data, cause),
        priority_local=priority,
        priority=priority,
        severity=severity,
        impact=idle_impact(data, cause.gaps) if words.is_idle else None,
        hypothesis=MESSAGES("hypothesis.under_recorded")
        if is_under_recorded
        else cause.hypothesis(data),
        caveat=None if words.is_idle else MESSAGES("caveat.doubtful"),
        verify=words.message("verify"),
        capture=MESSAGES("capture.under_recorded") if is_under_recorded else words.texts("capture"),
        time_pool=f"{IDLE_POOL} {cause.cause}",
        leads=cause.cause in LEADING and share >= LEADING_PCT,
    )


def whole_of(account: StepAccount | None) -> str:
    """Return the name of the time that idle time is a part of."""
    if account is None:
        return "the GPU window"
    return steps_name(account.is_marked, account.step_count)


def idle_impact(data: CategoryData, gaps: pl.DataFrame) -> Impact:
    """Return the saving of at most the idle time of gaps in the steps.

    Of the GPU window it saves only what lies within.
    """
    totals, states = data.totals, data.tables.get("timeline_states")
    idle_ms = within_ms = float(gaps[C.dur_ns].sum()) / 1e6
    if states is not None and states.height:
        start, end = pl.col(C.start_ns), pl.col(C.start_ns) + pl.col(C.dur_ns)
        first_ns, last_ns = states.select(first=start.min(), last=end.max()).row(0)
        within = pl.min_horizontal(end, last_ns) - pl.max_horizontal(start, first_ns)
        within_ms = float(gaps.select(within.clip(lower_bound=0).sum()).item()) / 1e6
    gain = impact.bounded_impact(idle_ms, within_ms, **data.bases)
    if totals.step is None or totals.step.step_ms is None:
        return gain
    whole = Range(low=0.0, mid=idle_ms / 2, high=idle_ms)
    of_steps = impact.of_steps(
        gain.model_copy(update={"saved_ms": whole}), totals.step.idle_ms, totals.step.step_ms
    )
    return of_steps.model_copy(update={"saved_ms": gain.saved_ms})


def cause_evidence(data: CategoryData, cause: Cause) -> dict[str, EvidenceValue | None]:
    """Return the number of gaps of a cause, and what the trace records of host and kernels
    there."""
    rows = kernels(data)
    return {
        "gaps": cause.gaps.height,
        "longest_gap_ms": cause.longest_ms,
        "before_first_kernel_ms": _before_first_kernel_ms(data, cause) or None,
        "host_calls": cause.host_calls(),
        "waits_before": cause.waits_before(),
        **(evidence(rows) if cause.cause is IdleCause.LAUNCH_BOUND and rows.height else {}),
    }


def _listed(items: Iterable[Message]) -> Message | None:
    every = tuple(items)
    return MESSAGES("evidence.list", items=every) if every else None


def _before_first_kernel_ms(data: CategoryData, cause: Cause) -> float:
    """Return the host work before the first kernel in ms, while only copies and fills ran."""
    if cause.cause is not IdleCause.HOST_WORK:
        return 0.0
    first_ns = kernels(data)[C.ts_ns].min()
    early = cause.gaps.filter(pl.col(C.start_ns) < first_ns) if first_ns is not None else None
    return 0.0 if early is None else float(early[C.dur_ns].sum()) / 1e6


def longest_call(data: CategoryData, cause: Cause) -> Message | None:
    """Return the host call during the longest gap, as the end of a sentence; without one, the place
    with most time."""
    gaps = placed(cause.gaps).sort(C.dur_ns, C.start_ns, descending=[True, False])
    longest = gaps.row(0, named=True)
    if longest[C.host_call] is None:
        return main_place(cause.gaps)
    values = {"call": where(longest), "length_ms": longest[C.host_call_us] / 1000}
    gap_ms = longest[C.dur_ns] / 1e6
    copy = waited_for(data, longest)
    if cause.cause in (IdleCause.STALLED_QUEUE, IdleCause.CARRIED_IN):
        is_copy = "memcpy" in longest[C.host_call].lower()
        return MESSAGES("call.blocking_copy" if is_copy else "call.blocking", copy=copy, **values)
    return MESSAGES("call.beside", copy=copy, longest_gap_ms=gap_ms, **values)


def _waits_in_an_engine(data: CategoryData, cause: Cause) -> bool:
    """Return whether the host waits in a step of an inference engine while earlier work runs."""
    account = account_of(data)
    is_engine = account is not None and account.source is StepSource.ENGINE
    return cause.cause is IdleCause.CARRIED_IN and is_engine and cause.gaps[C.host_call].count() > 0


def _is_under_recorded(data: CategoryData, cause: Cause) -> bool:
    return cause.cause is IdleCause.STALLED_QUEUE and graph_replay_pct(data) > 0


def kernel_advice(data: CategoryData, cause: Cause) -> tuple[Message, ...]:
    """Return the advice on a cause that does not change the model."""
    if _may_load_kernels(data, cause):
        return CAUSES[IdleCause.KERNEL_LOADING].texts("kernel")
    texts = cause.words.texts("kernel", replayed_pct=graph_replay_pct(data))
    if cause.runs_model:
        texts = MESSAGES.texts("kernel.model_code")
    recommends_graph = cause.runs_model or cause.cause in (
        IdleCause.LAUNCH_BOUND,
        IdleCause.QUEUED,
    )
    prevented = prevents_graph(data) if recommends_graph else None
    return (*texts, prevented) if prevented else texts


def launch_advice(data: CategoryData) -> tuple[Message, ...]:
    """Return the advice on launches."""
    return MESSAGES.texts("kernel.launches", replayed_pct=graph_replay_pct(data))
