"""Kernels at whose end their ranks were held together."""

import polars as pl

from jarvis.ranks.clock import Quality
from jarvis.schemas.names import C

HELD_SHARE = 0.5
"""Part of the ranks of an instance that holds them together if it goes on only after it."""


def holding_kernels(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels after whose end a rank goes on together with most ranks of the instance:
    those compute nothing until then.

    Args:
        kernels: Kernels of ``instances.kernels``.
    """
    return kernels.filter(
        pl.col("held") & (pl.col("held").mean().over("instance") >= HELD_SHARE),
        pl.col(C.clock_quality) != Quality.UNKNOWN.value,
    )
