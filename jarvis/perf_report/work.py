"""GPU work: kind and launcher of each GPU event, and the work below an operator."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.core.errors import TooDeepError
from jarvis.trace import Trace

COMPUTE, COMMUNICATION, COPY = "compute", "communication", "copy"

_COMMUNICATION_NAME = r"(?i)rccl|nccl|cross_device_reduce"
# Older ROCm profilers record copies as kernels with these names.
_COPY_KERNEL_NAME = (
    r"^(MEMORY_COPY_(HOST_TO_DEVICE|DEVICE_TO_HOST|DEVICE_TO_DEVICE)"
    r"|__amd_rocclr_copyBuffer(Rect)?(Aligned)?)(\.kd)?$"
)
_COPY_NAME = r"^Memcpy |^Copy(Host|Device)To(Host|Device)$"
_IS_COPY = (pl.col("cat") == "gpu_memcpy") | (
    (pl.col("cat") == "kernel") & pl.col("name").str.contains(_COPY_KERNEL_NAME)
)
KIND = (
    pl.when(_IS_COPY)
    .then(pl.lit(COPY))
    .when(pl.col("name").str.contains(_COMMUNICATION_NAME))
    .then(pl.lit(COMMUNICATION))
    .otherwise(pl.lit(COMPUTE))
)
KIND_BY_NAME = (
    pl.when(pl.col("name").str.contains(f"{_COPY_NAME}|{_COPY_KERNEL_NAME}"))
    .then(pl.lit(COPY))
    .when(pl.col("name").str.contains(_COMMUNICATION_NAME))
    .then(pl.lit(COMMUNICATION))
    .otherwise(pl.lit(COMPUTE))
)
"""The kind of a GPU event by its name only."""

_KINDS = pl.Enum([COMPUTE, COMMUNICATION, COPY])

_WORK = ("name", "kind", "stream", "ts_ns", "dur_ns", "launch_uid", "op_uid", "launcher_uid")
_TIMELINE = ("uid", *_WORK, "bytes", "linked", "is_recompute")


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
        return self._timeline.filter("linked")

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
        calls = self.call_tree.select("uid", "order", "subtree_end").filter(
            pl.col("uid").is_in(owners.implode())
        )
        spans = pl.DataFrame(
            {
                "owner_uid": calls["uid"],
                "first": order.search_sorted(calls["order"]),
                "last": order.search_sorted(calls["subtree_end"]),
            }
        ).filter(pl.col("first") < pl.col("last"))
        pairs = int((spans["last"].cast(pl.Int64) - spans["first"].cast(pl.Int64)).sum())
        if pairs > max(ALWAYS_ALLOWED_PAIRS, MAX_OWNERS_PER_LAUNCH * self.launches.height):
            raise TooDeepError(pairs)
        pairs_frame = spans.select(
            "owner_uid", position=pl.int_ranges("first", "last", dtype=pl.UInt32)
        ).explode("position")
        rows = pairs_frame.select(
            "owner_uid",
            link_index=self.launches["link_index"].gather(pairs_frame["position"]),
            event=self.launches["event"].gather(pairs_frame["position"]),
        ).sort("owner_uid", "link_index")
        events = self.events.select(pl.col("uid").alias("gpu_uid"), *columns)
        return rows.drop("event").hstack(events[rows["event"]])


def gpu_work(trace: Trace, *, with_python: bool = False, counts_unlinked: bool = False) -> GpuWork:
    """Return the GPU events of a trace joined with the host calls that launched them.

    ``with_python`` uses the call tree that includes Python functions.
    """
    tree = trace.python_call_tree if with_python else trace.call_tree
    calls = tree.select("order", "op_uid", "launcher_uid", launch_uid="uid")
    links = trace.launches.select("link_index", "gpu_uid", launch_uid="runtime_uid").join(
        calls, on="launch_uid"
    )
    # If an event is linked to two calls, the later one is its parent.
    parents = links.sort("link_index").unique("gpu_uid", keep="last").drop("link_index", "order")
    timed = trace.gpu_events.drop_nulls(["ts_ns", "dur_ns"])
    places = (
        timed.select(gpu_uid="uid")
        .join(parents, on="gpu_uid", how="left", maintain_order="left")
        .select(
            "launch_uid",
            "op_uid",
            launcher_uid=pl.coalesce("launcher_uid", "launch_uid"),
            linked=pl.col("launch_uid").is_not_null(),
        )
    )
    launches = links.join(
        timed.select(gpu_uid="uid", event=pl.int_range(pl.len(), dtype=pl.UInt32)), on="gpu_uid"
    ).select("order", "link_index", "event")
    # Negative durations count as 0; trace health reports them.
    duration = pl.col("dur_ns").clip(lower_bound=0)
    events = timed.with_columns(duration, kind=KIND.cast(_KINDS)).hstack(places)
    return GpuWork(events, launches.sort("order", "link_index"), tree, counts_unlinked)
