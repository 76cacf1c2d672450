"""The hardware page: presets with peaks and sources, and a comparison of two presets."""

from functools import partial
from math import isclose

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.core.errors import RunError
from jarvis.dashboard.session import links, navigation, state
from jarvis.dashboard.session.current_user import missing_role, request_job
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.controls import choice, list_choice
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job, took
from jarvis.dashboard.widgets.table import needed_px, small_table
from jarvis.hardware import (
    PRECISIONS,
    UNITS,
    Hardware,
    HardwareSpec,
    load_hardware,
    peak_label,
    preset_label,
)
from jarvis.run import Run
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.server.errors import UnknownAnalysisError
from jarvis.server.jobs.kinds import Reproject
from jarvis.server.queue import Job
from jarvis.server.storage.catalog import name_of
from jarvis.text.format import MISSING, counted, listed, milliseconds, percent
from jarvis.text.markdown import code, escape

ALL_VENDORS, NOTHING = "all", "nothing"
IN_USE, OWN = "open analysis", "your own"
_DATA_SHEET, _SAME_PEAK = "datasheet", 0.1
"""The preset with the peaks of a data sheet, and by how much of them others are about the same."""

_MAX_DOUBT_PX = 240
_PRESET_WIDTHS = {
    C.name: 80,
    "preset": 82,
    "used": 101,
    "doubts": 65,
    "memory_gb": 48,
    C.tb_per_s: 52,
    C.compute_units: 50,
    **dict.fromkeys(PRECISIONS, 60),
}
"""Widths in pixels; those of six precisions fit in a window of 1280 pixels."""

_NAMES = {
    "mem_bw_gbps": ("Memory bandwidth (TB/s)", 1e-3),
    "memory_gb": ("Memory (GB)", 1.0),
    "compute_units": ("Compute units", 1.0),
}


def catalog() -> Hardware:
    """Return all GPUs; show which custom ones cannot be used."""
    hardware = load_hardware()
    for path, reason in hardware.failures.items():
        st.warning(
            escape(f"The custom GPU {path.name} cannot be used. {reason}"),
            icon=":material/warning:",
        )
    return hardware


def open_analysis() -> state.Opened | None:
    """Return the open analysis, or None if there is none or it cannot be read."""
    try:
        return state.opened()
    except (state.NoAnalysisError, UnknownAnalysisError, RunError):
        return None


def open_run() -> Run | None:
    """Return the run of the open analysis, or None."""
    now = open_analysis()
    return now.run if now else None


def presets(hardware: Hardware) -> None:
    """Draw the table of all presets, the one of the open analysis first."""
    run = open_run()
    used = run.manifest.hardware if run else None
    vendors = list(dict.fromkeys(s.vendor for s in hardware if s.vendor))
    left, right = st.columns(2)
    with left:
        vendor = choice(
            "hardware_vendor", "Vendor", [ALL_VENDORS, *vendors], "Only GPUs of this vendor."
        )
    with right:
        unit = choice(
            "hardware_unit",
            "Peaks of",
            UNITS,
            "Matrix units run matrix products, vector units everything else.",
        )
    ordered = sorted(hardware, key=lambda s: used is None or s.title != used.title)
    shown = [s for s in ordered if vendor in (ALL_VENDORS, s.vendor)]
    names = len({s.name for s in shown})
    st.caption(
        f"{counted(names, 'GPU')} with {counted(len(shown), 'preset')}; scroll for all. Compute "
        f"peaks are in TFLOP/s, without structured sparsity; {MISSING} is an unknown peak. Some "
        "default presets have measured peaks, others those of the vendor (see the sources), so "
        "compare efficiencies only against the same preset. Peaks of MI250 and MI250X are those "
        "of one of the two dies."
    )
    columns = _preset_columns(unit)
    frame = pl.DataFrame(
        [_preset_row(spec, unit, used, hardware) for spec in shown],
        schema={column.name: column.dtype for column in columns},
    )
    small_table(frame, charts.columns_of(columns), "Peaks of GPUs", widths=_PRESET_WIDTHS)


