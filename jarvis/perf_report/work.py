"""GPU work: what kind each GPU event is, who launched it, and what runs below an operator."""

from dataclasses import dataclass

import polars as pl

from jarvis.trace import Trace

COMPUTE, COMMUNICATION, COPY = "compute", "communication", "copy"

_COMMUNICATION_NAME = r"(?i)rccl|nccl|cross_device_reduce"
# Older ROCm profilers record copies as kernels with these names.
_COPY_KERNEL_NAME = (
    r"^(MEMORY_COPY_(HOST_TO_DEVICE|DEVICE_TO_HOST|DEVICE_TO_DEVICE)"
    r"|__amd_rocclr_copyBuffer(Rect)?(Aligned)?)(\.kd)?$"
)
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


@dataclass(frozen=True)
class GpuWork:
    """The GPU events of a trace, and where in the call tree they were launched.

    ``events``: every GPU event in file order with its ``kind``, ``linked``, and for linked ones
    ``launch_uid`` (runtime call), ``op_uid`` (nearest cpu op above it) and ``launcher_uid`` (cpu op
    that counts as the launcher, else the runtime call itself). ``launches``: a row for each link
    of a runtime call with a GPU event, by ``order`` of the call in the tree. With
    ``counts_unlinked`` the timeline counts work without a recorded launch too.
    """

    events: pl.DataFrame
    launches: pl.DataFrame
    call_tree: pl.DataFrame
    counts_unlinked: bool = False

    @property
    def linked(self) -> pl.DataFrame:
        """The GPU events that a host call of the trace launched."""
        return self.events.filter("linked")

    @property
    def window(self) -> pl.DataFrame:
        """The GPU events that the timeline counts: the linked ones, or all if none is linked."""
        linked = self.linked
        return self.events if self.counts_unlinked or linked.is_empty() else linked

    def below(self, owners: pl.Series) -> pl.DataFrame:
        """GPU work launched in the subtree of each host event in ``owners``.

        Returns ``owner_uid, link_index`` and the columns of ``events``, by link index within an
        owner; a GPU event stands twice where two runtime calls claim it.
        """
        order = self.launches["order"]
        rows = self.call_tree.filter(pl.col("uid").is_in(owners.implode()))
        spans = pl.DataFrame(
            {
                "owner_uid": rows["uid"],
                "first": order.search_sorted(rows["order"]).cast(pl.Int64),
                "last": order.search_sorted(rows["subtree_end"]).cast(pl.Int64),
            }
        )
        return (
            spans.filter(pl.col("first") < pl.col("last"))
            .select("owner_uid", position=pl.int_ranges("first", "last"))
            .explode("position")
            .join(self.launches.with_row_index("position").cast({"position": pl.Int64}), "position")
            .drop("position", "order")
            .sort("owner_uid", "link_index")
        )


def gpu_work(trace: Trace, *, with_python: bool = False, counts_unlinked: bool = False) -> GpuWork:
    """The GPU events of a trace joined with the host calls that launched them.

    ``with_python`` takes the call tree that includes Python functions.
    """
    tree = trace.python_call_tree if with_python else trace.call_tree
    calls = tree.select("order", "op_uid", "launcher_uid", launch_uid="uid")
    links = trace.launches.select("link_index", "gpu_uid", launch_uid="runtime_uid").join(
        calls, on="launch_uid"
    )
    # Where two calls claim an event, the later one is its parent.
    parents = links.sort("link_index").unique("gpu_uid", keep="last").drop("link_index", "order")
    events = (
        trace.gpu_events.drop_nulls(["ts_ns", "dur_ns"])
        .with_columns(kind=KIND)
        .join(parents, left_on="uid", right_on="gpu_uid", how="left", maintain_order="left")
        .with_columns(
            linked=pl.col("launch_uid").is_not_null(),
            launcher_uid=pl.coalesce("launcher_uid", "launch_uid"),
        )
    )
    launches = (
        links.select("link_index", "order", "gpu_uid")
        .join(events, left_on="gpu_uid", right_on="uid")
        .sort("order", "link_index")
    )
    return GpuWork(events, launches, tree, counts_unlinked)
