"""The executive summary of the reports: at most five sentences, and the main metrics."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, takewhile

import polars as pl

from jarvis import impact, savings
from jarvis.analyses.system.cpu_idle.causes import CAUSE_FINDING_PCT
from jarvis.findings import COMMUNICATION_POOL, COPIES_POOL, IDLE_POOL, Priority, Status
from jarvis.reports import sections
from jarvis.reports.account import MIN_NAMED_PCT, account_of, sentence, unlinked_compute_ns
from jarvis.reports.details import Details
from jarvis.reports.health import health_of
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.run.manifest import TopOperation
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, NOT_AVAILABLE, counted, decimal, milliseconds, percent
from jarvis.text.markdown import Markdown, cell, table
from jarvis.text.messages import Text, literal, to_text
from jarvis.text.short_names import LAUNCHED, short_kernel_name
from jarvis.trace_health import Severity

MOSTLY_COMPUTE_PCT = 50.0
"""Below this compute share, the summary states how little kernels can gain."""

COMPUTE, IDLE, COMM, COPIES = "computing", "idle", "exposed communication", "exposed copies"
WAITS = {
    IDLE: ("idle time", IDLE_POOL),
    COMM: (COMM, COMMUNICATION_POOL),
    COPIES: (COPIES, COPIES_POOL),
}
"""Name and pool of time of what the GPU does instead of computing."""

URGENT = (Priority.CRITICAL, Priority.HIGH)

HIDDEN = {
    "operators": "which operators launch the kernels",
    "shapes": "the shapes of operators, so not their efficiency",
    "graph_replay": "operators and shapes of the work replayed from GPU graphs",
    "linked_gpu_time": "which host calls launched part of the GPU work",
    "stacks": "source lines",
    "steps": "single steps",
}
"""What a trace cannot show, by the key of the fact."""

ONE_RANK = "whether its rank waits for others or transfers data"


def paragraph(run: Run, details: list[Details], *, is_whole: bool = True) -> str:
    """Return at most five sentences: the step, what costs most, and what the trace cannot show.

    ``is_whole`` is true if ``details`` are all findings of the run.
    """
    parts = (
        _step(run),
        *_costs(run, details, is_whole),
        _before_kernels(run, details),
        _hidden(run),
    )
    return " ".join(filter(None, parts))


def first_sentences(run: Run, details: list[Details]) -> tuple[str | None, str]:
    """Return the first sentences of ``paragraph`` for all findings: the step, if it is known, and
    what costs most."""
    return _step(run), next(_costs(run, details, is_whole=True), "")


def metrics(run: Run) -> Iterator[tuple[str, str]]:
    """Yield name and value of the main metrics."""
    totals = run.manifest.totals
    compute = to_text(MESSAGES("summary.compute", compute_ms=totals.compute_time_ms))
    compute = f"{compute} {savings.over_steps(totals)}".strip()
    yield "Total Compute Time", f"{compute}{_unlinked_compute(run)}"
    yield "GPU Utilization", _utilization(run)
    yield "Top Bottleneck Category", _heaviest(run)
    yield "Flash Attention Usage", _flash_attention(run)


def top_names(run: Run) -> dict[int, str]:
    """Return the names of the top operations by rank, as category pages and findings have them.

    An operator that launches kernels (``aten::miopen_convolution``) has the name of its rows of
    operations (``aten::convolution``), if they all have one that no other top operation has.
    Kernels without an operator keep their names.
    """
    tops = run.manifest.top_operations
    uids = [uid for top in tops for uid in top.operation_uids]
    rows = run.table("operations").select(C.uid, C.name).filter(pl.col(C.uid).is_in(uids))
    names = {uid: name for uid, name in rows.iter_rows() if LAUNCHED not in name}
    found = {top.rank: {names[uid] for uid in top.operation_uids if uid in names} for top in tops}
    uses = Counter(chain.from_iterable(found.values()))
    chosen = {}
    for top in tops:
        own = ", ".join(found[top.rank])
        chosen[top.rank] = own if uses[own] == 1 else top.name
    return chosen


def top_operations(run: Run, limit: int) -> Markdown:
    """Return the operators that launched most GPU time, across all categories."""
    timed = run.table("operations")[[C.uid, C.category, C.kernel_time_us]]
    places = {uid: (category, time_us) for uid, category, time_us in timed.iter_rows()}
    names = top_names(run)
    return table(
        ("Rank", "Operation", "Category", "Time (ms)", "% of Total Compute"),
        (
            (
                str(top.rank),
                cell(short_kernel_name(names[top.rank])),
                _categories_of(run, top, places),
                decimal(top.time_ms),
                percent(top.percent_of_compute),
            )
            for top in run.manifest.top_operations[:limit]
        ),
    )


def _step(run: Run) -> str | None:
    """Return what one step takes and consists of; of the GPU window if it is not known."""
    account, shares = account_of(run), _shares(run)
    if account is not None:
        gaps, unlinked_ns = run.table("idle_gaps"), unlinked_compute_ns(run)
        return sentence(account, run.table("steps"), gaps, unlinked_ns)
    if shares is None:
        return None
    parts = (f"{name} {percent(pct)}" for name, pct in shares.items() if pct >= MIN_NAMED_PCT)
    total_ms = run.manifest.totals.total_time_ms
    return f"The GPU window takes {milliseconds(total_ms)}: {', '.join(parts)}."


def _costs(run: Run, details: list[Details], is_whole: bool) -> Iterator[str]:
    """Yield the first finding, and the next one that would save other time, with savings."""
    urgent = [d for d in details if d.finding.priority is not Priority.LOW]
    if not urgent:
        causes = _small_causes(run) if is_whole else ""
        yield f"No finding{'' if is_whole else ' of this report'} is above low priority{causes}."
        return
    first = urgent[0]
    sources = savings.time_sources(first.finding)
    others = (d for d in urgent[1:] if not savings.time_sources(d.finding) & sources)
    for key, detail in (("first", first), ("next", next(others, None))):
        if detail is not None and detail.finding.impact is not None:
            saving = detail.short_saving
            yield to_text(MESSAGES(f"summary.{key}", title=_subject(detail), saving=saving))
        elif key == "first":
            lacks_shapes = first.finding.leads and first.finding.time_pool is None
            key = "summary.incomplete" if lacks_shapes else "summary.leads"
            yield to_text(MESSAGES(key, title=first.finding.title))


def _small_causes(run: Run) -> str:
    """Return that each cause of idle time is too small for a finding, if they are not together."""
    account = account_of(run)
    if account is None or account.pct(account.idle_ns) < CAUSE_FINDING_PCT:
        return ""
    causes = run.table("step_gaps").group_by(C.cause).agg(pl.col(C.dur_ns).sum())
    if account.pct(max(causes[C.dur_ns], default=0)) >= CAUSE_FINDING_PCT:
        return ""
    return f": no cause of idle time takes {CAUSE_FINDING_PCT:g}% of the {_whole(run)}"


def _subject(detail: Details) -> Text:
    """Return the title of a finding; that of its analysis if it is about kernels without an
    operator, whose names only an engineer knows."""
    rows, result = detail.rows, detail.recommendation.result
    if rows is not None and (rows[C.name] == rows[C.main_kernel]).any():
        return (literal(f"{result.title}, {detail.recommendation.label}"),)
    return detail.finding.title


def _hidden(run: Run) -> str | None:
    """Return what the trace cannot show, from its health and the limits of one rank."""
    facts = health_of(run)
    health = {fact.key for fact in facts if fact.severity is not Severity.OK}
    if any(fact.key == "launched_before" and not fact.value for fact in facts):
        health.discard("linked_gpu_time")  # the calls are known, without arrows
    missing = [text for key, text in HIDDEN.items() if key in health]
    findings = [f for result in run.results.values() for f in result.findings]
    if any(f.impact and f.impact.is_interval for f in findings):
        missing.append(ONE_RANK)
    without_peaks = "" if run.manifest.hardware else sections.hardware_line(None)
    if not missing:
        return without_peaks or None
    *most, last = missing
    listed = f"{', '.join(most)} or {last}" if most else last
    return f"The trace does not show {listed}.{' ' if without_peaks else ''}{without_peaks}"


def _before_kernels(run: Run, details: list[Details]) -> str | None:
    """Return what to address before kernels: what has a finding before the first one on them."""
    shares = _shares(run)
    if shares is None or shares[COMPUTE] >= impact.GOOD_COMPUTE_PCT:
        return None
    beside = sorted((part for part in shares.items() if part[0] in WAITS), key=lambda p: -p[1])
    before = list(takewhile(lambda d: d.recommendation.result.tier == "system", details))
    kernels = (d.finding for d in details if d.recommendation.result.tier != "system")
    ranks = [f.priority.rank for f in kernels if f.impact is None and f.priority in URGENT]
    # Nothing less urgent comes before kernels whose saving is not known.
    pools = [
        detail.finding.time_pool or ""
        for detail in before
        if not ranks or detail.finding.priority.rank <= min(ranks)
    ]
    named = (WAITS[name] for name, pct in beside if pct >= MIN_NAMED_PCT)
    waits = " and ".join(
        wait for wait, pool in named if any(each.startswith(pool) for each in pools)
    )
    intro = f"Compute takes only {percent(shares[COMPUTE])} of the {_whole(run)}"
    if _is_idle_in_doubt(details):
        return (
            f"{intro}, but most of the idle time may be work that was not recorded, so record the "
            "step again before drawing conclusions."
        )
    if not waits:
        return None
    limit = "" if shares[COMPUTE] >= MOSTLY_COMPUTE_PCT else _kernel_limit(run)
    not_known = ", for some of which the saving is not known" if ranks else ""
    return f"{intro}, so address {waits} before single kernels{limit or not_known}."


def _kernel_limit(run: Run) -> str:
    """Return the most that shorter kernels save."""
    simulation = run.simulation_if_any
    if simulation is None:
        return ", which can save at most the compute time"
    totals = run.manifest.totals
    saved = milliseconds(simulation.compute_saved_ms / savings.step_count(totals))
    if saved == milliseconds(0):
        return ", which save nothing of it"
    return f", which can save at most {saved} of {savings.whole_name(totals)}"


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


def _unlinked_compute(run: Run) -> str:
    """Return the compute of the steps that is not in the GPU window, if that is much."""
    more_ms = unlinked_compute_ns(run) / 1e6
    if more_ms < MIN_NAMED_PCT / 100 * run.manifest.totals.compute_time_ms or not more_ms:
        return ""
    return f"; {milliseconds(more_ms)} more in the steps is not linked to host calls"


def _heaviest(run: Run) -> str:
    """Return the category with most kernel time, and what takes more of the step than it."""
    heaviest, shares = next(iter(sections.compute_results(run)), None), _shares(run)
    if heaviest is None:
        return NOT_AVAILABLE
    of_compute = heaviest.percent_of_compute or 0.0
    text = f"{heaviest.title} ({percent(of_compute)} of compute)"
    if shares is None:
        return text
    longest = max(WAITS, key=lambda part: shares[part])
    if shares[longest] <= shares[COMPUTE] * of_compute / impact.FULL_PCT:
        return text
    name, _ = WAITS[longest]
    return f"{text}; {name} takes more ({percent(shares[longest])} of the {_whole(run)})"


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
        unfused = sum(finding.check == "unfused_attention" for finding in result.findings)
        return f"Partly ({counted(unfused, 'finding')} on unfused attention)" if unfused else "Yes"
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
