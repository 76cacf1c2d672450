"""API routes of distributed runs: create from the traces of several ranks, show, download files."""

from datetime import datetime

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from jarvis.hardware import load_hardware
from jarvis.pipeline.distributed import RankOptions
from jarvis.ranks.run import DistributedRun
from jarvis.run.results import results_data
from jarvis.server import actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Role, require
from jarvis.server.actions import Actor
from jarvis.server.database import database
from jarvis.server.http.api.analysis_routes import (
    AnalysisId,
    ArtifactName,
    artifact_path,
    artifact_paths,
    uploaded_file,
)
from jarvis.server.http.api.analysis_views import ArtifactList, DistributedView, NewDistributed
from jarvis.server.http.api.callers import Caller
from jarvis.server.http.api.job_routes import JobView, job_view, to_save
from jarvis.server.ingest.intake import server_trace
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.page_links import ranks_page
from jarvis.server.storage.catalog import read_catalog
from jarvis.server.submission import Submission

router = APIRouter(prefix="/distributed", tags=["distributed"])


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
    job = actions.submit_ranks(
        database(),
        Actor(person, Channel.API),
        [Analyze(Submission.of(new, trace=trace), labels=new.labels) for trace in traces],
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
        results=results_data(run.results),
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
def artifact(person: Caller, analysis_id: AnalysisId, name: ArtifactName) -> Response:
    """Return the bytes as a download, so that a browser does not render them."""
    return to_save(artifact_path(person, analysis_id, name))
