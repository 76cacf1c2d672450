"""Chains of operators that one kernel could replace: what they compute and what fusing would
save."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.operations import KERNEL_FLOOR_US
from jarvis.findings import EvidenceValue, Impact, Priority
from jarvis.hardware import HardwareSpec
from jarvis.perf_report.fusion.data_flow import base_name
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable, to_text

TABLES = ("fusion_chains", "fusion_steps")
"""Report tables that this module reads."""

MIN_SHARE_PCT = 2.0
MIN_TIME_MS = 0.1
"""A chain is reported from this share of compute time and this time on: of its maximum saving, or
of its own time if no saving is known."""

LONG_CHAIN, LONG_MODELLED_PCT, SHORT_MODELLED_PCT = 5, 75.0, 50.0
"""Shares of a chain's time whose memory traffic must be known: from LONG_CHAIN steps on, and
below."""

STEPS_NAMED = 4
"""Operators of an epilogue that a sentence names; the evidence lists all."""

OVERLAP_PART = 0.15
"""Part of the shorter of memory and arithmetic time that a fused kernel does not hide; in the worst
case also the part of an epilogue's time by which the product slows down."""

MINOR_TRAFFIC_PCT = 5.0
"""An epilogue that adds less than this share of its steps' traffic reads little besides the
product."""

