"""The kinds of edges, and lists of edges under construction."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from jarvis.simulation.events import Flags, Int64s

REMOVED = -(1 << 62)
"""Weight of a removed edge; sums with it stay in range."""


class Kind(IntEnum):
    """What an edge stands for."""

    DURATION = 0
    HOST = 1
    LAUNCH = 2
    STREAM = 3
    WAIT = 4
    SYNC = 5
    QUEUE = 6
    BEGIN = 7
    TAIL = 8
    UNLINKED = 9


@dataclass
class Edges:
    """Edges as parallel lists of arrays: source, target, kind, nominal weight in ns.

    ``inferred`` marks edges that nearness in time suggests.
    """

    src: list[Int64s] = field(default_factory=list)
    dst: list[Int64s] = field(default_factory=list)
    kind: list[Int64s] = field(default_factory=list)
    nominal: list[Int64s] = field(default_factory=list)
    inferred: list[Int64s] = field(default_factory=list)

    def add(
        self,
        kind: Kind | NDArray[np.uint8],
        src: Int64s | int,
        dst: Int64s | int,
        nominal: Int64s | int,
        inferred: bool | Flags = False,
    ) -> None:
        """Add edges; a number stands for an array of it."""
        columns = np.broadcast_arrays(src, dst, nominal)
        for values, column in zip((self.src, self.dst, self.nominal), columns, strict=True):
            values.append(np.atleast_1d(column).astype(np.int64))
        size = self.src[-1].size
        self.kind.append(np.full(size, kind, np.int64))
        self.inferred.append(np.full(size, inferred, np.int64))

    def arrays(self) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        """Return sources, targets, kinds, nominal weights, and whether they are inferred."""
        none = [np.empty(0, np.int64)]
        lists = (self.src, self.dst, self.kind, self.nominal, self.inferred)
        src, dst, kind, nominal, inferred = (np.concatenate(none + values) for values in lists)
        return src, dst, kind, nominal, inferred
