"""The rows of the table of runs, from the catalog alone."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import polars as pl

from jarvis.core.labels import RunLabels
from jarvis.dashboard.session import navigation
from jarvis.hardware import DEFAULT_PRESET
from jarvis.run import RunFigures
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.server.storage.catalog import Catalog, DistributedEntry, Entry, name_of
from jarvis.text.format import counted, milliseconds
from jarvis.text.markdown import row_title

MODEL, TRACE, GPU, TIME, BUSY, FINDING, FINDING_CATEGORY = (
    "model",
    "trace",
    "recorded_on",
    "run_ms",
    "busy",
    "top_finding",
    "found_in",
)
RANK = "rank"
BASIS, PROJECT, BRANCH, COMMIT, TAGS = "run_basis", "project", "branch", "commit", "tags"
OWNER, ORIGIN, SOURCE, CREATED, ID = "run_owner", "origin", "analyzed_on", "created", "id"

COLUMNS = (
    Column(
        MODEL,
        "Model",
        TEXT,
        meaning="name given for the analysis, else of the main module, else of the trace",
    ),
    Column(TRACE, "Trace", TEXT, meaning="file name"),
    Column(RANK, "Ranks", TEXT, meaning="of a distributed run: how many, or which one"),
    Column(GPU, "GPU", TEXT, meaning="GPU that recorded the trace"),
    Column(TIME, "Step time (ms)", NUMBER, "ms", ",.3f", "mean of the steps; else column Time of"),
    Column(BASIS, "Time of", TEXT, meaning="step, or the recording or GPU window without steps"),
    Column(BUSY, "GPU busy (%)", NUMBER, "%", ",.1f", "share of that time in which the GPU works"),
    Column(FINDING, "Top finding", TEXT, meaning="the one that saves most"),
    Column(FINDING_CATEGORY, "Finding in", TEXT, meaning="category of the top finding"),
    Column(PROJECT, "Project", TEXT, meaning="label of the run"),
    Column(BRANCH, "Branch", TEXT, meaning="label of the run: branch of the code"),
    Column(COMMIT, "Commit", TEXT, meaning="label of the run: commit of the code"),
    Column(TAGS, "Tags", TEXT, meaning="labels of the run"),
    Column(OWNER, "Owner", TEXT, meaning="who analyzed it"),
    Column(ORIGIN, "Origin", TEXT, meaning="recorded on a GPU, or simulated"),
    Column(SOURCE, "From", TEXT, meaning="machine or file that it came from"),
    Column(ID, "Id", TEXT, meaning="part of every link"),
)
"""Columns of the table except the date and the link."""

_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    ID: pl.String,
    MODEL: pl.String,
    TRACE: pl.String,
    RANK: pl.String,
    GPU: pl.String,
    TIME: pl.Float64,
    BASIS: pl.String,
    BUSY: pl.Float64,
    FINDING: pl.String,
    FINDING_CATEGORY: pl.String,
    PROJECT: pl.String,
    BRANCH: pl.String,
    COMMIT: pl.String,
    TAGS: pl.List(pl.String),
    OWNER: pl.String,
    ORIGIN: pl.String,
    SOURCE: pl.String,
    CREATED: pl.Datetime("us", "UTC"),
}


@dataclass(frozen=True)
class RunRow:
    """A stored analysis with its figures, or a distributed run with those of one of its ranks.

    ``entry`` is then the rank with the median step time, ``distributed`` the run of all ranks, and
    ``ranks`` are their analyses. Of the analysis of a rank, ``rank`` tells which one.
    """

    entry: Entry
    distributed: DistributedEntry | None = None
    ranks: tuple[str, ...] = ()
    rank: str | None = None

    @property
    def id(self) -> str:
        """Return the id of the analysis or of the distributed run."""
        return self.entry.id if self.distributed is None else self.distributed.id

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the ids of the analyses of the row: of a distributed run, those of its ranks."""
        return self.ranks or (self.entry.id,)

    @property
    def address(self) -> str:
        """Return the address of its first page."""
        if self.distributed is None:
            return navigation.address(navigation.OVERVIEW, self.id)
        return navigation.address(navigation.RANKS, self.id, ranks_run=self.id)

    @property
    def labels(self) -> RunLabels:
        """Return its labels."""
        return self.entry.labels

    @cached_property
    def figures(self) -> RunFigures:
        """Return its figures."""
        figures = RunFigures.of(self.entry.manifest)
        if self.distributed is None:
            return figures
        return replace(figures, top_finding=self.distributed.manifest.top_finding)

    @cached_property
    def created(self) -> datetime:
        """Return when it was analyzed, in UTC."""
        manifest = (self.distributed or self.entry).manifest
        return datetime.fromisoformat(manifest.created).astimezone(UTC)

    @property
    def model(self) -> str:
        """Return the name given for the analysis, else of the main module, else of the trace or
        what the traces of all ranks are called together."""
        manifest = self.entry.manifest
        traces = self.distributed.manifest.name if self.distributed else ""
        return manifest.model_name or manifest.main_module or traces or name_of(manifest)

    @property
    def gpu(self) -> str:
        """Return the GPU that recorded the trace."""
        return self.figures.gpu or "unknown GPU"

    @property
    def gpu_and_preset(self) -> str:
        """Return that GPU, and the preset of the peaks if it is not the default."""
        hardware = self.entry.manifest.hardware
        if hardware is None or hardware.preset == DEFAULT_PRESET:
            return self.gpu
        is_own = hardware.name in self.gpu
        return f"{self.gpu} ({hardware.preset if is_own else f'peaks of {hardware.title}'})"

    @property
    def name(self) -> str:
        """Return a short name for lists and columns: model or trace, and date, or the commit."""
        return f"{name_of(self.entry.manifest)} · {self.when}"

    @property
    def when(self) -> str:
        """Return the date, and the commit or branch, as a column title."""
        code = self.labels.commit or self.labels.branch
        return f"{self.created:%Y-%m-%d %H:%M}{f' · {code}' if code else ''}"

    @property
    def headline(self) -> str:
        """Return model or trace, GPU, time and date in one line."""
        name = name_of(self.entry.manifest)
        if self.distributed is not None:
            name = f"{self.model} · {self.distributed.manifest.title}"
        return " · ".join(
            (name, self.gpu_and_preset, milliseconds(self.figures.time_ms), self.when)
        )

    def values(self) -> dict[str, object]:
        """Return the row of the table."""
        entry, figures, labels = self.entry, self.figures, self.labels
        top = figures.top_finding
        titles = {category.key: category.title for category in entry.manifest.categories}
        titles |= {"ranks": "Ranks"}
        job = self.distributed
        return {
            ID: self.id,
            MODEL: self.model,
            TRACE: entry.manifest.trace.file_name if job is None else job.manifest.title,
            RANK: self.rank if job is None else counted(len(job.manifest.usable), "rank"),
            GPU: self.gpu,
            TIME: figures.time_ms,
            BASIS: figures.basis.value,
            BUSY: figures.busy_pct,
            FINDING: None if top is None else row_title(top.title),
            FINDING_CATEGORY: None if top is None else titles.get(top.category, top.category),
            PROJECT: labels.project,
            BRANCH: labels.branch,
            COMMIT: labels.commit,
            TAGS: list(labels.tags),
            OWNER: (job or entry).owner,
            ORIGIN: entry.manifest.trace.origin,
            SOURCE: (job or entry).source,
            CREATED: self.created,
        }


def run_rows(catalog: Catalog) -> list[RunRow]:
    """Return the stored analyses and distributed runs, newest first; a distributed run before its
    ranks. One without stored ranks has no row."""
    entries = {entry.id: entry for entry in catalog.entries}
    rank_of: dict[str, str] = {}
    rows = []
    for job in catalog.distributed:
        ranks = [
            entries[own]
            for each in job.manifest.usable
            if (own := each.analysis_id or "") in entries
        ]
        ranks.sort(key=lambda entry: RunFigures.of(entry.manifest).time_ms)
        if ranks:
            median = ranks[(len(ranks) - 1) // 2]
            rows.append(RunRow(median, job, tuple(entry.id for entry in ranks)))
        rank_of |= {str(each.analysis_id): f"rank {each.rank}" for each in job.manifest.usable}
    rows += [RunRow(entry, rank=rank_of.get(entry.id)) for entry in catalog.entries]
    return sorted(
        rows, key=lambda row: (row.created, row.distributed is not None, row.id), reverse=True
    )


def frame_of(rows: Iterable[RunRow]) -> pl.DataFrame:
    """Return the table of runs, in the order of ``rows``."""
    return pl.DataFrame([row.values() for row in rows], schema=_SCHEMA)