ACTIVATIONS = frozenset({"relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "clamp_min"})
_USUAL_EPILOGUES = ACTIVATIONS | {"add", "mul"}


VOWEL_SOUNDS = "aeioR"
"""First letters of titles after "an", among them that of "RMS"."""

ATTENTION = "sdpa_fwd"
"""Key of the analysis of attention."""


@dataclass(frozen=True)
class Composition:
    """What a chain computes, derived from its operators, and the equivalent fused operator.

    ``algorithmic`` is a template with the name of the chain.

    It applies if each group of ``operators`` (names without ``aten::``) has one in the chain.
    ``category`` is the key of the analysis under which readers would look for it.
    """

    title: str
    operators: tuple[frozenset[str], ...]
    algorithmic: str
    category: str | None = None

    @property
    def named(self) -> str:
        """Return the title with its article."""
        return f"{'an' if self.title[0] in VOWEL_SOUNDS else 'a'} {self.title}"


def _any(*names: str) -> frozenset[str]:
    return frozenset(names)


COMPOSITIONS = (
    Composition(
        "layer normalization",
        (_any("rsqrt", "sqrt", "std"), _any("mean"), _any("sub")),
        "Replace the code of {name} with one fused layer normalization "
        "(`torch.nn.functional.layer_norm`), or compile it with torch.compile.",
        "batchnorm",
    ),
    Composition(
        "RMS normalization",
        (_any("rsqrt", "sqrt"), _any("mean", "sum")),
        "Replace the code of {name} with one fused kernel: `torch.nn.functional.rms_norm` of a "
        "PyTorch version that has `aten::_fused_rms_norm` (other versions run several operators), "
        "a kernel of a library, or torch.compile.",
        "batchnorm",
    ),
    Composition(
        "rotary embedding",
        (_any("neg"), _any("cat", "stack")),
        "Replace {name} with a fused rotary embedding that rotates queries and keys in one pass, "
        "or compile it with torch.compile.",
        ATTENTION,
    ),
    Composition(
        "softmax",
        (_any("exp"), _any("sum"), _any("div")),
        "Replace these operators with one `torch.softmax`, or compile {name} with torch.compile.",
        "reduce",
    ),
    Composition(
        "residual addition and normalization",
        (_any("add"), _any("layer_norm", "native_layer_norm", "rms_norm")),
        "Use a fused kernel that adds the residual and normalizes in one pass, or compile {name} "
        "with torch.compile.",
        "batchnorm",
    ),
    Composition(
        "gated activation",
        (_any("silu", "gelu", "sigmoid", "relu", "tanh"), _any("mul")),
        "Use a fused kernel that activates and multiplies in one pass, or compile {name} with "
        "torch.compile.",
        "elementwise",
    ),
    Composition(
        "residual addition and activation",
        (_any("add"), _any("relu", "clamp_min", "silu", "gelu")),
        "Compile {name} with torch.compile, which adds and activates in one pass.",
        "elementwise",
    ),
    Composition(
        "optimizer update",
        (_any("addcmul"), _any("addcdiv")),
        "Switch the optimizer to its fused implementation (`fused=True`), which updates all "
        "parameters in few kernels.",
    ),
)
MESSAGES = MessageTable(
    "chains",
    {
        **{f"algorithmic.{each.title}": each.algorithmic for each in COMPOSITIONS},
        "algorithmic": "Compile {name} with torch.compile, which fuses such operators, or write "
        "one kernel for them.",
        "subject": "{name}",
        "subject.epilogue": "{steps} after {product:name}{place}",
        "steps.named": f"{{names:names {STEPS_NAMED}}}",
        "place": " in {name}",
        "summary": "{subject} ({kernels:count kernel}, {instances:count instance}, {time_ms} in "
        "all)",
        "step": "{name} {time_ms}",
        "steps": "{steps:joined , }",
        "reason.shape": "the steps take the shape that the product produces",
        "reason.usual": "products with such an epilogue are common",
        "reason.little_else": "it moves little but the product's result",
        "reason.bounded": "it is all that the {scope} does",
        "reason.data_flow": "each operator takes the shape that the previous one produces",
        "reason.composition": "its operators compute {composition}",
        "reason.none": "no specific evidence",
        "confidence": "{level}: {reasons:joined ; }",
        "caveat.unknown": "No saving is estimated: {reason}.",
        "unknown.hardware": "the hardware is not known, so there is no bandwidth to model a fused "
        "kernel",
        "unknown.shapes": "the trace does not record shape and dtype of every operand",
        "unknown.traffic": "the memory traffic of less than {needed_pct:.0f}% of its time is known",
    },
)


@dataclass(frozen=True)
class Chain:
    """A row of ``fusion_chains`` with its ``steps``, and the gain of a fused kernel.

    ``step_times`` are operator and GPU time in ms of each step, over all instances. ``fused_ms`` is
    the roofline time of the fused kernels of all instances; for an epilogue it is the time added to
    the products. It and ``gain`` are None if ``unknown`` gives a reason.
    """

    row: Mapping[str, Any]
    steps: pl.DataFrame
    step_times: Sequence[tuple[str, float]]
    compute_pct: float
    fused_ms: float | None = None
    gain: Impact | None = None
    unknown: Message | None = None

    @property
    def operators(self) -> list[str]:
        """Return the names of the steps of one instance, in order."""
        names: list[str] = self.row[C.step_names]
        return names

    @property
    def name(self) -> str:
        """Return the module, function or operator, else the first and the last step."""
        name: str | None = self.row[C.scope_name]
        first = self.row[C.product_name] or self.operators[0]
        return name or f"{first} ... {self.operators[-1]}"

    @property
    def subject(self) -> Message:
        """Return the chain in a sentence: its name, or its operators and the product that they
        follow."""
        if not self.is_epilogue:
            return MESSAGES("subject", name=self.name)
        return MESSAGES(
            "subject.epilogue",
            steps=self.named_steps,
            product=self.row[C.product_name],
            place=self.place,
        )

    @property
    def named_steps(self) -> Message:
        """Return the operators, at most as many as a sentence should name."""
        return MESSAGES("steps.named", names=self.operators)

    @property
    def place(self) -> Message | None:
        """Return `` in `Module` ``; None if its module or function is not known."""
        scope = self.row[C.scope_name]
        return MESSAGES("place", name=scope) if scope else None

    @property
    def phrase(self) -> str:
        """Return the subject as text."""
        return to_text(self.subject)

    @property
    def label(self) -> str:
        """Return the phrase without Markdown, for tables."""
        return self.phrase.replace("`", "")

    @property
    def summary(self) -> Message:
        """Return the chain with its kernels, instances and time."""
        return MESSAGES(
            "summary",
            subject=self.subject,
            kernels=self.kernels // self.instances,
            instances=self.instances,
            time_ms=self.time_ms,
        )

    @property
    def algorithmic(self) -> Message:
        """Return what the model could call instead."""
        found = self.composition
        key = f"algorithmic.{found.title}" if found else "algorithmic"
        return MESSAGES.pick(key, {"name": self.name})

    @property
    def base_names(self) -> list[str]:
        """Return the operators without namespace and underscores: ``add`` for ``aten::add_``."""
        return [base_name(name) for name in self.operators]

    @property
    def is_epilogue(self) -> bool:
        """Return whether a matrix product could absorb the steps; otherwise they fuse with each
        other."""
        return self.row[C.product_name] is not None

    @property
    def reads_little_else(self) -> bool:
        """Return whether an epilogue moves little besides the product's result."""
        row = self.row
        added = row[C.fused_bytes]
        return added is not None and (
            impact.share_pct(added, row[C.step_bytes]) < MINOR_TRAFFIC_PCT
        )

    @property
    def instances(self) -> int:
        """Return how often the chain runs."""
        return int(self.row[C.instance_count])

    @property
    def kernels(self) -> int:
        """Return the GPU launches of all instances."""
        return int(self.row[C.kernel_count])

    @property
    def before_attention(self) -> tuple[int, float]:
        """Return the instances whose result attention reads, and their GPU time in ms."""
        return int(self.row[C.attention_count]), float(self.row[C.attention_time_us]) / 1000

    @property
    def time_ms(self) -> float:
        """Return the GPU time of all instances in ms."""
        return float(self.row[C.kernel_time_us]) / 1000

    @property
    def uids(self) -> tuple[int, ...]:
        """Return the uids of the steps' rows in the operations table."""
        return tuple(self.steps[C.operation_uid].unique().sort())

    @property
    def composition(self) -> Composition | None:
        """Return what the chain computes, if its operators show it."""
        names = set(self.base_names)
        return next((c for c in COMPOSITIONS if all(g & names for g in c.operators)), None)

    @property
    def reasons(self) -> tuple[Message, ...]:
        """Return the evidence that one kernel can replace the chain."""
        if self.is_epilogue:
            known = set(self.base_names) <= _USUAL_EPILOGUES
            tests = (
                (True, MESSAGES("reason.shape")),
                (known, MESSAGES("reason.usual")),
                (self.reads_little_else, MESSAGES("reason.little_else")),
            )
            return tuple(reason for applies, reason in tests if applies)
        row, found = self.row, self.composition
        return (
            *([MESSAGES("reason.bounded", scope=row[C.scope_kind])] if row[C.is_bounded] else ()),
            *([MESSAGES("reason.data_flow")] if row[C.has_data_flow] else ()),
            *([MESSAGES("reason.composition", composition=found.named)] if found else ()),
        )

    @property
    def confidence(self) -> str:
        """Return ``high`` for three reasons, ``medium`` for two, else ``low``."""
        return {3: "high", 2: "medium"}.get(len(self.reasons), "low")

    @property
    def rating(self) -> Message:
        """Return the confidence with its reasons."""
        reasons = self.reasons or (MESSAGES("reason.none"),)
        return MESSAGES("confidence", level=self.confidence, reasons=reasons)

    @property
    def timed_steps(self) -> Message:
        """Return each step with its time."""
        steps = [MESSAGES("step", name=name, time_ms=time_ms) for name, time_ms in self.step_times]
        return MESSAGES("steps", steps=steps)

    @property
    def evidence(self) -> dict[str, EvidenceValue]:
        """Return time, kernels and steps as evidence of a finding."""
        return {
            "gpu_time_ms": self.time_ms,
            "compute_pct": self.compute_pct,
            "instances": self.instances,
            "kernels": self.kernels,
            "steps": self.timed_steps,
        }

    def traffic_mb(self, fused: str) -> dict[str, float]:
        """Return the traffic now, and with a fused kernel under the name ``fused``, in MB; nothing
        without a gain."""
        if not self.gain:
            return {}
        return {"traffic_mb": self.row[C.step_bytes] / 1e6, fused: self.row[C.fused_bytes] / 1e6}

    @property
    def priority(self) -> Priority:
        """Return the priority of a finding on the chain."""
        gain = self.gain
        return impact.final_priority(
            is_top_operation=False,
            compute_pct=self.compute_pct,
            category_pct=self.compute_pct,
            efficiency_pct=gain.efficiency_pct if gain else None,
            saved_compute_pct=gain.compute_pct.mid if gain else None,
            saved_ms=gain.saved_ms.mid if gain else None,
            is_pattern=True,
        )

    @property
    def is_worth_fusing(self) -> bool:
        """Return whether the chain exceeds MIN_SHARE_PCT and MIN_TIME_MS."""
        if self.gain is None:
            return self.compute_pct >= MIN_SHARE_PCT and self.time_ms >= MIN_TIME_MS
        at_best = self.gain.saved_ms.high, self.gain.compute_pct.high
        return at_best[0] >= MIN_TIME_MS and at_best[1] >= MIN_SHARE_PCT


def chains(
    tables: Mapping[str, pl.DataFrame],
    hardware: HardwareSpec | None,
    bases: Mapping[str, float],
    target_pct: float,
) -> Iterator[Chain]:
    """Yield the chains of a report, most time first."""
    if any(name not in tables or tables[name].is_empty() for name in TABLES):
        return
    every = tables["fusion_steps"]
    steps, times = every.partition_by(C.chain, as_dict=True), _step_times(every)
    for row in tables["fusion_chains"].iter_rows(named=True):
        number, time_ms = row[C.chain], row[C.kernel_time_us] / 1000
        share = impact.share_pct(time_ms, bases["compute_ms"])
        chain = Chain(row, steps[(number,)], times[number], share)
        yield _estimated(chain, hardware, bases, target_pct)


def _step_times(steps: pl.DataFrame) -> Mapping[int, list[tuple[str, float]]]:
    """Return ``Chain.step_times`` of each chain."""
    summed = steps.group_by(C.chain, C.position, maintain_order=True).agg(
        pl.col(C.name).first(), pl.col(C.kernel_time_us).sum()
    )
    times = defaultdict[int, list[tuple[str, float]]](list)
    for chain, _, name, time_us in summed.iter_rows():
        times[chain].append((name, time_us / 1000))
    return times


def _estimated(
    chain: Chain, hardware: HardwareSpec | None, bases: Mapping[str, float], target_pct: float
) -> Chain:
    row = chain.row
    if (unknown := _unknown(chain, hardware)) is not None or hardware is None:
        return replace(chain, unknown=unknown)
    memory_ms = row[C.fused_bytes] / hardware.mem_bw_gbps / 1e6
    if chain.is_epilogue:
        gain = _epilogue_gain(chain, memory_ms, target_pct, bases)
        return replace(chain, fused_ms=memory_ms, gain=gain)
    peak = hardware.max_achievable_tflops.get(row[C.compute] or "")
    arithmetic_ms = row[C.flops] / peak / 1e9 if peak else 0.0
    longer, shorter = max(memory_ms, arithmetic_ms), min(memory_ms, arithmetic_ms)
    fused_ms = longer + OVERLAP_PART * shorter
    gain = impact.fused_impact(
        chain.time_ms,
        fused_ms,
        impact.share_pct(row[C.fused_bytes], row[C.step_bytes]),
        target_pct,
        floor_ms=chain.instances * KERNEL_FLOOR_US / 1000,
        shortest_ms=min(time_ms for _, time_ms in chain.step_times),
        compute_ms=bases["compute_ms"],
        total_ms=bases["total_ms"],
    )
    return replace(chain, fused_ms=fused_ms, gain=gain)


def _epilogue_gain(
    chain: Chain, added_ms: float, target_pct: float, bases: Mapping[str, float]
) -> Impact:
    """Return the gain of absorbing the steps into the product.

    high: all time of the steps; mid: without the time that their other operands take at the target,
    the middle of the range without other operands; low: other operands at today's speed, and the
    product slowed down by OVERLAP_PART of that time.
    """
    time_ms = chain.time_ms
    mid_ms = max(0.0, time_ms - added_ms * impact.FULL_PCT / target_pct)
    traffic_share = min(1.0, chain.row[C.fused_bytes] / chain.row[C.step_bytes])
    low_ms = min(mid_ms, time_ms * (1 - traffic_share) * (1 - OVERLAP_PART))
    if mid_ms >= time_ms:
        mid_ms = (low_ms + time_ms) / 2
    return impact.bounded_impact(time_ms, time_ms, low_ms=low_ms, mid_ms=mid_ms, **bases)


def _unknown(chain: Chain, hardware: HardwareSpec | None) -> Message | None:
    if hardware is None:
        return MESSAGES("unknown.hardware")
    if chain.row[C.fused_bytes] is None:
        return MESSAGES("unknown.shapes")
    needed = LONG_MODELLED_PCT if len(chain.operators) >= LONG_CHAIN else SHORT_MODELLED_PCT
    if chain.row[C.modelled_pct] < needed or not chain.row[C.step_bytes]:
        return MESSAGES("unknown.traffic", needed_pct=needed)
    return None
