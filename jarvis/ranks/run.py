"""A distributed run on disk: ``manifest.json``, ``tables/``, and the runs of its ranks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import orjson
import polars as pl
from pydantic import ValidationError

from jarvis.core.errors import NotARunError, NotDistributedError, RunVersionError
from jarvis.core.workspace import DISTRIBUTED_ENTRIES, SCHEMA_VERSION, RunPaths
from jarvis.findings import AnalysisResult, Finding
from jarvis.ranks.manifest import DistributedManifest
from jarvis.run.results import read_results
from jarvis.run.run import DISTRIBUTED, StoredTables
from jarvis.run.store import check_replaceable
from jarvis.schemas import columns


@dataclass(frozen=True)
class ParquetTables(Mapping[str, pl.DataFrame]):
    """The tables of a run directory, read each time, so that those of many ranks are not in memory
    together."""

    root: Path
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return a table; KeyError if the run has none of this name."""
        if name not in self.names:
            raise KeyError(name)
        return pl.read_parquet(RunPaths(self.root).table(name), glob=False)

    def __contains__(self, name: object) -> bool:
        """Return whether the run has a table, without reading it."""
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.names)


class _StoredTables(StoredTables):
    """The tables of a distributed run; columns that earlier versions did not write are empty."""

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return a table; raise as ``StoredTables``."""
        found = super().__getitem__(name)
        return found.with_columns(
            pl.lit(None, column.dtype).alias(column.name)
            for column in columns(name)
            if column.name not in found.columns
        )


@dataclass(frozen=True)
class DistributedRun:
    """Several ranks of a job; ``tables`` are read lazily (``schemas.ranks``)."""

    manifest: DistributedManifest
    tables: Mapping[str, pl.DataFrame]
    root: Path

    @cached_property
    def results(self) -> Mapping[str, AnalysisResult]:
        """The results of the analyses of all ranks; none in runs of earlier versions.

        Raises:
            NotARunError: ``results.json`` holds something else.
        """
        import jarvis.ranks.messages  # noqa: F401  (slow, and without it they are ids)

        path = RunPaths(self.root).results
        return read_results(path, self.root) if path.exists() else {}

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table of which only what is asked for is read."""
        return pl.scan_parquet(RunPaths(self.root).table(table), glob=False)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings on the ranks, by the step time that they save."""
        return tuple(f for result in self.results.values() for f in result.findings)

    @classmethod
    def load(cls, root: Path | str) -> Self:
        """Open the directory of a distributed run.

        Raises:
            NotARunError: It is no run.
            NotDistributedError: It is the run of one trace.
            RunVersionError: It has another layout.
        """
        root = Path(root)
        manifest = read_manifest(root)
        return cls(manifest, _StoredTables(RunPaths(root), manifest.tables), root)


def read_manifest(root: Path) -> DistributedManifest:
    """Return the manifest of a distributed run; raise as ``DistributedRun.load``."""
    try:
        found = orjson.loads(RunPaths(root).manifest.read_bytes())
        version = found.get("schema_version")
        if found.get("kind") != DISTRIBUTED:
            raise NotARunError(root) if version is None else NotDistributedError(root)
        if isinstance(version, int) and version != SCHEMA_VERSION:
            raise RunVersionError(version, SCHEMA_VERSION)
        return DistributedManifest.model_validate(found, strict=False)
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise NotARunError(root) from error


def is_distributed(content: bytes) -> bool:
    """Return whether a manifest is that of a distributed run."""
    try:
        found = orjson.loads(content)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("kind") == DISTRIBUTED


def check_output_folder(root: Path, sha256s: frozenset[str]) -> None:
    """Raise OutputFolderError for a folder that must not be replaced.

    Folders that are missing, empty, or contain only a distributed run of these traces, or of some
    of them, are accepted.
    """

    def conflict() -> str | None:
        manifest = read_manifest(root)
        is_same = {entry.sha256 for entry in manifest.usable} <= sha256s
        return None if is_same else f"a distributed run of other traces ({manifest.title})"

    check_replaceable(root, "a distributed run", DISTRIBUTED_ENTRIES, conflict)
