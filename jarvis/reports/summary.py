"""The executive summary of the report for stakeholders: at most twenty lines."""

from collections.abc import Iterator, Mapping

from jarvis import impact, savings
from jarvis.findings import IDLE_POOL, Priority, Status
from jarvis.reports import sections
from jarvis.reports.account import MIN_NAMED_PCT, account_of, sentence
from jarvis.reports.details import Details
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.run.manifest import TopOperation
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, NOT_AVAILABLE, decimal, percent
from jarvis.text.markdown import Markdown, cell, table
from jarvis.text.messages import to_text

MOSTLY_COMPUTE_PCT = 50.0
"""Below this compute share, the summary states how little kernels can gain."""

COMPUTE, IDLE, COMM, COPIES = "computing", "idle", "exposed communication", "exposed copies"
WAITS = {IDLE: "idle time", COMM: COMM, COPIES: COPIES}


def paragraph(run: Run, details: list[Details], *, is_whole: bool = True) -> str:
    """Return what was analyzed, what to do first, and the total gain.

    ``is_whole`` is true if ``details`` are all findings of the run.
    """
    return " ".join(
        part
        for part in (
            _source(run),
            _step(run),
            _first(details, is_whole),
            _all(run, details),
            _before_kernels(run, details),
        )
        if part
    )


def metrics(run: Run) -> Iterator[tuple[str, str]]:
    """Yield name and value of the main metrics."""
    totals = run.manifest.totals
    yield (
        "Total Compute Time",
        to_text(
            MESSAGES(
                "summary.compute",
                compute_ms=totals.compute_time_ms,
                total_ms=totals.total_time_ms,
            )
        ),
    )
    yield "GPU Utilization", _utilization(run)
    heaviest = next(iter(sections.compute_results(run)), None)
    yield (
        "Top Bottleneck Category",
        f"{heaviest.title} ({percent(heaviest.percent_of_compute)} of compute)"
        if heaviest
        else NOT_AVAILABLE,
    )
    yield "Flash Attention Usage", _flash_attention(run)


def top_operations(run: Run) -> Markdown:
    """Return the operators that launched most GPU time, across all categories."""
    timed = run.table("operations")[[C.uid, C.category, C.kernel_time_us]]
    places = {uid: (category, time_us) for uid, category, time_us in timed.iter_rows()}
    return table(
        ("Rank", "Operation", "Category", "Time (ms)", "% of Total Compute"),
        (
            (
                str(top.rank),
                cell(top.name),
                _categories_of(run, top, places),
                decimal(top.time_ms),
                percent(top.percent_of_compute),
            )
            for top in run.manifest.top_operations
        ),
    )


def _source(run: Run) -> str:
    hardware, trace = run.manifest.hardware, sections.trace_line(run)
    judged = f", with the peaks of {sections.preset_name(hardware)}" if hardware else ""
    named = "" if run.manifest.model_name else " The title is its file name: no model was named."
    missing = "" if hardware else f" {sections.hardware_line(None)}"
    return f"From the {trace}{judged}.{named}{missing}"


def _first(details: list[Details], is_whole: bool) -> str:
    if all(detail.finding.priority is Priority.LOW for detail in details):
        return f"No finding{'' if is_whole else ' of this report'} is above low priority."
    first = details[0]
    label, title, gain = first.recommendation.label, first.finding.title, first.finding.impact
    if gain is None:
        return f"{label} ({to_text(title)}) comes first."
    return to_text(
        MESSAGES(
            "summary.first",
            label=label,
            title=title,
            about="up to" if gain.is_interval else "about",
            gain_ms=gain.gain_ms,
            gain_pct=gain.gain_pct,
            whole=savings.whole_name(first.totals),
        )
    )


def _all(run: Run, details: list[Details]) -> str | None:
    findings = [detail.finding for detail in details]
    if not findings:
        return None
    critical = sum(finding.priority is Priority.CRITICAL for finding in findings)
    totals = run.manifest.totals
    saved_ms = savings.disjoint_saving_ms(findings, totals)
    values = {
        "findings": len(findings),
        "critical": critical or "none",
        "saved_ms": saved_ms,
        "saved_pct": impact.share_pct(saved_ms, savings.whole_ms(totals)),
        "whole": savings.whole_name(totals),
    }
    return to_text(MESSAGES.pick("summary.all" if saved_ms > 0 else "summary.all.nothing", values))


