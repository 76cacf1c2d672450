"""Messages about calls that are slower on the target, and about work that only the target does."""

from jarvis.text.messages import MessageTable

MESSAGES = MessageTable(
    "comparison",
    {
        "title.slower": "{name} is slower than the hardware explains",
        "title.much_slower": "{name} is much slower than the hardware explains",
        "title.fused": "{place:name}: the reference needs fewer kernels",
        "title.only_in_target": "{category}: work that only the target does",
        "issue.slower": "On the target {name} takes {time_ms} in {calls}, {compared}. "
        "{unexplained_ms} are not explained; most of that is {call}: {target_us:number} µs per "
        "call against {reference_us:number} µs.",
        "issue.fused": "At {place:name} the target launches {launches:number} kernels per call "
        "({name}), the reference {reference_launches:number} ({reference_name:name}). They take "
        "{time_ms} in {calls}, {compared}.",
        "issue.only_in_target": "{time_ms} of {names:names} on the target {count:either has|have} "
        "no counterpart on the reference, which has {other} here.",
        "other": "{reference_ms} of its own",
        "other.nothing": "nothing of its own",
        "compared": "{change} than the {reference_ms} of the reference for as many{explained}",
        "explained.nothing": ", where the two GPUs explain no difference",
        "explained": ", where the two GPUs explain {attainable_ms}, {change}",
        "change.longer": "{change_pct} longer",
        "change.shorter": "{change_pct} shorter",
        "call": "`{arguments}`",
        "call.at": "the call at {place:name}",
        "algorithmic.fusible": "Let a compiler or a fused operator run {name} together with its "
        "neighbors, so that its result is not written and read again.",
        "algorithmic.slower": "Another layout, type, padded size or backend can select another "
        "kernel of the target for {name}: try it first for {call}.",
        "algorithmic.fused": "Run the work at {place:name} as the reference does, in "
        "{reference_name:name} or another fused operator, or let a compiler fuse it.",
        "algorithmic.only_in_target": "Find out what the reference does in their place, such as a "
        "fused operator or none at all, and do the same on the target.",
        "kernel.unknown": "Replay {call} on the target and tune or replace its kernels.",
        "kernel.slower": "Replay {call} on the target and tune or replace {kernel}{reference}.",
        "kernel.same": ", which the reference launches too",
        "kernel.other": "; the reference launches {kernel}",
        "kernel.fused": "Write a kernel for the target that does the work of {name} at once; start "
        "with {kernel}, which takes most of the time.",
        "kernel.only_in_target": "Replay {name} and make {kernel:name?its kernels} faster, or fold "
        "the work into the kernels around it.",
        "hypothesis.same_kernels": "Both sides launch kernels of the same names, so their "
        "compilation or suitability for the target is the likely cause.",
        "hypothesis.much_slower": "At more than twice the explained time, the choice or tuning of "
        "a kernel is the likely cause.",
        "hypothesis.slower": "Kernels or software of the target are the likely cause.",
        "hypothesis.fused": "Operators that are fused only on the reference are the likely cause.",
        "hypothesis.only_in_target": "Another version, setting or lowering on the target is the "
        "likely cause.",
        "caveat": "Clocks, power limits and software versions of the two sides may differ too.",
        "caveat.by_place": "The reference runs {reference_name:name} here: matched by place, not "
        "by name.",
        "caveat.by_dimensions": "The reference runs {reference_name:name} here: matched by "
        "dimensions, not by name.",
        "caveat.nothing_expected": "It is not known how much of the difference the GPUs explain.",
        "caveat.launching": "One side is launch bound, so the attainable time is the reference's "
        "own time.",
        "caveat.bound_unknown": "The bound is not known, so the highest ratio counts as explained.",
        "caveat.roofline": "The reference is even faster: the target's roofline is the limit.",
        "caveat.reference_low": "The reference itself reaches {efficiency_pct} of its roofline, so "
        "bandwidth and compute peaks may not be the limit.",
        "caveat.only_in_target": "Work without a counterpart may still be the same work under "
        "other names elsewhere in the call tree.",
        "verify.slower": "Record the target again: these calls of {name} must take about "
        "{attainable_ms}.",
        "verify.only_in_target": "Record the target again: less time must go to {names:names}, or "
        "none.",
        "capture.slower": "Time {name} alone on both GPUs: it shows whether the kernel alone is "
        "slower there too.",
        "capture.fused": "Record both sides with `with_stack=True` and shapes, so that the calls "
        "at this place can be distinguished.",
    },
)
