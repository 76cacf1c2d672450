"""What the numbers of a finding must be: worked out from the run's files, by name.

Times in ms, shares in percent, traffic in bytes, rates in TB/s and TFLOP/s.
"""

from collections import defaultdict
from typing import Any

from tests.arithmetic.facts_checks import (
    of_baseline,
    of_estimated_bandwidth,
    of_helpers,
    of_overheads,
    of_variance,
)
from tests.arithmetic.facts_groups import (
    of_attention_copies,
    of_chain,
    of_epilogue,
    of_unfused_attention,
)
from tests.arithmetic.facts_inference import of_replays, of_short_kernels, of_slow_layers
from tests.arithmetic.facts_rows import of_rows
from tests.arithmetic.facts_system import (
    of_communication,
    of_copies,
    of_exposed,
    of_idle,
    of_idle_finding,
)
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.steps import of_step_edges
from tests.arithmetic.units import Facts, own_rows

OF_CHECK = {
    "fusible_chain": of_chain,
    "gemm_epilogue": of_epilogue,
    "unfused_attention": of_unfused_attention,
    "gpu_idle": of_idle_finding,
    "idle_causes": of_idle_finding,
    "step_edges": of_step_edges,
    "short_kernels": of_idle,
    "exposed_communication": of_exposed,
    "poor_overlap": of_communication,
    "memory_copies": of_copies,
    "contiguous_copies": of_attention_copies,
    "layout_transposes": of_overheads,
    "fills_and_casts": of_overheads,
    "slow_kernel": of_baseline,
    "low_baseline": of_baseline,
    "helper_kernels": of_helpers,
    "high_variance": of_variance,
    "estimated_bandwidth": of_estimated_bandwidth,
    "shapes_missing": of_replays,
    "short_kernel_tail": of_short_kernels,
    "slow_layers": of_slow_layers,
}
"""What checks say beyond the sums of their rows."""


def facts_of(run: RunDirectory, finding: dict[str, Any]) -> Facts:
    """All that a card on this finding may say, by name."""
    facts: Facts = defaultdict(list)
    if rows := own_rows(run, finding):
        of_rows(facts, run, finding, rows)
    if beyond := OF_CHECK.get(finding["check"]):
        beyond(facts, run, finding)
    facts["total_ms"].append(run.total_ms)
    for name in ("mean", "mean_kernel"):
        facts[f"{name}_us"] += [1000 * value for value in facts.get(f"{name}_ms", ())]
    return facts
