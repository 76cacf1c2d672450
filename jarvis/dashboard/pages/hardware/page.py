"""The hardware page: the presets with their peaks, the sources of each figure, two compared."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts import peak_words
from jarvis.core.errors import RunError
from jarvis.dashboard.session import state
from jarvis.dashboard.widgets.controls import choice, list_choice
from jarvis.dashboard.widgets.table import small_table
from jarvis.hardware import PRECISIONS, UNITS, Hardware, HardwareSpec, load_hardware
from jarvis.run import Run
from jarvis.run.peaks import without_peak
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.server.storage.catalog import UnknownAnalysisError
from jarvis.text.format import counted, listed, milliseconds, percent
from jarvis.text.markdown import code, escape

ALL_VENDORS, NOTHING = "all", "nothing"
IN_USE, OWN = "open analysis", "your own"
_ROW_PX, _USED_PX, _DOUBT_PX = 31, 100, 240
_NAMES = {"mem_bw_gbps": ("Memory bandwidth (TB/s)", 1e-3), "memory_gb": ("Memory (GB)", 1.0)}


def catalog() -> Hardware:
    """All described GPUs; says which of the user's own cannot be used."""
    hardware = load_hardware()
    for path, reason in hardware.failures.items():
        st.warning(
            escape(f"Your description {path.name} cannot be used. {reason}"),
            icon=":material/warning:",
        )
    return hardware


def open_analysis() -> state.Opened | None:
    """The open analysis, or None where there is none to open."""
    try:
        return state.opened()
    except (state.NoAnalysisError, UnknownAnalysisError, RunError):
        return None


def open_run() -> Run | None:
    """The run of the open analysis."""
    now = open_analysis()
    return now.run if now else None


def presets(hardware: Hardware) -> None:
    """The table of all presets, that of the open analysis on top."""
    run = open_run()
    used = run.manifest.hardware if run else None
    vendors = list(dict.fromkeys(s.vendor for s in hardware if s.vendor))
    left, right = st.columns(2)
    with left:
        vendor = choice(
            "hardware_vendor", "Vendor", [ALL_VENDORS, *vendors], "Whose GPUs the table lists."
        )
    with right:
        unit = choice(
            "hardware_unit",
            "Compute unit",
            UNITS,
            "Matrix units run matrix products, vector units everything else.",
        )
    ordered = sorted(hardware, key=lambda s: used is None or s.title != used.title)
    shown = [s for s in ordered if vendor in (ALL_VENDORS, s.vendor)]
    names = len({s.name for s in shown})
    st.caption(
        f"{counted(names, 'GPU')} with {counted(len(shown), 'preset')}. Compute peaks are dense: "
        "without structured sparsity. Empty cells are unknown."
    )
    columns = _preset_columns(unit)
    frame = pl.DataFrame(
        [_preset_row(spec, unit, used, hardware) for spec in shown],
        schema={column.name: column.dtype for column in columns},
    )
    known = [c.name for c in columns if frame[c.name].null_count() < frame.height]
    small_table(
        frame,
        charts.columns_of(columns),
        "Peaks of the described GPUs",
        known,
        {"used": _USED_PX},
    )


def chosen(hardware: Hardware) -> tuple[HardwareSpec, HardwareSpec | None]:
    """The preset whose figures are shown, at first that of the open analysis, and another one."""
    run = open_run()
    used = run.manifest.hardware if run else None
    specs = {spec.title: spec for spec in hardware}
    first = used.title if used is not None and used.title in specs else next(iter(specs))
    left, right = st.columns(2)
    with left:
        titles = [first, *(title for title in specs if title != first)]
        title = list_choice("hardware_gpu", "Figures and sources of", titles, "GPU and preset.")
    with right:
        others = [NOTHING, *(other for other in specs if other != title)]
        other = list_choice("hardware_other", "Compared with", others, "Another GPU or preset.")
    return specs[title], specs.get(other)


