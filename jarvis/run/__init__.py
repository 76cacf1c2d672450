"""Runs: one analyzed trace, in memory and as a directory."""

from jarvis.core.workspace import SCHEMA_VERSION
from jarvis.run.figures import Basis, RunFigures
from jarvis.run.manifest import (
    CategorySummary,
    Manifest,
    Options,
    PerfModelFailure,
    TargetPct,
    TopFinding,
    TopOperation,
    analysis_id,
    analysis_ids,
)
from jarvis.run.run import Run, category_table, manifest_of, open_reference, read_manifest
from jarvis.run.store import check_output_folder, staged, write_run
from jarvis.run.tree_data import main_call_paths

__all__ = [
    "SCHEMA_VERSION",
    "Basis",
    "CategorySummary",
    "Manifest",
    "Options",
    "PerfModelFailure",
    "Run",
    "RunFigures",
    "TargetPct",
    "TopFinding",
    "TopOperation",
    "analysis_id",
    "analysis_ids",
    "category_table",
    "check_output_folder",
    "main_call_paths",
    "manifest_of",
    "open_reference",
    "read_manifest",
    "staged",
    "write_run",
]
