"""Kernels at whose end their ranks were held together."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.ranks.parts import sums
from jarvis.schemas.names import C

HELD_SHARE = 0.5
"""Part of the ranks of an instance that holds them together if it goes on only after it."""


def is_holding(kernels: pl.DataFrame) -> NDArray[np.bool_]:
    """Return after which kernels a rank goes on together with most ranks of the instance: those
    compute nothing until then.

    Args:
        kernels: Kernels of ``instances.waiting``.
    """
    instance, held = kernels[C.instance_id].to_numpy(), kernels["held"].to_numpy()
    share = sums(instance, held) / sums(instance).clip(1)
    is_known = kernels[C.wait_ns].is_not_null().to_numpy()
    holding: NDArray[np.bool_] = held & (share >= HELD_SHARE)[instance] & is_known
    return holding
