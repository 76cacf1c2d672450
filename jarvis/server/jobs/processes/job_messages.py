"""Messages between a worker and a job's process: one JSON document per line."""

import json
import os
from dataclasses import dataclass
from typing import Any, Literal

from jarvis.server.access.rights import Role
from jarvis.server.database import Visibility

_CHUNK_BYTES = 1 << 16

Event = Literal["started", "running", "done"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A job for a process, from the worker.

    Attributes:
        staging: label of temporary files and folders.
        owner: owner of the results.
        visibility: visibility of the results.
        role: role of the owner when the job was submitted.
        threads: number of threads that compute.
    """

    job_id: str
    kind: str
    parameters: dict[str, Any]
    staging: str
    owner: str | None = None
    visibility: str = Visibility.TEAM
    role: str = Role.EDITOR
    threads: int = 1


@dataclass(frozen=True, slots=True)
class StepMessage:
    """Progress of a step; ``bytes_*`` refer to the file being read."""

    name: str
    number: int
    total: int
    event: Event
    elapsed_s: float | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None


@dataclass(frozen=True, slots=True)
class OutputMessage:
    """The job succeeded."""

    analysis_id: str | None
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """The job failed for this reason."""

    error: str


Message = Assignment | StepMessage | OutputMessage | FailedMessage

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Assignment, StepMessage, OutputMessage, FailedMessage)
}


def to_line(message: Message) -> bytes:
    """Return the encoded message with a newline."""
    values = {name: getattr(message, name) for name in message.__slots__}
    return f"{json.dumps([type(message).__name__, values])}\n".encode()


def from_line(line: bytes) -> Message:
    """Decode a message."""
    kind, values = json.loads(line)
    return _KINDS[kind](**values)


class Lines:
    """Non-blocking reader of the lines of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(self.descriptor, False)
        self.is_closed = False
        self._rest = b""

    def read(self) -> list[bytes]:
        """Return new complete lines, and at the end of the pipe an incomplete last line."""
        while not self.is_closed:
            try:
                chunk = os.read(self.descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                break
            self.is_closed = not chunk
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        if self.is_closed and self._rest:
            lines.append(self._rest)
            self._rest = b""
        return lines
