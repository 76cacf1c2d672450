"""API routes of analyses: create, list, show, label, download files, delete."""

from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import FileResponse

from jarvis.core.errors import RunError
from jarvis.core.labels import RunLabels
from jarvis.core.request import AnalysisOptions
from jarvis.hardware import load_hardware
from jarvis.pipeline.simulated_steps import WhatIf, simulated
from jarvis.reports import reporter
from jarvis.run import Run, RunFigures
from jarvis.run.baseline import LAST_RUNS, THRESHOLD_PCT
from jarvis.run.results import results_data
from jarvis.server import actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, Role, require, require_viewer
from jarvis.server.actions import Actor
from jarvis.server.database import database
from jarvis.server.errors import UnfinishedUploadError, UnknownArtifactError
from jarvis.server.http.api.analysis_views import (
    MAX_NAME_LENGTH,
    MAX_PATH_LENGTH,
    AnalysisDetails,
    AnalysisPage,
    AnalysisView,
    ArtifactList,
    BaselineRun,
    BaselineView,
    Changes,
    LabelChanges,
    NewAnalysis,
    NewExport,
    RemovedView,
    TimeCheckView,
)
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Caller
from jarvis.server.http.api.job_routes import JobView, job_view, to_save
from jarvis.server.ingest import uploads
from jarvis.server.ingest.intake import server_trace
from jarvis.server.jobs.kinds import WHOLE_RUN, Analyze, Export, Request
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.page_links import analysis_page
from jarvis.server.storage.baselines import baseline_of
from jarvis.server.storage.catalog import Entry, analysis_root, read_catalog
from jarvis.server.submission import Submission

MAX_LISTED = 200
"""Maximum page size of the list of analyses."""

MAX_BASELINE = 100
"""Maximum number of runs of a baseline."""

AnalysisId = Annotated[str, Path(description="id of an analysis", max_length=MAX_ID_LENGTH)]
ArtifactName = Annotated[
    str, Path(description="name in the list of files", max_length=MAX_PATH_LENGTH)
]

router = APIRouter(prefix="/analyses", tags=["analyses"])


@router.post("", summary="Analyze a trace", status_code=202)
def analyze(person: Caller, new: NewAnalysis) -> JobView:
    """Queue a job, or return the queued or running job of an equal request."""
    check_options(person, new)
    job = actions.submit_job(
        database(), Actor(person, Channel.API), _request(person, new), new.visibility
    )
    return job_view(job)


@router.get("", summary="List analyses")
def listed(
    person: Caller,
    offset: Annotated[int, Query(ge=0, le=10**9, description="how many to skip")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="how many to return")] = 50,
) -> AnalysisPage:
    """Return the analyses that the caller can see, newest first."""
    entries = read_catalog().visible_to(person).entries
    shown = [AnalysisView(**_summary(entry)) for entry in entries[offset : offset + limit]]
    return AnalysisPage(analyses=shown, total=len(entries), offset=offset, limit=limit)


@router.get("/{analysis_id}", summary="Show an analysis")
def show(person: Caller, analysis_id: AnalysisId) -> AnalysisDetails:
    """Return the options and the results."""
    require_viewer(person)
    catalog = read_catalog().visible_to(person)
    entry = catalog.find(analysis_id)
    try:
        run = Run.load(analysis_root(entry.id))
    except RunError:
        actions.get_visible_analysis(person, entry.id)  # not found if it was deleted meanwhile
        raise
    return AnalysisDetails(
        **_summary(entry),
        manifest=run.manifest.model_dump(mode="json"),
        results=results_data(run.results),
        distributed=[each.id for each in catalog.with_rank(entry.id)],
    )


@router.patch("/{analysis_id}", summary="Change the labels of an analysis")
def label(person: Caller, analysis_id: AnalysisId, changes: LabelChanges) -> AnalysisView:
    """Change project, branch, commit and tags, and return the analysis."""
    require(person, Role.EDITOR, "label analyses")
    entry = read_catalog().visible_to(person).find(analysis_id)
    given = {name: getattr(changes, name) for name in changes.model_fields_set}
    labels = RunLabels.of(**(asdict(entry.labels) | given))
    actions.label_analysis(Actor(person, Channel.API), entry.id, labels)
    return AnalysisView(**_summary(replace(entry, labels=labels)))


@router.get("/{analysis_id}/artifacts", summary="List the files of an analysis")
def artifacts(person: Caller, analysis_id: AnalysisId) -> ArtifactList:
    """Return the reports, tables and data files, each with its size."""
    return ArtifactList.of(artifact_paths(person, analysis_id))


@router.get(
    "/{analysis_id}/artifacts/{name:path}",
    summary="Download a file of an analysis",
    response_class=FileResponse,
)
def artifact(person: Caller, analysis_id: AnalysisId, name: ArtifactName) -> Response:
    """Return the bytes as a download, so that a browser does not render them."""
    return to_save(artifact_path(person, analysis_id, name))


@router.post("/{analysis_id}/what-if", summary="Simulate a step under changes")
def what_if(person: Caller, analysis_id: AnalysisId, changes: Changes) -> WhatIf:
    """Return what a step would take; rejected (400) if the step or a change is not simulated."""
    return simulated(Run.load(_root(person, analysis_id)), changes.changes)


