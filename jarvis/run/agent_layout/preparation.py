"""The prepared files of a run directory: the input of each analysis, and the category manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from pydantic import JsonValue

from jarvis.analyses.operations import DETAILS
from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Severity
from jarvis.run.agent_layout.metrics import category_metrics, system_metrics
from jarvis.run.agent_layout.model_info import model_info
from jarvis.run.agent_layout.priorities import Recommended, priority_data
from jarvis.run.manifest import Manifest, TopOperation
from jarvis.run.run import Run
from jarvis.run.tree_data import tree_data
from jarvis.schemas.names import C
from jarvis.text.csv_files import write_csv
from jarvis.text.messages import to_text
from jarvis.tracelens.sheets import sheets

UNIFIED = "unified_perf_summary"
ADDED_COLUMNS = (
    C.direction,
    C.kernel_time_us,
    C.kernel_count,
    C.comm_time_us,
    C.model_origin,
    C.flops,
    C.bytes,
    C.flops_per_byte,
    C.compute,
    C.tflops_per_s,
    C.tb_per_s,
    C.peak_tflops,
    C.peak_tb_per_s,
    C.roofline_time_us,
    C.bound,
    C.pct_roofline,
    C.roofline_note,
    C.entry_point,
    C.percent_of_compute,
    C.percent_of_total,
)
"""Columns of the operations table that a category's CSV has in addition to the unified sheet."""

TOP_NAMES = {"uid": "ex_uid", "bound": "bound_type", "efficiency_pct": "efficiency_percent"}
"""Names of a top operation's fields in the category manifest."""

SYNC_RATIO = 5.0
SYNC_SHARE_PCT = 10.0
SYNC_MS = 1.0
"""Calls whose host time exceeds their GPU time by this factor may include a wait; a category is
marked if the excess exceeds this share of its GPU time and this time."""

HOST_TIME_NOTE = (
    "Host time of a call in an asynchronous trace is mostly launch time, not time waiting for the "
    "GPU: the sync times are a hint, not proof."
)


@dataclass(frozen=True)
class Preparation:
    """Writes the prepared files of ``run`` into ``root``."""

    run: Run
    root: Path

    def write(self, prepared: Mapping[str, Mapping[str, JsonValue]]) -> None:
        """Write all files; ``prepared`` are the inputs of system analyses by key."""
        paths = RunPaths(self.root)
        unified, fused = self._unified_sheet(), self._fused()
        chosen = Recommended(self.run)
        for key, result in self.run.results.items():
            _write_json(paths.metadata(key), self._metadata(result))
            if result.tier != "compute":
                _write_json(paths.metrics(key), system_metrics(chosen, result))
                continue
            rows = self.run.category_operations(key)
            own = self.run.analyses[key].details if key in self.run.analyses else ()
            details = tuple(column.name for column in own if column.name in rows.columns)
            _write_json(
                paths.metrics(key),
                category_metrics(chosen, result, details, fused),
            )
            if rows.height:
                write_csv(_category_sheet(unified, rows, details), paths.operations_csv(key))
            if call_paths := self.run.call_paths(key):
                write_output(paths.tree_data(key), tree_data(call_paths))
        for key, data in prepared.items():
            _write_json(paths.system_data(key), data)
        manifest = self._category_manifest(prepared)
        for path in paths.category_manifests:
            _write_json(path, manifest)
        priorities = priority_data(chosen)
        for path in paths.priority_data:
            _write_json(path, priorities)
        _write_json(paths.model_info, model_info(self.run.table("operations")))

    @property
    def _manifest(self) -> Manifest:
        return self.run.manifest

    def _fused(self) -> dict[int, str]:
        """Return the fusion finding that covers a row of operations, by uid; the first of
        several."""
        titles: dict[int, str] = {}
        for result in self.run.results.values():
            for finding in result.findings if result.tier == "fusion" else ():
                for uid in (*(op.uid for op in finding.operations), *finding.shared_uids):
                    titles.setdefault(uid, to_text(finding.title))
        return titles

    def _unified_sheet(self) -> pl.DataFrame:
        table = self.run.table(UNIFIED)
        sheet = sheets({UNIFIED: table}).get(UNIFIED)
        if sheet is None:
            return pl.DataFrame({C.uid: pl.Series([], dtype=pl.Int64)})
        return sheet.with_columns(table[C.ex_uid].alias(C.uid))

    def _utilization(self) -> dict[str, JsonValue]:
        totals = self._manifest.totals
        return {
            "total_time_ms": totals.total_time_ms,
            "computation_time_percent": totals.compute_pct,
            "exposed_comm_time_percent": totals.exposed_comm_pct,
            "exposed_memcpy_time_percent": totals.exposed_memcpy_pct,
            "idle_time_percent": totals.idle_pct,
            "busy_time_percent": totals.busy_pct,
            "linked_percent": totals.linked_pct,
        }

    def _head(self) -> dict[str, JsonValue]:
        manifest = self._manifest
        return {
            "platform": manifest.hardware.title if manifest.hardware else None,
            "model_name": manifest.model_name,
            "trace_path": manifest.trace.path,
            "trace_sha256": manifest.trace.sha256,
            "trace_origin": manifest.trace.origin,
            "analysis_id": manifest.analysis_id,
            "output_dir": ".",
            "gpu_utilization": self._utilization(),
        }

    def _metadata(self, result: AnalysisResult) -> dict[str, JsonValue]:
        hardware = self._manifest.hardware
        return {
            **self._head(),
            "category": result.title,
            "category_name": result.key,
            "tier": result.tier,
            "peak_hbm_bw_tbs": hardware.tb_per_s if hardware else None,
            "max_achievable_tflops": dict(hardware.max_achievable_tflops) if hardware else None,
            "memory_gb": hardware.memory_gb if hardware else None,
            "hardware_preset": hardware.preset if hardware else None,
            "hardware_sources": dict(hardware.sources) if hardware else None,
            "trace_loading_policy": "The trace was read once; analyses read only prepared data.",
            **(
                {"time_breakdown": {**self._time_breakdowns[result.key], "note": HOST_TIME_NOTE}}
                if result.tier == "compute"
                else {}
            ),
        }

    @cached_property
    def _time_breakdowns(self) -> Mapping[str, dict[str, JsonValue]]:
        """Return the time breakdown of each category of operations."""
        return {
            key: _time_breakdown(self.run.category_operations(key))
            for key, result in self.run.results.items()
            if result.tier == "compute"
        }

    def _category_manifest(
        self, prepared: Mapping[str, Mapping[str, JsonValue]]
    ) -> dict[str, JsonValue]:
        return {
            **self._head(),
            "cpu_idle_critical": self._is_idle_critical(),
            "top_operations": [_top_entry(top) for top in self._manifest.top_operations],
            "categories": [self._category_entry(r, prepared) for r in self.run.results.values()],
            "time_metric_note": "GPU times are busy times: unions of kernel intervals.",
        }

    def _is_idle_critical(self) -> bool:
        idle = self.run.results.get("cpu_idle")
        return idle is not None and idle.metrics.get("severity") == Severity.CRITICAL

    def _category_entry(
        self, result: AnalysisResult, prepared: Mapping[str, Mapping[str, JsonValue]]
    ) -> dict[str, JsonValue]:
        inside = RunPaths(Path())
        is_compute = result.tier == "compute"
        entry: dict[str, JsonValue] = {
            "name": result.key,
            "display_name": result.title,
            "tier": "compute_kernel" if is_compute else result.tier,
            "status": str(result.status),
            "ops_count": result.row_count,
            "invocation_count": result.invocation_count,
            "metadata_file": str(inside.metadata(result.key)),
            "metrics_file": str(inside.metrics(result.key)),
            "findings_file": str(inside.findings(result.key, result.tier)),
            "finding_count": len(result.findings),
        }
        if not is_compute:
            has_data = result.key in prepared
            return {**entry, "data_file": str(inside.system_data(result.key)) if has_data else None}
        has_paths = bool(self.run.call_paths(result.key))
        return {
            **entry,
            "csv_file": str(inside.operations_csv(result.key)) if result.row_count else None,
            "tree_data_file": str(inside.tree_data(result.key)) if has_paths else None,
            **self._time_breakdowns[result.key],
            "percent_of_compute": result.percent_of_compute,
        }


