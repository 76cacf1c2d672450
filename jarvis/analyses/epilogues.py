"""Elementwise work right behind a matrix product, which the product's kernel could do itself."""

from collections.abc import Iterator

from jarvis import impact
from jarvis.analyses import chains as found
from jarvis.analyses.base import CategoryData
from jarvis.analyses.chains import OVERLAP_PART, STEPS_NAMED, Chain
from jarvis.analyses.operations import arguments
from jarvis.analyses.wording import counted, listed, ms, pct, quoted
from jarvis.findings import GPU_TIME, Finding

_ADVICE = {
    "activation": "Let {product} apply {steps} before it writes: call a linear layer with a fused "
    "activation where the library has one, or compile {name} with torch.compile in its "
    "max-autotune mode, which generates products with epilogues.",
    "gate": "Let {product} multiply by the other factor of {steps} before it writes: use a fused "
    "gated layer for {name}, or torch.compile in its max-autotune mode.",
    "sum": "Hand the other summand to {product} in place of {steps}: `torch.addmm` and "
    "`torch.baddbmm` add a matrix to their product in one kernel.",
    "cast": "Let {product} write its result in the dtype that {steps} turns it into, or compile "
    "{name} with torch.compile.",
    "other": "Compile {name} with torch.compile in its max-autotune mode, which generates products "
    "that do {steps} behind {product} before they write.",
}
_CAST = frozenset({"copy"})


def gemm_epilogue(data: CategoryData) -> Iterator[Finding]:
    """Elementwise work behind a matrix product that its kernel could do before it writes.

    Symptom: a matrix product writes its result, and the next kernel reads it only to add, activate,
    scale or cast it.
    Rule: elementwise steps right behind a product on the same stream, the first of which has an
    operand of the product's shape, and each next one an operand of the shape that the one before
    makes; all results have the product's shape. Steps of a chain belong to the chain. Where the
    plain result is needed too (a backward pass reads it, or a later step takes more operands of its
    shape than were made since), the product writes both, which counts against the saving.
    Threshold: a saving at best of {found.MIN_SHARE_PCT}% of compute time and {found.MIN_TIME_MS}
    ms, or that much time where no saving can be estimated.
    """
    for chain in found.chains(data.tables, data.hardware, data.bases, data.target_pct):
        if chain.is_epilogue and chain.is_worth_fusing:
            yield _finding(data, chain)


def _finding(data: CategoryData, chain: Chain) -> Finding:
    gain, row = chain.gain, chain.row
    priority = impact.final_priority(
        is_top_operation=False,
        compute_pct=chain.compute_pct,
        category_pct=chain.compute_pct,
        efficiency_pct=None,
        saved_compute_pct=gain.compute_pct.mid if gain else None,
        saved_ms=gain.saved_ms.mid if gain else None,
        is_pattern=True,
    )
    steps = listed([quoted(name) for name in chain.operators], STEPS_NAMED)
    product = quoted(row["product_name"])
    place = f" in {quoted(row['scope_name'])}" if row["scope_name"] else ""
    shapes = arguments(row["product_dims"], row["product_types"]) or "no shapes"
    is_one = len(chain.operators) == 1
    runs, reads, them = ("runs", "reads", "it") if is_one else ("run", "read", "them")
    what = "little but its result" if chain.reads_little_else else "its result and another operand"
    return Finding(
        check="gemm_epilogue",
        category=data.key,
        title=f"Unfused epilogue: {chain.phrase}, {counted(chain.instances, 'instance')}",
        evidence=_evidence(chain, shapes),
        issue=f"{steps} {runs} right behind {product}{place} and {reads} {what}: "
        f"{counted(chain.kernels, 'kernel')}, {ms(chain.time_ms)} in all "
        f"({pct(chain.compute_pct)} of compute), beside {ms(row['product_time_us'] / 1000)} of the "
        "products themselves.",
        algorithmic=_ADVICE[_kind(chain)].format(
            name=quoted(chain.name), steps=steps, product=product
        ),
        kernel=f"Give the kernel team a replay package of {product}, for instance of {shapes} "
        f"({quoted(row['product_kernel'])}) to find a kernel that takes {steps} as its epilogue; "
        f"while the code calls {them} apart, tuning the elementwise kernel is all that is left.",
        priority_local=priority,
        priority=priority,
        impact=gain,
        hypothesis="The code calls the operators one by one, and nothing between it and the "
        "library fuses them.",
        caveat=_caveat(data, chain),
        verify=f"Record the trace again: the {counted(chain.kernels, 'kernel')} of {steps}{place} "
        f"must be gone, and {product} must take little more than "
        f"{ms(row['product_time_us'] / 1000)}.",
        capture="Time the product alone with and without its epilogue: a trace does not say how "
        "much slower the fused kernel is.",
        shared_uids=chain.uids,
    )


def _kind(chain: Chain) -> str:
    first, *rest = chain.base_names
    if not rest and first in _CAST:
        return "cast"
    if first in found.ACTIVATIONS:
        return "activation"
    return {"mul": "gate", "add": "sum"}.get(first, "other")


def _evidence(chain: Chain, shapes: str) -> dict[str, float | int | str]:
    row = chain.row
    evidence: dict[str, float | int | str | None] = {
        GPU_TIME: chain.time_ms,
        "Share of compute (%)": chain.compute_pct,
        "Instances": chain.instances,
        "Kernels": chain.kernels,
        "Steps, time of all instances": ", ".join(
            f"{quoted(name)} {ms(time_ms)}" for name, time_ms in chain.step_times
        ),
        "First matrix product": f"{quoted(row['product_name'])} of {shapes}",
        "Matrix products, time of all instances (ms)": row["product_time_us"] / 1000,
        "Results of the product needed elsewhere too": row["kept_count"] or None,
        "Confidence": f"{chain.confidence}: {'; '.join(chain.reasons)}",
    }
    if chain.gain:
        evidence |= {
            "Memory traffic now, all instances (MB)": row["step_bytes"] / 1e6,
            "Memory traffic added to the products when fused (MB)": row["fused_bytes"] / 1e6,
        }
    return {label: value for label, value in evidence.items() if value is not None}


def _caveat(data: CategoryData, chain: Chain) -> str:
    if chain.unknown:
        return f"No saving is estimated: {chain.unknown}."
    kept = chain.row["kept_count"]
    also = (
        f" In {counted(kept, 'instance')} the plain result is needed elsewhere too and stays "
        "written."
        if kept
        else ""
    )
    return (
        "That shapes fit is evidence that the steps read the product's result, not proof. At best "
        f"they cost nothing more; the middle leaves time for what else they move at "
        f"{data.target_pct:g}% of the bandwidth, low also {100 * OVERLAP_PART:g}% of their time "
        f"for a slower product.{also}"
    )
