"""What a worker and the process of a job say to each other: one JSON document a line."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from jarvis.server.access.rights import Role
from jarvis.server.database import Visibility

Event = Literal["started", "running", "done"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The worker gives the job, and a label for what its process half writes.

    What it makes belongs to ``owner``, whose role was ``role``, and is seen as ``visibility`` says.
    """

    job_id: str
    kind: str
    parameters: dict[str, Any]
    staging: str
    owner: str | None = None
    visibility: str = Visibility.TEAM
    role: str = Role.EDITOR


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A step starts, goes on or has ended; bytes are those of the file that is read."""

    name: str
    number: int
    total: int
    event: Event
    elapsed_s: float | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None


@dataclass(frozen=True, slots=True)
class OutputMessage:
    """The job is done."""

    analysis_id: str | None
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """The job cannot be done, for this reason."""

    error: str


Message = Assignment | StepMessage | OutputMessage | FailedMessage

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Assignment, StepMessage, OutputMessage, FailedMessage)
}


def to_line(message: Message) -> bytes:
    """The message as it is written, with the end of the line."""
    values = {name: getattr(message, name) for name in message.__slots__}
    return f"{json.dumps([type(message).__name__, values])}\n".encode()


def from_line(line: bytes) -> Message:
    """The message as it was written."""
    kind, values = json.loads(line)
    return _KINDS[kind](**values)
