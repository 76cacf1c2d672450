"""Links to pages of the dashboard, for the API and commands; all relative to the server's URL."""

from urllib.parse import urlencode

from jarvis.core.product import API
from jarvis.server.database import JobKind
from jarvis.server.queue import Job


def analysis_page(analysis_id: str) -> str:
    """Return the link to the overview of an analysis."""
    return f"/overview?{urlencode({'analysis': analysis_id})}"


def job_page(job_id: str) -> str:
    """Return the link to a job with its steps."""
    return f"/jobs?{urlencode({'job': job_id})}"


def file_link(job_id: str, ticket: str) -> str:
    """Return the download link of a job's file."""
    return f"{API}/jobs/{job_id}/file?{urlencode({'ticket': ticket})}"


def timeline_link(analysis_id: str) -> str:
    """Return the link to the data of an analysis's timeline."""
    return f"{API}/analyses/{analysis_id}/timeline"


def ranks_page(distributed_id: str) -> str:
    """Return the link to a distributed run."""
    return f"/ranks?{urlencode({'ranks_run': distributed_id})}"


OF_RANKS = (JobKind.JOIN, JobKind.WHAT_IF, JobKind.RANKS_EXPORT)
"""Kinds of jobs whose analysis is a distributed run."""


def page_of(job: Job) -> str:
    """Return the link to the analysis of a job, or to the job if it has none."""
    if job.kind in OF_RANKS and job.analysis_id is not None:
        return ranks_page(job.analysis_id)
    return job_page(job.id) if job.analysis_id is None else analysis_page(job.analysis_id)
