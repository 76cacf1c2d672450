"""Sentences about the steps and the layers of inference, and what their figures leave out."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from jarvis.perf_report.serving.model_rates import CONFIG
from jarvis.perf_report.serving.populations import MIN_RATIO, ODD_DEVIATIONS, odd_layers
from jarvis.perf_report.serving.selection import steady_state
from jarvis.perf_report.serving.steps import MIN_MODELLED_PCT
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.steps import StepSource
from jarvis.schemas.names import C
from jarvis.text.format import byte_size, counted, listed, microseconds, milliseconds, percent

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
        yield (
            f"MFU and MBU need perf models for {percent(MIN_MODELLED_PCT)} of the kernel time of a "
            f"step; the least covered step has {percent(modelled_pct)}.{replayed}"
        )
    is_covered = pl.col(C.modelled_pct) >= MIN_MODELLED_PCT
    if whole.filter(
        is_covered & (pl.col(C.mfu_pct).is_null() | pl.col(C.mbu_pct).is_null())
    ).height:
        yield "MFU and MBU are empty where a peak of the GPU is not known."


def _carried_in(gap: Mapping[str, Any], gpu_work: pl.DataFrame) -> str:
    """Return what a gap of carried-in work is, and where the host waits meanwhile."""
    gap_ms = gap[C.dur_ns] / 1e6
    found = (
        f"For {milliseconds(gap_ms)} the GPU finished work from before the recording: not idle "
        "time, and in no figure of the steps."
    )
    if gap[C.host_call] is None:
        return found
    size = gpu_work.filter(pl.col(C.uid) == gap[C.host_copy_uid])[C.bytes].to_list()
    of_size = f" ({byte_size(size[0])})" if size and size[0] is not None else ""
    of_op = f" of {gap[C.host_op]}" if gap[C.host_op] else ""
    frame = f" in {gap[C.host_frame]}" if gap[C.host_frame] else ""
    return (
        f"{found} Meanwhile the host waits in {gap[C.host_call]}{of_size}{of_op}{frame}. A host "
        "that waits here in each step cannot prepare the next one while the GPU works."
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
        per_period = count // totals.len()
        of_period = f", {per_period} in a period" if per_period > 1 else ""
        of_module = f" (modules {module})" if modules == count else ""
        yield (
            f"Kind {kind}{f' of {phase}' if phase else ''}: {counted(count, 'layer')}{of_module}"
            f"{of_period}, "
            f"period of {counted(rows[C.position].n_unique(), 'kernel')}, "
            f"{percent(float(rows[C.sequence_pct].sum()))} of the time of its kernels in a row "
            f"({percent(float(rows[C.share_pct].sum()))} of all GPU time of the phase); "
            f"median {microseconds(float(np.median(totals.to_numpy())))} a period."
        )
        if module is not None and modules != count:
            yield (
                f"The modules do not tell these layers apart: {modules} instances of {module} are "
                "around them."
            )
        if odd := odd_layers(totals.to_numpy()):
            yield (
                f"Slow, by more than {ODD_DEVIATIONS} median absolute deviations and "
                f"{percent(100 * MIN_RATIO)}: "
                f"{listed([f'period {layer}' for layer in odd])}, up to "
                f"{microseconds(float(totals.to_numpy().max()))}."
            )
