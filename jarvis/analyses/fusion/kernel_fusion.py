"""Kernel fusion: operators that one kernel could replace, or that a matrix product could absorb."""

from collections.abc import Iterator
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import chains as found
from jarvis.analyses.advice import reproduced
from jarvis.analyses.base import Analysis, CategoryData
from jarvis.analyses.chains import Chain
from jarvis.analyses.epilogues import gemm_epilogue
from jarvis.analyses.operations import arguments
from jarvis.findings import Finding, texts_of
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable, action, to_text

OPERATORS_NAMED = 8
"""Operators of a chain that a sentence names; the evidence lists all."""

MESSAGES = MessageTable(
    "kernel_fusion",
    {
        "title": "Unfused chain: {name}, {kernels:count kernel}, {instances:count instance}",
        "issue": "{name} runs {times} as {kernels:count kernel} in a row "
        f"({{operators:names {OPERATORS_NAMED}}}): together they take {{time_ms}} ({{compute_pct}} "
        "of compute){moved}.",
        "issue.unscoped": "{name} runs {times} as just these {kernels:count kernel} in a row "
        f"({{operators:names {OPERATORS_NAMED}}}): together they take {{time_ms}} ({{compute_pct}} "
        "of compute){moved}.",
        "issue.of_calls": "{name} runs {scope_calls:count time}, and {kernels:count kernel} in a "
        f"row ({{operators:names {OPERATORS_NAMED}}}) run {{instances:,}} times within it: "
        "together they take {time_ms} ({compute_pct} of compute){moved}.",
        "issue.once": "once",
        "issue.times": "{instances:,} times",
        "issue.moved": ", and {instances:either they|on average they} move {step_bytes} where one "
        "kernel would move {fused_bytes}",
        "kernel": "Tune the kernel of the chain's longest step, {step:name} of {shapes?no shapes} "
        "({step_ms} in {kernel:name}){reproduced}: without a code change, only the single kernels "
        "can be tuned.",
        "hypothesis": "The operators run one by one as the code calls them, without a compiler "
        "that fuses them.",
        "caveat": "The estimate assumes that nothing else reads the intermediate results, which a "
        "trace cannot show, and that the fused kernel reaches {target_pct:g}% of its roofline but "
        "is no shorter than the shortest of these kernels; the low estimate assumes that it "
        "reaches only their present bandwidth.",
        "verify": "Record the trace again: where {name} runs, at most {instances:count kernel} "
        "must replace the {kernels:,}.",
        "capture": action(
            "Record with `with_stack=True` to see which module or function runs these operators.",
            "not has_stacks",
        ),
    },
)


