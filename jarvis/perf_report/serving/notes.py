"""Sentences about the steps and the layers of inference, and what their figures leave out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from jarvis.perf_report.kernel_blocks import title_of
from jarvis.perf_report.serving.layers import odd_layers
from jarvis.perf_report.serving.rates import CONFIG
from jarvis.perf_report.serving.selection import steady_state
from jarvis.perf_report.serving.steps import MIN_MODELLED_PCT
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.steps import StepSource
from jarvis.schemas.names import C
from jarvis.text.format import (
    byte_size,
    counted,
    listed,
    microseconds,
    milliseconds,
    percent,
    quoted,
)
from jarvis.text.short_names import short_frame_name

_SOURCES = {
    StepSource.ENGINE: "Steps are those that the inference engine annotates.",
    StepSource.PROFILER: "Steps are those that the profiler marks; no engine annotates any.",
    StepSource.GRAPH: "Nothing marks steps: each replay of the same GPU graph counts as one.",
    StepSource.CALLS: "Nothing marks steps: each call of the same modules in a row counts as one.",
    StepSource.RECORDING: "Nothing marks steps: the recording counts as one.",
}


def step_notes(
    steps: pl.DataFrame, idle_gaps: pl.DataFrame, gpu_work: pl.DataFrame
) -> Iterator[str]:
    """Yield the sentences.

    Args:
        steps: Result of ``inference_steps``.
        idle_gaps: The gaps of the GPU, with those of carried-in work.
        gpu_work: ``uid, bytes`` of the GPU events.
    """
    whole = steps.filter(pl.col(C.part).is_null())
    if whole.is_empty():
        yield "The trace has no events."
        return
    yield _SOURCES[StepSource(whole[C.source][0])]
    if (steady := steady_state(steps)) is not None:
        fewest = "" if steady.fewest == steady.most else f"{steady.fewest} to "
        yield (
            f"Steady state: steps {steady.first} to {steady.last} of {whole.height}, with {fewest}"
            f"{counted(steady.most, 'request')}."
        )
    carried = idle_gaps.filter(pl.col(C.cause) == IdleCause.CARRIED_IN.value)
    for gap in carried.iter_rows(named=True):
        yield _carried_in(gap, gpu_work)
    if cut := int(whole[C.is_cut].sum()):
        yield f"GPU work of {counted(cut, 'step')} is not recorded completely (is_cut)."
    speculative = pl.col(C.gen_tokens) > pl.col(C.gen_requests)
    if whole.filter(speculative).height:
        yield "Tokens/s are an upper limit: a trace does not show which drafts are accepted."
    if inferred := int((whole[C.cost_source] == CONFIG).sum()):
        yield (
            f"FLOPs and bytes of {counted(inferred, 'step')} are computed from the configuration "
            "of the model, not from recorded shapes; the lower bound is their roofline time."
        )
    unknown = whole.filter(pl.col(C.cost_source).is_null())
    if unknown.height:
        modelled_pct = min(unknown[C.modelled_pct].fill_null(0).to_list())
        replayed = (
            "" if not unknown[C.graph_launches].sum() else " Replayed kernels have no shapes."
        )
        missing = "some steps" if unknown.height < whole.height else "the steps"
        yield (
            f"MFU and MBU of {missing} are not available: perf models cover "
            f"{percent(modelled_pct)} of the kernel time, and {percent(MIN_MODELLED_PCT)} is "
            f"needed.{replayed}"
        )
    is_covered = pl.col(C.modelled_pct) >= MIN_MODELLED_PCT
    if whole.filter(
        is_covered & (pl.col(C.mfu_pct).is_null() | pl.col(C.mbu_pct).is_null())
    ).height:
        yield "MFU and MBU are empty where a peak of the GPU is not known."


def _carried_in(gap: Mapping[str, Any], gpu_work: pl.DataFrame) -> str:
    """Return what a gap of carried-in work is, and where the host waits meanwhile."""
    gap_ms = gap[C.dur_ns] / 1e6
    found = f"{milliseconds(gap_ms)} are excluded: the GPU finished work from before the recording."
    if gap[C.host_call] is None:
        return found
    size = gpu_work.filter(pl.col(C.uid) == gap[C.host_copy_uid])[C.bytes].to_list()
    of_size = f" ({byte_size(size[0])})" if size and size[0] is not None else ""
    call = f"{quoted(gap[C.host_call])}{of_size}"
    of_op = f" of {quoted(gap[C.host_op])}" if gap[C.host_op] else ""
    frame = f" in {quoted(short_frame_name(gap[C.host_frame]))}" if gap[C.host_frame] else ""
    return (
        f"{found} Meanwhile the host waits in {call}{of_op}{frame}. If it "
        "waits there in each step, it cannot prepare the next step while the GPU works."
    )


def layer_notes(layers: pl.DataFrame, times: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence for each kind of layer, and for layers that take far longer than others.

    Args:
        layers: The table ``inference_layers``.
        times: The table ``inference_layer_times``.
    """
    of_layers = layers.drop_nulls(C.kind)
    if of_layers.is_empty():
        yield "No layers repeat at least three times."
    has_kinds = of_layers[C.kind].n_unique() > 1
    for kind in of_layers[C.kind].unique().sort():
        rows = of_layers.filter(pl.col(C.kind) == kind)
        totals = (
            times.filter(pl.col(C.kind) == kind)
            .group_by(C.layer)
            .agg(pl.col(C.kernel_time_us).sum())
            .sort(C.layer)[C.kernel_time_us]
        )
        module, modules = rows[C.layer_module][0], rows[C.module_count][0]
        phase, count = rows.row(0, named=True)[C.phase], rows[C.layer_count][0]
        per_group = count // totals.len()
        unit = "group" if per_group > 1 else "layer"
        groups = f" in groups of {per_group}" if per_group > 1 else ""
        of_module = f" (modules {module})" if modules == count else ""
        median_us = float(np.median(totals.to_numpy()))
        yield (
            f"{f'Kind {kind}: ' if has_kinds else ''}{counted(count, 'layer')}{of_module}{groups}, "
            f"of {counted(rows[C.position].n_unique(), 'kernel')} per {unit}, make up "
            f"{percent(float(rows[C.share_pct].sum()))} of the GPU time"
            f"{f' of {phase}' if phase else ''}; median {microseconds(median_us)} per {unit}."
        )
        if module is not None and modules != count:
            yield (
                f"The modules do not tell these layers apart: {modules} instances of "
                f"{quoted(module)} are around them."
            )
        if odd := odd_layers(totals.to_numpy()):
            numbers = listed([f"{unit} {layer}" for layer in odd])
            up_to = "" if len(odd) == 1 else "up to "
            yield (
                f"Slow: {numbers}, {up_to}{microseconds(float(totals.to_numpy().max()))} instead "
                f"of {microseconds(median_us)}, mostly "
                f"{_grown_block(times.filter(pl.col(C.kind) == kind), odd)}."
            )


def _grown_block(times: pl.DataFrame, odd: Sequence[int]) -> str:
    """Return the block in slow layers that takes most time beyond the median of all layers."""
    time = pl.col(C.kernel_time_us)
    grown = (
        times.group_by(C.block, C.layer)
        .agg(time.sum())
        .with_columns(usual=time.median().over(C.block))
        .filter(pl.col(C.layer).is_in(odd))
        .group_by(C.block)
        .agg((time - pl.col("usual")).sum())
        .sort(C.kernel_time_us, C.block, descending=[True, False])
    )
    return title_of(grown[C.block][0])
