"""Changes of a recorded step, as data: what a simulation replays.

A change names events by their ``uid`` in the trace, operations by their row in the table
``operations``, or a category. ``jarvis.simulation`` turns it into weights of the dependency graph.
"""

from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

COMPUTE = "compute"
"""Value of ``category`` for all GPU work except communication and copies."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Work(_Data):
    """GPU work: the events ``uids``, and those of ``operations`` and of a ``category``."""

    uids: tuple[int, ...] = ()
    operations: tuple[int, ...] = ()
    category: str | None = None

    @cached_property
    def digest(self) -> bytes:
        """A checksum of the work, which can be thousands of events."""
        return sha256(self.model_dump_json().encode()).digest()


class Span(_Data):
    """Host time: ``start_ns`` to ``end_ns`` on the clock of the trace, on a thread by its number
    (``thread_numbers``)."""

    thread: int
    start_ns: int
    end_ns: int


class ScaleGpu(_Data):
    """GPU work takes ``factor`` times as long; 0 removes its time.

    No event gets shorter than ``least_us``.
    """

    kind: Literal["scale_gpu"] = "scale_gpu"
    work: Work
    factor: float = Field(ge=0, allow_inf_nan=False)
    least_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class AtRoofline(_Data):
    """Operations below ``target_pct`` of their roofline reach it."""

    kind: Literal["at_roofline"] = "at_roofline"
    work: Work
    target_pct: float = Field(gt=0, le=100)


class Fuse(_Data):
    """One GPU event of ``duration_ns`` replaces several: the first one takes that time.

    The others are removed with their launches, and so is the host time ``host``.
    """

    kind: Literal["fuse"] = "fuse"
    uids: tuple[int, ...]
    duration_ns: int = Field(ge=0)
    host: tuple[Span, ...] = ()


class RemoveGpu(_Data):
    """GPU events and their launches are removed."""

    kind: Literal["remove_gpu"] = "remove_gpu"
    work: Work


class MergeLaunches(_Data):
    """The launches of a thread from call ``first`` to call ``last`` become one graph launch."""

    kind: Literal["merge_launches"] = "merge_launches"
    first: int
    last: int


class ScaleHost(_Data):
    """Host time takes ``factor`` times as long; 0 removes it."""

    kind: Literal["scale_host"] = "scale_host"
    spans: tuple[Span, ...]
    factor: float = Field(ge=0, allow_inf_nan=False)


class RemoveWait(_Data):
    """The ``calls`` no longer wait for GPU work."""

    kind: Literal["remove_wait"] = "remove_wait"
    calls: tuple[int, ...]


class CollectiveMode(StrEnum):
    """The new time of a collective: its own scaled, that of the fastest of its kind, or none."""

    SCALE = "scale"
    TRANSFER = "transfer"
    HIDDEN = "hidden"


class Collective(_Data):
    """Collectives are hidden, as fast as the fastest of kind, group and size, or scaled."""

    kind: Literal["collective"] = "collective"
    uids: tuple[int, ...]
    mode: CollectiveMode
    factor: float = Field(default=1.0, ge=0, allow_inf_nan=False)


Change = Annotated[
    ScaleGpu | AtRoofline | Fuse | RemoveGpu | MergeLaunches | ScaleHost | RemoveWait | Collective,
    Field(discriminator="kind"),
]


class Several(_Data):
    """Changes that apply together."""

    changes: tuple[Change, ...] = ()
