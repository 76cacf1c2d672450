"""The parts of the overview page."""

from collections.abc import Mapping
from urllib.parse import urlencode

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.wording import counted
from jarvis.dashboard import navigation
from jarvis.dashboard.controls import target_slider
from jarvis.dashboard.figures import figure
from jarvis.dashboard.finding_cards import PRIORITY_COLOURS
from jarvis.dashboard.links import ANALYSIS
from jarvis.dashboard.projection import operation_columns, reprojected, with_savings
from jarvis.dashboard.small_table import configured, small_table
from jarvis.dashboard.state import Opened, palette
from jarvis.findings import Status
from jarvis.impact import share_pct
from jarvis.reports.health import health_line, health_of
from jarvis.reports.markup import escape
from jarvis.reports.quantities import MISSING, byte_size, count, milliseconds, percent
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.schemas import NUMBER, TABLES, TEXT, Column
from jarvis.trace_health import TABLE as HEALTH
from jarvis.trace_health import Fact

_PAGE = "overview"
_TABLE_ROWS, _TABLE_PX = 12, 460


def trace_health(now: Opened) -> None:
    """Under the warnings of the page's head: every fact about the input."""
    facts = health_of(now.run)
    with st.expander(f"Trace health: {health_line(facts)}", icon=":material/health_metrics:"):
        columns = charts.columns_of(TABLES[HEALTH])
        small_table(now.run.table(HEALTH), columns, "Facts about the trace", _HEALTH_COLUMNS)


_HEALTH_COLUMNS = ("severity", "title", "summary", "affects", "remedy")


def controls() -> int:
    """The target efficiency of this page."""
    with st.container(border=True):
        place, _ = st.columns([3, 4])
        with place:
            return target_slider(_PAGE)


def figures(now: Opened, target_pct: int) -> None:
    """Six cards: how the time divides, what could be saved, and where to begin."""
    totals = now.run.manifest.totals
    saving = float(_by_category(now, target_pct)["saved_ms"].sum())
    worst = next(iter(recommendations(now.run)), None)
    facts = {fact.key: fact for fact in health_of(now.run)}
    places = st.columns(6)
    with places[0]:
        figure(
            "GPU time",
            milliseconds(totals.total_time_ms),
            _steps(facts),
            help_text=f"From the first GPU start to the last GPU end. {_with_unlinked(facts)}",
        )
    with places[1]:
        figure(
            "Compute",
            percent(totals.compute_pct),
            milliseconds(totals.compute_time_ms),
            help_text="Time in which a compute kernel runs, in percent of GPU time.",
        )
    with places[2]:
        figure(
            "Exposed comm.",
            percent(totals.exposed_comm_pct),
            milliseconds(totals.exposed_comm_time_ms),
            help_text="Communication during which no compute runs, in percent of GPU time.",
        )
    with places[3]:
        figure(
            "Idle",
            percent(totals.idle_pct),
            milliseconds(totals.idle_time_ms),
            help_text="Time in which the GPU does nothing, in percent of GPU time.",
        )
    with places[4]:
        figure(
            f"Saving at {target_pct}%",
            milliseconds(saving),
            f"{percent(share_pct(saving, totals.total_time_ms))} of GPU time",
            help_text="What all operations below the target would save if they reached it. Idle "
            "time and communication come on top; see the findings.",
        )
    with places[5].container(border=True, height="stretch", gap="xsmall"):
        st.markdown("Top bottleneck", help="Where the most urgent finding is.")
        if worst is None:
            st.caption("No finding.")
        else:
            title = worst.result.title
            navigation.link(worst.finding.category, f"**{title}**", icon=":material/arrow_forward:")
            st.caption(worst.title)


def _steps(facts: Mapping[str, Fact]) -> str:
    steps = counted(int(facts["steps"].value or 0), "profiler step")
    step = facts.get("step_time")
    return f"{steps}, {milliseconds(step.value)} on the host" if step else steps


def _with_unlinked(facts: Mapping[str, Fact]) -> str:
    span = facts.get("gpu_span_all")
    return f"With unlinked work: {milliseconds(span.value)}." if span else ""


