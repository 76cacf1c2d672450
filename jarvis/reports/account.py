"""The account of a step in reports and on pages."""

import polars as pl

from jarvis.analyses.operations import timeline_window
from jarvis.analyses.system.cpu_idle.sources import placed, where
from jarvis.perf_report.intervals import covered_during
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.step_account import LABELS, StepAccount, step_name
from jarvis.perf_report.work import COMPUTE
from jarvis.reports import utilization
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import counted, decimal, milliseconds, percent
from jarvis.text.markdown import Markdown, table
from jarvis.text.messages import Message, to_text

MIN_NAMED_PCT = 1.0
"""Parts of the step time are named in sentences from this share on, in percent."""

_UNEVEN = 2.0
"""Collectives of equal messages in two steps differ strongly from this ratio of their times on."""

OUTDATED = (
    "This analysis was made by an older version and has no account of the step: analyze the trace "
    "again to see it."
)


def title(label: str) -> str:
    """Return the name of a part at the beginning of a sentence or a cell."""
    return label[:1].upper() + label[1:]


def account_of(run: Run) -> StepAccount | None:
    """Return the account of a run; None if it has no steps, or was made before there was one."""
    return run.once(_account_of)


def _account_of(run: Run) -> StepAccount | None:
    return StepAccount.of(run.table("steps")) if "steps" in run.tables else None


def unlinked_compute_ns(run: Run) -> int:
    """Return the compute time of the steps in which no compute kernel with a recorded launch
    runs."""
    return run.once(_unlinked_compute_ns)


def _unlinked_compute_ns(run: Run) -> int:
    account = account_of(run)
    if account is None or "gpu_work" not in run.tables:
        return 0
    timed = run.table("steps").drop_nulls(C.dur_ns)
    starts = timed[C.start_ns].to_numpy()
    ends = starts + timed[C.dur_ns].to_numpy()
    linked = timeline_window(run.table("gpu_work")).filter(kind=COMPUTE)
    linked_ns = covered_during(linked, starts, ends)
    return account.parts_ns[C.compute_ns] - int(linked_ns.sum())


def with_unlinked(parts: pl.DataFrame, unlinked_pct: float) -> pl.DataFrame:
    """Return the parts of a step with that of compute which has no recorded launch, if it is named,
    as a part of its own behind the rest of compute."""
    if unlinked_pct < MIN_NAMED_PCT:
        return parts
    compute = parts.head(1).with_columns(is_unlinked=pl.lit(value=False))
    unlinked = compute.with_columns(
        pl.lit("compute without a recorded launch").alias("part"),
        pl.col(C.time_ms) * unlinked_pct / pl.col(C.percent),
        pl.lit(unlinked_pct).alias(C.percent),
        is_unlinked=pl.lit(value=True),
    )
    linked = compute.with_columns(pl.col(name) - unlinked[name] for name in (C.time_ms, C.percent))
    return pl.concat([linked, unlinked, parts[1:]], how="diagonal").with_columns(
        pl.col("is_unlinked").fill_null(value=False)
    )


def compute_note(run: Run) -> str:
    """Return how much of the compute of a step is work without a recorded launch, and how much
    activation checkpointing repeats, as sentences; empty if little is."""
    account = account_of(run)
    if account is None:
        return ""
    texts = {
        "Compute includes {} of work without a recorded launch, such as work launched before the "
        "recording.": unlinked_compute_ns(run),
        "Activation checkpointing repeats {} of GPU work.": recomputed_ns(run),
    }
    of_step = step_name(account.is_marked)
    return " ".join(
        text.format(
            f"{milliseconds(account.mean_ms(ns))} ({percent(account.pct(ns))} of {of_step})"
        )
        for text, ns in texts.items()
        if account.pct(ns) >= MIN_NAMED_PCT
    )


def recomputed_ns(run: Run) -> int:
    """Return the time of the kernels launched in the function that repeats a forward pass; 0 if
    none is recorded."""
    return int(utilization.recomputed(run)[C.dur_ns].sum())


def uneven_collectives(run: Run) -> str:
    """Return the two steps whose equal collectives differ most in time, if they differ strongly and
    the exposed communication by a named share; empty otherwise."""
    if not {"steps", "collectives"} <= run.tables.keys():
        return ""
    kernels, steps = run.table("collectives"), run.table("steps").filter(pl.col(C.dur_ns) > 0)
    if C.step not in kernels.columns:
        return ""
    message = pl.format("{} {} {}", C.collective, C.dtype, C.message_mb)
    each = (
        kernels.drop_nulls([C.step, C.collective, C.message_mb])
        .group_by(C.step)
        .agg(
            pl.len().alias(C.count), pl.col(C.dur_us).sum(), messages=message.sort().str.join(", ")
        )
        .join(steps, on=C.step)
        .with_columns(pct=100 * pl.col(C.exposed_comm_ns) / pl.col(C.dur_ns))
        .sort(C.dur_us, C.step)
    )
    for alike in each.partition_by("messages", maintain_order=True):
        short, long = alike.row(0, named=True), alike.row(-1, named=True)
        is_strong = long[C.dur_us] >= _UNEVEN * short[C.dur_us]
        if is_strong and abs(long["pct"] - short["pct"]) >= MIN_NAMED_PCT:
            times = (f"{milliseconds(s[C.dur_us] / 1000)} in {s[C.name]}" for s in (short, long))
            return (
                f"{counted(short[C.count], 'collective')} of equal sizes take {' and '.join(times)}"
                f": exposed communication is {percent(short['pct'])} and {percent(long['pct'])} of "
                "the step time. Equal sizes do not explain the difference: waiting for other ranks "
                "or slower transfers do, and the traces of all ranks show which."
            )
    return ""


