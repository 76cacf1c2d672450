"""API routes of jobs: show, download a file, cancel, retry."""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from jarvis.server import actions, queue
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Role, require
from jarvis.server.actions import Actor
from jarvis.server.database import JobKind, JobState, database
from jarvis.server.errors import UnknownFileError
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Caller, Downloader
from jarvis.server.jobs.kinds import job_file
from jarvis.server.page_links import page_of
from jarvis.server.queue import Job

JobId = Annotated[str, Path(description="id of a job", max_length=MAX_ID_LENGTH)]

router = APIRouter(prefix="/jobs", tags=["jobs"])


class StepView(BaseModel, title="Step"):
    """A finished step."""

    name: str
    elapsed_s: float


class JobView(BaseModel, title="Job"):
    """The current state of a job."""

    id: str
    kind: JobKind
    state: JobState
    title: str
    owner: str | None
    percent: float = Field(description="0 to 100")
    step: str | None = Field(description="current or last step")
    step_number: int
    step_count: int
    steps: list[StepView] = Field(description="finished steps")
    error: str | None = Field(description="why it failed, and what to do")
    analysis_id: str | None = Field(description="the analysis that it created or used")
    others: list[str] = Field(
        description="further distributed runs, if the traces of several jobs were joined"
    )
    is_reused: bool = Field(description="whether the analysis was already stored")
    members: dict[JobState, int] = Field(
        description="number of jobs that it waits for, by state; empty if it waits for none"
    )
    page: str = Field(description="path of its page on the server")
    created: datetime
    started: datetime | None
    ended: datetime | None


@router.get("/{job_id}", summary="Show a job")
def show(person: Caller, job_id: JobId) -> JobView:
    """Return its state, progress and result."""
    require(person, Role.VIEWER, "look at jobs")
    return job_view(actions.get_visible_job(database(), person, job_id))


@router.get("/{job_id}/file", summary="Download the file of a job", response_class=FileResponse)
def file(person: Downloader, job_id: JobId) -> Response:
    """Return the bytes, for example of an export; 404 if it has no file."""
    require(person, Role.VIEWER, "look at jobs")
    path = job_file(actions.get_visible_job(database(), person, job_id).result)
    if path is None or not path.is_file():
        raise UnknownFileError(job_id)
    return to_save(path)


@router.post("/{job_id}/cancel", summary="Cancel a job")
def cancel(person: Caller, job_id: JobId) -> JobView:
    """Cancel it within a second; an ended job does not change."""
    return job_view(actions.cancel_job(database(), Actor(person, Channel.API), job_id))


@router.post("/{job_id}/retry", summary="Retry a job")
def retry(person: Caller, job_id: JobId) -> JobView:
    """Queue a failed or cancelled job again; other jobs do not change."""
    return job_view(actions.retry_job(database(), Actor(person, Channel.API), job_id))


def to_save(path: FilePath) -> FileResponse:
    """Return a file as a download, so that a browser does not render it."""
    return FileResponse(
        path,
        filename=path.name,
        media_type="application/octet-stream",
        stat_result=path.stat(),  # raises here, where a missing file becomes a 404
    )


def job_view(job: Job) -> JobView:
    """Return the API representation of a job."""
    return JobView.model_validate(
        {
            **asdict(job),
            "others": job.result.get("others", []),
            "is_reused": job.result.get("is_reused", False),
            "members": queue.members(database(), [job.id]).get(job.id, {}),
            "page": page_of(job),
        }
    )