def fusible_chain(data: CategoryData) -> Iterator[Finding]:
    """Chains of kernels that pass their data through memory and could be one kernel.

    Symptom: a module or function repeatedly runs several short operators in a row, each of which
    reads what the previous one has just written.
    Rule: consecutive steps on one stream without a matrix product, convolution, attention, fused or
    generated kernel, communication or copy between them, that are all of one module or function, or
    whose shapes fit. Equal consecutive steps count as instances. The fused kernel reads the
    external inputs and writes the last result once, and takes at least {impact.KERNEL_FLOOR_US} µs
    per launch.
    Threshold: two to {jarvis.perf_report.fusion.scopes.MAX_STEPS} steps; a maximum saving of
    {found.MIN_SHARE_PCT}% of compute time and {found.MIN_TIME_MS} ms, or that much time if no
    saving can be estimated.
    """
    for chain in _chains(data):
        if chain.is_worth_fusing and not chain.is_epilogue:
            yield _finding(data, chain)


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return every chain with its estimate, including those too small for a finding."""
    everything = list(_chains(data))
    estimated = [chain for chain in everything if chain.is_worth_fusing and chain.gain]
    return {
        "total_time_ms": sum(chain.time_ms for chain in everything),
        "candidate_count": len(everything),
        "estimated_count": len(estimated),
        "total_impact_score": sum(chain.gain.e2e_pct.mid for chain in estimated if chain.gain),
        "platform": data.hardware.title if data.hardware else None,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
        "impact_estimates": [_estimate(chain) for chain in estimated],
        "candidates": [_candidate(chain) for chain in everything],
        "high_confidence_kernel_map": {
            kernel: chain.name
            for chain in estimated
            if chain.confidence == "high"
            for kernel in chain.steps["kernel"]
        },
    }


def _chains(data: CategoryData) -> Iterator[Chain]:
    return found.chains(data.tables, data.hardware, data.bases, data.target_pct)


def _finding(data: CategoryData, chain: Chain) -> Finding:
    return Finding(
        check="fusible_chain",
        category=data.key,
        **_texts(chain, data.target_pct),
        evidence={
            **chain.evidence,
            "computes": chain.composition.title if chain.composition else None,
            "first_step": arguments(chain.row[C.input_dims], chain.steps[C.input_types][0]),
            "confidence": chain.rating,
            **chain.traffic_mb("fused_traffic_mb"),
            "fused_roofline_ms": chain.fused_ms if chain.gain else None,
        },
        algorithmic=chain.algorithmic,
        priority_local=chain.priority,
        priority=chain.priority,
        impact=chain.gain,
        shared_uids=chain.uids,
    )


def _texts(chain: Chain, target_pct: float) -> dict[str, Any]:
    instances, heaviest, moved = chain.instances, _heaviest(chain), None
    if chain.gain:
        sizes = {name: chain.row[name] / instances for name in (C.step_bytes, C.fused_bytes)}
        moved = MESSAGES("issue.moved", **sizes, instances=instances)
    scope_name, scope_calls = chain.row[C.scope_name], chain.row.get(C.scope_calls)
    values = {
        "name": chain.name,
        "scope_calls": scope_calls,
        "instances": instances,
        "times": MESSAGES("issue.once")
        if instances == 1
        else MESSAGES("issue.times", instances=instances),
        "kernels": chain.kernels // instances,
        "operators": chain.operators,
        "time_ms": chain.time_ms,
        "compute_pct": chain.compute_pct,
        "moved": moved,
        "step": heaviest[C.name],
        "shapes": arguments(heaviest[C.input_dims], heaviest[C.input_types]),
        "step_ms": heaviest[C.kernel_time_us] / 1000,
        "kernel": heaviest[C.kernel],
        "reproduced": reproduced(heaviest[C.operation_uid]),
        "target_pct": target_pct,
    }
    texts = texts_of(MESSAGES, values)
    if not scope_name:
        texts |= texts_of(MESSAGES, values, suffix="unscoped")
    elif scope_calls and scope_calls != instances:
        texts |= texts_of(MESSAGES, values, suffix="of_calls")
    texts["verify"] = MESSAGES.pick("verify", {**values, "kernels": chain.kernels})
    if chain.unknown:
        texts["caveat"] = found.MESSAGES("caveat.unknown", reason=chain.unknown)
    if chain.row[C.scope_kind] in ("module", "function"):
        del texts["capture"]
    return texts


def _heaviest(chain: Chain) -> dict[str, Any]:
    """Return the row with most time of the step with most time: a step has a row per shape."""
    time_us = pl.col(C.kernel_time_us)
    ordered = chain.steps.with_columns(whole=time_us.sum().over(C.position)).sort(
        "whole", C.position, C.kernel_time_us, descending=[True, False, True]
    )
    return ordered.row(0, named=True)


def _candidate(chain: Chain) -> dict[str, JsonValue]:
    row = chain.row
    return {
        "module_name": row[C.scope_name],
        "base_name": chain.name,
        "phrase": chain.phrase,
        "scope_kind": row[C.scope_kind],
        "instance_count": chain.instances,
        "product_name": row[C.product_name],
        "kernel_count": len(chain.operators),
        "launch_count": chain.kernels,
        "kernels": [{"name": name, "dur_us": 1000 * time_ms} for name, time_ms in chain.step_times],
        "total_kernel_time_us": row[C.kernel_time_us],
        "time_ms": chain.time_ms,
        "input_dims": row[C.input_dims],
        "confidence": chain.confidence,
        "is_worth_fusing": chain.is_worth_fusing,
        "fused_time_ms": chain.fused_ms,
        "saved_ms_high": chain.gain.saved_ms.high if chain.gain else None,
        "not_estimated_because": to_text(chain.unknown) if chain.unknown else None,
    }


def _estimate(chain: Chain) -> dict[str, JsonValue]:
    gain = chain.gain
    assert gain is not None
    known = chain.steps.group_by(C.position).agg(pl.col(C.bytes).is_not_null().all())
    return {
        "operation": chain.label,
        "category": "kernel_fusion",
        "type": "kernel_fusion",
        "impact_score": gain.e2e_pct.mid,
        "impact_score_low": gain.e2e_pct.low,
        "impact_score_high": gain.e2e_pct.high,
        "estimation": "full" if chain.row[C.modelled_pct] == impact.FULL_PCT else "partial",
        "bound_type": "memory",
        "time_ms": chain.time_ms,
        "saved_ms_low": gain.saved_ms.low,
        "saved_ms": gain.saved_ms.mid,
        "saved_ms_high": gain.saved_ms.high,
        "instance_count": chain.instances,
        "kernel_count": len(chain.operators),
        "modeled_kernel_count": int(known[C.bytes].sum()),
        "confidence": chain.confidence,
        "affected_gpu_kernels": chain.steps[C.kernel].unique(maintain_order=True).to_list(),
        "fusion_type": "matrix_compute" if chain.is_epilogue else "memory_bound",
    }


ANALYSIS = Analysis(
    title="Kernel fusion",
    icon=":material/merge:",
    checks=(fusible_chain, gemm_epilogue),
    needs=found.TABLES,
    measure=measure,
)
