"""A run: manifest, tables and results of one analyzed trace, in memory or on disk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import orjson
import polars as pl
from pydantic import ValidationError

from jarvis.analyses import in_page_order, load_analyses
from jarvis.analyses.base import Analysis
from jarvis.core.errors import (
    MissingTableError,
    NotARunError,
    OutdatedRunError,
    RunVersionError,
    UnknownReferenceError,
)
from jarvis.core.workspace import SCHEMA_VERSION, RunPaths, analyses_dir
from jarvis.findings import AnalysisResult
from jarvis.perf_report import CallPath
from jarvis.run.manifest import Manifest
from jarvis.run.results import read_results
from jarvis.run.tree_data import read_tree_data
from jarvis.schemas import SHEETS, TABLES
from jarvis.tracelens.sheets import sheets


def category_table(key: str) -> str:
    """The name of the table that holds one category's rows with the columns it added."""
    return f"category_{key}"


@dataclass(frozen=True)
class StoredTables(Mapping[str, pl.DataFrame]):
    """Tables of a run directory, each read when it is first asked for."""

    paths: RunPaths
    names: tuple[str, ...]
    _read: dict[str, pl.DataFrame] = field(default_factory=dict)

    def __getitem__(self, name: str) -> pl.DataFrame:
        """The table ``name``; KeyError where the run has none, MissingTableError where its file
        is gone."""
        if name not in self.names:
            raise KeyError(name)
        if name not in self._read:
            try:
                self._read[name] = pl.read_parquet(self.paths.table(name), glob=False)
            except FileNotFoundError:
                raise MissingTableError(name, "it was removed, or made anew, meanwhile") from None
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the tables."""
        return iter(self.names)

    def __len__(self) -> int:
        """How many tables there are."""
        return len(self.names)


@dataclass(frozen=True)
class StoredCallPaths(Mapping[str, Mapping[int, CallPath]]):
    """Call paths of a run directory by category, each read when it is first asked for."""

    paths: RunPaths
    keys_with_paths: tuple[str, ...]

    def __getitem__(self, key: str) -> Mapping[int, CallPath]:
        """The call paths of one category by uid of the operation."""
        if key not in self.keys_with_paths:
            raise KeyError(key)
        return read_tree_data(self.paths.tree_data(key).read_bytes())

    def __iter__(self) -> Iterator[str]:
        """The categories that have call paths."""
        return iter(self.keys_with_paths)

    def __len__(self) -> int:
        """How many categories have call paths."""
        return len(self.keys_with_paths)


@dataclass(frozen=True)
class Run:
    """One analyzed trace. Immutable: whoever changes a table makes a new one.

    ``results`` are the analyses' by key, in page order; ``root`` is the run directory that it was
    loaded from.
    """

    manifest: Manifest
    results: Mapping[str, AnalysisResult]
    tables: Mapping[str, pl.DataFrame]
    paths_by_category: Mapping[str, Mapping[int, CallPath]]
    root: Path | None = None

    @classmethod
    def load(cls, root: Path | str) -> Self:
        """Open a run directory; its tables are read when they are asked for.

        Raises NotARunError where ``root`` is none, RunVersionError where it is of another layout.
        """
        load_analyses()  # the templates of the messages in the results
        paths = RunPaths(Path(root))
        manifest = read_manifest(paths.root)
        results = read_results(paths.results, paths.root)
        keys = tuple(key for key in results if paths.tree_data(key).is_file())
        return cls(
            manifest=manifest,
            results=results,
            tables=StoredTables(paths, manifest.tables),
            paths_by_category=StoredCallPaths(paths, keys),
            root=paths.root,
        )

    @property
    def target_pct(self) -> float:
        """The efficiency that the savings of the run are projected to, in percent of the
        roofline."""
        return self.manifest.options.target_pct

    @cached_property
    def analyses(self) -> Mapping[str, Analysis]:
        """The analyses by key in page order: those there are now, and those that were added to
        this run alone, without their code."""
        known = load_analyses()
        cards = self.manifest.added_analyses
        return in_page_order({**{card.key: card.analysis() for card in cards}, **known})

    def table(self, name: str) -> pl.DataFrame:
        """A table by name (``manifest.tables``).

        Raises MissingTableError for a name that no run has, and OutdatedRunError where the run was
        made before the table, or one of its columns, was there.
        """
        if name not in self.tables:
            if name in TABLES and name not in SHEETS:
                raise OutdatedRunError(f"the table {name}", self.manifest.jarvis_version)
            raise MissingTableError(name, f"it has {', '.join(self.manifest.tables)}")
        table = self.tables[name]
        expected = () if name in SHEETS else TABLES.get(name, ())
        required = [column.name for column in expected if not column.optional]
        if lacking := [column for column in required if column not in table.columns]:
            columns = f"the columns {', '.join(lacking)} of the table {name}"
            raise OutdatedRunError(columns, self.manifest.jarvis_version)
        return table

    def category_operations(self, key: str) -> pl.DataFrame:
        """The operations of one category, most time first, with the columns that it added.

        Without those columns where its analysis failed; MissingTableError for other tiers.
        """
        if key not in self.results or self.results[key].tier != "compute":
            raise MissingTableError(key, "no category of operations has this key")
        name = category_table(key)
        if name in self.tables:
            return self.tables[name]
        return self.table("operations").filter(pl.col("category") == key)

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> Self:
        """The run with more tables, which it keeps as its own."""
        every = {**self.tables, **tables}
        manifest = self.manifest.model_copy(update={"tables": tuple(every)})
        return replace(self, manifest=manifest, tables=every)

    def call_paths(self, key: str) -> Mapping[int, CallPath]:
        """Parent chains and subtrees of a category's main operations, by uid."""
        return self.paths_by_category.get(key, {})

    def sheets(self) -> dict[str, pl.DataFrame]:
        """The sheets of the performance report under TraceLens's names, labels and order."""
        return dict(self._sheets)

    @cached_property
    def _sheets(self) -> Mapping[str, pl.DataFrame]:
        return sheets({name: self.table(name) for name in self.manifest.sheets})


def open_reference(reference: str) -> Run:
    """The run that ``Options.reference`` names: by the id of a stored analysis, or by its path.

    Raises UnknownReferenceError where there is none, NotARunError or RunVersionError.
    """
    kept = analyses_dir() / reference
    root = kept if kept.is_dir() else Path(reference)
    if not root.exists():
        raise UnknownReferenceError(reference)
    return Run.load(root)


def read_manifest(root: Path) -> Manifest:
    """The manifest of a run directory; NotARunError or RunVersionError as ``Run.load``."""
    try:
        text = RunPaths(root).manifest.read_bytes()
    except OSError as error:
        raise NotARunError(root) from error
    return manifest_of(root, text)


def manifest_of(root: Path, text: bytes | str) -> Manifest:
    """The manifest that ``text`` is the JSON of; errors name ``root`` as ``read_manifest``."""
    try:
        found = orjson.loads(text).get("schema_version")
    except (ValueError, AttributeError) as error:
        raise NotARunError(root) from error
    if not isinstance(found, int):
        raise NotARunError(root)
    if found != SCHEMA_VERSION:
        raise RunVersionError(found, SCHEMA_VERSION)
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise NotARunError(root) from error
