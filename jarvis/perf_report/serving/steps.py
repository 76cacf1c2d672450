"""The table ``inference_steps``: requests, tokens, GPU window and rates of each step."""

from dataclasses import fields

import polars as pl

from jarvis.core.expressions import first_of
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import step_annotation
from jarvis.perf_models.step_annotation import VLLM, EngineStep, StepKind
from jarvis.perf_report.intervals import END, busy_ns
from jarvis.perf_report.roofline import peak_tflops
from jarvis.perf_report.serving.repetition import graph_launches, repeated_calls, replays
from jarvis.perf_report.timeline.steps import StepSource, during, launched, step_marks, steps
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import COMMUNICATION, COPY, GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace

SHORT_KERNEL_NS = 10_000
MIN_MODELLED_PCT = 90.0
"""Minimum share of kernel time with a perf model for which MFU and MBU are given."""

MIN_GRAPH_SHARE = 0.9
"""Minimum share of replayed GPU time of a step that is launched as graphs."""

GENERATING = (StepKind.DECODE.value, StepKind.MIXED.value)
PARTS = ("encode", "denoise", "image_decode")
"""Phases of the parts of a diffusion step: before, in and after the replays of one graph."""

_LAUNCH_CALL = r"(?i)launch.*kernel|graphlaunch"
_MATRIX = "matrix_"
_HAS_REQUESTS = '"B":.*"N_Q":.*"N_KV":'
_NS_PER_MS = 1e6
_ANNOTATED = {
    C.step: pl.Int64,
    C.engine: pl.String,
    C.phase: pl.String,
    C.tokens: pl.Int64,
    "requests": pl.Int64,
    C.ctx_requests: pl.Int64,
    C.gen_requests: pl.Int64,
    C.ctx_tokens: pl.Int64,
    C.gen_tokens: pl.Int64,
    C.kv_tokens: pl.Int64,
    C.padded_requests: pl.Int64,
    C.resolution: pl.String,
}


def inference_steps(
    trace: Trace,
    work: GpuWork,
    idle_gaps: pl.DataFrame,
    calls: UnifiedCalls,
    hardware: HardwareSpec | None,
) -> pl.DataFrame:
    """Return the steps and the parts of diffusion steps (schema: ``inference_steps``).

    Args:
        trace: The trace.
        work: All its GPU work, with that of unrecorded launches.
        idle_gaps: The gaps between it, with those of carried-in work.
        calls: The unified calls with their costs.
        hardware: The GPU; without it no MFU and MBU.
    """
    graphs = graph_launches(trace, work)
    marks = inference_marks(trace, graphs)

    def measured(of: pl.DataFrame) -> pl.DataFrame:
        timed = _timed(trace, work, idle_gaps, of, graphs)
        return timed.join(_costs(launched(of, trace, work), calls, hardware), on=C.step, how="left")

    annotated = _annotated(trace, marks)
    parts = [
        measured(of).with_columns(
            pl.lit(step, pl.Int64).alias(C.step), part=C.step, phase=of[C.phase]
        )
        for step in annotated.filter(pl.col(C.phase) == StepKind.DIFFUSION.value)[C.step]
        if (of := _parts(marks.filter(pl.col(C.step) == step), graphs)).height
    ]
    whole = measured(marks).join(annotated, on=C.step, how="left", maintain_order="left")
    whole = whole.with_columns(pl.coalesce(C.phase, "phase_of_calls").alias(C.phase))
    origin = work.window[C.ts_ns].min()
    times = ("host_start", "host_end", "gpu_start", "gpu_end")
    since = (((pl.col(f"{time}_ns") - origin) / _NS_PER_MS).alias(f"{time}_ms") for time in times)
    return (
        pl.concat([whole.with_columns(part=pl.lit(None, pl.Int64)), *parts], how="diagonal")
        .with_columns(*since, *_rates())
        .sort(C.step, C.part, nulls_last=False)
    )


