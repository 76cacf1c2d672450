"""Compare our values with those of other tools for this trace, with the reason for each difference.

The table ``other_definitions`` has a row for each quantity of a tool. If a tool has a quantity, but
no value for this trace, the value is empty and the reason explains it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import polars as pl

from jarvis.perf_report.timeline.gpu import Totals, totals
from jarvis.perf_report.timeline.other_tools import OtherTools, ToolFigures
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace


class Tool(StrEnum):
    """Tools whose values are computed, with the settings that change them."""

    TRACELENS = "TraceLens"
    TRACELENS_UNLINKED = "TraceLens --include_unlinked_kernels"
    HTA = "HTA"
    HTA_EXACT = "HTA, HTA_DISABLE_NS_ROUNDING=1"
    TENSORBOARD = "TensorBoard plugin"
    GPU_IDLE = "gpu-idle"


class Quantity(StrEnum):
    """Measured quantities."""

    TIME = "GPU time"
    BUSY = "GPU busy"
    IDLE = "GPU idle"
    STREAM_IDLE = "Idle time of streams"
    COMPUTE = "Compute"
    COMMUNICATION = "Exposed communication"
    HIDDEN = "Hidden communication"


_UNITS = dict.fromkeys(Quantity, "ms") | {Quantity.BUSY: "%", Quantity.HIDDEN: "%"}

_SAME = dict.fromkeys(
    (Quantity.TIME, Quantity.BUSY, Quantity.IDLE, Quantity.COMPUTE, Quantity.COMMUNICATION),
    "Same definition: GPU work that host calls of the trace launched; memory fills are compute.",
)
_ALL = "Counts the same GPU work."
_UNLINKED = "Also counts GPU work whose launch is not recorded."
_LAST_STEP = "Counts GPU work that was launched before the last step mark begins."
_ROUNDING = "Rounds starts up and ends down to whole µs, so every kernel gets shorter."
_BY_STREAM = (
    "Adds up the gaps of each stream separately: a stream that waits while another one runs counts "
    "as idle. Our value is the time in which no stream runs."
)
_NEGATIVE = (
    "Not computable: it rounds starts up and ends down to whole µs, so very short kernels end "
    "before they start, and it stops with an error because the parts do not add up."
)
_COMPILED_CALLS = "Not computed: it treats host calls of compiled kernels as GPU work."
_EACH_GPU = "Not computed: it has a separate value for each GPU."


@dataclass(frozen=True, slots=True)
class _Row:
    quantity: Quantity
    tool: Tool
    value: float | None
    unit: str
    ours: float | None
    reason: str


def other_definitions(trace: Trace, work: GpuWork, ours: Totals) -> pl.DataFrame:
    """Return the rows (schema: ``other_definitions``) by quantity and tool; none without GPU work.

    ``ours`` are the totals of ``work``.
    """
    schema = {C.quantity: pl.String, C.tool: pl.String, C.value: pl.Float64}
    schema |= {C.unit: pl.String, C.ours: pl.Float64, C.reason: pl.String}
    if work.window.is_empty():
        return pl.DataFrame(schema=schema)
    order = list(Quantity)
    rows = sorted(_rows(OtherTools(trace), work, ours), key=lambda row: order.index(row.quantity))
    return pl.DataFrame([asdict(row) for row in rows], schema=schema)


def _rows(tools: OtherTools, work: GpuWork, ours: Totals) -> Iterator[_Row]:
    own = _by_quantity(_of_totals(ours))
    for tool, figures, reasons in _by_tool(tools, work, ours):
        values = _by_quantity(figures)
        for quantity, reason in reasons.items():
            value = own[Quantity.IDLE if quantity is Quantity.STREAM_IDLE else quantity]
            if value is not None:
                yield _Row(quantity, tool, values[quantity], _UNITS[quantity], value, reason)


def _by_tool(
    tools: OtherTools, work: GpuWork, ours: Totals
) -> Iterator[tuple[Tool, ToolFigures, dict[Quantity, str]]]:
    """Yield each tool with its values and the reasons for differences."""
    yield Tool.TRACELENS, _of_totals(ours), _SAME
    has_unlinked = work.window.height < work.events.height
    if has_unlinked:
        everything = totals(replace(work, counts_unlinked=True))
        reasons = dict.fromkeys(_SAME, _UNLINKED)
        yield Tool.TRACELENS_UNLINKED, _of_totals(everything), reasons
    events = _LAST_STEP if tools.is_cut_to_steps else _UNLINKED if has_unlinked else _ALL
    exact = tools.hta(is_rounded=False)
    if tools.has_fine_clock:
        figures = tools.hta()
        yield Tool.HTA, figures, _of_hta(tools, figures, f"{events} {_ROUNDING}")
        yield Tool.HTA_EXACT, exact, _of_hta(tools, exact, events)
    else:
        yield Tool.HTA, exact, _of_hta(tools, exact, events)
    plugin = tools.tensorboard()
    yield Tool.TENSORBOARD, plugin, _of_tensorboard(tools, plugin)
    idle = tools.gpu_idle()
    yield Tool.GPU_IDLE, idle, _of_gpu_idle(idle)


def _by_quantity(figures: ToolFigures) -> dict[Quantity, float | None]:
    return {
        Quantity.TIME: figures.time_ms,
        Quantity.BUSY: figures.busy_pct,
        Quantity.IDLE: figures.idle_ms,
        Quantity.STREAM_IDLE: figures.stream_idle_ms,
        Quantity.COMPUTE: figures.compute_ms,
        Quantity.COMMUNICATION: figures.communication_ms,
        Quantity.HIDDEN: figures.hidden_communication_pct,
    }


def _of_totals(parts: Totals) -> ToolFigures:
    """Return our values, which are also TraceLens's."""
    comm_ms = parts.total_comm_time_ms
    return ToolFigures(
        time_ms=parts.total_time_ms,
        busy_pct=parts.busy_pct,
        idle_ms=parts.idle_time_ms,
        compute_ms=parts.compute_time_ms,
        communication_ms=parts.exposed_comm_time_ms,
        hidden_communication_pct=100 * (1 - parts.exposed_comm_time_ms / comm_ms)
        if comm_ms > 0
        else None,
    )


