"""API routes of distributed runs: create from the traces of several ranks, show, download files."""

from datetime import datetime
from itertools import islice
from time import monotonic, sleep
from typing import Annotated

import polars as pl
from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse

from jarvis.core.request import AnalysisOptions
from jarvis.pipeline.distributed import RankOptions
from jarvis.pipeline.joint_what_if import JointWhatIf
from jarvis.ranks.compared import compare_ranks
from jarvis.ranks.inputs import max_ranks
from jarvis.ranks.nodes import Cluster
from jarvis.ranks.run import DistributedRun
from jarvis.reports.ranks_export import check_ranks_format
from jarvis.run.results import results_data
from jarvis.schemas.names import C
from jarvis.server import actions, queue
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, require_viewer
from jarvis.server.actions import Actor
from jarvis.server.database import JobState, database
from jarvis.server.errors import SingleJobError, UnknownArtifactError, UnknownInstanceError
from jarvis.server.http.api.analysis_routes import (
    MAX_LISTED,
    AnalysisId,
    ArtifactName,
    artifact_path,
    artifact_paths,
    check_options,
    uploaded_file,
)
from jarvis.server.http.api.analysis_views import (
    MAX_NAME_LENGTH,
    MAX_PATH_LENGTH,
    ArtifactList,
    Changes,
    DelayView,
    DistributedView,
    InstancePage,
    NewDistributed,
    NewRanksExport,
    RanksComparisonView,
    TablePage,
)
from jarvis.server.http.api.callers import Caller
from jarvis.server.http.api.job_routes import JobView, job_view, to_save
from jarvis.server.ingest.fetch import trace_urls
from jarvis.server.ingest.intake import server_trace
from jarvis.server.jobs.kinds import WHOLE_RUN, Analyze
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.jobs.kinds.ranks import ANSWER, RanksExport, RanksWhatIf
from jarvis.server.page_links import ranks_page
from jarvis.server.storage.catalog import DistributedEntry, read_catalog
from jarvis.server.submission import Submission

router = APIRouter(prefix="/distributed", tags=["distributed"])

WHAT_IF_S = 20.0
"""How long the answer to a simulation is waited for."""

_POLL_S = 0.1


@router.post("", summary="Analyze several ranks", status_code=202)
def analyze(person: Caller, new: NewDistributed) -> JobView:
    """Queue a job for each trace, and return the job that joins them when they have ended."""
    check_options(person, new)
    traces = [
        *(uploaded_file(person, upload) for upload in new.uploads),
        *(server_trace(path) for path in new.paths),
    ]
    expanding = (trace.url for text in new.urls for trace in trace_urls(text))
    urls = list(islice(expanding, max_ranks() + 1))
    options = AnalysisOptions.of(new)
    job = actions.submit_ranks(
        database(),
        Actor(person, Channel.API),
        [
            *(Analyze(Submission.of(new, trace=trace), labels=new.labels) for trace in traces),
            *(Fetch(url, options, labels=new.labels) for url in urls),
        ],
        new.analyses,
        RankOptions(
            world_size=new.world_size,
            given=new.ranks,
            by_order=new.rank_by_order,
            cluster=Cluster(new.gpus_per_node, new.network_gbps),
        ),
        new.visibility,
    )
    return job_view(job)


@router.get("/{analysis_id}", summary="Show a distributed run")
def show(person: Caller, analysis_id: AnalysisId) -> DistributedView:
    """Return its manifest, and what each rank did and waited."""
    entry, run = _opened(person, analysis_id)
    newer = read_catalog().visible_to(person).superseded_by(entry)
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
        superseded_by=newer and newer.id,
    )


