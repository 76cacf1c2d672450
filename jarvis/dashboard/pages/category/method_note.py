"""Note on how the numbers of a category page are computed, with the peaks in use."""

import polars as pl
import streamlit as st

from jarvis.analyses.base import Analysis
from jarvis.charts import peak_label
from jarvis.dashboard.widgets.elements import lazy_expander
from jarvis.hardware import HardwareSpec
from jarvis.text.format import count, percent, tb_per_s, tflops_per_s
from jarvis.text.markdown import code, escape

_METHOD = """
Roofline time is the longer of FLOPs / compute peak and bytes / memory peak, for the operation's
precision; FLOPs and bytes are computed by a perf model from the operator and its shapes, not
measured. **Efficiency** is roofline time / measured GPU busy time. **Saving** is kernel time minus
the kernel time at the target efficiency. If a peak is unknown, the efficiency is not available.
"""


def method_note(analysis: Analysis, rows: pl.DataFrame, hardware: HardwareSpec | None) -> None:
    """Draw an expander with the formulas, the peaks in use and their sources."""
    expander = lazy_expander(
        "How these numbers are computed", f"{analysis.key}_method", icon=":material/function:"
    )
    if expander.open:
        with expander:
            _note(analysis, rows, hardware)


def _note(analysis: Analysis, rows: pl.DataFrame, hardware: HardwareSpec | None) -> None:
    st.markdown(_METHOD)
    modelled = rows.filter("has_perf_model")
    share = float(modelled["percent_of_category"].sum())
    st.markdown(
        f"A perf model covers {count(modelled.height)} of {count(rows.height)} rows, "
        f"{percent(share)} of the category's time."
    )
    if hardware is None:
        st.markdown("The GPU is unknown, so there are no peaks.")
    else:
        st.markdown("\n".join(_peak_lines(rows, hardware)))
    for note in rows["roofline_note"].drop_nulls().unique(maintain_order=True):
        st.markdown(f"- {escape(note)}")
    if analysis.claim is not None:
        st.markdown(_claim_text(analysis))


def _peak_lines(rows: pl.DataFrame, hardware: HardwareSpec) -> list[str]:
    lines = [
        f"- {escape(hardware.title)}, memory: {tb_per_s(hardware.tb_per_s)} "
        f"({escape(hardware.source_of('mem_bw_gbps') or '')})"
    ]
    for compute in rows["compute"].drop_nulls().unique(maintain_order=True):
        peak, ridge = hardware.peak_tflops(compute), hardware.ridge(compute)
        if peak is None or ridge is None:
            lines.append(f"- {peak_label(compute)}: peak unknown, so only memory is considered")
        else:
            lines.append(
                f"- {peak_label(compute)}: {tflops_per_s(peak)}, compute bound above "
                f"{ridge:,.0f} FLOP/byte ({escape(hardware.source_of(compute) or '')})"
            )
    return lines


def _claim_text(analysis: Analysis) -> str:
    claim = analysis.claim
    if claim is None or claim.rest:
        return "This category has the operations that belong to no other category."
    names = ", ".join(code(name) for name in (*claim.op_categories, *claim.op_names))
    return f"Operations of these op categories and names belong to this category: {names}."
