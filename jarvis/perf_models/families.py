"""Families of the roofline sheets: their order in the report and how many sheets they fill."""

from jarvis.perf_models.registry import BUILTIN, Registry

_ORDER = (
    "GEMM",
    "SDPA",
    "CONV",
    "InferenceAttention",
    "BinaryElementwise",
    "GroupedGEMM",
    "MoE_comm",
    "SSM",
    "RoPE",
    "CrossEntropy",
    "UnaryElementwise",
    "MoE_fused",
    "MoE_unfused",
    "MoE_aux",
    "RMSNorm",
    "elementwise",
    "GroupQuant",
    "FusedRoPE",
    "CustomCollective",
    "mHC",
    "Normalization",
    "Reduce",
)

ONE_SHEET_FAMILIES = frozenset({"GEMM", "UnaryElementwise", "BinaryElementwise", "Normalization"})
"""Families that fill one sheet of their name; the others fill ``<family>_fwd`` and ``_bwd``."""


def sheet_families(registry: Registry = BUILTIN) -> list[str]:
    """Families with at least one formula, in the order of their sheets; unknown ones come last."""
    present = {model.sheet: None for model in registry.all_models() if model.sheet}
    return [name for name in _ORDER if name in present] + [
        name for name in present if name not in _ORDER
    ]
