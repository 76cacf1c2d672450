"""Normalize names of calls, so that they are comparable between traces."""

import polars as pl

_ADDRESS = r"0x[0-9a-fA-F]+"
_LINE = r"\.py\(\d+\):"
_HIP_LAUNCH, _CUDA_LAUNCH = "hipModuleLaunchKernel", "cuLaunchKernel"
_FRAME = r"^(?:.*/)?([^/]*\.py):.*$"
_MODULE = r"^(nn\.Module: .*)_\d+$"


def shown(name: str) -> pl.Expr:
    """Return the names of a column without line numbers and addresses."""
    return pl.col(name).str.replace_all(_LINE, ".py:").str.replace_all(_ADDRESS, "0x...")


def strict(name: str) -> pl.Expr:
    """Return ``shown`` names with equivalent calls of CUDA and HIP mapped to one name."""
    is_hip = pl.col(name) == _HIP_LAUNCH
    return pl.when(is_hip).then(pl.lit(_CUDA_LAUNCH)).otherwise(pl.col(name))


def loose(name: str) -> pl.Expr:
    """Return ``shown`` names without function, folder and module instance."""
    return pl.col(name).str.replace(_FRAME, "$1").str.replace(_MODULE, "$1")
