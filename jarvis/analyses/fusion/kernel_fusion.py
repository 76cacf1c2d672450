"""Kernel fusion: operators that one kernel could replace, or that belong into a matrix product."""

from collections.abc import Iterator
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import chains as found
from jarvis.analyses.base import Analysis, CategoryData
from jarvis.analyses.chains import Chain
from jarvis.analyses.epilogues import gemm_epilogue
from jarvis.analyses.operations import arguments
from jarvis.analyses.wording import counted, listed, ms, pct, quoted, size
from jarvis.findings import GPU_TIME, Finding

OPERATORS_NAMED = 8
"""Operators of a chain that a sentence names; the evidence has all."""


def fusible_chain(data: CategoryData) -> Iterator[Finding]:
    """Chains of kernels that hand their data through memory and could be one.

    Symptom: a module or function runs as several short operators in a row, each of which reads
    what the one before has just written, again and again.
    Rule: neighbouring steps on one stream without a matrix product, convolution, attention, fused
    or generated kernel, communication or copy between them, that are all of one module or function,
    or whose shapes fit. Equal steps in a row count as instances. The fused kernel reads what comes
    from outside and writes the last result once, at least {impact.KERNEL_FLOOR_US} µs per launch.
    Threshold: two to {jarvis.perf_report.fusion_scopes.MAX_STEPS} steps; a saving at best of
    {found.MIN_SHARE_PCT}% of compute time and {found.MIN_TIME_MS} ms, or that much time where no
    saving can be estimated.
    """
    for chain in _chains(data):
        if chain.is_worth_fusing and not chain.is_epilogue:
            yield _finding(data, chain)


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Every chain with its estimate, also those too small for a finding."""
    everything = list(_chains(data))
    kept = [chain for chain in everything if chain.is_worth_fusing and chain.gain]
    return {
        "total_time_ms": sum(chain.time_ms for chain in everything),
        "candidate_count": len(everything),
        "estimated_count": len(kept),
        "total_impact_score": sum(chain.gain.e2e_pct.mid for chain in kept if chain.gain),
        "platform": data.hardware.title if data.hardware else None,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
        "impact_estimates": [_estimate(chain) for chain in kept],
        "candidates": [_candidate(chain) for chain in everything],
        "high_confidence_kernel_map": {
            kernel: chain.name
            for chain in kept
            if chain.confidence == "high"
            for kernel in chain.steps["kernel"]
        },
    }


def _chains(data: CategoryData) -> Iterator[Chain]:
    return found.chains(data.tables, data.hardware, data.bases, data.target_pct)


def _finding(data: CategoryData, chain: Chain) -> Finding:
    gain = chain.gain
    priority = impact.final_priority(
        is_top_operation=False,
        compute_pct=chain.compute_pct,
        category_pct=chain.compute_pct,
        efficiency_pct=gain.efficiency_pct if gain else None,
        saved_compute_pct=gain.compute_pct.mid if gain else None,
        saved_ms=gain.saved_ms.mid if gain else None,
        is_pattern=True,
    )
    per_instance = chain.kernels // chain.instances
    name, heaviest = quoted(chain.name), _heaviest(chain)
    composition = chain.composition
    advice = composition.algorithmic if composition else found.OTHERWISE
    return Finding(
        check="fusible_chain",
        category=data.key,
        title=f"Unfused chain: {name}, {counted(per_instance, 'kernel')}, "
        f"{counted(chain.instances, 'instance')}",
        evidence=_evidence(data, chain),
        issue=_issue(chain, per_instance),
        algorithmic=advice.format(name=name),
        kernel=f"Give a replay package of the chain's longest step, {quoted(heaviest['name'])} of "
        f"{_shapes(heaviest)} ({ms(heaviest['kernel_time_us'] / 1000)} in "
        f"{quoted(heaviest['kernel'])}), to the kernel team: while the code stays, tuning the "
        "single kernels is all that is left.",
        priority_local=priority,
        priority=priority,
        impact=gain,
        hypothesis="The operators run one by one as the code calls them, without a compiler that "
        "fuses them.",
        caveat=_caveat(data, chain),
        verify=f"Record the trace again: where {name} ran, {counted(chain.instances, 'kernel')} "
        f"must stand in place of {chain.kernels:,}.",
        capture=_capture(chain),
        shared_uids=chain.uids,
    )


def _issue(chain: Chain, per_instance: int) -> str:
    operators = listed([quoted(name) for name in chain.operators], OPERATORS_NAMED)
    moved = ""
    if chain.gain:
        now, fused = (chain.row[c] / chain.instances for c in ("step_bytes", "fused_bytes"))
        moved = f", and they move {size(now)} each time where one kernel would move {size(fused)}"
    times = "once" if chain.instances == 1 else f"{chain.instances:,} times"
    return (
        f"{quoted(chain.name)} runs {times} as {counted(per_instance, 'kernel')} in a row "
        f"({operators}): together they take {ms(chain.time_ms)} ({pct(chain.compute_pct)} of "
        f"compute){moved}."
    )


def _evidence(data: CategoryData, chain: Chain) -> dict[str, float | int | str]:
    row, composition = chain.row, chain.composition
    evidence: dict[str, float | int | str | None] = {
        GPU_TIME: chain.time_ms,
        "Share of compute (%)": chain.compute_pct,
        "Instances": chain.instances,
        "Kernels": chain.kernels,
        "Steps, time of all instances": ", ".join(
            f"{quoted(name)} {ms(time_ms)}" for name, time_ms in chain.step_times
        ),
        "Computes": composition.title if composition else None,
        "First step": arguments(row["input_dims"], chain.steps["input_types"][0]),
        "Confidence": f"{chain.confidence}: {'; '.join(chain.reasons) or 'no reason of its own'}",
    }
    if chain.gain and chain.fused_ms is not None:
        evidence |= {
            "Memory traffic now, all instances (MB)": row["step_bytes"] / 1e6,
            "Memory traffic when fused, all instances (MB)": row["fused_bytes"] / 1e6,
            "Time at the roofline when fused (ms)": chain.fused_ms,
        }
    return {label: value for label, value in evidence.items() if value is not None}


def _heaviest(chain: Chain) -> dict[str, Any]:
    return chain.steps.sort("kernel_time_us", "position", descending=[True, False]).row(
        0, named=True
    )


def _shapes(step: dict[str, Any]) -> str:
    return arguments(step["input_dims"], step["input_types"]) or "no shapes"


def _caveat(data: CategoryData, chain: Chain) -> str:
    if chain.unknown:
        return f"No saving is estimated: {chain.unknown}."
    return (
        "The estimate assumes that nothing else reads the results in between, which a trace "
        f"cannot show, and that the fused kernel reaches {data.target_pct:g}% of its roofline but "
        "is no shorter than the shortest of these; low is one that moves its bytes no faster than "
        "they do."
    )


def _capture(chain: Chain) -> str | None:
    if chain.row["scope_kind"] in ("module", "function"):
        return None
    return "Record with `with_stack=True` to see which module or function runs these operators."


def _candidate(chain: Chain) -> dict[str, JsonValue]:
    row = chain.row
    return {
        "module_name": row["scope_name"],
        "base_name": chain.name,
        "phrase": chain.phrase,
        "scope_kind": row["scope_kind"],
        "instance_count": chain.instances,
        "product_name": row["product_name"],
        "kernel_count": len(chain.operators),
        "launch_count": chain.kernels,
        "kernels": [{"name": name, "dur_us": 1000 * time_ms} for name, time_ms in chain.step_times],
        "total_kernel_time_us": row["kernel_time_us"],
        "time_ms": chain.time_ms,
        "input_dims": row["input_dims"],
        "confidence": chain.confidence,
        "is_worth_fusing": chain.is_worth_fusing,
        "fused_time_ms": chain.fused_ms,
        "saved_ms_high": chain.gain.saved_ms.high if chain.gain else None,
        "not_estimated_because": chain.unknown,
    }


def _estimate(chain: Chain) -> dict[str, JsonValue]:
    gain = chain.gain
    assert gain is not None
    known = chain.steps.group_by("position").agg(pl.col("bytes").is_not_null().all())
    return {
        "operation": chain.label,
        "category": "kernel_fusion",
        "type": "kernel_fusion",
        "impact_score": gain.e2e_pct.mid,
        "impact_score_low": gain.e2e_pct.low,
        "impact_score_high": gain.e2e_pct.high,
        "estimation": "full" if chain.row["modelled_pct"] == impact.FULL_PCT else "partial",
        "bound_type": "memory",
        "time_ms": chain.time_ms,
        "saved_ms_low": gain.saved_ms.low,
        "saved_ms": gain.saved_ms.mid,
        "saved_ms_high": gain.saved_ms.high,
        "instance_count": chain.instances,
        "kernel_count": len(chain.operators),
        "modeled_kernel_count": int(known["bytes"].sum()),
        "confidence": chain.confidence,
        "affected_gpu_kernels": chain.steps["kernel"].unique(maintain_order=True).to_list(),
        "fusion_type": "matrix_compute" if chain.is_epilogue else "memory_bound",
    }


ANALYSIS = Analysis(
    title="Kernel fusion",
    icon=":material/merge:",
    checks=(fusible_chain, gemm_epilogue),
    needs=found.TABLES,
    measure=measure,
)
