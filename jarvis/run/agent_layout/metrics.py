"""``<key>_metrics.json``: one analysis in numbers, under the names that other tools read."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from jarvis import impact
from jarvis.findings import AnalysisResult, Status
from jarvis.perf_report import CallPath, Totals
from jarvis.perf_report.call_tree.stacks import own_frames
from jarvis.run.agent_layout.priorities import (
    Recommended,
    bound_type,
    finding_entries,
    operation_estimates,
)
from jarvis.schemas.names import C
from jarvis.text.format import UNPRINTABLE, cut
from jarvis.text.messages import to_text

MISSING = "—"
"""A cell without a value."""

BREAK = "<br>"
"""Separates the arguments of a call, and its kernels."""

NAME_LIMIT = 75
"""Maximum length of a kernel name in ``kernel_name_trunc``."""

KERNELS_SHOWN = 8
"""Maximum number of kernels in a cell."""

# Brackets matter before a link target, underscores where both ends of an emphasis could be.
_SPECIAL = re.compile(
    r"[\\`*|$~@]|\](?=[(\[:])|(?<![A-Za-z0-9])_(?=.*_(?![A-Za-z0-9]))|(?<=[A-Za-z]):(?=//)"
    r"|(?<=www)\.",
    re.IGNORECASE,
)


def cell_text(text: str) -> str:
    """Return ``text`` on one line, displayed literally, for a Markdown table and for metrics.

    Tools compare both character by character and split cells at ``|`` and ``<br>``, so Markdown
    syntax is written as HTML entities: ``html.unescape`` gives the text of the trace.
    """
    shown = cut(text)
    flat = html.escape(UNPRINTABLE.sub(" ", shown).strip(), quote=False)
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", flat)


def arguments_cell(arguments: str | None) -> str | None:
    """Return ``[8,4] bf16, [4] bf16`` as ``(8,4) bf16<br>(4,) bf16``; None without arguments."""
    if not arguments:
        return None
    return BREAK.join(cell_text(_as_tuple(part)) for part in arguments.split(", "))


def _as_tuple(argument: str) -> str:
    single = re.sub(r"\[(\d+)\]", r"(\1,)", argument)
    return re.sub(r"\[([\d,]*)\]", r"(\1)", single)


def kernels_cell(kernels: Sequence[Mapping[str, Any]], *, limit: int | None = None) -> str | None:
    """Return the names of kernels, numbered if there are several; None without kernels.

    ``limit`` cuts each name, and the list at KERNELS_SHOWN.
    """
    names = list(dict.fromkeys(str(kernel[C.name]) for kernel in kernels))
    shown = names if limit is None else [name[:limit] for name in names[:KERNELS_SHOWN]]
    if len(names) < 2:
        return cell_text(shown[0]) or None if shown else None
    numbered = [f"Kernel {i}: {cell_text(name)}" for i, name in enumerate(shown, start=1)]
    if len(shown) < len(names):
        numbered.append(f"and {len(names) - len(shown)} more")
    return BREAK.join(numbered)


COMPARISON_SCOPE = "standalone"
"""The tools' name for an analysis of one trace."""

CHAINED_ROWS = 100
"""Categories with more rows have no ``call_chain``."""

HIGH_VARIANCE = "high_variance"
"""The check that reports rows with unsteady times."""


def category_metrics(
    chosen: Recommended,
    result: AnalysisResult,
    details: tuple[str, ...],
    fused: Mapping[int, str],
) -> dict[str, JsonValue]:
    """Return the metrics of a category of operations of the run of ``chosen``.

    ``details`` are the columns that it added, ``fused`` the fusion finding that covers a row, by
    uid. Rows of other categories in its findings are at the end of ``operations``, with their
    category.
    """
    metrics = _head(result)
    if result.status is not Status.OK:
        return {**metrics, "operations": [], "impact_estimates": [], "category_findings": []}
    run = chosen.run
    target_pct = run.targets.of_category(result.key)
    rows, unsteady = run.category_operations(result.key), unsteady_uids(result)
    paths = run.call_paths(result.key) if rows.height <= CHAINED_ROWS else {}
    own: list[JsonValue] = [
        {
            **operation_entry(row),
            "saved_ms_at_target": _saved_ms(row, target_pct, run.manifest.totals),
            "call_chain": _call_chain(paths.get(row[C.uid])),
            "high_variance": row[C.uid] in unsteady,
            "fusion_flagged": row[C.uid] in fused,
            "fusion_candidate_name": fused.get(row[C.uid]),
            "classification": {name: row[name] for name in details},
        }
        for row in rows.iter_rows(named=True)
    ]
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
        "operations": [*own, *_shared(chosen, result)],
        "category_specific": dict(result.metrics),
        "notes": [to_text(note) for note in result.notes],
        "impact_estimates": operation_estimates(result.key, rows),
        "category_findings": finding_entries(chosen, result),
    }


