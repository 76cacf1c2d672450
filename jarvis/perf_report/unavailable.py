"""Tables that a report cannot fill which was read in place of a trace, and how that is said."""

from collections.abc import Iterable, Mapping

ABSENT = {
    "gpu_work": "single kernels and when they ran",
    "memory_copies": "copies by direction",
    "collectives": "single collectives",
    "idle_gaps": "idle gaps",
    "host_threads": "what the host does",
    "host_slices": "what the host does",
    "host_bins": "what the host does",
    "call_tree": "the call tree",
    "call_tree_operations": "the call tree",
    "other_definitions": "what other tools say of this trace",
    "fusion_chains": "the order of operators",
    "fusion_steps": "the order of operators",
    "attention_groups": "the order of operators",
    "attention_steps": "the order of operators",
    "roofline_calls": "times of single calls",
}
"""The tables that a report cannot fill, and what they would tell."""


def unavailable_reason(absent: Mapping[str, str], tables: Iterable[str]) -> str | None:
    """A sentence about what these tables would tell; None where none of them is ``absent``."""
    things = list(dict.fromkeys(absent[table] for table in tables if table in absent))
    if not things:
        return None
    return f"Not in a TraceLens report: {', '.join(things)}. Analyze the trace itself to see this."
