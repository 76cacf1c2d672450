"""``<key>_metrics.json``: one analysis in numbers, under the names that other tools read."""

from collections.abc import Mapping
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.findings import AnalysisResult, Finding, Impact, Status
from jarvis.perf_report import Totals

KERNEL_NAME_LIMIT = 75
"""Kernel names are cut to this many characters in ``kernel_name_trunc``."""


def category_metrics(
    result: AnalysisResult, rows: pl.DataFrame, totals: Totals, details: tuple[str, ...]
) -> dict[str, JsonValue]:
    """The metrics of a category of operations; ``details`` are the columns that it added."""
    metrics = _head(result)
    if result.status is not Status.OK:
        return metrics
    return {
        **metrics,
        "total_time_ms": round(result.gpu_time_ms, 3),
        "percent_of_compute": result.percent_of_compute,
        "percent_of_total": result.percent_of_total,
        "row_count": result.row_count,
        "invocation_count": result.invocation_count,
        "operation_count": result.invocation_count,
        "average_efficiency_percent": result.efficiency_pct,
        "mean_efficiency_percent": result.mean_efficiency_pct,
        "efficiency_coverage_percent": result.efficiency_coverage_pct,
        "operations": [_operation(row, details, totals) for row in rows.iter_rows(named=True)],
        "category_specific": dict(result.metrics),
        "notes": list(result.notes),
        **_findings(result),
    }


def system_metrics(result: AnalysisResult) -> dict[str, JsonValue]:
    """The metrics of an analysis across categories: its assessments stand at the top level."""
    return {**_head(result), **result.metrics, **_findings(result)}


def _head(result: AnalysisResult) -> dict[str, JsonValue]:
    status = "SUCCESS" if result.tier == "system" and result.status is Status.OK else result.status
    head: dict[str, JsonValue] = {
        "category": result.key,
        "title": result.title,
        "tier": result.tier,
        "status": str(status),
    }
    return head if result.error is None else {**head, "error": result.error}


def _operation(
    row: Mapping[str, Any], details: tuple[str, ...], totals: Totals
) -> dict[str, JsonValue]:
    efficiency = row["pct_roofline"]
    kernels = row["kernels"] or []
    is_anomaly = impact.is_anomaly(efficiency)
    mean, std = row["kernel_time_us_mean"], row["kernel_time_us_std"]
    operation: dict[str, JsonValue] = {
        "name": row["name"],
        "ex_uid": row["uid"],
        "source_category": row["op_category"],
        "direction": row["direction"],
        "count": row["operation_count"],
        "time_ms": row["kernel_time_us"] / 1000,
        "percent_of_category": row["percent_of_category"],
        "percent_of_compute": row["percent_of_compute"],
        "percent_of_total": row["percent_of_total"],
        "efficiency": {
            "tflops_achieved": row["tflops_per_s"],
            "tb_s_achieved": row["tb_per_s"],
            "efficiency_percent": efficiency,
            "bound_type": row["bound"],
            "flops_per_byte": row["flops_per_byte"],
            "compute_spec": row["compute"],
            "resolved_peak_maf": row["peak_tflops"],
            "resolved_peak_hbm_bw": row["peak_tb_per_s"],
            "is_anomaly": is_anomaly,
            "assessment": impact.efficiency_word(efficiency),
            "warning": row["roofline_note"],
        },
        "saved_ms_at_target": _saved_ms(row, efficiency, totals),
        "has_perf_model": row["has_perf_model"],
        "args": row["arguments"].replace(", [", "<br>[") if row["arguments"] else None,
        "library": row["library"],
        "kernel_name": "<br>".join(
            f"Kernel {i}: {kernel['name']}" for i, kernel in enumerate(kernels, start=1)
        ),
        "kernel_name_trunc": (row["main_kernel"] or "")[:KERNEL_NAME_LIMIT] or None,
        "module_chain": row["module_path"],
        "launcher_path": row["called_from"],
        "cov": std / mean if std is not None and mean else None,
        "in_top_operations": row["is_top_operation"],
        "classification": {name: row[name] for name in details},
    }
    return operation


def _saved_ms(row: Mapping[str, Any], efficiency: float | None, totals: Totals) -> float | None:
    if efficiency is None or impact.is_anomaly(efficiency):
        return None
    projection = impact.project(
        row["kernel_time_us"] / 1000,
        efficiency,
        impact.TARGET_PCT,
        compute_ms=totals.compute_time_ms,
        total_ms=totals.total_time_ms,
    )
    return projection.saved_ms


def _findings(result: AnalysisResult) -> dict[str, JsonValue]:
    return {
        "impact_estimates": [_estimate(f, f.impact) for f in result.findings if f.impact],
        "category_findings": [f.model_dump(mode="json") for f in result.findings],
    }


def _estimate(finding: Finding, gain: Impact) -> dict[str, JsonValue]:
    return {
        "operation": finding.operations[0].name if finding.operations else finding.title,
        "category": finding.category,
        "type": finding.check,
        "estimation": gain.method,
        "time_ms": gain.time_ms,
        "saved_ms_low": gain.saved_ms.low,
        "saved_ms": gain.saved_ms.mid,
        "saved_ms_high": gain.saved_ms.high,
        "impact_score_low": gain.e2e_pct.low,
        "impact_score": gain.e2e_pct.mid,
        "impact_score_high": gain.e2e_pct.high,
    }