def _of_hta(tools: OtherTools, figures: ToolFigures, scope: str) -> dict[Quantity, str]:
    """Return the reasons for HTA's values; ``scope`` describes the events that it counts."""
    reasons = {
        Quantity.TIME: scope,
        Quantity.BUSY: scope,
        Quantity.IDLE: scope,
        Quantity.COMPUTE: f"{scope} Memory fills are not compute.",
        Quantity.COMMUNICATION: f"{scope} It has one value for everything except compute: exposed "
        "communication, copies and fills.",
        Quantity.HIDDEN: scope,
    }
    if tools.has_compiled_calls:
        reasons = dict.fromkeys(reasons, _COMPILED_CALLS)
    elif figures.time_ms is None:
        reasons = dict.fromkeys(reasons, _NEGATIVE) | {Quantity.HIDDEN: scope}
    return reasons | {Quantity.STREAM_IDLE: f"{scope} {_BY_STREAM}"}


def _of_tensorboard(tools: OtherTools, figures: ToolFigures) -> dict[Quantity, str]:
    quantities = (Quantity.TIME, Quantity.BUSY, Quantity.COMPUTE, Quantity.COMMUNICATION)
    if figures.time_ms is None:
        return dict.fromkeys(
            quantities, "Not computable: the trace has neither steps nor operators."
        )
    if tools.steps.is_empty():
        window = "the first operator to the last, because no step is marked"
        base = f"From {window}."
    else:
        window = "the first step mark to the last"
        base = "Mean over step marks, both on the host and on the GPU."
    busy = f"Kernels only, without copies and fills, in percent of the time from {window}."
    return {
        Quantity.TIME: base,
        Quantity.BUSY: _EACH_GPU if figures.busy_pct is None else busy,
        Quantity.COMPUTE: f"{base} Includes communication kernels, unless an operator in a fixed "
        "list of names launched them.",
        Quantity.COMMUNICATION: f"{base} Only work that operators in a fixed list of names launch "
        "and that no other GPU work overlaps.",
    }


def _of_gpu_idle(figures: ToolFigures) -> dict[Quantity, str]:
    quantities = (Quantity.TIME, Quantity.BUSY, Quantity.COMPUTE)
    if figures.time_ms is None:
        return dict.fromkeys(quantities, "Not computable: the trace has no steps on the host.")
    window = "the start of the first step on the host to the end of the last on host or GPU"
    return {
        Quantity.TIME: f"From {window}.",
        Quantity.BUSY: f"Kernels only, without copies and fills, in percent of the time from "
        f"{window}.",
        Quantity.COMPUTE: "All kernels that start within the steps, including communication.",
    }