@router.get("/{analysis_id}/baseline", summary="Check an analysis against a project")
def baseline(
    person: Caller,
    analysis_id: AnalysisId,
    project: Annotated[
        str, Query(description="project of the baseline", max_length=MAX_NAME_LENGTH)
    ],
    branch: Annotated[
        str | None, Query(description="only its runs of this branch", max_length=MAX_NAME_LENGTH)
    ] = None,
    last: Annotated[int, Query(ge=1, le=MAX_BASELINE, description="number of runs")] = LAST_RUNS,
    threshold_pct: Annotated[
        float, Query(gt=0, le=100, description="change that is not slower")
    ] = THRESHOLD_PCT,
) -> BaselineView:
    """Check it against the last runs of a project that the caller can see; 400 if there is none."""
    require_viewer(person)
    catalog = read_catalog().visible_to(person)
    run = catalog.find(analysis_id).manifest
    found = baseline_of(catalog.entries, run, project, branch, last)
    check = found.check(run, threshold_pct)
    return BaselineView(
        is_slower=check.is_slower,
        threshold_pct=check.threshold_pct,
        has_noise=check.has_noise,
        runs=[
            BaselineRun(
                id=entry.id,
                created=datetime.fromisoformat(entry.manifest.created),
                commit=entry.labels.commit,
                time_ms=RunFigures.of(entry.manifest).time_ms,
            )
            for entry in found.runs
        ],
        left_out=dict(found.left_out),
        step=TimeCheckView.model_validate(check.step),
        parts=[TimeCheckView.model_validate(part) for part in check.parts],
    )


@router.post("/{analysis_id}/exports", summary="Write an analysis as a file", status_code=202)
def export(person: Caller, analysis_id: AnalysisId, new: NewExport) -> JobView:
    """Queue a job, or return the job whose file still exists; then download its file."""
    if new.format != WHOLE_RUN:
        reporter(new.format)
    request = Export(analysis_id, new.format, new.target_pct, new.category_targets)
    return job_view(actions.ask_for_file(database(), Actor(person, Channel.API), request))


@router.delete("/{analysis_id}", summary="Delete an analysis")
def remove(person: Caller, analysis_id: AnalysisId) -> RemovedView:
    """Delete it permanently; rejected (409) while it is pinned or used by a job."""
    require(person, Role.EDITOR, "remove analyses")
    removed = actions.remove_analysis(Actor(person, Channel.API), analysis_id)
    return RemovedView.model_validate(asdict(removed))


def _root(person: Person, analysis_id: str) -> FilePath:
    """Return the folder of an analysis; an invisible one is reported as not found."""
    require_viewer(person)
    return actions.visible_run_dir(person, analysis_id)


def _summary(entry: Entry) -> dict[str, Any]:
    manifest = entry.manifest
    same = ("id", "title", "gpu", "made_on", "loaded_by", "owner", "visibility", "is_pinned")
    return {
        **{name: getattr(entry, name) for name in (*same, "size_bytes")},
        "trace": manifest.trace.file_name,
        "model": manifest.model_name,
        "origin": manifest.trace.origin,
        **asdict(entry.labels),
        "created": datetime.fromisoformat(manifest.created),
        "page": analysis_page(entry.id),
    }


def artifact_paths(person: Person, analysis_id: str) -> dict[str, FilePath]:
    """Return the files of a run directory by relative path, without symbolic links."""
    root = _root(person, analysis_id)
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(root).as_posix(): path for path in files}


def artifact_path(person: Person, analysis_id: str, name: str) -> FilePath:
    """Return a file of a run directory; raise UnknownArtifactError if it has none of this name."""
    path = artifact_paths(person, analysis_id).get(name)
    if path is None:
        raise UnknownArtifactError(analysis_id)
    return path


def check_options(person: Person, options: AnalysisOptions) -> None:
    """Raise ForbiddenError if a person may not analyze traces, or an error of the options."""
    require(person, Role.EDITOR, "analyze traces")
    if options.platform is not None:
        load_hardware().get(options.platform, options.preset)
    if options.reference is not None:
        actions.get_visible_analysis(person, options.reference)


def _request(person: Person, new: NewAnalysis) -> Request:
    if new.url is not None:
        return Fetch(new.url, AnalysisOptions.of(new), new.is_again, new.labels)
    captures = None if new.captures is None else uploaded_file(person, new.captures)
    model = None if new.served_model is None else uploaded_file(person, new.served_model)
    submission = Submission.of(
        new, trace=_trace(person, new), capture_folder=captures, served_model=model
    )
    return Analyze(submission, is_again=new.is_again, labels=new.labels)


def _trace(person: Person, new: NewAnalysis) -> FilePath:
    return server_trace(new.path or "") if new.upload is None else uploaded_file(person, new.upload)


def uploaded_file(person: Person, identifier: str) -> FilePath:
    """Return the file of a complete upload."""
    upload = uploads.find_own(identifier, person.name)
    if upload.trace is None:
        raise UnfinishedUploadError(upload.name, upload.offset_bytes, upload.size_bytes)
    return upload.trace
