"""Tell the block of a model that a kernel belongs to by its name: gemm, attention, norm, ...

``kernel_blocks.toml`` has the rules. Operators are not needed, so a replayed kernel gets the same
block as one that an operator launched.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from jarvis.perf_models.triton import fused_ops
from jarvis.perf_report.communication_names import NO_KERNELS, kind_of
from jarvis.text.format import MAX_NAME_LENGTH

COMMUNICATION, OTHER = "comm", "other"

TITLES = {
    "gemm": "GEMM",
    "norm": "normalization",
    "rope": "rotary embedding",
    "kv_write": "KV cache write",
    "moe_gemm": "expert GEMM",
    "moe_route": "expert routing",
    "quant": "quantization",
    "conv": "convolution",
    "index": "indexing",
    "sampler": "sampling",
    COMMUNICATION: "communication",
}
"""Titles of blocks by key; others are their keys."""

_COMPILED = re.compile(r"triton_(?:poi|red|per|for)_fused")
_NORMS = frozenset({"native_layer_norm", "rms_norm", "_fused_rms_norm"})
_MOVES = frozenset(
    {
        "view",
        "reshape",
        "permute",
        "transpose",
        "t",
        "expand",
        "slice",
        "select",
        "clone",
        "copy",
        "_to_copy",
        "cat",
        "stack",
        "split",
        "constant_pad_nd",
        "unsqueeze",
        "squeeze",
    }
)
"""Operators that only move data."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of names that gives kernels a block, but for those that match ``excluded``."""

    block: str
    pattern: re.Pattern[str]
    excluded: re.Pattern[str] | None


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules, in their order."""
    table = Path(__file__).with_name("kernel_blocks.toml")
    entries = tomllib.loads(table.read_text(encoding="utf-8"))["rule"]
    return tuple(
        Rule(
            entry["block"],
            re.compile(
                entry["pattern"], re.VERBOSE | (re.IGNORECASE if "ignore_case" in entry else 0)
            ),
            re.compile(entry["except"]) if "except" in entry else None,
        )
        for entry in entries
    )


def title_of(block: str) -> str:
    """Return the title of a block, as in the middle of a sentence."""
    return TITLES.get(block, block)


def blocks() -> tuple[str, ...]:
    """Return all blocks of the rules, without duplicates."""
    return tuple(dict.fromkeys(rule.block for rule in rules()))


@lru_cache(maxsize=1 << 14)
def block_of(kernel: str) -> str:
    """Return the block of a kernel; OTHER if its name does not tell."""
    if kind_of(kernel) not in (None, *NO_KERNELS):
        return COMMUNICATION
    name = kernel[:MAX_NAME_LENGTH]
    if _COMPILED.match(name):
        return _compiled_block(name)
    rule = rule_of(name)
    return OTHER if rule is None else rule.block


def rule_of(name: str) -> Rule | None:
    """Return the first rule that a name matches."""
    return next(
        (
            rule
            for rule in rules()
            if rule.pattern.search(name) and not (rule.excluded and rule.excluded.search(name))
        ),
        None,
    )


def _compiled_block(name: str) -> str:
    """Return the block of a kernel of Inductor by the operators in its name."""
    ops = set(fused_ops(name))
    if ops & _NORMS or {"rsqrt", "mean"} <= ops:
        return "norm"
    if ops & {"gelu", "silu"}:
        return "activation"
    if ops & {"cos", "sin"}:
        return "rope"
    return "copy" if ops and ops <= _MOVES else "elementwise"