def chosen(hardware: Hardware) -> tuple[HardwareSpec, HardwareSpec | None]:
    """Draw the choice of a preset (default: that of the open analysis) and one to compare with."""
    run = open_run()
    used = run.manifest.hardware if run else None
    specs = {spec.title: spec for spec in hardware}
    first = used.title if used is not None and used.title in specs else next(iter(specs))
    left, right = st.columns(2)
    with left:
        titles = [first, *(title for title in specs if title != first)]
        title = list_choice("hardware_gpu", "GPU and preset", titles, "Show peaks and sources.")
    with right:
        others = [NOTHING, *(other for other in specs if other != title)]
        other = list_choice("hardware_other", "Compared with", others, "Another GPU or preset.")
    return specs[title], specs.get(other)


def _preset_columns(unit: str) -> tuple[Column, ...]:
    return (
        Column(C.name, "GPU", TEXT, meaning="name in reports"),
        Column("preset", "Preset", TEXT, meaning="set of peaks; the first is the default"),
        Column("used", "Used by", TEXT, meaning="open analysis, or your own GPU"),
        Column(
            "doubts",
            "Uncertain",
            TEXT,
            meaning="values that may be wrong, of all values; see their sources",
        ),
        Column("memory_gb", "GB", NUMBER, "GB", ",g", "memory per device"),
        Column(C.tb_per_s, "TB/s", NUMBER, "TB/s", ",.3g", "peak bandwidth of the memory"),
        Column(
            C.compute_units,
            "Units",
            NUMBER,
            "",
            ",g",
            "streaming multiprocessors or compute units per device",
        ),
        *(
            Column(p, p, NUMBER, "TFLOP/s", ",.0f", f"dense peak of {unit} units in TFLOP/s")
            for p in PRECISIONS
        ),
    )


def _preset_row(
    spec: HardwareSpec, unit: str, used: HardwareSpec | None, hardware: Hardware
) -> dict[str, object]:
    doubtful = sum(spec.doubt_of(figure) is not None for figure in spec.figures)
    is_used = used is not None and used.title == spec.title
    marks = [IN_USE] * is_used + [OWN] * (hardware.custom_file(spec) is not None)
    return {
        C.name: spec.name,
        "preset": preset_label(spec.preset),
        "used": ", ".join(marks) or None,
        "memory_gb": spec.memory_gb,
        C.tb_per_s: spec.tb_per_s,
        C.compute_units: spec.compute_units,
        **{p: spec.peak_tflops(f"{unit}_{p}") for p in PRECISIONS},
        "doubts": f"{doubtful} of {len(spec.figures)}" if doubtful else None,
    }


def figures(spec: HardwareSpec, other: HardwareSpec | None) -> None:
    """Draw all values of a preset with sources, beside another preset, and missing peaks."""
    st.subheader(_title(spec, other))
    rows = [_figure_row(name, spec, other) for name in _figure_names(spec, other)]
    columns = charts.columns_of(_figure_columns(spec, other))
    frame = pl.DataFrame(rows, schema={name: column.dtype for name, column in columns.items()})
    doubts = frame.select(pl.selectors.ends_with("doubt"))
    small_table(
        frame,
        columns,
        f"Peaks of {spec.title}",
        widths={d.name: min(needed_px(d, columns[d.name].label), _MAX_DOUBT_PX) for d in doubts},
        max_rows=frame.height,
    )
    if other is None:
        _of_data_sheet(spec)
    _missing_peaks(spec)


