"""Inference: what the steps of an inference engine spend beside the efficiency of operations."""

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import Analysis, CategoryData
from jarvis.analyses.system.inference.events import step_events, time_ms
from jarvis.analyses.system.inference.graphs import (
    coverage_gap,
    piecewise_breaks,
    shapes_missing,
    steps_without_graph,
)
from jarvis.analyses.system.inference.layers import short_kernel_tail, slow_layers
from jarvis.analyses.system.inference.shares import (
    attention_reduction,
    head_share,
    padding_waste,
    routing_share,
)
from jarvis.schemas.names import C


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return the GPU time of the steps, and the shares of it that graphs replay, that are in
    layers, and by block, in percent."""
    events = step_events(data)
    whole_ms = time_ms(events)

    def share_pct(name: str) -> float:
        return impact.share_pct(time_ms(events.drop_nulls(name)), whole_ms)

    blocks = events.group_by(C.block).agg(pl.col(C.dur_ns).sum() / 1e6).sort(C.block)
    return {
        "gpu_time_ms": whole_ms,
        "replayed_percent": share_pct(C.graph_launch_uid),
        "in_layers_percent": share_pct(C.kind),
        "blocks": {
            f"{block}_percent": impact.share_pct(block_ms, whole_ms)
            for block, block_ms in blocks.iter_rows()
        },
    }


ANALYSIS = Analysis(
    title="Inference",
    icon=":material/token:",
    checks=(
        *(shapes_missing, coverage_gap, slow_layers, short_kernel_tail, padding_waste),
        *(routing_share, attention_reduction, head_share, piecewise_breaks, steps_without_graph),
    ),
    needs=(
        *("gpu_work", "operations", "step_gaps", "host_slices"),
        *("inference_steps", "inference_layers", "inference_events", "graph_launches"),
    ),
    only_with=("inference_events",),
    measure=measure,
)