def inference_marks(trace: Trace, graphs: pl.DataFrame) -> pl.DataFrame:
    """Return the marks of the steps, as ``step_marks``.

    In a recording without marks the steps are the launches of the same graph in a row, else calls
    of the same modules in a row.
    """
    marks = step_marks(trace)
    if not (marks[C.source] == StepSource.RECORDING).any():
        return marks
    if (repeated := replays(graphs)).height:
        return _as_marks(repeated, StepSource.GRAPH)
    called = repeated_calls(trace)
    return _as_marks(called, StepSource.CALLS) if called.height else marks


def _as_marks(spans: pl.DataFrame, source: StepSource) -> pl.DataFrame:
    """Return spans on the host as marks of steps."""
    return spans.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(C.step),
        pl.lit(None, pl.String).alias(C.name),
        pl.lit(None, pl.Int64).alias(C.tokens),
        pl.lit(source.value).alias(C.source),
    )


def _parts(mark: pl.DataFrame, graphs: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of a step as marks, with ``phase``; none without replays in a row."""
    start_ns, end_ns = mark.select(C.host_start_ns, "host_end_ns").row(0)
    spans = (C.pid, C.tid, C.host_start_ns, "host_end_ns")
    repeated = replays(graphs.filter(pl.col(C.host_start_ns).is_between(start_ns, end_ns)))
    first, last = repeated.head(1), repeated.tail(1)
    before = first.with_columns(
        pl.lit(start_ns, pl.Int64).alias(C.host_start_ns), host_end_ns=pl.col(C.host_start_ns) - 1
    )
    after = last.with_columns(
        (pl.col("host_end_ns") + 1).alias(C.host_start_ns), host_end_ns=pl.lit(end_ns, pl.Int64)
    )
    return _as_marks(
        pl.concat(
            rows.select(spans).with_columns(phase=pl.lit(phase))
            for rows, phase in zip((before, repeated, after), PARTS, strict=True)
        ),
        StepSource.GRAPH,
    )


def _annotated(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return what the annotations in each step describe (``_ANNOTATED``).

    Each value is that of the innermost detailed annotation that has it, else of the innermost one.
    """
    host = trace.host_annotations
    parsed = {name: step_annotation.parse(name) for name in host[C.name].unique()}
    names = [name for name, step in parsed.items() if step is not None]
    found = during(host.filter(pl.col(C.name).is_in(names)).drop_nulls(C.ts_ns), marks)
    rows = []
    for (step,), of_step in found.sort(C.ts_ns, C.uid, descending=True).group_by(
        C.step, maintain_order=True
    ):
        described = [each for name in of_step[C.name] if (each := parsed[name]) is not None]
        described.sort(key=lambda each: each.context is None)  # stable: detailed ones first
        rows.append((step, *_row(described)))
    return pl.DataFrame(rows, schema=_ANNOTATED, orient=C.row)


def _row(described: list[EngineStep]) -> tuple[object, ...]:
    """Return a row of ``_ANNOTATED`` without its step."""
    first = {
        field.name: next(
            (value for each in described if (value := getattr(each, field.name)) is not None), None
        )
        for field in fields(EngineStep)
    }
    engines = [each.engine for each in described if each.engine]
    of_others = [engine for engine in engines if engine != VLLM]  # SGLang writes its form, too
    context, generation = first["context"], first["generation"]
    return (
        next(iter(of_others or engines), None),
        first[C.kind],
        first[C.tokens],
        first["requests"],
        first["context_requests"],
        first["generation_requests"],
        first["context_tokens"],
        first["generation_tokens"],
        None if context is None or generation is None else context.keys + generation.keys,
        first[C.padded_requests],
        first[C.resolution],
    )


def _timed(
    trace: Trace,
    work: GpuWork,
    idle_gaps: pl.DataFrame,
    marks: pl.DataFrame,
    graphs: pl.DataFrame,
) -> pl.DataFrame:
    """Return the steps of marks with their times, GPU events and launches."""
    rows = steps(trace, work, idle_gaps, marks).with_columns(
        pl.when(pl.col(C.carried_in_ns) > 0)
        .then(pl.max_horizontal(C.gpu_start_ns, C.start_ns))
        .otherwise(C.gpu_start_ns)
        .alias(C.gpu_start_ns),
    )
    reached = pl.col("gpu_end_ns").cum_max().forward_fill().shift(1)
    is_replayed = pl.col(C.launch_uid).is_in(graphs[C.launch_uid].implode())
    own = launched(marks, trace, work).with_columns(END.alias(C.end_ns), is_replayed=is_replayed)
    own = own.join(rows.select(C.step, from_ns=C.gpu_start_ns), on=C.step)
    clipped = own.with_columns(pl.max_horizontal(C.ts_ns, "from_ns").alias(C.ts_ns)).with_columns(
        (pl.col(C.end_ns) - pl.col(C.ts_ns)).clip(0).alias(C.dur_ns)
    )
    window = pl.col("gpu_end_ns") - pl.col(C.gpu_start_ns)
    dur = pl.col(C.dur_ns)
    kernel = pl.col(C.kind) != COPY
    short = kernel & (dur < SHORT_KERNEL_NS)
    counted = own.group_by(C.step).agg(
        **{
            C.graph_launches: pl.col(C.launch_uid).filter("is_replayed").n_unique().cast(pl.Int64),
            "replayed_share": dur.filter("is_replayed").sum() / dur.sum(),
            C.kernel_count: kernel.sum().cast(pl.Int64),
            C.short_kernel_count: short.sum().cast(pl.Int64),
            C.short_kernels_ms: dur.filter(short).sum() / _NS_PER_MS,
            C.comm_ms: dur.filter(pl.col(C.kind) == COMMUNICATION).sum() / _NS_PER_MS,
        }
    )
    return (
        rows.join(counted, on=C.step, how="left", maintain_order="left")
        .join(busy_ns(clipped, [C.step]), on=C.step, how="left", maintain_order="left")
        .join(_unrecorded(trace, marks), on=C.step, how="left", maintain_order="left")
        .with_columns(
            host_end_ns=pl.col(C.host_start_ns) + pl.col(C.host_dur_ns),
            **{
                C.step_time_ms: dur / _NS_PER_MS,
                C.busy_ms: pl.col(C.busy_ns) / _NS_PER_MS,
                C.gap_before_ms: (pl.col(C.gpu_start_ns) - reached).clip(0) / _NS_PER_MS,
                C.gap_inside_ms: (window - pl.col(C.busy_ns)) / _NS_PER_MS,
                C.carried_in_ms: pl.col(C.carried_in_ns) / _NS_PER_MS,
                C.exposed_comm_ms: pl.col(C.exposed_comm_ns) / _NS_PER_MS,
                C.is_cut: pl.col(C.is_cut).fill_null(value=False),
                C.launch_mode: _launch_mode(),
            },
            **{
                name: pl.col(name).fill_null(0)
                for name in (C.graph_launches, C.kernel_count, C.short_kernel_count)
            },
        )
        .drop(C.tokens)
    )


def _launch_mode() -> pl.Expr:
    launches = pl.col(C.graph_launches)
    return first_of(
        {
            None: launches.is_null(),
            "eager": launches == 0,
            "mixed": pl.col("replayed_share") < MIN_GRAPH_SHARE,
            "graph": launches == 1,
        },
        "piecewise",
    )


def _unrecorded(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``step, is_cut`` of steps with a launch whose GPU work is not recorded."""
    launches = trace.runtime.filter(pl.col(C.name).cast(pl.String).str.contains(_LAUNCH_CALL))
    linked = trace.launches.select(pl.col(C.runtime_uid).alias(C.uid))
    lost = launches.drop_nulls(C.ts_ns).join(linked, on=C.uid, how="anti")
    return during(lost, marks).select(C.step, pl.lit(value=True).alias(C.is_cut)).unique()


def _costs(own: pl.DataFrame, calls: UnifiedCalls, hardware: HardwareSpec | None) -> pl.DataFrame:
    """Return ``step, modelled_pct, flops, bytes, peak_s, bandwidth_s, phase_of_calls``.

    ``peak_s`` and ``bandwidth_s`` are the times that matrix units and memory need at their peaks.
    The phase is known without annotation if all attention calls have one query for each request.
    """
    owners = (
        calls.work.select(C.owner_uid, pl.col(C.gpu_uid).alias(C.uid))
        .join(own.select(C.uid, C.step), on=C.uid, maintain_order="left")
        .unique(C.owner_uid, keep="first", maintain_order=True)
        .select(C.step, pl.col(C.owner_uid).alias(C.uid))
    )
    # In the order of the calls: sums of floating-point numbers depend on it.
    of_calls = calls.calls.join(owners, on=C.uid, maintain_order="left").with_columns(
        pl.col(C.compute_spec).cast(pl.String)
    )
    is_modelled = pl.col(C.modelled).fill_null(value=False) & pl.col(C.exact_bytes).is_not_null()
    time = pl.col(C.kernel_time_us)
    matrix = pl.col(C.compute_spec).str.starts_with(_MATRIX)
    peak = pl.lit(None, pl.Float64) if hardware is None else peak_tflops(hardware, C.compute_spec)
    needed = pl.when(matrix & is_modelled).then(pl.col(C.exact_flops) / peak / 1e12)
    is_unknown = matrix & is_modelled & pl.col(C.exact_flops).is_not_null() & peak.is_null()
    params = pl.col(C.params).cast(pl.String)
    keys = params.str.json_path_match("$.N_KV")
    is_attention = params.str.contains(_HAS_REQUESTS) & (keys != "1")
    queries = params.str.json_path_match("$.N_Q").filter(is_attention)
    is_decoding = (queries == "1").all() & (queries.len() > 0)
    modelled = of_calls.group_by(C.step).agg(
        (100 * time.filter(is_modelled).sum() / time.sum()).alias(C.modelled_pct),
        **{
            name: pl.when(is_modelled.any()).then(pl.col(exact).filter(is_modelled).sum())
            for name, exact in ((C.flops, C.exact_flops), (C.bytes, C.exact_bytes))
        },
        peak_s=pl.when(~is_unknown.any()).then(needed.sum()),
        phase_of_calls=pl.when(is_decoding).then(pl.lit(StepKind.DECODE.value)),
    )
    bandwidth = None if hardware is None else hardware.mem_bw_gbps * 1e9
    return modelled.with_columns(bandwidth_s=pl.col(C.bytes) / pl.lit(bandwidth, pl.Float64))


def _rates() -> list[pl.Expr]:
    """Return tokens per second, ITL, MFU, MBU and padding."""
    seconds = pl.col(C.step_time_ms) / 1e3
    timed = pl.when(seconds > 0).then(seconds)
    is_known = pl.col(C.modelled_pct) >= MIN_MODELLED_PCT
    padded = pl.col(C.padded_requests)
    return [
        (pl.col(C.tokens) / timed).alias(C.tokens_per_s),
        pl.when(pl.col(C.phase).is_in(GENERATING)).then(C.step_time_ms).alias(C.itl_ms),
        pl.when(is_known).then(100 * pl.col("peak_s") / timed).alias(C.mfu_pct),
        pl.when(is_known).then(100 * pl.col("bandwidth_s") / timed).alias(C.mbu_pct),
        (100 * (padded - pl.col("requests")) / padded).alias(C.padding_pct),
    ]


def with_bandwidth_of(steps: pl.DataFrame, hardware: HardwareSpec | None) -> pl.DataFrame:
    """Return stored steps with the MBU of other hardware, whose MFU is not known.

    The peak of the matrix units depends on the data types of the calls, which are not stored.
    """
    bandwidth = pl.lit(None if hardware is None else hardware.tb_per_s * 1e12, pl.Float64)
    needed_ms = 1e3 * pl.col(C.bytes) / bandwidth
    is_known = pl.col(C.mbu_pct).is_not_null() | (pl.col(C.modelled_pct) >= MIN_MODELLED_PCT)
    none = pl.lit(None, pl.Float64)
    return steps.with_columns(
        pl.when(is_known).then(100 * needed_ms / pl.col(C.step_time_ms)).alias(C.mbu_pct),
        none.alias(C.mfu_pct),
        none.alias(C.lower_bound_ms),
    )
