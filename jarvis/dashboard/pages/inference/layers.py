"""The layers page: the repeated layers of a model, by block and kernel."""

import numpy as np
import polars as pl
import streamlit as st

from jarvis.charts import MAX_COLUMNS, block_colors, columns_of, drawing_of, stacked_columns
from jarvis.charts.marks import LINEAR, Tip
from jarvis.dashboard.pages.inference.shared import findings_link, is_missing, remarks
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, palette
from jarvis.dashboard.widgets.controls import list_choice
from jarvis.dashboard.widgets.elements import metric_card, render_chart
from jarvis.dashboard.widgets.table import cut_to_width, small_table, with_short_texts
from jarvis.perf_report.kernel_blocks import title_of
from jarvis.perf_report.serving.notes import layer_notes
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, microseconds, percent
from jarvis.text.short_names import short_kernel_name, short_operation_name

LAYERS, TIMES = "inference_layers", "inference_layer_times"
_COLUMNS = columns_of(TABLES[LAYERS])
_SHOWN = (
    *(C.position, C.block, C.operation, C.shapes, C.share_pct, C.pct_roofline, C.mean_us),
    *(C.population, C.kernel, C.module, C.count, C.p50_us, C.p95_us, C.max_us),
)
_WIDTHS = {C.operation: 165, C.shapes: 165, C.kernel: 230}


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    if is_missing(now, LAYERS):
        return
    rows, times = now.run.table(LAYERS), now.run.table(TIMES)
    kinds = _kinds(rows)
    labels = {_label(kind, has_number=len(kinds) > 1): kind[C.kind] for kind in kinds}
    if not labels:
        st.info("No layers repeat at least three times in the steps of this trace.")
    else:
        chosen = labels[list_choice("layers_kind", "Layers", [*labels], "Kind of layer to show.")]
        of_kind = pl.col(C.kind) == chosen
        shown, of_shown = rows.filter(of_kind), times.filter(of_kind)
        _figures(shown, of_shown)
        of_cards = shown[C.layer_module][0] is None  # they say what the first sentence says
        remarks([*layer_notes(shown, of_shown)][of_cards:])
        findings_link(now)
        _kind(now, shown, of_shown)
    _outside(rows, times)


def _kinds(rows: pl.DataFrame) -> list[dict[str, object]]:
    """Return the kinds of layers, most time first."""
    kinds = rows.drop_nulls(C.kind).group_by(C.kind, C.phase, C.layer_count)
    shares = kinds.agg(pl.col(C.share_pct).sum(), pl.col(C.position).n_unique())
    return shares.sort(C.share_pct, C.kind, descending=[True, False]).to_dicts()


def _label(kind: dict[str, object], *, has_number: bool) -> str:
    phase = f"{kind[C.phase]}: " if kind[C.phase] else ""
    number = f" (kind {kind[C.kind]})" if has_number else ""
    return f"{phase}{kind[C.layer_count]} layers of {kind[C.position]} kernels{number}"


def _unit(rows: pl.DataFrame, times: pl.DataFrame) -> str:
    """Return what repeats: a layer, or a group of layers of kinds that alternate."""
    return "group" if rows[C.layer_count][0] > times[C.layer].n_unique() else "layer"