@router.get("/{analysis_id}/instances", summary="List matched collectives")
def instances(
    person: Caller,
    analysis_id: AnalysisId,
    comm: Annotated[str | None, Query(max_length=MAX_PATH_LENGTH)] = None,
    step: int | None = None,
    rank: Annotated[int | None, Query(description="rank that takes part")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = MAX_LISTED,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> InstancePage:
    """Return collectives by time, of a communicator, a step or a rank."""
    _, run = _opened(person, analysis_id)
    found = run.tables["instances"]
    for name, value in ((C.comm_id, comm), (C.step, step)):
        if value is not None:
            found = found.filter(pl.col(name) == value)
    if rank is not None:
        own = run.tables["instance_ranks"].filter(pl.col(C.rank) == rank)
        found = found.join(own, on=C.instance_id, how="semi")
    page = found.sort(C.first_ns, C.instance_id).slice(offset, limit)
    return InstancePage(instances=page.to_dicts(), total=found.height, offset=offset, limit=limit)


@router.get("/{analysis_id}/lateness/{instance}", summary="Show who was late at a collective")
def lateness(person: Caller, analysis_id: AnalysisId, instance: int) -> DelayView:
    """Return when each rank arrived, and what the last one took longer for."""
    _, run = _opened(person, analysis_id)
    found, arrivals, late, causes = (
        run.tables[name].filter(pl.col(C.instance_id) == instance)
        for name in ("instances", "instance_ranks", "lateness", "lateness_causes")
    )
    if found.is_empty():
        raise UnknownInstanceError(analysis_id, instance)
    return DelayView(
        instance=found.row(0, named=True),
        arrivals=arrivals.sort(C.rank).to_dicts(),
        lateness=next(late.iter_rows(named=True), None),
        causes=causes.sort(
            C.extra_ns, C.state, C.detail, descending=[True, False, False]
        ).to_dicts(),
    )


@router.get("/{analysis_id}/compare/{reference}", summary="Compare two distributed runs")
def compare(person: Caller, analysis_id: AnalysisId, reference: AnalysisId) -> RanksComparisonView:
    """Return how the run differs from the reference: medians of the ranks, and each rank."""
    target, other = (_opened(person, each)[1] for each in (analysis_id, reference))
    found = compare_ranks(target, other)
    tables = {name: getattr(found, name).to_dicts() for name in ("medians", "places", "ranks")}
    return RanksComparisonView(notes=list(found.notes), **tables)


@router.post(
    "/{analysis_id}/what-if",
    summary="Simulate a step of all ranks under changes",
    responses={202: {"model": JobView, "description": "Not answered yet: send it again later"}},
)
def what_if(
    person: Caller, analysis_id: AnalysisId, changes: Changes, response: Response
) -> JointWhatIf | JobView:
    """Return what the median step gains at least and at most; rejected (400) if it is not simulated
    or the analysis of a rank was removed.

    A job replays the ranks. If it takes longer than some seconds, the answer is the job (202); the
    same request then returns its result.
    """
    _opened(person, analysis_id)
    request = RanksWhatIf(analysis_id, tuple(changes.changes))
    job = actions.ask_what_if(database(), Actor(person, Channel.API), request)
    end = monotonic() + WHAT_IF_S
    while job.is_active and monotonic() < end:
        sleep(_POLL_S)
        job = queue.find(database(), job.id)
    if job.state is JobState.DONE:
        return JointWhatIf.model_validate(job.result[ANSWER])
    if not job.is_active:
        raise SingleJobError(job.error or "The job was cancelled.")
    response.status_code = 202
    return job_view(job)


@router.get("/{analysis_id}/tables/{name}", summary="Return rows of a table")
def table(
    person: Caller,
    analysis_id: AnalysisId,
    name: Annotated[str, PathParameter(max_length=MAX_NAME_LENGTH)],
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = MAX_LISTED,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> TablePage:
    """Return rows of a table of the distributed run, in their stored order."""
    _, run = _opened(person, analysis_id)
    if name not in run.tables:
        raise UnknownArtifactError(analysis_id)
    found = run.tables[name]
    return TablePage(
        rows=found.slice(offset, limit).to_dicts(), total=found.height, offset=offset, limit=limit
    )


@router.post("/{analysis_id}/exports", summary="Write a distributed run as a file", status_code=202)
def export(person: Caller, analysis_id: AnalysisId, new: NewRanksExport) -> JobView:
    """Queue a job, or return the job whose file still exists; then download its file."""
    _opened(person, analysis_id)
    check_ranks_format(new.format, (WHOLE_RUN,))
    request = RanksExport(analysis_id, new.format, tuple(sorted(set(new.ranks))))
    return job_view(actions.ask_for_file(database(), Actor(person, Channel.API), request))


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


def _opened(person: Person, analysis_id: str) -> tuple[DistributedEntry, DistributedRun]:
    require_viewer(person)
    entry = read_catalog().visible_to(person).find_distributed(analysis_id)
    return entry, DistributedRun.load(entry.root)
