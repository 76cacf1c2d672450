"""A run directory: its manifest, tables and findings; two runs as the sides of a comparison."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from threading import Lock
from typing import Any, Self, TypeVar

import orjson
import polars as pl
from pydantic import ValidationError

from jarvis.analyses import in_page_order, load_analyses
from jarvis.analyses.base import Analysis
from jarvis.comparison import Side
from jarvis.core.errors import (
    DistributedRunError,
    MissingTableError,
    NotARunError,
    NotSimulatedError,
    OutdatedRunError,
    RunVersionError,
    UnknownReferenceError,
)
from jarvis.core.request import Targets
from jarvis.core.workspace import SCHEMA_VERSION, RunPaths, analyses_dir
from jarvis.findings import AnalysisResult
from jarvis.perf_report import CallPath, Totals
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.run.manifest import Manifest
from jarvis.run.results import read_results
from jarvis.run.tree_data import read_tree_data
from jarvis.schemas import SHEETS, TABLES
from jarvis.schemas.names import C
from jarvis.simulation.simulation import Simulation
from jarvis.tracelens.sheets import sheets

_Made = TypeVar("_Made")

DISTRIBUTED = "distributed"
"""``kind`` of the manifest of a distributed run, which ``jarvis.ranks`` reads."""


def category_table(key: str) -> str:
    """Return the name of the table with one category's rows and its added columns."""
    return f"category_{key}"


@dataclass(frozen=True)
class StoredTables(Mapping[str, pl.DataFrame]):
    """Tables of a run directory, read lazily."""

    paths: RunPaths
    names: tuple[str, ...]
    _read: dict[str, pl.DataFrame] = field(default_factory=dict)

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return the table ``name``; KeyError if the run has none, MissingTableError if its file is
        gone."""
        if name not in self.names:
            raise KeyError(name)
        if name not in self._read:
            try:
                self._read[name] = pl.read_parquet(self.paths.table(name), glob=False)
            except FileNotFoundError:
                raise MissingTableError(name, "it was removed or replaced meanwhile") from None
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the run has a table, without reading it."""
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.names)


@dataclass(frozen=True)
class StoredCallPaths(Mapping[str, Mapping[int, CallPath]]):
    """Call paths of a run directory by category, read lazily."""

    paths: RunPaths
    keys_with_paths: tuple[str, ...]

    def __getitem__(self, key: str) -> Mapping[int, CallPath]:
        """Return the call paths of one category by uid of the operation."""
        if key not in self.keys_with_paths:
            raise KeyError(key)
        return read_tree_data(self.paths.tree_data(key).read_bytes())

    def __iter__(self) -> Iterator[str]:
        """Iterate over the categories that have call paths."""
        return iter(self.keys_with_paths)

    def __len__(self) -> int:
        """Return the number of categories with call paths."""
        return len(self.keys_with_paths)


