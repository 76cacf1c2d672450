"""GPU work: kind and launcher of each GPU event, and the work below an operator."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.core.errors import TooDeepError
from jarvis.core.expressions import first_of
from jarvis.perf_report.communication_names import UNKNOWN, communicates, communication_kind
from jarvis.schemas.names import C
from jarvis.trace import Trace

COMPUTE, COMMUNICATION, COPY = "compute", "communication", "copy"

TRACELENS_COMMUNICATION = r"(?i)rccl|nccl|cross_device_reduce"
"""TraceLens's test of a kernel's name, for its sheets only."""

# Older ROCm profilers record copies as kernels with these names.
_COPY_KERNEL_NAME = (
    r"^(MEMORY_COPY_(HOST_TO_DEVICE|DEVICE_TO_HOST|DEVICE_TO_DEVICE)"
    r"|__amd_rocclr_copyBuffer(Rect)?(Aligned)?)(\.kd)?$"
)
_COPY_NAME = r"^Memcpy |^Copy(Host|Device)To(Host|Device)$"
_IS_COPY = (pl.col(C.cat) == "gpu_memcpy") | (
    (pl.col(C.cat) == "kernel") & pl.col(C.name).str.contains(_COPY_KERNEL_NAME)
)


def _kind(is_copy: pl.Expr, is_communication: pl.Expr) -> pl.Expr:
    return first_of({COPY: is_copy, COMMUNICATION: is_communication}, COMPUTE)


_NAME = pl.col(C.name)
_BY_NAME = communication_kind(_NAME)
_BY_RECORD = pl.when(pl.col(C.collective).is_not_null()).then(pl.lit(UNKNOWN))
KIND = _kind(_IS_COPY, communicates(_BY_NAME.fill_null(_BY_RECORD)))
"""The kind of a GPU event: communication by its name, or by a recorded collective if the table of
names does not have it."""

TRACELENS_KIND = _kind(_IS_COPY, _NAME.str.contains(TRACELENS_COMMUNICATION))
"""The kind of a GPU event as TraceLens has it."""

KIND_BY_NAME = _kind(
    _NAME.str.contains(f"{_COPY_NAME}|{_COPY_KERNEL_NAME}"), communicates(_BY_NAME)
)
"""The kind of a GPU event by its name only."""

_KINDS = pl.Enum([COMPUTE, COMMUNICATION, COPY])

_WORK = (C.name, C.kind, C.stream, C.ts_ns, C.dur_ns, C.launch_uid, C.op_uid, C.launcher_uid)
_TIMELINE = (C.uid, *_WORK, C.bytes, C.linked, C.is_recompute)


ALWAYS_ALLOWED_PAIRS = 100_000
MAX_OWNERS_PER_LAUNCH = 200
"""Maximum average of calls around a launch; recordings have up to 40, including Python frames."""


@dataclass(frozen=True)
class GpuWork:
    """The GPU events of a trace, and their launches in the call tree.

    ``events``: every GPU event in file order with its ``kind``, ``linked``, and for linked ones
    ``launch_uid`` (runtime call), ``op_uid`` (nearest cpu op above it) and ``launcher_uid`` (cpu op
    that counts as the launcher, else the runtime call). ``launches``: a row for each link of a
    runtime call with a GPU event: ``order`` of the call in the tree (sort key), ``link_index``, and
    ``event``, the position in ``events``. With ``counts_unlinked`` the timeline also counts work
    without a recorded launch.
    """

    events: pl.DataFrame
    launches: pl.DataFrame
    call_tree: pl.DataFrame
    counts_unlinked: bool = False

    @property
    def linked(self) -> pl.DataFrame:
        """The GPU events that a host call of the trace launched, without their metadata."""
        return self._timeline.filter(C.linked)

    @property
    def window(self) -> pl.DataFrame:
        """The GPU events of the timeline: the linked ones, or all if none is linked."""
        linked = self.linked
        return self._timeline if self.counts_unlinked or linked.is_empty() else linked

    @property
    def _timeline(self) -> pl.DataFrame:
        return self.events.select(c for c in _TIMELINE if c in self.events.columns)

    def below(self, owners: pl.Series, columns: Sequence[str] = _WORK) -> pl.DataFrame:
        """Return the GPU work launched in the subtree of each host event in ``owners``.

        A GPU event has two rows if it is linked to two runtime calls, and one for each of nested
        owners, so select few columns.

        Returns:
            ``owner_uid, link_index, gpu_uid`` and ``columns`` of ``events``, by link index within
            an owner.

        Raises:
            TooDeepError: There are too many pairs of an owner and a GPU event.
        """
        order = self.launches["order"]
        calls = self.call_tree.select(C.uid, "order", C.subtree_end).filter(
            pl.col(C.uid).is_in(owners.implode())
        )
        spans = pl.DataFrame(
            {
                C.owner_uid: calls[C.uid],
                "first": order.search_sorted(calls["order"]),
                "last": order.search_sorted(calls[C.subtree_end]),
            }
        ).filter(pl.col("first") < pl.col("last"))
        pairs = int((spans["last"].cast(pl.Int64) - spans["first"].cast(pl.Int64)).sum())
        if pairs > max(ALWAYS_ALLOWED_PAIRS, MAX_OWNERS_PER_LAUNCH * self.launches.height):
            raise TooDeepError(pairs)
        pairs_frame = spans.select(
            C.owner_uid, pl.int_ranges("first", "last", dtype=pl.UInt32).alias(C.position)
        ).explode(C.position)
        rows = pairs_frame.select(
            C.owner_uid,
            self.launches[C.link_index].gather(pairs_frame[C.position]).alias(C.link_index),
            event=self.launches["event"].gather(pairs_frame[C.position]),
        ).sort(C.owner_uid, C.link_index, maintain_order=True)
        events = self.events.select(pl.col(C.uid).alias(C.gpu_uid), *columns)
        return rows.drop("event").hstack(events[rows["event"]])


def gpu_work(
    trace: Trace,
    *,
    with_python: bool = False,
    counts_unlinked: bool = False,
    kind: pl.Expr = KIND,
) -> GpuWork:
    """Return the GPU events of a trace joined with the host calls that launched them.

    ``with_python`` uses the call tree that includes Python functions. ``kind`` is KIND or
    TRACELENS_KIND.
    """
    tree = trace.python_call_tree if with_python else trace.call_tree
    calls = tree.select("order", C.op_uid, C.launcher_uid, pl.col(C.uid).alias(C.launch_uid))
    links = trace.launches.select(
        C.link_index, C.gpu_uid, pl.col(C.runtime_uid).alias(C.launch_uid)
    ).join(calls, on=C.launch_uid)
    # If an event is linked to two calls, the later one is its parent.
    parents = links.sort(C.link_index).unique(C.gpu_uid, keep="last").drop(C.link_index, "order")
    timed = trace.gpu_events.drop_nulls([C.ts_ns, C.dur_ns])
    places = (
        timed.select(pl.col(C.uid).alias(C.gpu_uid))
        .join(parents, on=C.gpu_uid, how="left", maintain_order="left")
        .select(
            C.launch_uid,
            C.op_uid,
            pl.coalesce(C.launcher_uid, C.launch_uid).alias(C.launcher_uid),
            pl.col(C.launch_uid).is_not_null().alias(C.linked),
        )
    )
    launches = links.join(
        timed.select(pl.col(C.uid).alias(C.gpu_uid), event=pl.int_range(pl.len(), dtype=pl.UInt32)),
        on=C.gpu_uid,
    ).select("order", C.link_index, "event")
    # Negative durations count as 0; trace health reports them.
    duration = pl.col(C.dur_ns).clip(lower_bound=0)
    events = timed.with_columns(duration, kind.cast(_KINDS).alias(C.kind)).hstack(places)
    return GpuWork(
        events, launches.sort("order", C.link_index, maintain_order=True), tree, counts_unlinked
    )