def _time_breakdown(rows: pl.DataFrame) -> dict[str, JsonValue]:
    kernel_us, host_us = pl.col(C.kernel_time_us), pl.col(C.host_time_us)
    rows = rows[[C.kernel_time_us, C.host_time_us, C.operation_count]]
    waiting = rows.filter(host_us > SYNC_RATIO * kernel_us)
    kernel_ms = float(rows[C.kernel_time_us].sum()) / 1000
    sync_ms = float((waiting[C.host_time_us] - waiting[C.kernel_time_us]).sum()) / 1000
    return {
        "gpu_kernel_time_ms": kernel_ms,
        "cpu_duration_ms": float(rows[C.host_time_us].sum()) / 1000,
        "sync_time_ms": sync_ms,
        "sync_ops_count": int(waiting[C.operation_count].sum()),
        "has_sync_bottleneck": sync_ms > max(SYNC_MS, SYNC_SHARE_PCT / 100 * kernel_ms),
    }


def _top_entry(top: TopOperation) -> dict[str, JsonValue]:
    entry: dict[str, JsonValue] = top.model_dump(mode="json")
    for own_columns, theirs in TOP_NAMES.items():
        entry[theirs] = entry.pop(own_columns)
    return entry


def _category_sheet(
    unified: pl.DataFrame, rows: pl.DataFrame, details: tuple[str, ...]
) -> pl.DataFrame:
    """Return the rows of the unified sheet under its labels, then our columns in snake case."""
    own_columns = [*ADDED_COLUMNS, *(column.name for column in DETAILS), *details]
    present = [name for name in dict.fromkeys(own_columns) if name in rows.columns]
    module_path = pl.col(C.module_path).list.join(" / ").alias(C.module_path)
    unified = unified.drop(present, strict=False)  # with call stacks it has entry points too
    return (
        rows.select(C.uid, *present, module_path)
        .join(unified, on=C.uid, how="left", maintain_order="left")
        .select(*(c for c in unified.columns if c != "uid"), *present, C.module_path)
    )


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write JSON; numbers that it lacks become null."""
    write_output(path, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
