"""The kinds of edges, and lists of edges under construction."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from jarvis.core.arrays import Bools, Int32s, Int64s

Kinds = NDArray[np.uint8]

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

    src: list[Int32s] = field(default_factory=list)
    dst: list[Int32s] = field(default_factory=list)
    kind: list[Kinds] = field(default_factory=list)
    nominal: list[Int64s] = field(default_factory=list)
    inferred: list[Bools] = field(default_factory=list)

    def add(
        self,
        kind: Kind | Kinds,
        src: Int64s | int,
        dst: Int64s | int,
        nominal: Int64s | int,
        inferred: bool | Bools = False,
    ) -> None:
        """Add edges; a number stands for an array of it."""
        source, target, weight = map(np.atleast_1d, np.broadcast_arrays(src, dst, nominal))
        self.src.append(source.astype(np.int32))
        self.dst.append(target.astype(np.int32))
        self.nominal.append(weight.astype(np.int64))
        self.kind.append(np.full(source.size, kind, np.uint8))
        self.inferred.append(np.full(source.size, inferred, np.bool_))

    def arrays(self) -> tuple[Int32s, Int32s, Kinds, Int64s, Bools]:
        """Return sources, targets, kinds, nominal weights, and whether they are inferred."""
        # The joined arrays replace their parts, so that the edges are not stored twice.
        self.src = [np.concatenate([np.empty(0, np.int32), *self.src])]
        self.dst = [np.concatenate([np.empty(0, np.int32), *self.dst])]
        self.kind = [np.concatenate([np.empty(0, np.uint8), *self.kind])]
        self.nominal = [np.concatenate([np.empty(0, np.int64), *self.nominal])]
        self.inferred = [np.concatenate([np.empty(0, np.bool_), *self.inferred])]
        return self.src[0], self.dst[0], self.kind[0], self.nominal[0], self.inferred[0]
