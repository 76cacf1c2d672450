"""Tables that an imported report cannot provide, and the messages about them."""

from collections.abc import Iterable, Mapping

ABSENT = {
    "gpu_work": "single kernels and when they ran",
    "memory_copies": "copies by direction",
    "collectives": "single collectives",
    "idle_gaps": "idle gaps",
    "timeline_states": "what the GPU did when",
    "steps": "single steps",
    "step_gaps": "single steps",
    "host_threads": "host activity",
    "host_slices": "host activity",
    "host_bins": "host activity",
    "call_tree": "the call tree",
    "call_tree_operations": "the call tree",
    "other_definitions": "values of other tools",
    "fusion_chains": "the order of operators",
    "fusion_steps": "the order of operators",
    "attention_groups": "the order of operators",
    "attention_steps": "the order of operators",
    "roofline_calls": "times of single calls",
}
"""Tables that an imported report lacks, with a description of their content."""


def unavailable_reason(absent: Mapping[str, str], tables: Iterable[str]) -> str | None:
    """Return a sentence about those of ``tables`` that are ``absent``; None if none is."""
    things = list(dict.fromkeys(absent[table] for table in tables if table in absent))
    if not things:
        return None
    return f"Not in a TraceLens report: {', '.join(things)}. Analyze the trace itself to see this."
