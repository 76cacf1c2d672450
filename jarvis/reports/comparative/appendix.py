"""The appendix of the comparative reports: inputs, hardware, what is not compared, and method."""

from collections.abc import Iterator

from jarvis import impact
from jarvis.comparison import Comparison, Role
from jarvis.comparison.judgement import MUCH
from jarvis.comparison.operations import SAME_WORK, SAME_WORKLOAD_PCT
from jarvis.hardware import HardwareSpec
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.reports import appendix, sections
from jarvis.reports.comparative.subject import Subject
from jarvis.text.format import MISSING, count, decimal, tb_per_s, tflops_per_s
from jarvis.text.markdown import Markdown, cell, table

NEVER_COMPARED = (
    "How much times vary from one recording to the next: each side is recorded once. Record both "
    "again before acting on a small difference.",
    "Clocks, power limits and software versions: a trace does not tell them, and they may differ "
    "between the two sides.",
    "Time on the host and use of memory: of the host, only how long the GPU waits is compared.",
    "What happens inside a kernel: a trace shows what is slow, not why. Likely causes are "
    "hypotheses, to be tested with a hardware-counter profiler on a replay package of the target.",
)
"""What no comparison of two traces tells, and why."""

ALWAYS = ("matrix_bf16", "matrix_fp16")
"""Compute peaks that are shown even where no operation is judged against them."""


def inputs(subject: Subject) -> Markdown:
    """What was compared: files, devices, and the figures that each side is judged against."""
    lines = []
    for role in (Role.REFERENCE, Role.TARGET):
        manifest = subject.run(role).manifest
        trace, hardware = manifest.trace, manifest.hardware
        lines.append(
            (
                role.value.capitalize(),
                cell(trace.file_name),
                "performance report" if trace.form == "report" else f"{trace.origin} trace",
                trace.device_name or "not named",
                sections.preset_name(hardware) if hardware else sections.NO_PLATFORM,
                count(trace.steps) if trace.form == "trace" else MISSING,
            )
        )
    return table(("Side", "Input", "Kind", "Device in it", "Judged against", "Steps"), lines)


def hardware(subject: Subject) -> Markdown:
    """Bandwidth, compute peaks in use and memory of both sides, and the ratios they explain."""
    compared = subject.comparison
    target, reference = compared.target.hardware, compared.reference.hardware
    ratios = compared.ratios
    lines = [
        (
            "Peak HBM Bandwidth",
            tb_per_s(target.tb_per_s if target else None),
            tb_per_s(reference.tb_per_s if reference else None),
            decimal(ratios.memory) if ratios else MISSING,
        ),
        *(
            (
                f"Peak MAF {compute}",
                tflops_per_s(target.peak_tflops(compute) if target else None),
                tflops_per_s(reference.peak_tflops(compute) if reference else None),
                decimal(ratios.compute(compute)) if ratios else MISSING,
            )
            for compute in _peaks(subject)
        ),
        ("Memory Size", _memory(target), _memory(reference), MISSING),
    ]
    headers = (
        "Metric",
        "Target Platform",
        "Reference Platform",
        "Expected time ratio",
    )
    return table(headers, lines)


def _peaks(subject: Subject) -> list[str]:
    """The compute peaks that operations of either side are judged against."""
    rows = [row for role in Role for row in subject.operations[role].values()]
    used = {str(row["compute"]) for row in rows if row.get("compute")}
    return list(dict.fromkeys([*ALWAYS, *sorted(used)]))


def _memory(spec: HardwareSpec | None) -> str:
    return f"{spec.memory_gb:g} GB" if spec else MISSING


def sources(subject: Subject) -> Iterator[tuple[str, Markdown]]:
    """Label of each side whose GPU is known, and every figure of it with its source."""
    target, reference = (subject.side(role).hardware for role in (Role.TARGET, Role.REFERENCE))
    if target and target == reference:
        named = [("Both sides", target)]
    else:
        named = [
            (name, spec) for name, spec in (("Target", target), ("Reference", reference)) if spec
        ]
    for name, spec in named:
        yield f"{name}: {sections.preset_name(spec)}", appendix.peaks(spec)


def gaps(subject: Subject) -> Iterator[str]:
    """What cannot be compared of these two sides, or not well, and why."""
    yield from subject.comparison.unknown
    for role in Role:
        manifest = subject.run(role).manifest
        name = role.value.capitalize()
        if manifest.platform_warning:
            yield f"{name}: {manifest.platform_warning}"
        if absent := unavailable_reason(manifest.absent_tables, manifest.absent_tables):
            yield f"{name}: {absent}"
    named = [subject.run(role).manifest.model_name for role in Role]
    if all(named) and named[0] != named[1]:
        yield f"The models differ by name: {named[0]} on the target, {named[1]} on the reference."
    steps = {role: subject.run(role).manifest.trace.steps for role in Role}
    if all(steps.values()) and steps[Role.TARGET] != steps[Role.REFERENCE]:
        yield (
            f"The traces hold {steps[Role.TARGET]:,} profiler steps on the target and "
            f"{steps[Role.REFERENCE]:,} on the reference: totals are those of whole traces, so "
            "compare times per call."
        )


def methodology(comparison: Comparison) -> Iterator[str]:
    """Formulas, rules and thresholds behind the numbers."""
    yield (
        "Δ is the target less the reference, in percent of the reference. N% slower is N% more "
        "time, N% faster is N% less."
    )
    yield (
        "A ratio is the target's time per call over the reference's. Expected of memory-bound work "
        "is the reference's bandwidth over the target's, of compute-bound work the reference's "
        "compute peak of its precision over the target's. Where a call is memory bound on one "
        "side and compute bound on the other, it is the ratio of its roofline times."
    )
    yield (
        "Where the bound is not known, every ratio between the least and the highest of both GPUs "
        f"is expected. Calls below {impact.SHORT_CALL_US:g} µs with a roofline below "
        f"{impact.KERNEL_FLOOR_US:g} µs take about as long as launching them: on both sides they "
        "are not judged, on one side the same time is expected too."
    )
    yield (
        "Unexpected is a ratio off the expected one by more than a factor of "
        f"{comparison.tolerance:g} (the tolerance); much slower or much faster by more than "
        f"{MUCH:g}, where the choice or the tuning of a kernel is likely."
    )
    yield (
        "Attainable is the reference's time per call x the highest expected ratio, but not below "
        "the target's roofline, for as many calls as the target makes. Not explained is the "
        "target's time beyond that, of operations that are slower than expected."
    )
    yield (
        "Operations are matched by name, shapes and types; the rest by its place in the call tree; "
        "then matrix products by their dimensions. No time of either side counts twice. Below one "
        f"place the work counts as the same where its FLOPs differ by less than a factor of "
        f"{SAME_WORK:g}. Where less than {SAME_WORKLOAD_PCT:g}% of the target's time has a "
        "counterpart, work of the target alone makes no recommendation."
    )
    yield (
        f"A recommendation concerns at least {impact.RELEVANT_COMPUTE_PCT:g}% of compute and would "
        f"save at least {impact.MIN_SAVED_COMPUTE_PCT:g}% of it and {1000 * impact.MIN_SAVED_MS:g} "
        "µs. Its saving reaches from what the tolerance would let pass to all that is not "
        "explained; savings of different recommendations concern different time. The priority "
        "follows from presence in the target's top operations, the share of compute and how far "
        "the attainable time is."
    )
