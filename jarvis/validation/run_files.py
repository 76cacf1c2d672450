"""A run directory as data, each file read once; the names in its tables."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import polars.selectors as cs
from polars.exceptions import PolarsError

from jarvis.core.errors import NotARunError
from jarvis.core.workspace import RunPaths, is_comparison
from jarvis.validation.replayed_steps import RecordedSteps

COLUMNS = {
    "operations": ("name", "launcher_names", "module_path", "entry_point"),
    "gpu_work": ("name", "launcher_name"),
    "host_slices": ("name",),
    "idle_gaps": ("launcher_name", "host_call", "host_op", "host_frame", "host_annotation"),
    "step_gaps": ("launcher_name", "host_call", "host_op", "host_frame", "host_annotation"),
    "steps": ("name", "slow_call"),
    "call_tree": ("name",),
    "collectives": ("name", "collective"),
    "fusion_chains": ("scope_name",),
    "attention_groups": ("scope_name",),
}
"""Columns of names by table; of lists, each item."""

CUT = "…"
_INSTANCE = re.compile(r"_\d+$")


@dataclass(frozen=True)
class RecordedNames:
    """The names of one run: those of its kernels, and those in tables.

    ``read`` returns those of some columns that a table has.
    """

    kernels: Iterable[str]
    read: Callable[[str, tuple[str, ...]], pl.DataFrame]

    def has(self, text: str) -> bool:
        """Return whether a name is recorded; of one that was cut, whether its beginning is."""
        return text in self._names or (text.endswith(CUT) and text.rstrip(CUT) in self._joined)

    def contains(self, text: str) -> bool:
        """Return whether a recorded name contains a text."""
        return self.has(text) or text in self._joined

    @cached_property
    def _names(self) -> frozenset[str]:
        found = set(self.kernels)
        for table, columns in COLUMNS.items():
            for values in self.read(table, columns):
                if isinstance(values.dtype, pl.List):
                    values = values.explode(empty_as_null=False, keep_nulls=False)
                found.update(values.drop_nulls().unique().cast(pl.String))
        return frozenset(found | {_INSTANCE.sub("", name) for name in found})

    @cached_property
    def _joined(self) -> str:
        return "\n".join(sorted(self._names))


REPORT_KINDS = ("fair", "rough")
NOT_SIMULATED = "not simulated"

Json = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """The files of the run directory ``root``; unreadable files are None or empty."""

    root: Path
    _objects: dict[Path, Json | None] = field(default_factory=dict)
    _rows: dict[Path, list[Json]] = field(default_factory=dict)

    @property
    def paths(self) -> RunPaths:
        """Return the path of each file."""
        return RunPaths(self.root)

    def name(self, path: Path) -> str:
        """Return ``path`` relative to the run directory."""
        return path.relative_to(self.root).as_posix()

    def json(self, path: Path) -> Json | None:
        """Return a JSON object."""
        if path not in self._objects:
            try:
                content = orjson.loads(path.read_bytes())
            except (OSError, ValueError):
                content = None
            self._objects[path] = content if isinstance(content, dict) else None
        return self._objects[path]

    @cached_property
    def manifest(self) -> Json:
        """Return the manifest; raise NotARunError if there is none."""
        manifest = self.json(self.paths.manifest)
        if manifest is None or "schema_version" not in manifest:
            raise NotARunError(self.root)
        return manifest

    @property
    def is_comparison(self) -> bool:
        """Return whether this is the folder of a comparison alone, not that of an analysis."""
        return is_comparison(self.root)

    @property
    def has_reference(self) -> bool:
        """Return whether the target was compared with a reference."""
        return self.is_comparison or self.manifest.get("reference") is not None

    @property
    def comparison(self) -> Json | None:
        """Return both sides of the comparison and its findings, if there is one."""
        return self.json(self.paths.comparison)

    def comparison_rows(self, table: str) -> list[Json]:
        """Return the rows of a table of the comparison, as text."""
        path = self.paths.comparison_table(table)
        if path not in self._rows:
            self._rows[path] = _csv(path).to_dicts() if path.is_file() else []
        return self._rows[path]

    @cached_property
    def category_manifest(self) -> Json:
        """Return the map of the prepared files."""
        return self.json(self.paths.category_manifests[0]) or {}

    @property
    def categories(self) -> list[Json]:
        """Return the category manifest's entry of each analysis."""
        return list(self.category_manifest.get("categories", ()))

    @property
    def priority_data(self) -> Json:
        """Return the findings by score."""
        return self.json(self.paths.priority_data[0]) or {"findings": [], "priorities": []}

    def findings_file(self, category: Json) -> Path:
        """Return the findings file of one analysis, in the folder of its tier."""
        tier = "compute" if category["tier"] == "compute_kernel" else category["tier"]
        return self.paths.findings(category["name"], tier)

    @cached_property
    def results(self) -> Mapping[str, Json]:
        """Return the outcome of every analysis by key, for every version of the file."""
        content = self.json(self.paths.results) or {}
        found: Mapping[str, Json] = content["analyses"] if "version" in content else content
        return found

    @cached_property
    def findings(self) -> tuple[Json, ...]:
        """Return every finding of every analysis."""
        return tuple(finding for result in self.results.values() for finding in result["findings"])

    def listed_findings(self, key: str) -> list[Json]:
        """Return the findings in the metrics of one analysis."""
        metrics = self.json(self.paths.metrics(key)) or {}
        return list(metrics["category_findings"]) if metrics else []

    @property
    def knows_steps(self) -> bool:
        """Return whether a version wrote the run that records what bounds its steps; the findings
        of earlier ones were not made for every check."""
        return self.manifest["totals"].get("step") is not None

    @property
    def step(self) -> Json:
        """Return the bounds of what can be saved of the recorded steps; empty if they are not
        known."""
        found: Json = self.manifest["totals"].get("step") or {}
        return found if found.get("step_ms") else {}

    @cached_property
    def recorded_steps(self) -> RecordedSteps | None:
        """Return the steps to replay, or None if they are not simulated."""
        info = self.manifest.get("simulation")
        if info is None or info["quality"]["grade"] == NOT_SIMULATED:
            return None
        nodes, edges, steps = map(self.table, ("sim_nodes", "sim_edges", "steps"))
        if nodes is None or edges is None or steps is None:
            return None
        return RecordedSteps(nodes, edges, steps, info)

    def table(self, name: str) -> pl.DataFrame | None:
        """Return a stored table; None if the run has none of this name."""
        path = self.paths.table(name)
        return pl.read_parquet(path, glob=False) if path.is_file() else None

    def columns(self, name: str, *columns: str) -> pl.DataFrame:
        """Return these columns of a table; without rows if one is missing or cannot be read."""
        try:
            return pl.read_parquet(self.paths.table(name), columns=list(columns), glob=False)
        except (OSError, PolarsError):
            return pl.DataFrame(schema=dict.fromkeys(columns, pl.Null))

    def known_columns(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        """Return those of these columns that a table has; none if it cannot be read."""
        try:
            rows = pl.scan_parquet(self.paths.table(name), glob=False)
            return rows.select(cs.by_name(*columns, require_all=False)).collect()
        except (OSError, PolarsError):
            return pl.DataFrame()

    @cached_property
    def operations(self) -> Mapping[int, Json]:
        """Return name, calls, time, its share and kernels of every row of the operations table, by
        uid."""
        path = self.paths.table("operations")
        if not path.is_file():
            return {}
        columns = ["uid", "name", "operation_count", "kernel_time_us", "kernels", "category"]
        columns += ["kernel_time_us_mean", "percent_of_compute"]
        rows = pl.read_parquet(path, columns=columns, glob=False)
        return {row["uid"]: row for row in rows.iter_rows(named=True)}

    @cached_property
    def names(self) -> RecordedNames:
        """Return the names in the tables."""
        kernels = (kernel for row in self.operations.values() for kernel in row["kernels"] or ())
        return RecordedNames([kernel["name"] for kernel in kernels], self.known_columns)

    def operations_ms(self, uids: Iterable[int] | None = None) -> float:
        """Return the GPU time of these rows of the operations table, by default of all, in ms."""
        chosen = self.operations.keys() if uids is None else uids
        rows = (self.operations[uid] for uid in chosen if uid in self.operations)
        return sum(row["kernel_time_us"] or 0.0 for row in rows) / 1000

    def category_times_us(self, category: Json) -> dict[int, float]:
        """Return the kernel time of the rows of one category's CSV, by uid."""
        path = self.paths.operations_csv(category["name"])
        if not path.is_file():
            return {}
        rows = _csv(path, "ex_UID", "kernel_time_us").iter_rows()
        return {int(uid): float(us) for uid, us in rows}

    @cached_property
    def gpu_timeline(self) -> dict[str, tuple[float, float | None]]:
        """Return time in ms and share in percent of each kind of GPU time (the report's sheet)."""
        sheet = self.paths.perf_report_csvs / "gpu_timeline.csv"
        if not sheet.is_file():
            return {}
        rows = _csv(sheet)
        found: dict[str, tuple[float, float | None]] = {}
        for kind, ms, percent in rows.select("type", "time ms", "percent").iter_rows():
            found[kind] = (float(ms), float(percent) if percent else None)
        if rows["type"].is_duplicated().any():
            found = _joined(rows)
        if "idle_time" not in found and "micro_idle_time" in found:
            idle = [found.get(f"{kind}_idle_time", (0.0, None)) for kind in ("micro", "macro")]
            found["idle_time"] = sum(ms for ms, _ in idle), sum(share or 0.0 for _, share in idle)
        return found

    def time_ms(self, kind: str) -> float:
        """Return a time of ``gpu_timeline``; 0 if there is none."""
        return self.gpu_timeline.get(kind, (0.0, None))[0]


def _csv(path: Path, *columns: str) -> pl.DataFrame:
    """Return a file as text: these columns, or all."""
    return pl.read_csv(path, columns=columns or None, infer_schema=False, glob=False)


def _joined(timelines: pl.DataFrame) -> dict[str, tuple[float, float | None]]:
    """Merge two timelines, if recomputed work has its own: the longer total is the whole."""
    times = timelines.select("type", ms=pl.col("time ms").cast(pl.Float64)).group_by("type")
    rows = times.agg(added=pl.col("ms").sum(), longest=pl.col("ms").max()).rows_by_key(
        "type", unique=True
    )
    total_ms = rows.get("total_time", (0.0, 0.0))[1]
    found = {
        kind: longest if kind == "total_time" else added for kind, (added, longest) in rows.items()
    }
    found["busy_time"] = min(found.get("busy_time", 0.0), total_ms)
    found["idle_time"] = total_ms - found["busy_time"]
    return {kind: (ms, 100 * ms / total_ms if total_ms else None) for kind, ms in found.items()}
