"""Elementwise work after a matrix product that the product's kernel could do itself."""

from collections.abc import Iterator

from jarvis import impact
from jarvis.analyses import chains as found
from jarvis.analyses.base import CategoryData
from jarvis.analyses.chains import OVERLAP_PART, Chain
from jarvis.analyses.operations import arguments
from jarvis.findings import Finding, texts_of
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable, action

MESSAGES = MessageTable(
    "epilogues",
    {
        "title": "Unfused epilogue: {subject}, {instances:count instance}",
        "issue": "{steps} {operators:either runs|run} right after {product:name}{place} and "
        "{operators:either reads|read} {what}: {kernels:count kernel}, {time_ms} in all "
        "({compute_pct} of compute), in addition to {product_ms} of the products themselves.",
        "issue.result": "little but its result",
        "issue.more": "its result and another operand",
        "algorithmic.activation": "Let {product:name} apply {steps} before it writes: call a "
        "linear layer with a fused activation where the library has one, or compile {name} with "
        "torch.compile in its max-autotune mode, which generates products with epilogues.",
        "algorithmic.gate": "Let {product:name} multiply by the other factor of {steps} before it "
        "writes: use a fused gated layer for {name}, or torch.compile in its max-autotune mode.",
        "algorithmic.bias": "Pass the bias to {product:name} instead of {steps}: `torch.addmm` "
        "adds a vector to its product in one kernel.",
        "algorithmic.sum": [
            action(
                "Let {product:name} add its result to the other summand in place "
                "(`Tensor.addmm_`, `Tensor.baddbmm_`) instead of {steps}, if nothing else reads "
                "that tensor: out of place, these operators copy it first.",
                "not has_backward",
            ),
            "Or compile {name} with torch.compile in its max-autotune mode, which generates "
            "products with epilogues.",
        ],
        "algorithmic.cast": "Let {product:name} write its result in the dtype that {steps} "
        "converts it to, or compile {name} with torch.compile.",
        "algorithmic.other": "Compile {name} with torch.compile in its max-autotune mode, which "
        "generates products that include {steps} after {product:name} as their epilogue.",
        "kernel": "Ask the kernel team for a kernel of {product:name}, for instance of "
        "{shapes?no shapes} (now {kernel:name}), that takes {steps} as its epilogue; "
        "while the code calls {operators:either it|them} separately, only the elementwise kernel "
        "can be tuned.",
        "hypothesis": "The code calls the operators one by one, and no compiler fuses them.",
        "caveat": "Matching shapes are evidence, not proof, that the steps read the product's "
        "result. The high estimate assumes that the steps become free; the middle one allows time "
        "for their other memory traffic at {target_pct:g}% of the bandwidth, and the low one also "
        "{overlap_pct:g}% of their time for a slower product.",
        "caveat.needed": "In {needed:count instance} the unmodified result is also used elsewhere "
        "and must still be written.",
        "verify": "Record the trace again: the {kernels:count kernel} of {steps}{place} must be "
        "gone, and {product:name} must take hardly more than {product_ms}.",
        "capture": "Time the product alone with and without its epilogue: a trace does not show "
        "how much slower the fused kernel is.",
        "product": "{product:name} of {shapes?no shapes}",
    },
)
_CAST = frozenset({"copy"})


def gemm_epilogue(data: CategoryData) -> Iterator[Finding]:
    """Elementwise work after a matrix product that its kernel could do before writing the result.

    Symptom: a matrix product writes its result, and the next kernel reads it only to add, activate,
    scale or cast it.
    Rule: elementwise steps right after a product on the same stream, the first of which has an
    operand of the product's shape, and each next one an operand of the shape that the previous one
    produces; all results have the product's shape. Steps of a chain belong to the chain. If the
    unmodified result is needed as well (a backward pass reads it, or a later step takes more
    operands of its shape than were produced since), the product writes both, which reduces the
    saving.
    Threshold: a maximum saving of {found.MIN_SHARE_PCT}% of compute time and {found.MIN_TIME_MS}
    ms, or that much time if no saving can be estimated.
    """
    for chain in found.chains(data.tables, data.hardware, data.bases, data.target_pct):
        if chain.is_epilogue and chain.is_worth_fusing:
            yield _finding(data, chain)


def _finding(data: CategoryData, chain: Chain) -> Finding:
    row = chain.row
    values = {
        "subject": chain.subject,
        "name": chain.name,
        "steps": chain.named_steps,
        "operators": len(chain.operators),
        "product": row[C.product_name],
        "place": chain.place,
        "what": MESSAGES("issue.result" if chain.reads_little_else else "issue.more"),
        "kernels": chain.kernels,
        "instances": chain.instances,
        "time_ms": chain.time_ms,
        "compute_pct": chain.compute_pct,
        "product_ms": row[C.product_time_us] / 1000,
        "shapes": arguments(row[C.product_dims], row[C.product_types]),
        "kernel": row[C.product_kernel],
        "target_pct": data.target_pct,
        "overlap_pct": impact.FULL_PCT * OVERLAP_PART,
        "needed": row[C.kept_count],
    }
    texts = texts_of(MESSAGES, values) | texts_of(MESSAGES, values, suffix=_kind(chain))
    if chain.unknown:
        texts["caveat"] = found.MESSAGES("caveat.unknown", reason=chain.unknown)
    elif row[C.kept_count]:
        texts["caveat"] += texts_of(MESSAGES, values, suffix="needed")["caveat"]
    return Finding(
        check="gemm_epilogue",
        category=data.key,
        **texts,
        evidence={
            **chain.evidence,
            "first_product": MESSAGES.pick("product", values),
            "products_ms": values["product_ms"],
            "products_needed_elsewhere": row[C.kept_count] or None,
            "confidence": chain.rating,
            **chain.traffic_mb("added_traffic_mb"),
        },
        priority_local=chain.priority,
        priority=chain.priority,
        impact=chain.gain,
        shared_uids=chain.uids,
    )


def _kind(chain: Chain) -> str:
    first, *rest = chain.base_names
    if not rest and first in _CAST:
        return "cast"
    if first in found.ACTIVATIONS:
        return "activation"
    if first == "add" and chain.reads_little_else:
        return "bias"
    return {"mul": "gate", "add": "sum"}.get(first, "other")
