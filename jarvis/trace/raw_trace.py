"""Parsed trace before tables are built: events and header."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis.trace.event_store import EventStore
from jarvis.trace.repairs import Repairs


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Progress of reading: bytes of the (compressed) file, and events."""

    bytes_done: int
    bytes_total: int
    events: int

    def __str__(self) -> str:
        megabytes = f"{self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB"
        return f"{megabytes}, {self.events:,} events"


OnProgress = Callable[[ReadProgress], None]
"""Progress callback, called after each block; an exception aborts reading."""


@dataclass(frozen=True, slots=True)
class RawTrace:
    """Events of a trace and its other top-level keys (``metadata``)."""

    path: Path
    sha256: str
    size_bytes: int
    json_bytes: int
    store: EventStore
    event_count: int
    metadata: dict[str, Any]
    repairs: Repairs
