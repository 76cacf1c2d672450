"""Jobs: how far they are, and how they are ended or begun anew."""

from datetime import datetime
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from jarvis.core.errors import JarvisError
from jarvis.server import actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Role, require
from jarvis.server.actions import Actor
from jarvis.server.database import JobKind, JobState, database
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Caller, Taker
from jarvis.server.jobs.kinds import job_file
from jarvis.server.jobs.queue import Job
from jarvis.server.page_links import page_of

JobId = Annotated[str, Path(description="id of a job", max_length=MAX_ID_LENGTH)]

router = APIRouter(prefix="/jobs", tags=["jobs"])


class UnknownFileError(JarvisError):
    """A job has no file."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"The job {job_id} has no file: it made none, or it was removed since. Ask for it anew."
        )


class StepView(BaseModel, title="Step"):
    """A step that has ended."""

    name: str
    elapsed_s: float


class JobView(BaseModel, title="Job"):
    """A job as it is now."""

    id: str
    kind: JobKind
    state: JobState
    title: str
    owner: str | None
    percent: float = Field(description="0 to 100")
    step: str | None = Field(description="what it does now, or did last")
    step_number: int
    step_count: int
    steps: list[StepView] = Field(description="the steps that have ended")
    error: str | None = Field(description="why it failed, and what to do")
    analysis_id: str | None = Field(description="the analysis that it made, or was about")
    is_reused: bool = Field(description="whether the analysis was kept before")
    page: str = Field(description="where people see it, from the root of the server")
    created: datetime
    started: datetime | None
    ended: datetime | None


@router.get("/{job_id}", summary="A job")
def show(person: Caller, job_id: JobId) -> JobView:
    """Its state, how far it is, and how it ended."""
    require(person, Role.VIEWER, "look at jobs")
    return job_view(actions.get_visible_job(database(), person, job_id))


@router.get("/{job_id}/file", summary="The file that a job made", response_class=FileResponse)
def file(person: Taker, job_id: JobId) -> Response:
    """Its bytes, to be saved, as of an export; 404 where it made none, or it was removed since."""
    require(person, Role.VIEWER, "look at jobs")
    path = job_file(actions.get_visible_job(database(), person, job_id).result)
    if path is None or not path.is_file():
        raise UnknownFileError(job_id)
    return to_save(path)


@router.post("/{job_id}/cancel", summary="Cancel a job")
def cancel(person: Caller, job_id: JobId) -> JobView:
    """It ends within a second; one that has ended stays as it is."""
    return job_view(actions.cancel_job(database(), Actor(person, Channel.API), job_id))


@router.post("/{job_id}/retry", summary="Retry a job")
def retry(person: Caller, job_id: JobId) -> JobView:
    """One that failed or was cancelled waits again; others stay as they are."""
    return job_view(actions.retry_job(database(), Actor(person, Channel.API), job_id))


def to_save(path: FilePath) -> FileResponse:
    """The bytes of a file as they are: nothing in it is to run in a browser."""
    return FileResponse(
        path,
        filename=path.name,
        media_type="application/octet-stream",
        stat_result=path.stat(),  # here, where one that was removed meanwhile is answered
    )


def job_view(job: Job) -> JobView:
    """A job as the API says it."""
    return JobView(
        id=job.id,
        kind=job.kind,
        state=job.state,
        title=job.title,
        owner=job.owner,
        percent=job.percent,
        step=job.step,
        step_number=job.step_number,
        step_count=job.step_count,
        steps=[StepView(name=step.name, elapsed_s=step.elapsed_s) for step in job.steps],
        error=job.error,
        analysis_id=job.analysis_id,
        is_reused=bool(job.result.get("is_reused", False)),
        page=page_of(job),
        created=job.created,
        started=job.started,
        ended=job.ended,
    )
