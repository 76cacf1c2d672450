"""What reading a trace gives: its events and its header, before any table is made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis.trace.event_store import EventStore
from jarvis.trace.repairs import Repairs


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far the reading is: bytes of the file as it is stored, and events found."""

    bytes_done: int
    bytes_total: int
    events: int

    def __str__(self) -> str:
        megabytes = f"{self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB"
        return f"{megabytes}, {self.events:,} events"


OnProgress = Callable[[ReadProgress], None]
"""Called after each block; what it raises ends the reading."""


@dataclass(frozen=True, slots=True)
class RawTrace:
    """A trace as it stands in its file: the events, and every other top-level key."""

    path: Path
    sha256: str
    size_bytes: int
    json_bytes: int
    store: EventStore
    event_count: int
    metadata: dict[str, Any]
    repairs: Repairs