def gpu_time(now: Opened, target_pct: int) -> None:
    """One bar of GPU time, and one for each category with what the target would save of it."""
    totals = now.run.manifest.totals
    parts = pl.DataFrame(
        {
            "part": ["compute", "exposed communication", "exposed copies", "idle"],
            "time_ms": [
                totals.compute_time_ms,
                totals.exposed_comm_time_ms,
                totals.exposed_memcpy_time_ms,
                totals.idle_time_ms,
            ],
            "percent": [
                totals.compute_pct,
                totals.exposed_comm_pct,
                totals.exposed_memcpy_pct,
                totals.idle_pct,
            ],
        }
    )
    with st.container(border=True):
        st.markdown(f"**GPU time** · {milliseconds(totals.total_time_ms)}, by what runs")
        st.altair_chart(charts.parts_of_time(parts, palette()), alt="Parts of GPU time")
    categories = _by_category(now, target_pct).filter(pl.col("gpu_time_ms") > 0)
    with st.container(border=True):
        st.markdown(
            f"**Categories** · kernel time in ms, strong: what {target_pct}% of the roofline would "
            "save"
        )
        if categories.is_empty():
            st.caption("No operation of this trace launched GPU work.")
            return
        chart = charts.categories(categories, operation_columns(), palette())
        st.altair_chart(chart, alt="GPU time and saving of each category")


def ranked_findings(now: Opened, target_pct: int) -> None:
    """All findings, most urgent first, each with a link to its page and row."""
    ranked = recommendations(now.run)
    st.subheader("What to do first")
    if not ranked:
        st.success("Nothing to fix by the checks of this version.", icon=":material/check:")
        return
    frame = pl.DataFrame(
        [_finding_row(now, r, target_pct) for r in ranked], infer_schema_length=None
    )
    config = {c.name: configured(c, frame.schema[c.name]) for c in _FINDING_COLUMNS}
    config["priority"] = st.column_config.MultiselectColumn(
        "Priority",
        options=[str(priority) for priority in PRIORITY_COLOURS],
        color=list(PRIORITY_COLOURS.values()),
        help="How urgent it is",
    )
    config["open"] = st.column_config.LinkColumn(
        "Open", display_text=":material/open_in_new:", help="The page and row of the finding"
    )
    st.dataframe(
        frame,
        hide_index=True,
        column_config=config,
        height="content" if frame.height <= _TABLE_ROWS else _TABLE_PX,
        placeholder=MISSING,
        alt="Findings by priority with what each would save",
    )


_FINDING_COLUMNS = (
    Column("rank", "Rank", TEXT, meaning="by priority, then by saving"),
    Column("category", "Category", TEXT, meaning="the page that it is from"),
    Column("finding", "Finding", TEXT, meaning="what is slow"),
    Column("saved_ms", "Saving (ms)", NUMBER, "ms", ",.3f", "middle estimate"),
    Column("wall_pct", "Of GPU time (%)", NUMBER, "%", ",.2f", "the saving in GPU wall time"),
    Column("method", "Estimate", TEXT, meaning="where the estimate comes from"),
)


def _finding_row(now: Opened, ranked: Recommendation, target_pct: int) -> dict[str, object]:
    finding = ranked.finding
    gain = reprojected(finding, target_pct, now.run.manifest.totals)
    parameters = {ANALYSIS: now.id}
    if ranked.result.tier == "compute":
        parameters[f"{finding.category}_target"] = str(target_pct)
    if finding.operations:
        parameters[f"{finding.category}_op"] = str(finding.operations[0].uid)
    return {
        "rank": ranked.label,
        "priority": [str(finding.priority)],
        "category": ranked.result.title,
        "finding": finding.title.replace("`", ""),
        "saved_ms": gain.saved_ms.mid if gain else None,
        "wall_pct": gain.e2e_pct.mid if gain else None,
        "method": gain.method if gain else "not quantified",
        "open": f"{finding.category}?{urlencode(parameters)}",
    }