def _figures(rows: pl.DataFrame, times: pl.DataFrame) -> None:
    totals = (
        times.group_by(C.layer).agg(pl.col(C.kernel_time_us).sum()).sort(C.layer)[C.kernel_time_us]
    )
    slowest = int(np.argmax(totals.to_numpy()))
    per_group = rows[C.layer_count][0] // totals.len()
    unit, phase = _unit(rows, times), rows[C.phase][0]
    places = st.columns(4)
    with places[0]:
        metric_card(
            "Layers",
            count(rows[C.layer_count][0]),
            counted(rows[C.position].n_unique(), "kernel") + f" per {unit}",
            help_text=_COLUMNS[C.layer_count].meaning,
        )
    with places[1]:
        metric_card(
            f"Median {unit}",
            microseconds(float(np.median(totals.to_numpy()))),
            f"{count(per_group)} layers per group" if per_group > 1 else None,
            help_text="Median GPU time of the kernels that repeat. Kinds of layers that alternate "
            "repeat as a group.",
        )
    with places[2]:
        metric_card(
            f"Longest {unit}",
            microseconds(float(totals.to_numpy().max())),
            f"{unit} {slowest}",
            help_text="GPU time of the slowest repeat, the mean of the steps.",
        )
    with places[3]:
        metric_card(
            "Share",
            percent(float(rows[C.share_pct].sum())),
            f"of the GPU time of {phase}" if phase else "of the GPU time",
            help_text=_COLUMNS[C.share_pct].meaning,
        )


def _kind(now: Opened, rows: pl.DataFrame, times: pl.DataFrame) -> None:
    unit = _unit(rows, times)
    with st.container(border=True):
        st.markdown(f"**GPU time of {counted(times[C.layer].n_unique(), unit)} by block**")
        chart = stacked_columns(
            with_short_texts(times.filter(pl.col(C.layer) < MAX_COLUMNS), {C.block: title_of}),
            block_colors(palette()),
            palette(),
            x=Tip(C.layer, unit.capitalize(), ",d"),
            y=Tip(C.kernel_time_us, "GPU time (µs)", LINEAR),
            part=Tip(C.block, "Block", None),
        )
        render_chart(drawing_of(chart), "GPU time of each layer by block")
    with st.container(border=True):
        st.markdown(f"**Kernels of each {unit}**")
        short = {
            C.block: title_of,
            C.kernel: short_kernel_name,
            C.operation: short_operation_name,
        }
        readable = with_short_texts(rows, short)
        small_table(
            readable.with_columns(
                cut_to_width(readable[name], _WIDTHS[name]) for name in (C.operation, C.kernel)
            ),
            _COLUMNS,
            f"Kernels of each {unit}",
            [name for name in _SHOWN if rows[name].count()],
            _WIDTHS,
            key="layers_kernels",
            addresses=_addresses(now, rows[C.operation_uid]),
            max_rows=20,
            alike=(C.mean_us, C.p50_us, C.p95_us, C.max_us),
        )


def _addresses(now: Opened, operations: pl.Series) -> list[str]:
    """Return the URLs of the operations on the pages of their categories; empty without one."""
    rows = now.run.table("operations").select(C.uid, C.category).drop_nulls()
    pages = dict(rows.iter_rows())
    return [
        navigation.own_address(page, **{f"{page}_op": str(uid)}) if (page := pages.get(uid)) else ""
        for uid in operations
    ]


def _outside(rows: pl.DataFrame, times: pl.DataFrame) -> None:
    """Draw the GPU time outside the layers: its share, and from that of the layers its time."""
    outside = rows.filter(pl.col(C.kind).is_null())
    if outside.is_empty():
        return
    shares = (
        rows.drop_nulls(C.kind).group_by(C.phase).agg(pl.col(C.share_pct).sum().alias("layers"))
    )
    of_layers = times.group_by(C.phase).agg(pl.col(C.kernel_time_us).sum())
    known = shares.join(of_layers, on=C.phase)
    timed = outside.join(known, on=C.phase, how="left", maintain_order="left").with_columns(
        pl.col(C.kernel_time_us) * pl.col(C.share_pct) / pl.col("layers")
    )
    with st.container(border=True):
        st.markdown("**Outside the layers**")
        phase = (C.phase,) if outside[C.phase].n_unique() > 1 else ()
        shown = (*phase, C.block, C.kernel_time_us, C.share_pct)
        columns = {**columns_of(TABLES[TIMES]), **_COLUMNS}
        titled = with_short_texts(timed, {C.block: title_of})
        small_table(titled, columns, "GPU time outside the layers", shown)
        st.caption("By block. The names of the kernels are on *Timeline*.")
