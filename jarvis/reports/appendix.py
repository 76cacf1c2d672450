"""The appendices of the reports: input, assumptions and rules."""

from jarvis import impact
from jarvis.core.request import Targets
from jarvis.hardware import HardwareSpec
from jarvis.reports import sections
from jarvis.reports.figures import target_words
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, tb_per_s, tflops_per_s
from jarvis.text.markdown import Markdown, table


def source(run: Run) -> str:
    """Return what was analyzed."""
    named = "" if run.manifest.model_name else " The title is its file name: no model was named."
    return f"Input: {sections.trace_line(run)}.{named}"


def hardware_lines(run: Run) -> list[str]:
    """Return the preset, its bandwidth and memory, and the compute peaks that operations use; the
    warnings say if the hardware is not known."""
    hardware = run.manifest.hardware
    if hardware is None:
        return []
    used = set(run.table("operations")[C.compute].drop_nulls())
    all_peaks = hardware.max_achievable_tflops
    peaks = {name: peak for name, peak in all_peaks.items() if name in used} or all_peaks
    compute = ", ".join(f"{tflops_per_s(peak)} {name}" for name, peak in peaks.items())
    lines = [
        hardware.title,
        f"Peak HBM BW: {tb_per_s(hardware.tb_per_s)}",
        f"Peak MAF: {compute}",
    ]
    kind = f" {hardware.memory_type}" if hardware.memory_type else ""
    return [*lines, *([f"Memory: {hardware.memory_gb:g} GB{kind}"] if hardware.memory_gb else [])]


def peaks(hardware: HardwareSpec) -> Markdown:
    """Return the hardware peaks that efficiencies refer to, with their sources."""
    memory_type = f" {hardware.memory_type}" if hardware.memory_type else ""
    figures = {
        "mem_bw_gbps": ("Peak HBM BW", tb_per_s(hardware.tb_per_s)),
        "memory_gb": ("Memory", f"{hardware.memory_gb:g} GB{memory_type}"),
        **{
            key: (f"Peak MAF {key}", tflops_per_s(peak))
            for key, peak in hardware.max_achievable_tflops.items()
        },
    }
    return table(
        ("Figure", "Value", "Source"),
        (
            (label, value, hardware.source_of(figure) or MISSING)
            for figure, (label, value) in figures.items()
        ),
    )


def methodology(run: Run) -> list[str]:
    """Return formulas, scales and thresholds behind the numbers of a run."""
    hardware, target = run.manifest.hardware, target_words(run)
    by_default = "by default " if run.targets == Targets() else ""
    lines = [
        "Efficiency is roofline time / GPU busy time; roofline time is the longer of FLOPs / "
        "compute peak of the operation's precision and bytes / bandwidth peak.",
        f"Scale: {_scale()}. Rows above {impact.ANOMALY_PCT:g}% are excluded from projections.",
        f"Bottleneck: more than {impact.BOTTLENECK_TIME_MS:g} ms or "
        f"{impact.BOTTLENECK_CATEGORY_PCT:g}% of its category, and below "
        f"{impact.BOTTLENECK_EFFICIENCY_PCT:g}% efficiency.",
        f"Critical: a top operation below {impact.CRITICAL_EFFICIENCY_PCT:g}% with more than "
        f"{impact.CRITICAL_COMPUTE_PCT:g}% of compute. High: another top operation, or below "
        f"{impact.BOTTLENECK_EFFICIENCY_PCT:g}% with more than {impact.HIGH_COMPUTE_PCT:g}% of "
        f"compute or category. Medium: more than {impact.MEDIUM_COMPUTE_PCT:g}% of compute, or a "
        "notable pattern. Low: the rest, and everything that takes at most "
        f"{impact.RELEVANT_COMPUTE_PCT:g}% of compute or would save less than "
        f"{impact.MIN_SAVED_COMPUTE_PCT:g}% of it or less than {1000 * impact.MIN_SAVED_MS:g} µs. "
        "One step lower if the efficiency is typical of such calls. System-level findings have "
        "the priority of their grade.",
        "Projected time at a target efficiency is time x efficiency / target; compute improvement "
        "is the saving / compute time, the improvement of the GPU window the saving / its length.",
        "Ranges from a perf model extend from half of the way to the target "
        f"({by_default}{target} of the roofline) to the full roofline; an upper bound is "
        "time in the trace that a change can remove at most.",
        "The time of a category includes copies and communication by its operators, its share of "
        "compute does not.",
        "A trace shows what is slow, not why: likely causes are hypotheses, to be tested with the "
        "platform's hardware-counter profiler.",
    ]
    if hardware is None:
        lines.insert(0, "No hardware peaks are known, so no efficiency is given.")
    return lines


def _scale() -> str:
    return "; ".join(
        f"over {above:g}% {word.replace(':', ',')}" for above, word in impact.EFFICIENCY_SCALE
    )