@dataclass(frozen=True)
class Run:
    """One analyzed trace. Immutable: changed tables require a new instance.

    ``results`` are the analyses' by key, in page order; ``root`` is the run directory that it was
    loaded from. A run whose findings were computed again at other targets has its ``stored`` run,
    and one that was just made the simulation that its findings used (``made_simulation``).
    """

    manifest: Manifest
    results: Mapping[str, AnalysisResult]
    tables: Mapping[str, pl.DataFrame]
    paths_by_category: Mapping[str, Mapping[int, CallPath]]
    root: Path | None = None
    stored: Self | None = None
    made_simulation: Simulation | None = None
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    """Held while findings are computed from ``known``."""

    @classmethod
    def load(cls, root: Path | str) -> Self:
        """Open a run directory; its tables are read lazily.

        Raises:
            NotARunError: ``root`` is not a run directory.
            RunVersionError: It has another layout.
        """
        load_analyses()  # registers the message templates of the results
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
        """Return the target efficiency of the run's savings, in percent of the roofline; that of
        categories with their own is in ``targets``."""
        return self.manifest.options.target_pct

    @cached_property
    def targets(self) -> Targets:
        """The target efficiencies of the run and of its categories."""
        options = self.manifest.options
        return Targets.parse(options.target_pct, options.category_targets)

    @cached_property
    def known(self) -> dict[object, Any]:
        """What analyses keep of the run, as it is the same at every target, and ``once``."""
        return {}

    def once(self, make: Callable[[Self], _Made]) -> _Made:
        """Return what a function makes of this run; call it only the first time."""
        if make not in self.known:
            self.known[make] = make(self)
        made: _Made = self.known[make]
        return made

    @cached_property
    def analyses(self) -> Mapping[str, Analysis]:
        """Return the analyses by key in page order: the installed ones that apply to the run, and
        those of its extensions without their code."""
        known = {
            key: analysis
            for key, analysis in load_analyses().items()
            if key in self.results or not analysis.only_with
        }
        cards = self.manifest.added_analyses
        return in_page_order({**{card.key: card.analysis() for card in cards}, **known})

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name (``manifest.tables``).

        Raises:
            MissingTableError: No run has a table of this name.
            OutdatedRunError: The run predates the table or one of its columns.
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
        """Return the operations of one category, most time first, with its added columns.

        Without those columns if its analysis failed; MissingTableError for other tiers.
        """
        if key not in self.results or self.results[key].tier != "compute":
            raise MissingTableError(key, "no category of operations has this key")
        name = category_table(key)
        if name in self.tables:
            return self.tables[name]
        return self.table("operations").filter(pl.col(C.category) == key)

    @cached_property
    def simulation(self) -> Simulation:
        """Return the simulation of the run's steps.

        Raises:
            NotSimulatedError: Step times of this run cannot be simulated.
        """
        if self.stored is not None:
            return self.stored.simulation
        if self.made_simulation is not None:
            return self.made_simulation
        return Simulation.of(self.tables, self.manifest.simulation)

    @cached_property
    def simulation_if_any(self) -> Simulation | None:
        """The simulation of the run's steps, or None if they are not known or not simulated."""
        if self.manifest.totals.step is None or self.manifest.totals.step.step_ms is None:
            return None
        try:
            return self.simulation
        except NotSimulatedError:
            return None

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> Self:
        """Return a copy of the run with additional tables."""
        every = {**self.tables, **tables}
        manifest = self.manifest.model_copy(update={"tables": tuple(every)})
        return replace(self, manifest=manifest, tables=every)

    def with_totals(self, totals: Totals) -> Self:
        """Return a copy of the run with other totals."""
        return replace(self, manifest=self.manifest.model_copy(update={"totals": totals}))

    def call_paths(self, key: str) -> Mapping[int, CallPath]:
        """Return parent chains and subtrees of a category's main operations, by uid."""
        return self.paths_by_category.get(key, {})

    def sheets(self) -> dict[str, pl.DataFrame]:
        """Return the sheets of the performance report with TraceLens's names, labels and order."""
        return dict(self._sheets)

    @cached_property
    def _sheets(self) -> Mapping[str, pl.DataFrame]:
        return sheets({name: self.table(name) for name in self.manifest.sheets})


def open_reference(reference: str) -> Run:
    """Return the run of ``Options.reference``: the id of a stored analysis, or a path.

    Raises:
        UnknownReferenceError: There is none.
        NotARunError, RunVersionError: As in ``Run.load``.
    """
    stored = analyses_dir() / reference
    root = stored if stored.is_dir() else Path(reference)
    if not root.exists():
        raise UnknownReferenceError(reference)
    return Run.load(root)


def read_manifest(root: Path) -> Manifest:
    """Return the manifest of a run directory; raise NotARunError or RunVersionError as
    ``Run.load``."""
    try:
        text = RunPaths(root).manifest.read_bytes()
    except OSError as error:
        raise NotARunError(root) from error
    return manifest_of(root, text)


def manifest_of(root: Path, text: bytes | str) -> Manifest:
    """Parse a manifest from JSON; errors name ``root`` as in ``read_manifest``."""
    try:
        written = orjson.loads(text)
        found = written.get("schema_version")
    except (ValueError, AttributeError) as error:
        raise NotARunError(root) from error
    if written.get("kind") == DISTRIBUTED:
        raise DistributedRunError(root)
    if not isinstance(found, int):
        raise NotARunError(root)
    if found != SCHEMA_VERSION:
        raise RunVersionError(found, SCHEMA_VERSION)
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise NotARunError(root) from error


def sides(target: Run, reference: Run) -> tuple[Side, Side]:
    """Return target and reference, named by GPU, and also by file if the GPUs are equal."""
    labels = [_gpu(run) for run in (target, reference)]
    if labels[0] == labels[1]:
        labels = [f"{_gpu(run)}, {_file(run)}" for run in (target, reference)]
    simulated = replace(_side(target, labels[0]), simulation=target.simulation_if_any)
    return simulated, _side(reference, labels[1])


def _side(run: Run, label: str) -> Side:
    absent = run.manifest.absent_tables
    return Side(
        label=label,
        hardware=run.manifest.hardware,
        tables=run.tables,
        titles={key: result.title for key, result in run.results.items()},
        lacks={name: unavailable_reason(absent, [name]) or "" for name in absent},
        bounds=run.manifest.totals.step,
        model=run.manifest.model_name,
        ranks=run.manifest.trace.world_size,
    )


def _gpu(run: Run) -> str:
    hardware = run.manifest.hardware
    return hardware.title if hardware else run.manifest.trace.device_name or _file(run)


def _file(run: Run) -> str:
    return PurePath(run.manifest.trace.file_name).name
