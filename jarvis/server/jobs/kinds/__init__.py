"""Job kinds: each module of this package with a ``Request`` defines one or more kinds.

To add a kind, add a module here and a name in ``JobKind``.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import isabstract, isclass
from pkgutil import iter_modules
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jarvis.core.errors import RegistrationError
from jarvis.server.database import JobKind
from jarvis.server.errors import MissingInputError, OutdatedJobError
from jarvis.server.jobs.kinds.analyses import Analyze, Inspect, Reproject
from jarvis.server.jobs.kinds.base import FileRequest, JobOutput, Request, earlier_job, job_file
from jarvis.server.jobs.kinds.exports import WHOLE_RUN, Compare, Export, Replay
from jarvis.server.jobs.kinds.ranks import Join, JoinMember

__all__ = [
    "WHOLE_RUN",
    "Analyze",
    "Compare",
    "Export",
    "FileRequest",
    "Inspect",
    "JobOutput",
    "Join",
    "JoinMember",
    "MissingInputError",
    "OutdatedJobError",
    "Replay",
    "Reproject",
    "Request",
    "earlier_job",
    "job_file",
    "load_requests",
    "request_of",
]


@cache
def load_requests() -> Mapping[JobKind, type[Request]]:
    """Return the request class of each kind; raise RegistrationError for duplicates."""
    requests: dict[JobKind, type[Request]] = {}
    for module in sorted(iter_modules(__path__), key=lambda module: module.name):
        for member in vars(import_module(f"{__name__}.{module.name}")).values():
            if not isclass(member) or not issubclass(member, Request) or isabstract(member):
                continue
            if requests.setdefault(member.kind, member) is not member:
                raise RegistrationError(f"Two request classes have the kind {member.kind}.")
    return requests


def request_of(kind: JobKind, parameters: Mapping[str, Any]) -> Request:
    """Return the request of a stored job; raise OutdatedJobError if its parameters do not match."""
    try:
        request: Request = TypeAdapter(load_requests()[kind]).validate_python(dict(parameters))
    except ValidationError as error:
        raise OutdatedJobError from error
    return request