def _step(run: Run) -> str | None:
    account = account_of(run)
    return None if account is None else sentence(account)


def _before_kernels(run: Run, details: list[Details]) -> str | None:
    """Return what to address before kernels, if it has a finding."""
    shares = _shares(run)
    if shares is None or shares[COMPUTE] >= impact.GOOD_COMPUTE_PCT:
        return None
    beside = sorted((part for part in shares.items() if part[0] in WAITS), key=lambda p: -p[1])
    waits = " and ".join(WAITS[name] for name, pct in beside if pct >= MIN_NAMED_PCT)
    if not waits:
        return None
    intro = f"Compute fills less than {impact.GOOD_COMPUTE_PCT:g}% of the {_whole(run)}"
    if _is_idle_in_doubt(details):
        return (
            f"{intro}, but most of the idle time may be work that was not recorded, so record the "
            "step again before drawing conclusions."
        )
    has_card = any(
        d.recommendation.result.tier == "system" and d.finding.priority is not Priority.LOW
        for d in details
    )
    if not has_card:
        return None
    limit = (
        "" if shares[COMPUTE] >= MOSTLY_COMPUTE_PCT else ", which can save at most the compute time"
    )
    return f"{intro}, so address {waits} before single kernels{limit}."


def _is_idle_in_doubt(details: list[Details]) -> bool:
    """Return whether the first finding is idle time that may not be idle, without a known
    saving."""
    first = details[0].finding if details else None
    if first is None or first.impact is not None or first.time_pool is None:
        return False
    return first.time_pool.startswith(IDLE_POOL)


def _shares(run: Run) -> dict[str, float] | None:
    """Return the parts of the step time in percent; of the GPU window if the steps are not known.

    None without GPU work.
    """
    totals, account = run.manifest.totals, account_of(run)
    if account is not None:
        parts = {part: account.pct(time_ns) for part, time_ns in account.parts_ns.items()}
        compute, comm, copy = (
            parts[part] for part in (C.compute_ns, C.exposed_comm_ns, C.exposed_copy_ns)
        )
        idle = account.pct(account.idle_ns)
    elif totals.compute_pct is None:
        return None
    else:
        compute, comm, copy, idle = (
            share or 0.0
            for share in (
                totals.compute_pct,
                totals.exposed_comm_pct,
                totals.exposed_memcpy_pct,
                totals.idle_pct,
            )
        )
    return {COMPUTE: compute, "busy": 100 - idle, IDLE: idle, COMM: comm, COPIES: copy}


def _whole(run: Run) -> str:
    account = account_of(run)
    if account is None:
        return "GPU window"
    return "step time" if account.is_marked else "recording"


def _utilization(run: Run) -> str:
    shares = _shares(run)
    if shares is None:
        return NOT_AVAILABLE
    shown = (f"{percent(p)} {n}" for n, p in shares.items() if n != COPIES or p >= MIN_NAMED_PCT)
    return f"{', '.join(shown)} (of the {_whole(run)})"


def _flash_attention(run: Run) -> str:
    result = run.results.get("sdpa_fwd")
    if result is None or result.status is Status.ERROR:
        return NOT_AVAILABLE
    if result.status is Status.NO_DATA:
        return "No (no attention in the trace)"
    is_used = result.metrics.get("flash_attention_detected")
    if is_used is None:
        return NOT_AVAILABLE
    if is_used:
        return "Yes"
    return "No (paged attention)" if result.metrics.get("paged_attention_detected") else "No"


def _categories_of(run: Run, top: TopOperation, places: Mapping[int, tuple[str, float]]) -> str:
    """Return the categories of a launcher's time, most first: a graph launch runs kernels of many
    kinds.

    ``places``: category and time of each row of operations by uid.
    """
    times: dict[str, float] = {}
    for category, time_us in (places[uid] for uid in top.operation_uids if uid in places):
        times[category] = times.get(category, 0.0) + time_us
    most = sorted(times, key=lambda category: (-times[category], category))
    keys = most or ([top.category] if top.category else [])
    if not keys:
        return MISSING
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{run.results[keys[0]].title if keys[0] in run.results else keys[0]}{more}"
