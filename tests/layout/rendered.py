"""Documents of a run directory, each parsed once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl

from jarvis.validation.run_files import Json, RunFiles
from tests.layout.markdown import Part

SUCCEEDED = ("OK", "SUCCESS")
COMPARISON_KINDS = ("fair", "rough")


@dataclass(frozen=True)
class Rendered(RunFiles):
    """The files of the run directory ``root`` and its documents."""

    _documents: dict[Path, Part | None] = field(default_factory=dict)

    def document(self, path: Path) -> Part | None:
        """Return a Markdown file, or None if it does not exist."""
        if path not in self._documents:
            text = path.read_text(encoding="utf-8") if path.is_file() else None
            self._documents[path] = None if text is None else Part.of_file(self.name(path), text)
        return self._documents[path]

    @cached_property
    def hardware(self) -> Json | None:
        """Return the GPU of the run, if known."""
        return self.manifest.get("hardware")

    @cached_property
    def step_pct(self) -> dict[str, float]:
        """Return the compute and idle time of all steps in percent of the step time, by the names
        of the GPU timeline; empty if no step has a time."""
        path = self.paths.table("steps")
        if not path.is_file():
            return {}
        rows = pl.read_parquet(path, glob=False).drop_nulls("dur_ns").sum().row(0, named=True)
        if not rows["dur_ns"]:
            return {}
        idle_ns = sum(rows[f"idle_{place}_ns"] for place in ("before", "between", "after"))
        parts = {"computation_time": rows["compute_ns"], "idle_time": idle_ns}
        return {name: 100 * time_ns / rows["dur_ns"] for name, time_ns in parts.items()}

    def metrics(self, category: Json) -> Json:
        """Return the metrics of one analysis."""
        return self.json(self.paths.metrics(category["name"])) or {}

    def comparative(self, kind: str) -> Part | None:
        """Return a report of the comparison."""
        return self.document(self.paths.comparative_report(kind))

    def findings_files(self) -> Iterator[tuple[Json, Part]]:
        """Return the successful analyses with their findings files."""
        for category in self.categories:
            document = self.document(self.findings_file(category))
            if category["status"] in SUCCEEDED and document is not None:
                yield category, document

    @property
    def fair(self) -> Part | None:
        """Return the report for stakeholders."""
        return self.document(self.paths.standalone_report("fair"))

    @property
    def reports(self) -> list[Part]:
        """Return every Markdown file of the run."""
        documents = (self.document(path) for path in sorted(self.root.rglob("*.md")))
        return [document for document in documents if document is not None]
