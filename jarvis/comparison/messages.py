"""Messages about calls that are slower on the target, and about work that only the target does."""

from jarvis.text.messages import MessageTable

MESSAGES = MessageTable(
    "comparison",
    {
        "title.slower": "{subject} is slower than the hardware explains",
        "title.slower.one_gpu": "{subject} is slower than on the reference, the same GPU",
        "title.much_slower.one_gpu": "{subject} is much slower than on the reference, the same GPU",
        "title.much_slower": "{subject} is much slower than the hardware explains",
        "title.fused": "{place:name}: {launches:count kernel} in {time_ms} against "
        "{reference_launches:count kernel} in {reference_ms}",
        "title.other_type": "{subject}: {dtype} on the target, {reference_dtype} on the reference",
        "title.only_in_target": "{category}: work that only the target does",
        "subject": "{name}",
        "subject.arguments": "{name} `{arguments}`",
        "subject.some": "{name} ({count} of {of} argument lists)",
        "subject.all": "{name} (all {of} argument lists)",
        "subject.place": "{name} at {place:name}",
        "issue.slower": "On the target {subject} takes {time_ms} in {calls}, {compared}. "
        "{unexplained_ms} are not explained; most of that is {call}: {target_us:number} µs per "
        "call against {reference_us:number} µs.{extra?}",
        "issue.slower.one": "On the target {subject} takes {time_ms} in {calls}, {compared}. "
        "{unexplained_ms} are not explained: {target_us:number} µs per call against "
        "{reference_us:number} µs.{extra?}",
        "extra": " There the target also launches {kernels:names} ({kernels_us:number} µs per "
        "call): {launches:count kernel} per call against {reference_launches:short}.",
        "issue.fused": "At {place:name} the target launches {launches:count kernel} per call "
        "({name}), the reference {reference_launches:count kernel} ({reference_name:name}). They "
        "take {time_ms} in {calls}, {compared}.",
        "issue.only_in_target": "{time_ms} of {names:names} on the target {count:either has|have} "
        "no counterpart on the reference, which has {other} here.",
        "issue.other_type": "{subject} takes {time_ms} in {calls} on the target, in {dtype}, "
        "{change} than the {reference_ms} of the reference for as many, in {reference_dtype}: not "
        "like for like.",
        "title.longer_idle": "The GPU idles longer on the target",
        "title.more_exposed_communication": "More exposed communication on the target",
        "title.more_exposed_copies": "More exposed copies on the target",
        "issue.longer_idle": "The GPU idles for {time_ms} on the target and for {reference_ms} on "
        "the reference {span}: {extra_ms} more, {step_pct} of the target's {whole}.{cause?}",
        "issue.more_exposed_communication": "Communication without compute takes {time_ms} on the "
        "target and {reference_ms} on the reference {span}: {extra_ms} more, {step_pct} of the "
        "target's {whole}.",
        "issue.more_exposed_copies": "Copies without compute or communication take {time_ms} on "
        "the target and {reference_ms} on the reference {span}: {extra_ms} more, {step_pct} of "
        "the target's {whole}.",
        "whole.steps": "step time",
        "whole.window": "GPU window",
        "span.step": "per step",
        "span.steps": "in {steps:count step}",
        "span.recording": "in the recording",
        "cause": " Cause of most of the difference: {cause}, {cause_ms} against {other_ms}{call?}.",
        "cause.call": ", mainly in {call:name}",
        "algorithmic.longer_idle": "Find out what the host does on the target while the GPU waits, "
        "and not on the reference: the target's own report has each cause of idle time.",
        "algorithmic.longer_idle.call": "Let the GPU wait less for {call:name}: the target's own "
        "report has each cause of idle time with its remedies.",
        "algorithmic.more_exposed_communication": "Compare the collectives of both sides, and "
        "overlap them on the target as the reference does.",
        "algorithmic.more_exposed_copies": "Compare the copies of both sides by direction and "
        "size, and do on the target only those of the reference.",
        "kernel.longer_idle": "Faster kernels do not shorten idle time.",
        "kernel.more_exposed_communication": "Faster compute kernels do not shorten it.",
        "kernel.more_exposed_copies": "Faster compute kernels do not shorten it.",
        "caveat.longer_idle": "Idle time differs between recordings of one program, and the "
        "profiler adds to it.",
        "caveat.more_exposed_communication": "A trace of one rank does not separate transfer "
        "from waiting for other ranks.",
        "caveat.more_exposed_copies": "The host and its link to the GPU may differ too.",
        "verify.longer_idle": "Record the target again: the GPU must idle for about "
        "{reference_ms}.",
        "verify.more_exposed_communication": "Record the target again: exposed communication must "
        "take about {reference_ms}.",
        "verify.more_exposed_copies": "Record the target again: exposed copies must take about "
        "{reference_ms}.",
        "other": "{reference_ms} of its own",
        "other.nothing": "nothing of its own",
        "compared": "{change} than the {reference_ms} of the reference for as many{explained}",
        "explained.one_gpu": ", on the same GPU",
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
        "algorithmic.extra_kernels": "Avoid {kernels:names} ({kernels_us:number} µs per call), "
        "which the reference does without: another layout, type or backend for {name} may not need "
        "them.",
        "algorithmic.fused": "Run the work at {place:name} as the reference does, in "
        "{reference_name:name} or another fused operator, or let a compiler fuse it.",
        "algorithmic.other_type": "Compute {name} in {reference_dtype} as the reference does, if "
        "the accuracy allows it.",
        "algorithmic.only_in_target": "Find out what the reference does in their place, such as a "
        "fused operator or none at all, and do the same on the target.",
        "kernel.unknown": "Replay {call} on the target and tune or replace its kernels.",
        "kernel.slower": "Replay {call} on the target and tune or replace {kernel}{reference}.",
        "kernel.same": ", which the reference launches too",
        "kernel.variant": ", which the reference launches in another variant",
        "kernel.other": "; the reference launches {kernel}",
        "kernel.other_type": "Compare with a reference in {dtype} first: this pair does not show "
        "whether a faster kernel in {dtype} exists.",
        "kernel.fused": "Write a kernel for the target that does the work of {name} at once; start "
        "with {kernel}, which takes most of the time.",
        "kernel.only_in_target": "Replay {name} and make {kernel:name?its kernels} faster, or fold "
        "the work into the kernels around it.",
        "hypothesis.same_kernels": "Both sides launch kernels of the same names, so their "
        "compilation or suitability for the target is the likely cause.",
        "hypothesis.much_slower": "At more than twice the expected time, the choice or tuning of "
        "a kernel is the likely cause.",
        "hypothesis.slower": "Kernels or software of the target are the likely cause.",
        "hypothesis.fused": "Operators that are fused only on the reference are the likely cause.",
        "hypothesis.only_in_target": "Another version, setting or lowering on the target is the "
        "likely cause.",
        "caveat.by_place": "The reference runs {reference_name:name} here: matched by place, not "
        "by name.",
        "caveat.by_dimensions": "The reference runs {reference_name:name} here: matched by "
        "dimensions, not by name.",
        "caveat.other_type": "Not like for like: the target computes in {dtype}, the reference in "
        "{reference_dtype}.",
        "caveat.nothing_expected": "It is not known how much of the difference the GPUs explain.",
        "caveat.tiny": "Its roofline is below a microsecond: the call is launch bound, and the "
        "measured times are compared.",
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
        "capture.other_type": "Record both sides in the same type.",
        "capture.slower.place": "Time {name} alone on the target and {reference_name:name} on the "
        "reference: it shows whether the kernels alone are slower there too.",
        "capture.fused": "Record both sides with `with_stack=True` and shapes, so that the calls "
        "at this place can be distinguished.",
    },
)
