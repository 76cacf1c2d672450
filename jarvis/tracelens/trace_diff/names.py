"""When calls of two traces have the same name: what differs from run to run does not count."""

import polars as pl

_ADDRESS = r"0x[0-9a-fA-F]+"
_LINE = r"\.py\(\d+\):"
_HIP_LAUNCH, _CUDA_LAUNCH = "hipModuleLaunchKernel", "cuLaunchKernel"
_FRAME = r"^(?:.*/)?([^/]*\.py):.*$"
_MODULE = r"^(nn\.Module: .*)_\d+$"


def shown(name: str) -> pl.Expr:
    """The names of a column without line numbers and addresses."""
    return pl.col(name).str.replace_all(_LINE, ".py:").str.replace_all(_ADDRESS, "0x...")


def strict(name: str) -> pl.Expr:
    """What two shown names share where they mean the same call."""
    is_hip = pl.col(name) == _HIP_LAUNCH
    return pl.when(is_hip).then(pl.lit(_CUDA_LAUNCH)).otherwise(pl.col(name))


def loose(name: str) -> pl.Expr:
    """What two shown names share where function, folder or instance of a module may differ."""
    return pl.col(name).str.replace(_FRAME, "$1").str.replace(_MODULE, "$1")
