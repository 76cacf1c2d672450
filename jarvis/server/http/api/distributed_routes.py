"""API routes of distributed runs: create from the traces of several ranks, show, download files."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from jarvis.core.labels import RunLabels
from jarvis.core.request import AnalysisOptions, public_name
from jarvis.hardware import load_hardware
from jarvis.pipeline.distributed import RankOptions
from jarvis.ranks.identity import MAX_RANK
from jarvis.ranks.inputs import DEFAULT_MAX_RANKS
from jarvis.ranks.run import DistributedRun
from jarvis.server import actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Role, require
from jarvis.server.actions import Actor
from jarvis.server.database import Visibility, database
from jarvis.server.errors import UnknownArtifactError
from jarvis.server.http.api.analysis_routes import AnalysisId, artifact_paths, uploaded_file
from jarvis.server.http.api.analysis_views import (
    BRANCH,
    COMMIT,
    MAX_NAME_LENGTH,
    MAX_PATH_LENGTH,
    PROJECT,
    TAGS,
    ArtifactList,
)
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Caller
from jarvis.server.http.api.job_routes import JobView, job_view, to_save
from jarvis.server.ingest.intake import server_trace
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.page_links import ranks_page
from jarvis.server.storage.catalog import read_catalog
from jarvis.server.submission import Submission

MAX_GIVEN = DEFAULT_MAX_RANKS
"""Maximum length of the lists of traces."""

_Id = Annotated[str, Field(max_length=MAX_ID_LENGTH)]
_Rank = Annotated[int, Field(ge=0, lt=MAX_RANK)]
_Name = Annotated[str, Field(max_length=MAX_PATH_LENGTH)]

router = APIRouter(prefix="/distributed", tags=["distributed"])


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(
        title="New distributed run",
        extra="forbid",
        alias_generator=public_name,
        str_max_length=MAX_NAME_LENGTH,
    ),
)
class NewDistributed(AnalysisOptions):
    """Options of the analysis of several ranks. `uploads`, `paths` and `analyses` together name
    the ranks, at least two."""

    uploads: list[_Id] = Field(
        default_factory=list, description="ids of complete uploads", max_length=MAX_GIVEN
    )
    paths: list[_Name] = Field(
        default_factory=list,
        description="paths on the server, in the folders that it can read",
        max_length=MAX_GIVEN,
    )
    analyses: list[_Id] = Field(
        default_factory=list,
        description="ids of stored analyses, whose traces are not read again",
        max_length=MAX_GIVEN,
    )
    world_size: int | None = Field(None, description="ranks of the job", ge=1, le=MAX_RANK)
    ranks: dict[_Name, _Rank] = Field(
        default_factory=dict, description="rank by file name, where neither says it"
    )
    rank_by_order: bool = Field(False, description="number files without a rank by their names")
    gpus_per_node: int | None = Field(None, description="ranks of a node", ge=1)
    visibility: Visibility = Field(Visibility.TEAM, description="who can see it")
    project: str | None = Field(None, description=PROJECT)
    branch: str | None = Field(None, description=BRANCH)
    commit: str | None = Field(None, description=COMMIT)
    tags: list[str] = Field(default_factory=list, description=TAGS)


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
    page: str = Field(description="path of its page on the server")


@router.post("", summary="Analyze several ranks", status_code=202)
def analyze(person: Caller, new: NewDistributed) -> JobView:
    """Queue a job for each trace, and return the job that joins them when they have ended."""
    require(person, Role.EDITOR, "analyze traces")
    if new.platform is not None:
        load_hardware().get(new.platform, new.preset)
    if new.reference is not None:
        actions.get_visible_analysis(person, new.reference)
    traces = [
        *(uploaded_file(person, upload) for upload in new.uploads),
        *(server_trace(path) for path in new.paths),
    ]
    labels = RunLabels.of(new.project, new.branch, new.commit, new.tags)
    job = actions.submit_ranks(
        database(),
        Actor(person, Channel.API),
        [Analyze(Submission.of(new, trace=trace), labels=labels) for trace in traces],
        new.analyses,
        RankOptions(
            world_size=new.world_size,
            given=new.ranks,
            by_order=new.rank_by_order,
            gpus_per_node=new.gpus_per_node,
        ),
        new.visibility,
    )
    return job_view(job)


@router.get("/{analysis_id}", summary="Show a distributed run")
def show(person: Caller, analysis_id: AnalysisId) -> DistributedView:
    """Return its manifest, and what each rank did and waited."""
    require(person, Role.VIEWER, "look at analyses")
    entry = read_catalog().visible_to(person).find_distributed(analysis_id)
    run = DistributedRun.load(entry.root)
    return DistributedView(
        id=entry.id,
        title=entry.title,
        owner=entry.owner,
        visibility=entry.visibility,
        created=datetime.fromisoformat(entry.manifest.created),
        manifest=entry.manifest.model_dump(mode="json"),
        ranks=run.tables["ranks"].to_dicts(),
        page=ranks_page(entry.id),
    )


@router.get("/{analysis_id}/artifacts", summary="List the files of a distributed run")
def artifacts(person: Caller, analysis_id: AnalysisId) -> ArtifactList:
    """Return the workbook, sheets and tables, each with its size."""
    return ArtifactList.of(artifact_paths(person, analysis_id))


@router.get(
    "/{analysis_id}/artifacts/{name:path}",
    summary="Download a file of a distributed run",
    response_class=FileResponse,
)
def artifact(
    person: Caller,
    analysis_id: AnalysisId,
    name: Annotated[str, Path(description="name in the list of files", max_length=MAX_PATH_LENGTH)],
) -> Response:
    """Return the bytes as a download, so that a browser does not render them."""
    path = artifact_paths(person, analysis_id).get(name)
    if path is None:
        raise UnknownArtifactError(analysis_id)
    return to_save(path)