def top_operations(now: Opened) -> None:
    """The operators with most GPU time, across all categories."""
    st.subheader("Top operations")
    top = now.run.manifest.top_operations
    if not top:
        st.caption("No operator launched GPU work.")
        return
    titles = {key: result.title for key, result in now.run.results.items()}
    rows = [
        {**operation.model_dump(), "category": titles.get(operation.category or "")}
        for operation in top
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    small_table(frame, charts.columns_of(_TOP_COLUMNS), "Operators with most GPU time")


_TOP_COLUMNS = (
    Column("rank", "Rank", pl.Int64(), meaning="by GPU time"),
    Column("name", "Operation", TEXT, meaning="operator that launches the kernels"),
    Column("category", "Category", TEXT, meaning="where its heaviest row is"),
    Column("time_ms", "GPU time (ms)", NUMBER, "ms", ",.3f", "of all its calls"),
    Column("count", "Count", pl.Int64(), format=",d", meaning="calls that launched GPU work"),
    Column("percent_of_compute", "% of compute", NUMBER, "%", ",.2f", "share of compute time"),
    Column("percent_of_total", "% of GPU time", NUMBER, "%", ",.2f", "share of GPU wall time"),
    Column("efficiency_pct", "Efficiency (%)", NUMBER, "%", ",.1f", "share of the roofline"),
    Column("bound", "Bound", TEXT, meaning="which peak limits it"),
)


def against_reference(now: Opened) -> None:
    """Operations that the reference has too, where the run was given one."""
    if "comparison" not in now.run.manifest.tables:
        return
    st.subheader("Against the reference")
    rows = now.run.table("comparison").sort("unexpected_us", descending=True, nulls_last=True)
    slower = rows.filter(pl.col("is_unexpected"))
    st.caption(
        f"{count(rows.height)} operations have the same name, shapes and dtypes in analysis "
        f"{escape(now.run.manifest.reference or '')}; slower than bandwidths or compute peaks "
        f"of the two GPUs explain: {count(slower.height)}."
    )
    columns = charts.columns_of(TABLES["comparison"])
    small_table(rows, columns, "Operations of both traces", _COMPARED)


_COMPARED = (
    "name",
    "input_dims",
    "operation_count",
    "unexpected_us",
    "kernel_time_us_mean",
    "reference_time_us_mean",
    "time_ratio",
    "expected_ratio",
    "bound",
)


def failed_models(now: Opened) -> None:
    """Perf models that did not fit their arguments, if any."""
    failures = now.run.manifest.perf_model_failures
    if not failures:
        return
    st.warning(
        f"The perf model failed for {count(len(failures))} of the operations: they have no FLOPs, "
        "bytes and efficiency. The rest of the analysis is not affected.",
        icon=":material/warning:",
    )
    frame = pl.DataFrame([failure.model_dump() for failure in failures], infer_schema_length=None)
    columns = charts.columns_of(TABLES["perf_model_failures"])
    small_table(frame, columns, "Operations whose perf model failed")


def trace_facts(now: Opened) -> None:
    """What the trace is, and what it recorded."""
    trace = now.run.manifest.trace
    events = sum(trace.event_counts.values())
    facts = {
        "File": f"{trace.file_name} ({byte_size(trace.size_bytes)}, {trace.origin})",
        "Devices": ", ".join(trace.device_names) or "not named",
        "Rank": "not distributed"
        if trace.rank is None
        else f"{trace.rank} of {count(trace.world_size)}",
        "Span": f"{milliseconds(trace.span_us / 1000)}, {counted(trace.steps, 'profiler step')}",
        "Events": f"{count(events)}: "
        + ", ".join(f"{count(n)} {name}" for name, n in sorted(trace.event_counts.items())),
        "Recorded": ", ".join(
            [
                "shapes" if trace.has_shapes else "no shapes",
                "Python stacks" if trace.has_stacks else "no Python stacks",
                "GPU events only" if trace.gpu_only else "host and GPU events",
            ]
        ),
        "Reference": now.run.manifest.reference or "none",
        "Analysed": f"{now.run.manifest.created} with Jarvis {now.run.manifest.jarvis_version}",
    }
    with st.expander("The trace", icon=":material/info:"):
        st.table(
            pl.DataFrame({"What": list(facts), "Value": list(facts.values())}),
            hide_index=True,
            hide_header=True,
            border="horizontal",
            alt="Facts about the trace",
        )


def _by_category(now: Opened, target_pct: float) -> pl.DataFrame:
    """``title``, ``gpu_time_ms`` and ``saved_ms`` of each category, most time first."""
    titles = {
        key: result.title
        for key, result in now.run.results.items()
        if result.tier == "compute" and result.status is not Status.NO_DATA
    }
    operations = with_savings(now.run.table("operations"), target_pct)
    return (
        operations.group_by("category")
        .agg(
            gpu_time_ms=pl.col("kernel_time_us").sum() / 1000,
            saved_ms=pl.col("saved_us").sum() / 1000,
        )
        .with_columns(title=pl.col("category").replace(titles))
        .sort("gpu_time_ms", "category", descending=[True, False])
    )
