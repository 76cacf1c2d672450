"""Hardware peaks of both sides, used for expected ratios."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.comparison import Comparison, HardwareRatios
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.table import small_table
from jarvis.hardware import HardwareSpec, peak_label
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.markdown import escape

_ALWAYS = ("matrix_bf16", "matrix_fp16")


def hardware_of_both(sides: Sides, comparison: Comparison) -> None:
    """Draw bandwidth, compute peaks in use and memory of both sides, with expected ratios."""
    st.subheader("Hardware of both sides", help="Hardware peaks used for expected ratios.")
    target, reference = comparison.target.hardware, comparison.reference.hardware
    if target is None and reference is None:
        st.caption("The GPUs of both sides are unknown, so there are no expected ratios.")
    else:
        rows = _rows(comparison, target, reference)
        columns = _columns(comparison)
        schema = {name: column.dtype for name, column in columns.items()}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        small_table(frame, columns, "Peaks of both GPUs and expected time ratios")
    st.caption(
        "Memory-bound work is expected to scale with bandwidth, compute-bound work with the peak "
        "of its precision. To use other peaks for a side, re-project it onto another preset, then "
        "choose the new analysis here."
    )
    with st.container(horizontal=True):
        for role, side in (("target", sides.target), ("reference", sides.reference)):
            _preset_link(role, side)


def _preset_link(role: str, side: Opened) -> None:
    spec = side.run.manifest.hardware
    chosen = {} if spec is None else {"hardware_gpu": spec.title}
    navigation.link(
        navigation.HARDWARE,
        f"Change peaks of the {role}",
        icon=":material/memory:",
        **{links.ANALYSIS: side.id} | chosen,
    )


def _columns(comparison: Comparison) -> dict[str, Column]:
    target, reference = (escape(side.label) for side in (comparison.target, comparison.reference))
    return dict(
        columns_of(
            (
                Column("figure", "Quantity", TEXT, meaning="peak or size, with its unit"),
                Column("target", f"Target: {target}", NUMBER, "", ",g", "per device"),
                Column("reference", f"Reference: {reference}", NUMBER, "", ",g", "per device"),
                Column(
                    "expected",
                    "Expected time ratio",
                    NUMBER,
                    "",
                    ",.3f",
                    "reference value / target value: expected target time / reference time of work "
                    "bound by this peak",
                ),
            )
        )
    )


def _rows(
    comparison: Comparison, target: HardwareSpec | None, reference: HardwareSpec | None
) -> list[tuple[str, float | None, float | None, float | None]]:
    def both(figure: str) -> tuple[float | None, float | None]:
        return _peak(target, figure), _peak(reference, figure)

    ratios = comparison.ratios
    bandwidth, memory = (
        (_figure(target, name), _figure(reference, name)) for name in ("tb_per_s", "memory_gb")
    )
    peaks = [
        (f"Peak {peak_label(compute)} (TFLOP/s)", *both(compute), _compute(ratios, compute))
        for compute in dict.fromkeys([*_ALWAYS, *_in_use(comparison)])
        if any(both(compute))
    ]
    return [
        ("Peak memory bandwidth (TB/s)", *bandwidth, ratios.memory if ratios else None),
        *peaks,
        ("Memory size (GB)", *memory, None),
    ]


def _figure(spec: HardwareSpec | None, name: str) -> float | None:
    value: float | None = getattr(spec, name) if spec else None
    return value


def _peak(spec: HardwareSpec | None, figure: str) -> float | None:
    return spec.peak_tflops(figure) if spec else None


def _compute(ratios: HardwareRatios | None, compute: str) -> float | None:
    return ratios.compute(compute) if ratios else None


def _in_use(comparison: Comparison) -> list[str]:
    """Return the compute peaks used by operations of either side."""
    used = pl.concat(
        side.rows("operations").select(C.compute)
        for side in (comparison.target, comparison.reference)
    )
    return sorted(used[C.compute].drop_nulls().unique())
