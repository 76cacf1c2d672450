"""Analyses: asked for, listed, shown, taken home file by file, removed."""

from datetime import datetime
from pathlib import Path as FilePath
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from jarvis.core.errors import JarvisError, RunError
from jarvis.core.request import AnalysisOptions, public_name
from jarvis.hardware import load_hardware
from jarvis.run import Run
from jarvis.run.results import results_data
from jarvis.server import actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, Role, require
from jarvis.server.actions import Actor
from jarvis.server.database import Visibility, database
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Caller
from jarvis.server.http.api.job_routes import JobView, job_view, to_save
from jarvis.server.ingest import uploads
from jarvis.server.ingest.intake import server_trace
from jarvis.server.ingest.uploads import Upload
from jarvis.server.jobs.kinds import Analyze, Request
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.page_links import analysis_page
from jarvis.server.storage.catalog import Entry, analysis_root, read_catalog
from jarvis.server.submission import Submission
from jarvis.text.format import byte_size

MAX_LISTED = 200
"""Analyses of one answer."""

_LONGEST_NAME = 200
_LONGEST_PLACE = 4096

AnalysisId = Annotated[str, Path(description="id of an analysis", max_length=MAX_ID_LENGTH)]

router = APIRouter(prefix="/analyses", tags=["analyses"])


