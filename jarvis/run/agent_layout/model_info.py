"""``model_info.json``: facts about the model that the trace contains, without guesses."""

import re
from collections.abc import Iterable

import polars as pl

from jarvis.core.literals import parse_literal
from jarvis.schemas.names import C

UNKNOWN = "Cannot be inferred from trace"
"""Placeholder for facts that the trace lacks."""

WRAPPERS = frozenset(
    {
        "CheckpointWrapper",
        "DataParallel",
        "DistributedDataParallel",
        "FullyShardedDataParallel",
        "ModuleDict",
        "ModuleList",
        "OptimizedModule",
        "Sequential",
    }
)
"""Wrapper modules, which do not identify the model."""

MAIN_SHARE_PCT = 50.0
"""A module, or a kind of operation, represents the model from this share of GPU time on."""

PART_SHARE_PCT = 10.0
"""A precision or a kind of operation is listed from this share of its time on."""

_TIME = C.kernel_time_us
_INSTANCE = re.compile(r"_\d+$")
_ATTENTION = "(?i)attention|attn"
_RECURRENT = r"(?i)\b(?:lstm|gru|rnn)|_(?:lstm|gru|rnn)"
_EMBEDDING = "aten::embedding"
_EMBEDDING_MODULE = r"^Embedding_\d+$"


def model_info(operations: pl.DataFrame) -> dict[str, str]:
    """Return model, architecture, scale and precision from the operations table with ``category``.

    Each is derived from names of modules and operators, dtypes and dimensions, or UNKNOWN.
    """
    rows = operations.filter(pl.col(_TIME) > 0)
    return {
        "model": main_module(rows) or UNKNOWN,
        "architecture": _architecture(rows) or UNKNOWN,
        "scale": _scale(rows) or UNKNOWN,
        "precision": _precision(rows) or UNKNOWN,
    }


def main_module(rows: pl.DataFrame) -> str | None:
    """Return the outermost module that names a model, if it contains most of the GPU time."""
    roots = [_root(path) for path in rows[C.module_path].to_list()]
    times = _time_by(rows, roots)
    named = {root: time for root, time in times.items() if root is not None}
    if not named:
        return None
    root, time = max(named.items(), key=lambda item: item[1])
    is_main = 100 * time > MAIN_SHARE_PCT * sum(times.values())
    return root if is_main else None


def _root(path: Iterable[str] | None) -> str | None:
    names = (_INSTANCE.sub("", name) for name in path or ())
    return next((name for name in names if name not in WRAPPERS), None)


def _architecture(rows: pl.DataFrame) -> str | None:
    modules = pl.col(C.module_path).list.join(" ").fill_null("")
    is_attention = (pl.col(C.category) == "sdpa_fwd") | modules.str.contains(_ATTENTION)
    is_moe = pl.col(C.category) == "moe_fused"
    is_convolution = pl.col(C.category) == "convolution"
    names = [pl.col(C.name), modules]
    is_recurrent = pl.any_horizontal(name.str.contains(_RECURRENT) for name in names)
    attention, moe, convolution, recurrent = (
        _share_pct(rows, kind) for kind in (is_attention, is_moe, is_convolution, is_recurrent)
    )
    if attention:
        transformer = "Mixture-of-experts Transformer" if moe else "Transformer"
        kinds = rows.filter(is_convolution)[C.input_dims].n_unique()
        # A patch embedding is one kind of convolution.
        is_mixed = convolution >= PART_SHARE_PCT and kinds > 1
        return f"CNN with attention ({transformer} blocks)" if is_mixed else transformer
    if convolution >= PART_SHARE_PCT:
        return "CNN"
    return "RNN" if recurrent >= PART_SHARE_PCT else None


def _share_pct(rows: pl.DataFrame, condition: pl.Expr) -> float:
    whole = float(rows[_TIME].sum())
    return 100 * float(rows.filter(condition)[_TIME].sum()) / whole if whole else 0.0


def _scale(rows: pl.DataFrame) -> str | None:
    """Return the largest embedding table, the only model size that operators show."""
    in_module = pl.col(C.module_path).list.last().str.contains(_EMBEDDING_MODULE)
    looked_up = rows.filter((pl.col(C.name) == _EMBEDDING) | in_module)[C.input_dims].drop_nulls()
    arguments = [parse_literal(dims) for dims in looked_up]
    sizes = [
        dims[0] for dims in arguments if dims and len(dims[0]) == 2 and isinstance(dims[0][0], int)
    ]
    if not sizes:
        return None
    entries, width = max(sizes)
    return f"largest embedding table {entries} x {width}"


def _precision(rows: pl.DataFrame) -> str | None:
    """Return the dtypes that the matrix units compute in, else those of most operations, by
    time."""
    is_matrix, is_known = pl.col(C.compute).str.starts_with("matrix_"), pl.col(C.compute) != ""
    is_main = _share_pct(rows, is_matrix) >= PART_SHARE_PCT
    if not is_main and _share_pct(rows, is_known) < MAIN_SHARE_PCT:
        return None
    known = rows.filter(is_matrix if is_main else is_known)
    types = [compute.partition("_")[2].upper() for compute in known[C.compute]]
    times = _time_by(known, types)
    whole = sum(times.values())
    ranked = sorted(times.items(), key=lambda item: (-item[1], str(item[0])))
    return ", ".join(str(t) for t, time in ranked if 100 * time >= PART_SHARE_PCT * whole) or None


def _time_by(rows: pl.DataFrame, keys: Iterable[str | None]) -> dict[str | None, float]:
    """Return GPU time by a key of each row."""
    times: dict[str | None, float] = {}
    for key, time in zip(keys, rows[_TIME], strict=True):
        times[key] = times.get(key, 0.0) + time
    return times
