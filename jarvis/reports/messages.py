"""Messages of the reports around findings: savings, times and shares."""

from jarvis.text.format import milliseconds
from jarvis.text.messages import Message, MessageTable

MESSAGES = MessageTable(
    "reports",
    {
        "time": "{time_ms} ({share_pct} of {whole})",
        "efficiency": "{efficiency_pct}{mark?} of the roofline ({word})",
        "efficiency.none": "not part of this finding",
        "saving": "about {saved_ms}{target}: {compute}{e2e_pct} of the GPU window (range {range}, "
        "{basis}).{unknown}",
        "saving.unknown": " The step time is not known: the input has no events.",
        "saving.step": "about {gain_ms} of {whole} ({gain_pct}), at most {high_ms}; {gpu_time}",
        "saving.step.exact": "about {gain_ms} of {whole} ({gain_pct}); {gpu_time}",
        "saving.step.most": "at most {high_ms} of {whole} ({high_pct}); {gpu_time}",
        "saving.step.interval": "up to {high_ms} of {whole} ({high_pct}), depending on the other "
        "ranks ({basis}).",
        "saving.step.nothing": "nothing of {whole}, which does not wait for this work; {gpu_time}",
        "saving.step.pool": "about {gain_ms} of {whole} ({gain_pct}), at most {high_ms} ({basis}).",
        "saving.step.pool.exact": "about {gain_ms} of {whole} ({gain_pct}) ({basis}).",
        "saving.step.pool.most": "at most {high_ms} of {whole} ({high_pct}) ({basis}).",
        "saving.step.pool.interval": "up to {high_ms} of {whole} ({high_pct}), depending on the "
        "other ranks ({basis}).",
        "saving.step.pool.nothing": "nothing of {whole} ({basis}).",
        "saving.gpu_time": "{saved_ms} less GPU time{over}{target} (range {range}, {basis}).",
        "saving.over": " over {steps:count step}",
        "saving.target": " at {target_pct:short}% of the roofline",
        "saving.compute": "{compute_pct} of compute, ",
        "saving.none": "not quantifiable from trace data.",
        "saving.short": "{saved_ms} ({e2e_pct} of the GPU window)",
        "saving.short.step": "{gain_ms} ({gain_pct} of {whole}), at most {high_ms}{hidden}",
        "saving.short.step.exact": "{gain_ms} ({gain_pct} of {whole}){hidden}",
        "saving.short.step.most": "at most {high_ms} ({high_pct} of {whole})",
        "saving.short.step.interval": "up to {high_ms} ({high_pct} of {whole}){host}",
        "saving.host": ", limited by the host",
        "saving.hidden": "; other work or the host hides most of {saved_ms} less GPU time{over}",
        "saving.short.step.nothing": "nothing of {whole}",
        "basis.perf model": "from the perf model",
        "basis.upper bound": "the upper end is a bound measured in the trace",
        "basis.replay": "from replays of the recorded steps",
        "basis.heuristic": "from experience, not measured",
        "range": "{low_ms:bare} to {high_ms}",
        "range.units": "{low_ms} to {high_ms}",
        "left_out": "{rows:count further row} with {time_ms} in all are not shown.",
        "overview": "{time_ms} in {calls} over {rows:count row} of distinct arguments. "
        "{efficiency}",
        "overview.of_compute": "{title} operations account for {compute_pct:pct?—} of compute "
        "time: {overview}",
        "overview.efficiency": "Average efficiency: {efficiency_pct} of the roofline, weighted by "
        "time over the {coverage_pct:pct?—} of it that has an efficiency.",
        "overview.no_efficiency": "Average efficiency: not available.",
        "title": "{title} ({compute_pct:pct?—} of compute)",
        "score": "impact_score: {score:.2f}; saving {saved}",
        "score.low": "Low end impact_score: {score:.2f}",
        "score.high": "High end impact_score: {score:.2f}",
        "score.fusion": "impact_score: {score:.2f} (perf-model coverage {modelled}/{kernels} "
        "kernels)",
        "extent": "{rows:count row} with {calls}: {time_ms}, {share_pct} of the GPU window",
        "potential.perf model": "{saved_ms} of the {time_ms} is the gap between measured time and "
        "roofline.{step}",
        "potential.upper bound": "At most {saved_ms} of the {time_ms} can be saved.{step}",
        "potential.heuristic": "Such changes typically save up to {saved_ms} of the "
        "{time_ms}.{step}",
        "potential.step": " Step: {saving}.",
        "potential.pool": "Saving: {saving}.",
        "potential.none": "No saving can be estimated from this trace.",
        "step": "One step takes {step_ms}{average}{tail}: {parts}{ahead}.{carried}",
        "step.recording": "The recording, which marks no steps, takes {step_ms}: {parts}.{carried}",
        "step.average": " on average over {steps:count step} ({total_ms} together{slow})",
        "step.slow": "; slow: {names:names}, up to {excess_ms} over the median",
        "step.ahead": "; the host runs ahead of the GPU, so its marks of a step are shorter "
        "({marked_ms})",
        "step.tail": " from mark to mark, and the GPU finishes {tail_ms} later",
        "step.carried": " Not included are {carried_ms} in which the GPU finished work from "
        "before the recording{wait}.",
        "step.wait": ", while the host waited in {call}",
        "mfu": "MFU {mfu_pct}: {gflop_per_step:number} GFLOP {per} {which}, "
        "{tflops_per_s:number} TFLOP/s of {peak_tflops:number} TFLOP/s ({compute}, {gpu}){hfu}; "
        "perf models give the FLOPs of {covered_pct} of the kernel time",
        "mfu.partial": "MFU at least {mfu_pct}: {gflop_per_step:number} GFLOP {per} {which} in "
        "the {covered_pct} of the kernel time whose FLOPs are known, {tflops_per_s:number} TFLOP/s "
        "of {peak_tflops:number} TFLOP/s ({compute}, {gpu}){hfu}",
        "mfu.executed": "as executed",
        "mfu.once": "without repeated ones",
        "mfu.hfu": ". HFU {hfu_pct}, with the {repeated_gflop:number} GFLOP that activation "
        "checkpointing repeats",
        "mfu.partial.hfu": ". HFU at least {hfu_pct}, with the {repeated_gflop:number} GFLOP that "
        "activation checkpointing repeats",
        "mfu.no_hardware": "MFU is not known, as the GPU has no known peaks",
        "mfu.no_events": "MFU is not known, as the input has no GPU events",
        "mfu.uncovered": "MFU is not known, as perf models give the FLOPs of only {covered_pct} of "
        "the kernel time",
        "mfu.no_peak": "MFU is not known, as the peak of {compute} is not",
        "summary.first": 'The first finding, "{title}", saves {saving}.',
        "summary.next": 'Next is "{title}": {saving}.',
        "summary.leads": 'The first finding, "{title}", makes the others uncertain.',
        "summary.incomplete": 'The first finding is "{title}": the efficiency of that time is not '
        "known.",
        "summary.compute": "{compute_ms} in the GPU window",
    },
)


def time_range(low_ms: float, high_ms: float) -> Message:
    """Return two times, a common unit printed once: 0.710 to 2.78 ms, 97.0 µs to 0.140 ms."""
    units = {milliseconds(value).partition(" ")[2] for value in (low_ms, high_ms)}
    is_one = low_ms == 0 or len(units) == 1
    return MESSAGES("range" if is_one else "range.units", low_ms=low_ms, high_ms=high_ms)