def _shared(chosen: Recommended, result: AnalysisResult) -> list[JsonValue]:
    """Return the rows of other categories in findings of this one, without duplicates."""
    entries: dict[int, JsonValue] = {}
    for finding in chosen.of(result.key):
        for row in chosen.rows(finding).iter_rows(named=True):
            if row[C.category] != result.key:
                entries[row[C.uid]] = {**operation_entry(row), "shared_from": row[C.category]}
    return list(entries.values())


def system_metrics(chosen: Recommended, result: AnalysisResult) -> dict[str, JsonValue]:
    """Return the metrics of an analysis across categories: its assessments are at the top level."""
    return {**_head(result), "category_findings": finding_entries(chosen, result), **result.metrics}


def operation_entry(row: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return one row of operations; ``args``, ``kernel_name``, ``kernel_name_trunc`` and
    ``launcher_path`` are cells of a Markdown table."""
    efficiency, kernels = row[C.pct_roofline], row[C.kernels] or []
    mean, std = row[C.kernel_time_us_mean], row[C.kernel_time_us_std]
    return {
        "name": row[C.name],
        "ex_uid": row[C.uid],
        "source_category": row[C.op_category],
        "direction": row[C.direction],
        "count": row[C.operation_count],
        "time_ms": row[C.kernel_time_us] / 1000,
        "percent_of_category": row[C.percent_of_category],
        "percent_of_compute": row[C.percent_of_compute],
        "percent_of_total": row[C.percent_of_total],
        "efficiency": {
            "tflops_achieved": row[C.tflops_per_s],
            "tb_s_achieved": row[C.tb_per_s],
            "efficiency_percent": efficiency,
            "bound_type": bound_type(row[C.bound]),
            "flops_per_byte": row[C.flops_per_byte],
            "compute_spec": row[C.compute],
            "resolved_peak_maf": row[C.peak_tflops],
            "resolved_peak_hbm_bw": row[C.peak_tb_per_s],
            "is_anomaly": impact.is_anomaly(efficiency),
            "assessment": impact.efficiency_word(efficiency),
            "warning": row[C.roofline_note],
        },
        "has_perf_model": row[C.has_perf_model],
        "args": arguments_cell(row["arguments"]),
        "library": row["library"],
        "kernel_name": kernels_cell(kernels),
        "kernel_name_trunc": kernels_cell(kernels, limit=NAME_LIMIT),
        "module_chain": row[C.module_path] or [],
        "launcher_path": cell_text(row[C.entry_point]) if row[C.entry_point] else None,
        "cov": std / mean if std is not None and mean else None,
        "populations": row.get(C.populations) or [],
        "in_top_operations": row[C.is_top_operation],
    }


def unsteady_uids(result: AnalysisResult) -> frozenset[int]:
    """Return the rows whose times vary too much to be reliable."""
    doubted = (f for f in result.findings if f.check == HIGH_VARIANCE)
    return frozenset(reference.uid for finding in doubted for reference in finding.operations)


def _head(result: AnalysisResult) -> dict[str, JsonValue]:
    status = "SUCCESS" if result.tier == "system" and result.status is Status.OK else result.status
    head: dict[str, JsonValue] = {
        "category": result.key,
        "title": result.title,
        "tier": result.tier,
        "comparison_scope": COMPARISON_SCOPE,
        "status": str(status),
    }
    return head if result.error is None else {**head, "error": result.error}


def _call_chain(path: CallPath | None) -> list[JsonValue]:
    return [] if path is None else [*own_frames(path.above())]


def _saved_ms(row: Mapping[str, Any], target_pct: float, totals: Totals) -> float | None:
    efficiency = row[C.pct_roofline]
    if efficiency is None or impact.is_anomaly(efficiency):
        return None
    projection = impact.project(
        row[C.kernel_time_us] / 1000,
        efficiency,
        target_pct,
        compute_ms=totals.compute_time_ms,
        total_ms=totals.total_time_ms,
    )
    return projection.saved_ms