def _of_data_sheet(spec: HardwareSpec) -> None:
    """Draw the peaks in which the data sheet of the GPU differs from a preset."""
    sheets = (s for s in load_hardware() if (s.name, s.preset) == (spec.name, _DATA_SHEET))
    sheet = next(sheets, spec)
    computes = [f"{unit}_{precision}" for unit in UNITS for precision in PRECISIONS]
    peaks = [(each, spec.peak_tflops(each), sheet.peak_tflops(each)) for each in computes]
    others = [
        f"{peak_label(each)} {theirs:,g} instead of {ours:,g}"
        for each, ours, theirs in peaks
        if ours and theirs and not isclose(ours, theirs, rel_tol=_SAME_PEAK)
    ]
    if others:
        st.caption(
            f"The data sheet (preset *{_DATA_SHEET}*) has other peaks, in TFLOP/s: "
            f"{', '.join(others)}."
        )


def _title(spec: HardwareSpec, other: HardwareSpec | None) -> str:
    if other is None:
        doubtful = sum(spec.doubt_of(figure) is not None for figure in spec.figures)
        known = counted(len(spec.figures), "value")
        doubt = f", {doubtful} of them uncertain" if doubtful else ""
        return f"{escape(spec.title)}: {known}{doubt}"
    ratio = other.mem_bw_gbps / spec.mem_bw_gbps
    parts = [f"{ratio:.3g} times the memory bandwidth"]
    for compute in ("matrix_bf16", "matrix_fp8"):
        ours, theirs = spec.peak_tflops(compute), other.peak_tflops(compute)
        if ours and theirs:
            parts.append(f"{theirs / ours:.3g} times the {peak_label(compute)} peak")
    return f"{escape(other.title)} has {' and '.join(parts[:2])} of {escape(spec.title)}"


def _figure_names(spec: HardwareSpec, other: HardwareSpec | None) -> list[str]:
    known = {*spec.figures, *(other.figures if other else ())}
    computes = [f"{unit}_{precision}" for unit in UNITS for precision in PRECISIONS]
    return [name for name in (*_NAMES, *computes) if name in known]


def _figure_columns(spec: HardwareSpec, other: HardwareSpec | None) -> tuple[Column, ...]:
    own = (
        Column("figure", "Quantity", TEXT, meaning="with its unit"),
        Column(C.value, spec.title, NUMBER, "", ",g", "in the unit of the row"),
        Column("doubt", "Uncertain", TEXT, meaning="why the value may be wrong"),
        Column(C.source, "Source", TEXT, meaning="source of the value"),
    )
    if other is None:
        return own
    others = (
        Column("other_value", other.title, NUMBER, "", ",g", "in the unit of the row"),
        Column("ratio", "Ratio", NUMBER, "", ",.3g", f"{other.title} / {spec.title}"),
    )
    sources = (
        Column("other_doubt", f"Uncertain: {other.title}", TEXT, meaning=own[2].meaning),
        Column("other_source", f"Source: {other.title}", TEXT, meaning=own[3].meaning),
    )
    return (*own[:2], *others, *own[2:], *sources)


def _figure_row(name: str, spec: HardwareSpec, other: HardwareSpec | None) -> dict[str, object]:
    label, scale = _NAMES.get(name, (f"{peak_label(name)} (TFLOP/s)", 1.0))
    row: dict[str, object] = {"figure": label}
    for prefix, of in (("", spec), ("other_", other)):
        if of is not None:
            value = _value(of, name)
            row[f"{prefix}value"] = None if value is None else value * scale
            row[f"{prefix}doubt"] = of.doubt_of(name)
            row[f"{prefix}source"] = of.source_of(name)
    if other is not None:
        ours, theirs = _value(spec, name), _value(other, name)
        row["ratio"] = theirs / ours if ours and theirs else None
    return row


def _value(spec: HardwareSpec, figure: str) -> float | None:
    value: float | None = getattr(spec, figure) if figure in _NAMES else spec.peak_tflops(figure)
    return value


