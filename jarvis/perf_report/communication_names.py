"""Tell communication kernels, and the copies around them, by their names.

``communication_names.toml`` is the only list of such names. TraceLens's sheets use TraceLens's test
(``work``).
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.text.format import MAX_NAME_LENGTH

LOCAL, STAGING, P2P_COPY, UNKNOWN = "local", "staging", "p2p_copy", "unknown"
"""Kinds of the table that are not a collective: local work, copies for a collective, copies between
GPUs, not stated."""

NO_KERNELS = (LOCAL, STAGING, P2P_COPY)
"""Those of which no kernel communicates."""

FSDP_COPY = "CatArrayBatchedCopy"
"""Kernel by which FSDP1 packs parameters and gradients for its collectives; elsewhere it only
concatenates."""

HOST_CALLS = (
    r"^(?:c10d|_c10d_functional|nccl|symm_mem|_C_custom_ar|sgl_kernel|aiter|deep_ep\w*|oneccl\w*):"
)
"""Pattern of the names of host calls and annotations that launch communication."""

NCCL = "nccl"
"""Library of NCCL and RCCL, whose kernels of one name run several kinds of collectives."""

_ANONYMOUS = "(anonymous namespace)"
_BRACKETS = re.compile(r"([<>(])")


@dataclass(frozen=True, slots=True)
class Rule:
    """Kernels whose symbol matches ``pattern``; ``also_computes``: besides the communication."""

    kind: str
    pattern: re.Pattern[str]
    also_computes: bool = False


@cache
def _table() -> dict[str, Any]:
    table = Path(__file__).with_name("communication_names.toml")
    return tomllib.loads(table.read_text(encoding="utf-8"))


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of the table, in order of precedence."""
    return tuple(
        Rule(
            kind=entry["kind"],
            pattern=re.compile(entry["pattern"], re.VERBOSE),
            also_computes=entry.get("also_computes", False),
        )
        for entry in _table()["rule"]
    )


def symbol(kernel: str) -> str:
    """Return the lower-case name of a kernel without its arguments and template arguments."""
    parts: list[str] = []
    depth = 0
    for part in _BRACKETS.split(kernel[:MAX_NAME_LENGTH].replace(_ANONYMOUS, "")):
        if part == "<":
            depth += 1
        elif part == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            if part == "(":
                break
            parts.append(part)
    return "".join(parts).lower()


@lru_cache(maxsize=1 << 14)
def rule_of(kernel: str) -> Rule | None:
    """Return the first rule that matches the name of a kernel; None if there is none."""
    name = symbol(kernel)
    return next((rule for rule in rules() if rule.pattern.search(name)), None)


def kind_of(kernel: str) -> str | None:
    """Return the kind of a kernel by the table; None if the table does not name it."""
    rule = rule_of(kernel)
    return rule.kind if rule else None


@lru_cache(maxsize=1 << 12)
def recorded_kind(name: str) -> str | None:
    """Return the kind of a collective by its recorded name or by a host call, such as
    ``_allgather_base`` and ``c10d::allreduce_``; None if the table does not name it."""
    plain = name.rpartition(":")[2].replace("_", "").lower()
    rows = _table()["recorded"]
    return next((row["kind"] for row in rows if re.search(row["pattern"], plain)), None)


@lru_cache(maxsize=1 << 14)
def library_of(kernel: str) -> str | None:
    """Return the library of a communication kernel; None if the table does not name it."""
    name = symbol(kernel)
    rows = _table()["library"]
    return next((row["name"] for row in rows if re.search(row["pattern"], name)), None)


def communication_kind(kernel: pl.Expr) -> pl.Expr:
    """Return the kinds of kernels by the table: null for names that it does not have."""

    return by_name(kernel, kind_of)


def by_name(name: pl.Expr, of: Callable[[str], str | None]) -> pl.Expr:
    """Return what ``of`` returns for each name, called once for each distinct one."""

    def values(names: pl.Series) -> pl.Series:
        found = {name: of(name) for name in names.unique().drop_nulls()}
        return names.replace_strict(found, default=None, return_dtype=pl.String)

    return name.cast(pl.String).map_batches(values, return_dtype=pl.String)


def stages(kernel: pl.Expr, is_in_fsdp: pl.Expr) -> pl.Expr:
    """Return whether kernels copy into or out of the buffers of collectives, by their names and
    whether FSDP launches them."""
    packs = is_in_fsdp.fill_null(value=False) & kernel.cast(pl.String).str.contains(FSDP_COPY)
    return (communication_kind(kernel) == STAGING).fill_null(value=False) | packs


def communicates(kind: pl.Expr) -> pl.Expr:
    """Return whether kernels of this kind communicate; null without a kind."""
    return ~kind.is_in(NO_KERNELS)
