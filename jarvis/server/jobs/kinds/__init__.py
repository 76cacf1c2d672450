"""What jobs do: every module of this package with a ``Request`` holds a kind or a few.

A new kind is a new module here, and its name in ``JobKind``.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import isabstract, isclass
from pkgutil import iter_modules
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jarvis.core.errors import JarvisError, RegistrationError
from jarvis.server.database import JobKind
from jarvis.server.jobs.kinds.analyses import Analyze, Reproject
from jarvis.server.jobs.kinds.base import JobOutput, MissingInputError, Request
from jarvis.server.jobs.kinds.comparisons import Compare
from jarvis.server.jobs.kinds.exports import WHOLE_RUN, Export, Replay
from jarvis.server.jobs.kinds.files import FileRequest, earlier_job, job_file
from jarvis.server.jobs.kinds.traces import Inspect

__all__ = [
    "WHOLE_RUN",
    "Analyze",
    "Compare",
    "Export",
    "FileRequest",
    "Inspect",
    "JobOutput",
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


class OutdatedJobError(JarvisError):
    """A row of the queue does not say what a request of its kind has to say."""

    def __init__(self) -> None:
        super().__init__(
            "This job was asked for in another version of Jarvis, in a way that this one does not "
            "understand, so ask for it anew."
        )


@cache
def load_requests() -> Mapping[JobKind, type[Request]]:
    """The request of each kind; RegistrationError where two have the same one."""
    found: dict[JobKind, type[Request]] = {}
    for module in sorted(iter_modules(__path__), key=lambda module: module.name):
        for made in vars(import_module(f"{__name__}.{module.name}")).values():
            if not isclass(made) or not issubclass(made, Request) or isabstract(made):
                continue
            if found.setdefault(made.kind, made) is not made:
                raise RegistrationError(f"Two requests are of the kind {made.kind}.")
    return found


def request_of(kind: JobKind, parameters: Mapping[str, Any]) -> Request:
    """The request that a row of the queue holds; OutdatedJobError where it holds another one."""
    try:
        request: Request = TypeAdapter(load_requests()[kind]).validate_python(dict(parameters))
    except ValidationError as error:
        raise OutdatedJobError from error
    return request
