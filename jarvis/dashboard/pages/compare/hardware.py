"""The hardware of both sides, on whose figures the expected ratios stand."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of, peak_label
from jarvis.comparison import Comparison, HardwareRatios
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.table import small_table
from jarvis.hardware import HardwareSpec
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.text.markdown import escape

_ALWAYS = ("matrix_bf16", "matrix_fp16")


def hardware_of_both(sides: Sides, found: Comparison) -> None:
    """Bandwidth, compute peaks in use and memory of both sides, with the ratios they explain."""
    st.subheader("Hardware of both sides", help="Hardware peaks used for expected ratios.")
    target, reference = found.target.hardware, found.reference.hardware
    if target is None and reference is None:
        st.caption("The GPU of neither side is described, so nothing is expected.")
    else:
        rows = _rows(found, target, reference)
        columns = _columns(found)
        schema = {name: column.dtype for name, column in columns.items()}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        small_table(frame, columns, "Peaks of both GPUs and the ratios that they explain")
    st.caption(
        "Memory-bound work is expected to scale with bandwidth, compute-bound work with the peak "
        "of its precision. To judge a side against other figures, set another preset for it; that "
        "makes an analysis of its own, to be chosen here."
    )
    with st.container(horizontal=True):
        for role, side in (("target", sides.target), ("reference", sides.reference)):
            _preset_link(role, side)


def _preset_link(role: str, side: Opened) -> None:
    spec = side.run.manifest.hardware
    chosen = {} if spec is None else {"hardware_gpu": spec.title}
    navigation.link(
        navigation.HARDWARE,
        f"Other figures for the {role}",
        icon=":material/memory:",
        **{links.ANALYSIS: side.id} | chosen,
    )


def _columns(found: Comparison) -> dict[str, Column]:
    target, reference = (escape(side.label) for side in (found.target, found.reference))
    return dict(
        columns_of(
            (
                Column("figure", "Figure", TEXT, meaning="peak or size, with its unit"),
                Column("target", f"Target: {target}", NUMBER, "", ",g", "of one device"),
                Column("reference", f"Reference: {reference}", NUMBER, "", ",g", "of one device"),
                Column(
                    "expected",
                    "Expected time ratio",
                    NUMBER,
                    "",
                    ",.3f",
                    "reference's figure / target's: what work that it bounds takes on the target, "
                    "as a multiple of the reference's time",
                ),
            )
        )
    )


def _rows(
    found: Comparison, target: HardwareSpec | None, reference: HardwareSpec | None
) -> list[tuple[str, float | None, float | None, float | None]]:
    def both(figure: str) -> tuple[float | None, float | None]:
        return _peak(target, figure), _peak(reference, figure)

    ratios = found.ratios
    bandwidth, memory = (
        (_figure(target, name), _figure(reference, name)) for name in ("tb_per_s", "memory_gb")
    )
    peaks = [
        (f"Peak {peak_label(compute)} (TFLOPS/s)", *both(compute), _compute(ratios, compute))
        for compute in dict.fromkeys([*_ALWAYS, *_in_use(found)])
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


def _in_use(found: Comparison) -> list[str]:
    """The compute peaks that operations of either side are judged against."""
    used = pl.concat(
        side.rows("operations").select("compute") for side in (found.target, found.reference)
    )
    return sorted(used["compute"].drop_nulls().unique())
