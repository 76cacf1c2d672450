"""Bodies of requests and responses of the API routes of analyses."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from jarvis.core.labels import (
    MAX_BRANCH_CHARS,
    MAX_COMMIT_CHARS,
    MAX_PROJECT_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    RunLabels,
)
from jarvis.core.request import AnalysisOptions, public_name
from jarvis.pipeline.simulated_steps import MAX_CHANGES
from jarvis.ranks.identity import MAX_RANK
from jarvis.ranks.inputs import DEFAULT_MAX_RANKS
from jarvis.run import TargetPct
from jarvis.server.database import Visibility
from jarvis.server.http.api.callers import MAX_ID_LENGTH

MAX_NAME_LENGTH = 200
MAX_PATH_LENGTH = 4096

_PROJECT = f"project of the run, at most {MAX_PROJECT_CHARS} characters"
_BRANCH = f"branch of the code, at most {MAX_BRANCH_CHARS} characters"
_COMMIT = f"commit of the code, at most {MAX_COMMIT_CHARS} characters"
_TAGS = f"at most {MAX_TAGS} tags of at most {MAX_TAG_CHARS} characters"


_Id = Annotated[str, Field(max_length=MAX_ID_LENGTH)]
_Rank = Annotated[int, Field(ge=0, lt=MAX_RANK)]
_Name = Annotated[str, Field(max_length=MAX_PATH_LENGTH)]


def _config(title: str) -> ConfigDict:
    return ConfigDict(
        title=title,
        extra="forbid",
        alias_generator=public_name,
        str_max_length=MAX_NAME_LENGTH,
    )


@dataclass(frozen=True, kw_only=True, config=_config("New run"))
class _NewRun(AnalysisOptions):
    """What every new run can be given."""

    visibility: Visibility = Field(Visibility.TEAM, description="who can see it")
    project: str | None = Field(None, description=_PROJECT)
    branch: str | None = Field(None, description=_BRANCH)
    commit: str | None = Field(None, description=_COMMIT)
    tags: list[str] = Field(default_factory=list, description=_TAGS)

    @property
    def labels(self) -> RunLabels:
        """Its labels; raise as ``RunLabels.of``."""
        return RunLabels.of(self.project, self.branch, self.commit, self.tags)


@dataclass(frozen=True, kw_only=True, config=_config("New analysis"))
class NewAnalysis(_NewRun):
    """Options of a new analysis. Exactly one of `upload`, `path` and `url` selects the trace."""

    upload: _Id | None = Field(None, description="id of a complete upload")
    path: _Name | None = Field(
        None, description="path on the server, in the folders that it can read"
    )
    url: _Name | None = Field(
        None,
        description="http, https, sftp or s3 URL, on a host or in a bucket that the server may "
        "download from",
    )
    captures: _Id | None = Field(
        None,
        description="id of a complete upload with the captures of replayed GPU graphs: a trace or "
        "a .zip of traces",
    )
    served_model: _Id | None = Field(
        None,
        description="id of a complete upload of the model's config.json, for steps without shapes",
    )
    tensor_parallel: int = Field(1, description="ranks that share its heads and products", ge=1)
    expert_parallel: int = Field(1, description="ranks that share its experts", ge=1)
    is_again: bool = Field(False, description="run it again if its result is already stored")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum(source is not None for source in (self.upload, self.path, self.url)) != 1:
            raise ValueError("give exactly one of upload, path and url")
        if self.url is not None and (self.captures or self.served_model):
            raise ValueError("captures and model_config need upload or path")
        return self


@dataclass(frozen=True, kw_only=True, config=_config("New distributed run"))
class NewDistributed(_NewRun):
    """Options of the analysis of several ranks. `uploads`, `paths`, `urls` and `analyses` together
    name the ranks, at least two."""

    uploads: list[_Id] = Field(
        default_factory=list, description="ids of complete uploads", max_length=DEFAULT_MAX_RANKS
    )
    paths: list[_Name] = Field(
        default_factory=list,
        description="paths on the server, in the folders that it can read",
        max_length=DEFAULT_MAX_RANKS,
    )
    urls: list[_Name] = Field(
        default_factory=list,
        description="http, https, sftp or s3 URLs, on hosts and in buckets that the server may "
        "download from; one that ends with / is a folder and means the traces below it, a range in "
        "braces, as in `rank{0..63}.json.gz`, means one URL for each integer",
        max_length=DEFAULT_MAX_RANKS,
    )
    analyses: list[_Id] = Field(
        default_factory=list,
        description="ids of stored analyses, whose traces are not read again",
        max_length=DEFAULT_MAX_RANKS,
    )
    world_size: int | None = Field(None, description="ranks of the job", ge=1, le=MAX_RANK)
    ranks: dict[_Name, _Rank] = Field(
        default_factory=dict, description="rank by file name, where neither says it"
    )
    rank_by_order: bool = Field(False, description="number files without a rank by their names")
    gpus_per_node: int | None = Field(None, description="ranks of a node", ge=1)
    network_gbps: float | None = Field(
        None, description="rate of the network between nodes for each GPU, in Gbit/s", gt=0
    )


class DistributedView(BaseModel, title="Distributed run"):
    """A stored distributed run."""

    id: str
    title: str
    owner: str | None
    visibility: Visibility
    created: datetime
    manifest: dict[str, Any] = Field(
        description="the ranks with their analyses, missing and failed ones, and the clocks"
    )
    ranks: list[dict[str, Any]] = Field(
        description="row of each rank in the table `ranks` (docs/metrics.md)"
    )
    results: dict[str, Any] = Field(
        description="its findings, as in `results.json` (docs/results.md)"
    )
    page: str = Field(description="path of its page on the server")
    superseded_by: str | None = Field(
        description="id of a distributed run with all of its ranks and more, if there is one"
    )


class RanksComparisonView(BaseModel, title="Comparison of distributed runs"):
    """How a distributed run differs from another one; times in ms per step."""

    notes: list[str] = Field(description="what is compared, and what cannot be")
    medians: list[dict[str, Any]] = Field(description="medians of the ranks by `measure`")
    places: list[dict[str, Any]] = Field(
        description="the same of the ranks with one `place` in the groups of a `role`, such as a "
        "pipeline stage, where both jobs are divided into as many"
    )
    ranks: list[dict[str, Any]] = Field(
        description="the same of each rank that both have; empty for other world sizes"
    )


class InstancePage(BaseModel, title="Page of the list of collectives"):
    """Matched collectives of a distributed run."""

    instances: list[dict[str, Any]] = Field(
        description="rows of the table `instances` (docs/metrics.md), by time"
    )
    total: int = Field(description="number of all that match")
    offset: int
    limit: int


class TablePage(BaseModel, title="Page of a table"):
    """Rows of a table of a distributed run."""

    rows: list[dict[str, Any]] = Field(description="rows (docs/metrics.md)")
    total: int = Field(description="number of all rows")
    offset: int
    limit: int


class DelayView(BaseModel, title="Delay"):
    """How the ranks arrived at a collective, and why the last one was last."""

    instance: dict[str, Any] = Field(description="row of the table `instances`")
    arrivals: list[dict[str, Any]] = Field(description="rows of the table `instance_ranks`")
    lateness: dict[str, Any] | None = Field(
        description="row of the table `lateness`; null at edges and where several ranks are last"
    )
    causes: list[dict[str, Any]] = Field(
        description="rows of the table `lateness_causes`, longest first"
    )


class AnalysisView(BaseModel, title="Analysis"):
    """A stored analysis in a list."""

    id: str
    title: str
    trace: str = Field(description="file name of the trace")
    model: str | None
    gpu: str = Field(description="GPU that the trace is compared against")
    origin: str = Field(description="recorded or simulated")
    made_on: str | None = Field(description="the machine that ran it; null for this server")
    loaded_by: str | None = Field(
        description="who imported it from an archive, empty if access control was off; null if it "
        "was not imported"
    )
    owner: str | None
    visibility: Visibility
    is_pinned: bool
    project: str | None
    branch: str | None
    commit: str | None
    tags: list[str]
    size_bytes: int
    created: datetime
    page: str = Field(description="path of its page on the server")


class AnalysisPage(BaseModel, title="List of analyses"):
    """A page of the list, newest first."""

    analyses: list[AnalysisView]
    total: int
    offset: int
    limit: int


class AnalysisDetails(AnalysisView, title="Whole analysis"):
    """A stored analysis with its results."""

    manifest: dict[str, Any] = Field(description="the trace and the options of the analysis")
    results: dict[str, Any] = Field(
        description="result of each analysis by its key, as in `results.json` (docs/results.md)"
    )
    distributed: list[str] = Field(
        description="ids of the distributed runs of which it is a rank, newest first"
    )


class ArtifactView(BaseModel, title="File"):
    """A file of an analysis."""

    name: str = Field(description="path inside the analysis, as in its URL")
    size_bytes: int


class ArtifactList(BaseModel, title="List of files"):
    """The files of an analysis."""

    artifacts: list[ArtifactView]

    @classmethod
    def of(cls, paths: Mapping[str, Path]) -> Self:
        """Return the list of files by relative path."""
        sizes = {name: path.stat().st_size for name, path in paths.items()}
        views = [ArtifactView(name=name, size_bytes=size) for name, size in sizes.items()]
        return cls(artifacts=views)


class LabelChanges(BaseModel, title="Labels"):
    """Labels to change; others stay. null, and an empty list, remove a label."""

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_NAME_LENGTH)

    project: str | None = Field(None, description=_PROJECT)
    branch: str | None = Field(None, description=_BRANCH)
    commit: str | None = Field(None, description=_COMMIT)
    tags: list[str] = Field(default_factory=list, description=_TAGS)


class BaselineRun(BaseModel, title="Baseline run"):
    """A run that another one is checked against."""

    id: str
    created: datetime
    commit: str | None
    time_ms: float = Field(description="its step time")


class TimeCheckView(BaseModel, title="Check of a time"):
    """A time of a run, in ms per step, against those of the baseline."""

    model_config = ConfigDict(from_attributes=True)

    key: str
    title: str
    time_ms: float
    median_ms: float
    noise_ms: float | None = Field(description="null if there are too few runs to know it")
    limit_ms: float
    change_pct: float | None = Field(description="change from the median; null if that is 0")
    is_slower: bool


class BaselineView(BaseModel, title="Check against a baseline"):
    """The check of a run against the last runs of a project, as of `jarvis compare --baseline`."""

    is_slower: bool = Field(description="whether the step time exceeds its limit")
    threshold_pct: float
    has_noise: bool = Field(description="whether there are enough runs to know their noise")
    runs: list[BaselineRun]
    left_out: dict[str, int] = Field(description="other runs of the project by reason")
    step: TimeCheckView
    parts: list[TimeCheckView]


class Changes(BaseModel, title="Changes"):
    """Changes that are simulated together, as for `jarvis what-if`, such as `scale=gemm:0.5`."""

    changes: list[Annotated[str, Field(max_length=MAX_PATH_LENGTH)]] = Field(max_length=MAX_CHANGES)


class NewExport(BaseModel, title="New export"):
    """What to write: the format, and another target of the findings."""

    model_config = ConfigDict(extra="forbid")

    format: str = Field(
        description="as for `jarvis export`, such as `html`, `json` or `perfetto`, or `zip` for "
        "the whole analysis",
        max_length=MAX_NAME_LENGTH,
    )
    target_pct: TargetPct | None = Field(
        None, description="target efficiency in percent; by default that of the analysis"
    )
    category_targets: str | None = Field(
        None,
        description="targets of categories with their own, as `gemm=70,reduce=60`; by default "
        "those of the analysis",
        max_length=MAX_NAME_LENGTH,
    )


class NewRanksExport(BaseModel, title="New export of ranks"):
    """What to write of a distributed run."""

    model_config = ConfigDict(extra="forbid")

    format: str = Field(
        description="`html` for the report, `perfetto` for one trace of several ranks, or `zip` "
        "for all files",
        max_length=MAX_NAME_LENGTH,
    )
    ranks: list[_Rank] = Field(
        default_factory=list,
        description="ranks of the trace; all if it is empty",
        max_length=DEFAULT_MAX_RANKS,
    )


class RemovedView(BaseModel, title="Removed analysis"):
    """A deleted analysis, and the analyses that used it as their reference."""

    id: str
    size_bytes: int
    referred_to_by: list[str]
