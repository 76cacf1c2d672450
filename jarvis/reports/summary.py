"""The executive summary of the report for stakeholders: at most twenty lines."""

from collections.abc import Iterator, Mapping

from jarvis import impact, savings
from jarvis.findings import IDLE_POOL, Priority, Status
from jarvis.perf_report import Totals
from jarvis.reports import sections
from jarvis.reports.details import Details
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.run.manifest import TopOperation
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, NOT_AVAILABLE, decimal, percent
from jarvis.text.markdown import Markdown, cell, table
from jarvis.text.messages import to_text

MIN_MENTIONED_PCT = 1.0
"""Other parts of the wall time are mentioned in the summary from this share on, in percent."""


MOSTLY_COMPUTE_PCT = 50.0
"""Below this compute share of the wall time, the summary states how little kernels can gain."""


def paragraph(run: Run, details: list[Details], *, is_whole: bool = True) -> str:
    """Return what was analyzed, what to do first, and the total gain.

    ``is_whole`` is true if ``details`` are all findings of the run.
    """
    return " ".join(
        part
        for part in (
            _source(run),
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
    yield "GPU Utilization", _utilization(totals)
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
    if not details or details[0].finding.priority is Priority.LOW:
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
    return to_text(
        MESSAGES(
            "summary.all",
            findings=len(findings),
            critical=critical or "none",
            saved_ms=saved_ms,
            saved_pct=impact.share_pct(saved_ms, savings.whole_ms(totals)),
            whole=savings.whole_name(totals),
        )
    )


def _before_kernels(run: Run, details: list[Details]) -> str | None:
    totals = run.manifest.totals
    if totals.compute_pct is None or totals.compute_pct >= impact.GOOD_COMPUTE_PCT:
        return None
    waits = " and ".join(name for name, pct in _beside_compute(totals) if pct >= MIN_MENTIONED_PCT)
    if not waits:
        return None
    intro = f"Compute fills less than {impact.GOOD_COMPUTE_PCT:g}% of the wall time"
    if _is_idle_in_doubt(details):
        return (
            f"{intro}, but most of the idle time may be work that was not recorded, so record the "
            "step again before drawing conclusions."
        )
    has_card = any(
        d.recommendation.result.tier == "system" and d.finding.priority is not Priority.LOW
        for d in details
    )
    if has_card:
        limit = (
            ""
            if totals.compute_pct >= MOSTLY_COMPUTE_PCT
            else ", which can save at most the compute time"
        )
        return f"{intro}, so address {waits} before single kernels{limit}."
    verb = "stay" if " and " in waits else "stays"
    return f"{intro}, but {waits} {verb} below the threshold for a finding."


def _is_idle_in_doubt(details: list[Details]) -> bool:
    """Return whether the first finding is idle time that may not be idle, without a known
    saving."""
    first = details[0].finding if details else None
    return first is not None and first.time_pool == IDLE_POOL and first.impact is None


def _beside_compute(totals: Totals) -> list[tuple[str, float]]:
    """Return the other parts of the wall time with their shares, largest first."""
    shares = {
        "idle time": totals.idle_pct or 0.0,
        "exposed communication": totals.exposed_comm_pct or 0.0,
        "exposed copies": totals.exposed_memcpy_pct or 0.0,
    }
    return sorted(shares.items(), key=lambda share: -share[1])


def _utilization(totals: Totals) -> str:
    parts = [
        f"{percent(totals.compute_pct)} computing",
        f"{percent(totals.busy_pct)} busy",
        f"{percent(totals.idle_pct)} idle",
        f"{percent(totals.exposed_comm_pct)} exposed communication",
    ]
    if (totals.exposed_memcpy_pct or 0.0) >= MIN_MENTIONED_PCT:
        parts.append(f"{percent(totals.exposed_memcpy_pct)} exposed copies")
    return ", ".join(parts)


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
