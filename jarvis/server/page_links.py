"""Pages of the dashboard as links from outside it: what a program or a command gives to people."""

from urllib.parse import urlencode

from jarvis.core.protocol import API
from jarvis.server.jobs.queue import Job


def analysis_page(analysis_id: str) -> str:
    """The overview of an analysis, from the root of the server."""
    return f"/overview?{urlencode({'analysis': analysis_id})}"


def job_page(job_id: str) -> str:
    """A job with its steps, from the root of the server."""
    return f"/jobs?{urlencode({'job': job_id})}"


def file_link(job_id: str, ticket: str) -> str:
    """What a job made, to be saved, from the root of the server."""
    return f"{API}/jobs/{job_id}/file?{urlencode({'ticket': ticket})}"


def page_of(job: Job) -> str:
    """What a job has made, or else the job."""
    return job_page(job.id) if job.analysis_id is None else analysis_page(job.analysis_id)
