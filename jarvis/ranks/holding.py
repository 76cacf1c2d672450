"""Kernels at whose end their ranks were held together."""

import polars as pl

from jarvis.ranks.clock import Quality
from jarvis.schemas.names import C

_MOST = 0.5


def holding_kernels(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels after whose end a rank goes on together with most ranks of the instance:
    those compute nothing until then.

    Args:
        kernels: Kernels of ``instances.kernels``.
    """
    return kernels.filter(
        pl.col("held") & (pl.col("held").mean().over("instance") >= _MOST),
        pl.col(C.clock_quality) != Quality.UNKNOWN.value,
    )