class UnknownArtifactError(JarvisError):
    """An analysis has no such file."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"The analysis {analysis_id} has no such file. /api/analyses/{analysis_id}/artifacts "
            "lists what it has."
        )


class UnfinishedUploadError(JarvisError):
    """Not all of an upload has arrived."""

    def __init__(self, upload: Upload) -> None:
        super().__init__(
            f"{byte_size(upload.offset_bytes)} of {byte_size(upload.size_bytes)} of {upload.name} "
            "have arrived. Send the rest first."
        )


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(
        title="New analysis",
        extra="forbid",
        alias_generator=public_name,
        str_max_length=_LONGEST_NAME,
    ),
)
class NewAnalysis(AnalysisOptions):
    """What to analyze, and how. One of `upload`, `path` and `url` says where the trace is."""

    upload: str | None = Field(None, description="id of a whole upload", max_length=MAX_ID_LENGTH)
    path: str | None = Field(
        None,
        description="path on the server, in the folders that it may read",
        max_length=_LONGEST_PLACE,
    )
    url: str | None = Field(
        None,
        description="http, https or sftp address, on the hosts that the server may fetch from",
        max_length=_LONGEST_PLACE,
    )
    is_again: bool = Field(False, description="make it anew, also where it is kept already")
    visibility: Visibility = Field(Visibility.TEAM, description="who sees it")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum(source is not None for source in (self.upload, self.path, self.url)) != 1:
            raise ValueError("give one of upload, path and url")
        return self


class AnalysisView(BaseModel, title="Analysis"):
    """A stored analysis in a list."""

    id: str
    title: str
    trace: str = Field(description="name of the trace's file")
    model: str | None
    gpu: str = Field(description="what the trace is judged against")
    origin: str = Field(description="recorded, or simulated")
    made_on: str | None = Field(description="the machine that made it, where that was another one")
    loaded_by: str | None = Field(
        description="who loaded it from a file, empty for a person without a name; null where "
        "nobody did"
    )
    owner: str | None
    visibility: Visibility
    is_pinned: bool
    size_bytes: int
    created: datetime
    page: str = Field(description="where people see it, from the root of the server")


class AnalysisPage(BaseModel, title="List of analyses"):
    """A part of the list, newest first."""

    analyses: list[AnalysisView]
    total: int
    offset: int
    limit: int


class AnalysisDetails(AnalysisView, title="Whole analysis"):
    """A stored analysis with what it says."""

    manifest: dict[str, Any] = Field(description="what was analyzed, with which options")
    results: dict[str, Any] = Field(
        description="what each analysis found, by its key, as in `results.json` (docs/results.md)"
    )


class ArtifactView(BaseModel, title="File"):
    """A file of an analysis."""

    name: str = Field(description="path inside the analysis, for its address")
    size_bytes: int


class ArtifactList(BaseModel, title="List of files"):
    """The files of an analysis."""

    artifacts: list[ArtifactView]


class RemovedView(BaseModel, title="Removed analysis"):
    """An analysis that is gone, and those that were compared with it."""

    id: str
    size_bytes: int
    referred_to_by: list[str]


@router.post("", summary="Analyze a trace", status_code=202)
def analyze(person: Caller, asked: NewAnalysis) -> JobView:
    """Queues a job; while one that asks for the same waits or runs, that one is given."""
    require(person, Role.EDITOR, "analyze traces")
    if asked.platform is not None:
        load_hardware().get(asked.platform, asked.preset)
    if asked.reference is not None:
        actions.get_visible_analysis(person, asked.reference)
    job = actions.submit_job(
        database(), Actor(person, Channel.API), _request(person, asked), asked.visibility
    )
    return job_view(job)


@router.get("", summary="The analyses")
def listed(
    person: Caller,
    offset: Annotated[int, Query(ge=0, le=10**9, description="how many to leave out")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="how many to list")] = 50,
) -> AnalysisPage:
    """Those that one may see, newest first."""
    entries = read_catalog().visible_to(person).entries
    shown = [AnalysisView(**_summary(entry)) for entry in entries[offset : offset + limit]]
    return AnalysisPage(analyses=shown, total=len(entries), offset=offset, limit=limit)


@router.get("/{analysis_id}", summary="An analysis")
def show(person: Caller, analysis_id: AnalysisId) -> AnalysisDetails:
    """What was analyzed, and the findings."""
    require(person, Role.VIEWER, "look at analyses")
    entry = read_catalog().visible_to(person).find(analysis_id)
    try:
        run = Run.load(analysis_root(entry.id))
    except RunError:
        actions.get_visible_analysis(person, entry.id)  # not there where it was removed meanwhile
        raise
    return AnalysisDetails(
        **_summary(entry),
        manifest=run.manifest.model_dump(mode="json"),
        results=results_data(run.results),
    )


@router.get("/{analysis_id}/artifacts", summary="The files of an analysis")
def artifacts(person: Caller, analysis_id: AnalysisId) -> ArtifactList:
    """Reports, tables and data, each with its size."""
    files = _files(_root(person, analysis_id))
    views = [
        ArtifactView(name=name, size_bytes=path.stat().st_size) for name, path in files.items()
    ]
    return ArtifactList(artifacts=views)


@router.get(
    "/{analysis_id}/artifacts/{name:path}",
    summary="A file of an analysis",
    response_class=FileResponse,
)
def artifact(
    person: Caller,
    analysis_id: AnalysisId,
    name: Annotated[
        str, Path(description="as the list of files has it", max_length=_LONGEST_PLACE)
    ],
) -> Response:
    """Its bytes, to be saved: nothing in it is to run in a browser."""
    path = _files(_root(person, analysis_id)).get(name)
    if path is None:
        raise UnknownArtifactError(analysis_id)
    return to_save(path)


@router.delete("/{analysis_id}", summary="Remove an analysis")
def remove(person: Caller, analysis_id: AnalysisId) -> RemovedView:
    """For good; refused (409) while it is pinned, or a job works with it."""
    require(person, Role.EDITOR, "remove analyses")
    removed = actions.remove_analysis(Actor(person, Channel.API), analysis_id)
    return RemovedView(
        id=removed.id,
        size_bytes=removed.size_bytes,
        referred_to_by=list(removed.referred_to_by),
    )


def _root(person: Person, analysis_id: str) -> FilePath:
    """The folder of an analysis; one that a person may not see is as good as none."""
    require(person, Role.VIEWER, "look at analyses")
    return actions.visible_run_dir(person, analysis_id)


def _summary(entry: Entry) -> dict[str, Any]:
    manifest = entry.manifest
    return {
        "id": entry.id,
        "title": entry.title,
        "trace": manifest.trace.file_name,
        "model": manifest.model_name,
        "gpu": entry.gpu,
        "origin": manifest.trace.origin,
        "made_on": entry.made_on,
        "loaded_by": entry.loaded_by,
        "owner": entry.owner,
        "visibility": entry.visibility,
        "is_pinned": entry.is_pinned,
        "size_bytes": entry.size_bytes,
        "created": datetime.fromisoformat(entry.manifest.created),
        "page": analysis_page(entry.id),
    }


def _files(root: FilePath) -> dict[str, FilePath]:
    """The files of a run directory by name; links lead elsewhere and are none of its files."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(root).as_posix(): path for path in found}


def _request(person: Person, asked: NewAnalysis) -> Request:
    if asked.url is not None:
        return Fetch(asked.url, AnalysisOptions.of(asked), asked.is_again)
    submission = Submission.of(asked, trace=_trace(person, asked))
    return Analyze(submission, is_again=asked.is_again)


def _trace(person: Person, asked: NewAnalysis) -> FilePath:
    if asked.upload is None:
        return server_trace(asked.path or "")
    upload = uploads.find_own(asked.upload, person.name)
    if upload.trace is None:
        raise UnfinishedUploadError(upload)
    return upload.trace
