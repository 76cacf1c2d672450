"""Columns of a report that compares its trace with another one."""

from dataclasses import replace

from jarvis.schemas.columns import ARGUMENTS, count, integer, names, number, text
from jarvis.schemas.names import C

_LCA = "lowest call that both traces have in common above GPU work"
COMPARED = (
    number(
        C.time_ratio,
        "speedup (trace2/trace1)",
        "",
        "kernel time of the compared trace / that of this one, for the same part of the call tree; "
        "a ratio of times: above 1 the compared trace is slower",
        optional=True,
    ),
    number(
        C.time_difference_us,
        "delta_us (trace2 - trace1)",
        "µs",
        "that kernel time of the compared trace minus the GPU busy time of the row",
        optional=True,
    ),
    replace(
        count(
            C.lca_count_trace2,
            "lca_count_trace2",
            "number of these parts of the call tree with GPU work in the compared trace",
        ),
        optional=True,
    ),
    text(
        C.lca_id,
        "lca_id",
        f"their numbers: each is a {_LCA}; for GPU work in both traces the work itself",
        optional=True,
    ),
    text(C.lca_name, "lca_name", "their names, each once", optional=True),
    *(
        number(
            f"lca_kernel_time_us_trace{which}",
            f"lca_total_kernel_time_trace{which}_us",
            "µs",
            f"sum of their GPU events in {trace}, possibly including parts of other rows",
            optional=True,
        )
        for which, trace in ((1, "this trace"), (2, "the compared trace"))
    ),
)
DIFF_STATS = (
    text(C.name, "name", "name of the GPU event"),
    text(C.cpu_op_name, "cpu_op_name", "nearest operator above its launch"),
    integer(C.cpu_op_uid, "cpu_op_uid", "position of that operator in its trace"),
    text(C.source, "source", "trace1 (this trace) or trace2 (the compared one)"),
    ARGUMENTS[0],
    ARGUMENTS[2],
    ARGUMENTS[1],
    ARGUMENTS[3],
    number(C.kernel_time_us, "kernel_time", "µs", "duration of the GPU event"),
    number(
        C.busy_time_us,
        "busy_time",
        "µs",
        "GPU busy time of all events of its trace with this lowest common ancestor",
    ),
    text(
        C.lca_name,
        "lowest_common_ancestor_name",
        f"{_LCA}, without line numbers; both names if they differ",
    ),
    integer(
        C.lca_id,
        "lowest_common_ancestor_id",
        "its number among all that the traces have in common, in order of calls",
    ),
    integer(C.gpu_op_uid, "gpu_op_uid", "position of the event in its trace"),
    names(
        C.nn_module_stack,
        "nn_module_stack",
        "modules above the launch, outermost first; root if there are none",
    ),
    text(C.nn_module_parent, "nn_module_parent", "innermost of these modules"),
)