def _missing_peaks(spec: HardwareSpec) -> None:
    """Draw the precisions without a peak, and the affected operations of the open analysis."""
    missing = [
        peak_label(f"{unit}_{precision}")
        for unit in UNITS
        for precision in PRECISIONS
        if spec.peak_tflops(f"{unit}_{precision}") is None
    ]
    if not missing:
        return
    st.caption(
        f"No peak for {', '.join(missing)}. The efficiency of operations in these precisions only "
        "considers memory and is a lower bound."
    )
    run = open_run()
    rows = _without_peak(run, spec) if run else pl.DataFrame()
    for compute, operations, names, time_us, share in rows.iter_rows():
        st.markdown(
            f"- The open analysis has {counted(operations, 'operation')} in {peak_label(compute)}, "
            f"{milliseconds(time_us / 1000)} or {percent(share)} of compute: "
            f"{listed([code(name) for name in names])}"
        )


def _without_peak(run: Run, hardware: HardwareSpec) -> pl.DataFrame:
    """Return the precisions of a run's operations for which ``hardware`` has no peak.

    Returns ``compute, operations, names, kernel_time_us, percent_of_compute`` by time; ``names``
    are those of the operations with most time.
    """
    rows = run.table("operations").filter(
        pl.col(C.flops) > 0,
        pl.col(C.compute).is_not_null(),
        ~pl.col(C.compute).is_in(list(hardware.max_achievable_tflops)),
    )
    return (
        rows.group_by(C.compute, maintain_order=True)
        .agg(
            operations=pl.len().cast(pl.Int64),
            names=pl.col(C.name).unique(maintain_order=True),
            **{
                C.kernel_time_us: pl.col(C.kernel_time_us).sum(),
                C.percent_of_compute: pl.col(C.percent_of_compute).sum(),
            },
        )
        .sort(C.kernel_time_us, C.compute, descending=[True, False])
    )


_PAGE = "hardware"


def render(spec: HardwareSpec, hardware: Hardware) -> None:
    """Draw the button for the chosen preset, and the result."""
    now = open_analysis()
    if now is None:
        st.caption("Open an analysis to re-project it onto one of these GPUs.")
        return
    manifest = now.run.manifest
    name = f"{escape(name_of(manifest))} ({now.id})"
    if manifest.hardware is not None and spec.is_current(manifest.hardware):
        st.caption(
            f"The open analysis, {name}, uses {escape(spec.title)}. Choose another preset above to "
            "re-project it."
        )
        return
    with st.container(border=True):
        st.markdown(
            f"**Re-project {name} onto {escape(spec.title)}.** Measured times stay the same; "
            "rooflines, efficiencies, findings and reports are computed with these peaks, without "
            "reading the trace. The result is a new analysis."
        )
        if st.button(
            f"Re-project onto {escape(spec.title)}",
            type="primary",
            icon=":material/speed:",
            disabled=(missing := missing_role()) is not None,
            help=missing,
        ):
            _submit(now, spec, hardware)
        job = remembered_job(_PAGE)
        if job is not None and job.parameters == _request(now, spec, hardware).new_job().parameters:
            follow(job, partial(_outcome, spec.title))


def _request(now: Opened, spec: HardwareSpec, hardware: Hardware) -> Reproject:
    return Reproject(now.id, *hardware.choice(spec, now.run.manifest.trace))


def _submit(now: Opened, spec: HardwareSpec, hardware: Hardware) -> None:
    remember_job(_PAGE, request_job(_request(now, spec, hardware)).id)


def _outcome(title: str, job: Job) -> None:
    """Draw the result, with a link to the new analysis."""
    if job.analysis_id is None:
        return
    if job.result.get("is_reused"):
        st.info("Already done: showing the existing analysis.", icon=":material/history:")
    else:
        st.success(f"Re-projected in {took(job)}.", icon=":material/check_circle:")
    navigation.link(
        navigation.OVERVIEW,
        f"Open the analysis for {escape(title)}",
        icon=":material/dashboard:",
        **{links.ANALYSIS: job.analysis_id},
    )