def is_outdated(run: Run) -> bool:
    """Return whether the run was made by a version without the table of steps."""
    return "steps" not in run.tables


def basis(account: StepAccount) -> str:
    """Return what the times are: ``mean of 6 profiler steps``."""
    if not account.is_marked:
        return "the recording, which marks no steps"
    steps = counted(account.step_count, f"{account.source.value} step")
    mean = steps if account.step_count == 1 else f"mean of {steps}"
    if not account.runs_ahead:
        return mean
    marked = milliseconds(account.mean_ms(account.marked_ns))
    return f"{mean}, timed on the GPU; the marks of the host, which runs ahead, take {marked}"


def throughput(account: StepAccount) -> str:
    """Return the tokens per second of step time, or why they are not known."""
    if account.tokens_per_s is None:
        return "Tokens or samples per second are not known, as no annotation counts them"
    return f"{decimal(account.tokens_per_s)} tokens per second, counted by the engine's annotations"


def rates(run: Run, account: StepAccount) -> str:
    """Return tokens per second and the utilization of the FLOPs, or why they are not known."""
    mfu = utilization.sentence(utilization.utilization(run, account))
    return f"{throughput(account)}. {mfu}"


def sentence(
    account: StepAccount, steps: pl.DataFrame, idle_gaps: pl.DataFrame, unlinked_ns: int = 0
) -> str:
    """Return the step time, the slow steps and the largest parts in one sentence.

    Args:
        account: The account of the steps.
        steps: The table ``steps``.
        idle_gaps: The gaps of the GPU window; that of carried-in work names where the host waits.
        unlinked_ns: Compute of the steps without a recorded launch (``unlinked_compute_ns``).
    """
    parts = sorted(account.rows().iter_rows(), key=lambda part: -part[2])
    unlinked_pct = account.pct(unlinked_ns)
    within = f" ({percent(unlinked_pct)} without a recorded launch)"
    of_part = {LABELS[C.compute_ns]: within} if unlinked_pct >= MIN_NAMED_PCT else {}
    named = [
        f"{label} {percent(pct)}{of_part.get(label, '')}"
        for label, _, pct in parts
        if pct >= MIN_NAMED_PCT
    ]
    carried_ms = account.mean_ms(account.carried_in_ns)
    slow = steps.filter(pl.col(C.is_slow)).drop_nulls(C.name).sort(C.excess_ns, descending=True)
    excess_ms = next(iter(slow[C.excess_ns]), 0) / 1e6
    average = MESSAGES(
        "step.average",
        steps=account.step_count,
        total_ms=account.total_ns / 1e6,
        slow=MESSAGES("step.slow", names=slow[C.name].to_list(), excess_ms=excess_ms)
        if slow.height
        else None,
    )
    ahead = MESSAGES("step.ahead", marked_ms=account.mean_ms(account.marked_ns))
    tail_ms = _tail_ns(steps) / 1e6
    has_tail = account.is_marked and tail_ms >= MIN_NAMED_PCT / 100 * account.step_ms
    values = {
        "step_ms": account.step_ms,
        "tail": MESSAGES("step.tail", tail_ms=tail_ms) if has_tail else None,
        "average": average if account.step_count > 1 else None,
        "ahead": ahead if account.runs_ahead else None,
        "parts": ", ".join(named),
        "carried": MESSAGES("step.carried", carried_ms=carried_ms, wait=_wait(idle_gaps))
        if carried_ms
        else None,
    }
    key = "step" if account.is_marked else "step.recording"
    return to_text(MESSAGES.pick(key, values))


def _tail_ns(steps: pl.DataFrame) -> int:
    """Return how long the GPU works for the steps after they have ended."""
    timed = steps.drop_nulls([C.start_ns, C.gpu_start_ns])
    ends = timed.select(
        of_steps=(pl.col(C.start_ns) + pl.col(C.dur_ns)).max(),
        of_gpu=(pl.col(C.gpu_start_ns) + pl.col(C.gpu_dur_ns)).max(),
    )
    of_steps, of_gpu = ends.row(0)
    return 0 if of_steps is None else max(0, of_gpu - of_steps)


def _wait(idle_gaps: pl.DataFrame) -> Message | None:
    """Return where the host waits during carried-in work; None if that is not recorded."""
    carried = idle_gaps.filter(pl.col(C.cause) == IdleCause.CARRIED_IN.value)
    waits = placed(carried).drop_nulls(C.host_call).sort(C.dur_ns, descending=True)
    return next(
        (MESSAGES("step.wait", call=where(gap)) for gap in waits.iter_rows(named=True)), None
    )


def account_parts(run: Run) -> dict[str, str | None]:
    """Return the account in Markdown, by the names of the templates."""
    account = account_of(run)
    if account is None:
        return {"step_basis": None, "step": OUTDATED if is_outdated(run) else None}
    return {
        "step_basis": f"{basis(account)}. {rates(run, account)}",
        "step": account_table(account),
    }


def account_table(account: StepAccount) -> Markdown:
    """Return the parts with their times and shares, and the step time that they add up to."""
    lines = [
        (title(label), milliseconds(time_ms), percent(pct))
        for label, time_ms, pct in account.rows()["part", C.time_ms, C.percent].iter_rows()
    ]
    lines.append(("Step time", milliseconds(account.step_ms), percent(100.0)))
    return table(("Part", "Time per step", "% of step time"), lines)