def _preset_columns(unit: str) -> tuple[Column, ...]:
    return (
        Column("name", "GPU", TEXT, meaning="as reports name it"),
        Column("preset", "Preset", TEXT, meaning="which set of figures; the first is the default"),
        Column("used", "Used by", TEXT, meaning="whether the open analysis is judged against it"),
        Column("doubts", "In doubt", TEXT, meaning="figures that may not hold; see their sources"),
        Column("memory_gb", "Memory (GB)", NUMBER, "GB", ",g", "of one device"),
        Column("tb_per_s", "Memory (TB/s)", NUMBER, "TB/s", ",.2f", "peak bandwidth"),
        *(
            Column(p, f"{p} (TFLOPS/s)", NUMBER, "TFLOPS/s", ",g", f"dense peak of {unit} units")
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
        "name": spec.name,
        "preset": spec.preset,
        "used": ", ".join(marks) or None,
        "memory_gb": spec.memory_gb,
        "tb_per_s": spec.tb_per_s,
        **{p: spec.peak_tflops(f"{unit}_{p}") for p in PRECISIONS},
        "doubts": f"{doubtful} of {len(spec.figures)}" if doubtful else None,
    }


def figures(spec: HardwareSpec, other: HardwareSpec | None) -> None:
    """Every figure of a preset with its source, beside those of another, and what it lacks."""
    st.subheader(_found(spec, other))
    rows = [_figure_row(name, spec, other) for name in _figure_names(spec, other)]
    columns = _figure_columns(spec, other)
    frame = pl.DataFrame(rows, schema={column.name: column.dtype for column in columns})
    present = [c.name for c in columns if frame[c.name].null_count() < frame.height]
    small_table(
        frame,
        charts.columns_of(columns),
        f"Figures of {spec.title}",
        present,
        {"doubt": _DOUBT_PX, "other_doubt": _DOUBT_PX},
        height=_ROW_PX * (frame.height + 1) + 3,
    )
    _say_what_is_missing(spec)


def _found(spec: HardwareSpec, other: HardwareSpec | None) -> str:
    if other is None:
        doubtful = sum(spec.doubt_of(figure) is not None for figure in spec.figures)
        known = counted(len(spec.figures), "figure")
        doubt = f"{doubtful} of them in doubt" if doubtful else "none in doubt"
        return f"{escape(spec.title)}: {known}, {doubt}"
    ratio = other.mem_bw_gbps / spec.mem_bw_gbps
    parts = [f"{ratio:.3g} times the memory bandwidth"]
    for compute in ("matrix_bf16", "matrix_fp8"):
        ours, theirs = spec.peak_tflops(compute), other.peak_tflops(compute)
        if ours and theirs:
            parts.append(f"{theirs / ours:.3g} times the {peak_words(compute)} peak")
    return f"{escape(other.title)} has {' and '.join(parts[:2])} of {escape(spec.title)}"


def _figure_names(spec: HardwareSpec, other: HardwareSpec | None) -> list[str]:
    known = {*spec.figures, *(other.figures if other else ())}
    computes = [f"{unit}_{precision}" for unit in UNITS for precision in PRECISIONS]
    return [name for name in (*_NAMES, *computes) if name in known]


def _figure_columns(spec: HardwareSpec, other: HardwareSpec | None) -> tuple[Column, ...]:
    mine = (
        Column("figure", "Figure", TEXT, meaning="with its unit"),
        Column("value", spec.title, NUMBER, "", ",g", "in the unit of the row"),
        Column("doubt", "In doubt", TEXT, meaning="why the figure may not hold"),
        Column("source", "Source", TEXT, meaning="where the figure comes from"),
    )
    if other is None:
        return mine
    theirs = (
        Column("other_value", other.title, NUMBER, "", ",g", "in the unit of the row"),
        Column("ratio", "Ratio", NUMBER, "", ",.3g", f"{other.title} / {spec.title}"),
    )
    sources = (
        Column("other_doubt", f"In doubt: {other.title}", TEXT, meaning=mine[2].meaning),
        Column("other_source", f"Source: {other.title}", TEXT, meaning=mine[3].meaning),
    )
    return (*mine[:2], *theirs, *mine[2:], *sources)


def _figure_row(name: str, spec: HardwareSpec, other: HardwareSpec | None) -> dict[str, object]:
    label, scale = _NAMES.get(name, (f"{peak_words(name)} (TFLOPS/s)", 1.0))
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


def _say_what_is_missing(spec: HardwareSpec) -> None:
    """Precisions without a peak, and which operations of the open analysis that concerns."""
    missing = [
        peak_words(f"{unit}_{precision}")
        for unit in UNITS
        for precision in PRECISIONS
        if spec.peak_tflops(f"{unit}_{precision}") is None
    ]
    if not missing:
        return
    st.caption(
        f"No figure for {', '.join(missing)}. Operations in these have no efficiency against the "
        "compute peak: only the memory side is judged, a lower limit."
    )
    run = open_run()
    rows = without_peak(run, spec) if run else pl.DataFrame()
    for compute, operations, names, time_us, share in rows.iter_rows():
        st.markdown(
            f"- In the open analysis that concerns {counted(operations, 'operation')} in "
            f"{peak_words(compute)}, {milliseconds(time_us / 1000)} or {percent(share)} of "
            "compute: "
            f"{listed([code(name) for name in names])}"
        )
