"""The appendix of the comparative reports: inputs, hardware, what is not compared, and method."""

from collections.abc import Iterator

from jarvis import impact
from jarvis.comparison import Comparison, Role
from jarvis.comparison.operations import SAME_WORK, SAME_WORKLOAD_PCT
from jarvis.comparison.outcomes import MUCH
from jarvis.hardware import HardwareSpec
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.reports import appendix, sections
from jarvis.reports.comparative.subject import Subject
from jarvis.text.format import MISSING, count, decimal, tb_per_s, tflops_per_s
from jarvis.text.markdown import Markdown, cell, table

NEVER_COMPARED = (
    "Variation: each side is recorded once. Record both again before acting on a small difference.",
    "Clocks, power limits and software versions: a trace does not record them.",
    "Host time and memory usage: only the time that the GPU waits for the host is compared.",
    "The inside of kernels: likely causes are hypotheses, to be tested with a hardware-counter "
    "profiler.",
)
"""What a comparison of two traces can never show, and why."""

ALWAYS = ("matrix_bf16", "matrix_fp16")
"""Compute peaks that are shown even if no operation uses them."""


def inputs(subject: Subject) -> Markdown:
    """Return what was compared: files, devices, and the peaks of each side."""
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
                hardware.title if hardware else sections.NO_PLATFORM,
                count(trace.steps) if trace.form == "trace" else MISSING,
            )
        )
    return table(("Side", "Input", "Kind", "Device in it", "Peaks of", "Steps"), lines)


def hardware(subject: Subject) -> Markdown:
    """Return bandwidth, compute peaks in use and memory of both sides, and their ratios."""
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
    """Return the compute peaks that operations of either side use."""
    rows = [row for role in Role for row in subject.operations[role].values()]
    used = {str(row["compute"]) for row in rows if row.get("compute")}
    return list(dict.fromkeys([*ALWAYS, *sorted(used)]))


def _memory(spec: HardwareSpec | None) -> str:
    return f"{spec.memory_gb:g} GB" if spec else MISSING


def sources(subject: Subject) -> Iterator[tuple[str, Markdown]]:
    """Yield the label of each side with a known GPU, and all its peaks with their sources."""
    target, reference = (subject.side(role).hardware for role in (Role.TARGET, Role.REFERENCE))
    if target and target == reference:
        named = [("Both sides", target)]
    else:
        named = [
            (name, spec) for name, spec in (("Target", target), ("Reference", reference)) if spec
        ]
    for name, spec in named:
        yield f"{name}: {spec.title}", appendix.peaks(spec)


def gaps(subject: Subject) -> Iterator[str]:
    """Yield what cannot, or not reliably, be compared of these two sides, and why."""
    yield from subject.comparison.unknown
    for role in Role:
        manifest = subject.run(role).manifest
        name = role.value.capitalize()
        if manifest.platform_warning and manifest.hardware:
            yield f"{name}: {manifest.platform_warning}"
        if absent := unavailable_reason(manifest.absent_tables, manifest.absent_tables):
            yield f"{name}: {absent}"
    steps = {role: subject.run(role).manifest.trace.steps for role in Role}
    is_whole = not subject.comparison.is_per_step
    if is_whole and all(steps.values()) and steps[Role.TARGET] != steps[Role.REFERENCE]:
        yield (
            f"The traces hold {steps[Role.TARGET]:,} profiler steps on the target and "
            f"{steps[Role.REFERENCE]:,} on the reference: totals are those of whole traces, so "
            "compare times per call."
        )


def methodology(comparison: Comparison) -> Iterator[str]:
    """Yield formulas, rules and thresholds behind the numbers."""
    yield (
        "Δ is the target minus the reference, in percent of the reference. N% slower is N% more "
        "time, N% faster is N% less."
    )
    yield (
        "A ratio is the target's time per call over the reference's. The expected ratio of "
        "memory-bound work is the reference's bandwidth over the target's, that of compute-bound "
        "work the reference's compute peak of its precision over the target's. If a call is "
        "memory bound on one side and compute bound on the other, it is the ratio of its roofline "
        "times."
    )
    yield (
        "If the bound is not known, every ratio between the lowest and the highest of both GPUs "
        f"is expected. Calls below {impact.SHORT_CALL_US:g} µs with a roofline below "
        f"{impact.KERNEL_FLOOR_US:g} µs take about as long as launching them: if both sides are "
        "such calls, they are not compared; if one side is, equal times are expected as well."
    )
    yield (
        "A ratio is unexpected if it differs from the expected one by more than a factor of "
        f"{comparison.tolerance:g} (the tolerance), and much slower or much faster beyond a "
        f"factor of {MUCH:g}, which likely comes from kernel selection or tuning."
    )
    yield (
        "Attainable is the reference's time per call x the highest expected ratio, but not below "
        "the target's roofline, for the number of the target's calls. The target's time beyond "
        "that, of operations that are slower than expected, is not explained."
    )
    yield (
        "Operations are matched by name, shapes and types; the rest by position in the call tree; "
        "then matrix products by their dimensions. No time of either side counts twice. At one "
        "position the work counts as equal if its FLOPs differ by less than a factor of "
        f"{SAME_WORK:g}. If less than {SAME_WORKLOAD_PCT:g}% of the target's time has a "
        "counterpart, work of the target alone gives no recommendation."
    )
    yield (
        f"A recommendation concerns at least {impact.RELEVANT_COMPUTE_PCT:g}% of compute and "
        f"would save at least {impact.MIN_SAVED_COMPUTE_PCT:g}% of it and "
        f"{1000 * impact.MIN_SAVED_MS:g} µs. Its saving ranges from the time beyond the tolerance "
        "to all unexplained time; savings of different recommendations concern different time. "
        "The priority follows from presence in the target's top operations, the share of compute "
        "and the distance to the attainable time."
    )
