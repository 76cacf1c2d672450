"""The lower half of the overview: top operations, the reference, failed models, the trace."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.comparison import SLOWER
from jarvis.dashboard.pages.compare.sides import REFERENCE
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.table import small_table
from jarvis.schemas import NUMBER, TABLES, TEXT, Column
from jarvis.text.format import byte_size, count, counted, milliseconds
from jarvis.text.markdown import escape
from jarvis.trace import TraceInfo


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
    if _OPERATIONS not in now.run.manifest.tables:
        return
    st.subheader("Against the reference")
    rows = now.run.table(_OPERATIONS).sort("unexplained_ms", descending=True, nulls_last=True)
    slower = rows.filter(pl.col("outcome").is_in(SLOWER))
    st.caption(
        f"{count(rows.height)} operations have a counterpart in analysis "
        f"{escape(now.run.manifest.reference or '')}; slower than bandwidths or compute peaks "
        f"of the two GPUs explain: {count(slower.height)}."
    )
    columns = charts.columns_of(TABLES[_OPERATIONS])
    small_table(rows, columns, "Operations of both traces", _COMPARED)
    reference = now.run.manifest.reference
    if reference in {entry.id for entry in visible_catalog().entries}:
        navigation.link(
            navigation.COMPARE,
            "Compare both analyses",
            icon=":material/compare_arrows:",
            **{REFERENCE: reference},
        )
    else:
        st.caption(
            "The reference is not on this server, or was removed since: this is what was "
            "stored of it with this analysis. The two cannot be compared anew."
        )


_OPERATIONS = "comparison_operations"
_COMPARED = (
    "name",
    "input_dims",
    "target_calls",
    "unexplained_ms",
    "target_us_per_call",
    "reference_us_per_call",
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
    kind = "performance report" if trace.form == "report" else trace.origin
    facts = {
        "File": f"{trace.file_name} ({byte_size(trace.size_bytes)}, {kind})",
        "Devices": ", ".join(trace.device_names) or "not named",
        **(_recording(trace) if trace.form == "trace" else {}),
        "Reference": now.run.manifest.reference or "none",
        "Analyzed": f"{now.run.manifest.created} with Jarvis {now.run.manifest.jarvis_version}",
    }
    with st.expander("The trace", icon=":material/info:"):
        st.table(
            pl.DataFrame({"What": list(facts), "Value": list(map(escape, facts.values()))}),
            hide_index=True,
            hide_header=True,
            border="horizontal",
            alt="Facts about the trace",
        )


def _recording(trace: TraceInfo) -> dict[str, str]:
    """What a trace says about its recording."""
    events = sum(trace.event_counts.values())
    return {
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
    }
