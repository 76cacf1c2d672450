"""What must hold in a trace for an action to make sense: facts, each derived from tables.

A precondition is the name of a fact, or ``not`` and the name; in parentheses it may have the uids
of the operations, or the direction of the copies, that it is about. Messages of findings carry
their preconditions. The runner of the analyses drops the actions that do not hold, ``jarvis
validate`` checks the stored ones. Of an unknown fact, neither the name nor ``not`` and the name
holds.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import orjson
import polars as pl

from jarvis.core.errors import ReplayError
from jarvis.core.literals import parse_literal
from jarvis.recorded_calls.calls import replay_ir
from jarvis.schemas.names import C
from jarvis.schemas.rows import RowsByUid

Tables = Callable[[str], pl.DataFrame | None]
"""Return a table of the report by name; None if it is not available."""

GRAPH_LAUNCH = "(?i)graphlaunch"
"""Pattern of the calls that replay a GPU graph."""

PAGEABLE = "Pageable"
"""The profiler's name for host memory that is not pinned."""

CLONE = r"aten::(_to_copy|clone|contiguous|_reshape_copy)$"
"""Pattern of the operators that duplicate a tensor."""

LATE_PCT = 10.0
"""Communication starts late if compute runs beside less than this share of it."""

MAX_PAUSE_NS = 100_000
"""Collectives of one stream with shorter pauses are queued one after the other."""

PINNED = "Pinned"

SCALAR_BYTES = 16
"""Maximum size of a single value: a complex number of double precision."""

REDUCTION = "(?i)reduce"
"""Pattern of collectives that add up what the ranks send: all-reduce, reduce-scatter, reduce."""

COMPILED_KERNEL = r"(?:^|->)triton_(?:poi|red|per|tem|for)_"
"""Pattern of the kernels that PyTorch's compiler generates, by its name prefixes."""

COMPILED_REGION = r"^Torch-Compiled Region: (\d+/\d+)"
"""Pattern of the annotation of compiled code: the number of the function, or of the part of it
after a graph break, and that of its compilation."""

PRODUCT = "GEMM"
"""Op category of matrix products."""

CHECKPOINT = r"CheckpointFunction|torch/utils/checkpoint"
"""Pattern of the calls that recompute activations in the backward pass."""

WORKERS, NO_WORKERS = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
"""PyTorch's annotations of a fetch from a data loader, with and without worker processes."""

HOST_READ = r"_local_scalar_dense|::item\b|is_nonzero"
"""Pattern of the operators by which the host reads a value: ``item``, a condition on a tensor."""

SWAPS_HEADS = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
)
"""Operators on [batch, heads, queries, size] whose kernel takes views of [batch, queries, ...]."""

BARRIER = "(?i)barrier"

LARGE_MESSAGE_BYTES = 1e6
"""For messages from this size on, bandwidth determines the transfer time, not latency."""

ENGINE = "engine"
"""Source of the steps that an inference engine marks."""

BYTES_PER_MIB = 2**20
OPERATOR_MARK = "::"
STEP_PREFIX = "ProfilerStep#"
SEVERAL_STEPS = 3

_PRECONDITION = re.compile(
    r"(?P<no>not )?(?P<name>\w+)(?:\((?:(?P<uids>\d+(?: \d+)*)|(?P<to>\w+))\))?"
)
_STREAM = (C.device, C.stream)


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a finding: rows of the operations table, or copies in one direction."""

    uids: tuple[int, ...] = ()
    direction: str | None = None


@dataclass(frozen=True)
class Facts:
    """The facts of one trace, each derived once.

    ``at_all_targets`` has those that do not name the subject of a finding, which can be thousands
    of operations: a caller may reuse them for other findings of the trace.
    """

    tables: Tables
    at_all_targets: dict[tuple[str, tuple[Subject, ...]], bool | None] = field(default_factory=dict)
    _known: dict[tuple[str, tuple[Subject, ...]], bool | None] = field(default_factory=dict)

    def hold(self, needs: Iterable[str], subject: Subject) -> bool:
        """Return whether all preconditions hold for a finding with this subject.

        Raises:
            ValueError: A precondition does not name a fact.
        """
        return all(self._holds(need, subject) for need in needs)

    def _holds(self, need: str, subject: Subject) -> bool:
        found = _PRECONDITION.fullmatch(need)
        if found is None or found["name"] not in FACTS:
            raise ValueError(f"{need!r} does not name a fact")
        name, arguments, known = found["name"], tuple[Subject, ...](), self.at_all_targets
        if name in OF_SUBJECT:
            is_other = found["uids"] or found["to"]
            known = self.at_all_targets if is_other else self._known
            uids = tuple(map(int, (found["uids"] or "").split()))
            arguments = (Subject(uids, found["to"]) if is_other else subject,)
        if (name, arguments) not in known:
            known[name, arguments] = FACTS[name](self, *arguments)
        return known[name, arguments] is (not found["no"])

    def table(self, name: str, *columns: str) -> pl.DataFrame:
        """Return these columns of a table; without rows if the table or a column is missing."""
        found = self.tables(name)
        if found is None or not set(columns) <= set(found.columns):
            return pl.DataFrame(schema=dict.fromkeys(columns, pl.Null))
        return found.select(columns)

    def operations(self, subject: Subject) -> list[dict[str, Any]]:
        """Return the rows of a subject in the table ``operations``."""
        return [] if self._operations is None else self._operations.of(subject.uids).to_dicts()

    @cached_property
    def _operations(self) -> RowsByUid | None:
        operations = self.tables("operations")
        return None if operations is None else RowsByUid(operations)

    def has(self, name: str, condition: pl.Expr) -> bool:
        """Return whether a row of a table meets a condition."""
        rows = self.table(name, *dict.fromkeys(condition.meta.root_names()))
        return rows.height > 0 and not rows.filter(condition).is_empty()


def has_stacks(facts: Facts) -> bool:
    """Python frames are recorded: an operation has modules or an entry point, or a thread time in
    Python (tables ``operations``, ``host_threads``)."""
    has_modules = pl.col(C.module_path).list.len() > 0
    return (
        facts.has("operations", pl.col(C.entry_point).is_not_null())
        or facts.has("operations", has_modules)
        or facts.has("host_threads", pl.col(C.python_ns) > 0)
    )


def has_shapes(facts: Facts) -> bool:
    """Shapes of arguments are recorded: an operation has some (table ``operations``)."""
    return facts.has("operations", pl.col(C.input_dims).is_not_null())


def has_host_calls(facts: Facts) -> bool:
    """Host calls are recorded: one of them launched GPU work, or an operation is an operator of the
    framework (tables ``gpu_work``, ``operations``)."""
    is_operator = pl.col(C.name).str.contains(OPERATOR_MARK, literal=True)
    return facts.has("gpu_work", pl.col(C.linked)) or facts.has("operations", is_operator)


def has_several_steps(facts: Facts) -> bool:
    """At least {SEVERAL_STEPS} steps are marked, as the profiler's ``step()`` does (table
    ``host_slices``)."""
    names = facts.table("host_slices", C.name).cast(pl.String)[C.name]
    return names.filter(names.str.starts_with(STEP_PREFIX)).n_unique() >= SEVERAL_STEPS


def is_served(facts: Facts) -> bool:
    """An inference engine marks the steps, so its options decide what is recorded (table
    ``steps``)."""
    return facts.has("steps", pl.col(C.source) == ENGINE)


def has_backward(facts: Facts) -> bool | None:
    """A backward pass runs: an operation has that direction; unknown without host calls (table
    ``operations``)."""
    is_known = has_host_calls(facts)
    return facts.has("operations", pl.col(C.direction) == "backward") if is_known else None


def has_checkpointing(facts: Facts) -> bool:
    """Activations are recomputed: a call of activation checkpointing is recorded (table
    ``call_tree``)."""
    return facts.has("call_tree", pl.col(C.name).str.contains(CHECKPOINT))


def has_clones(facts: Facts) -> bool:
    """Operators that duplicate tensors launch GPU work (table ``call_tree``)."""
    return facts.has("call_tree", pl.col(C.name).str.contains(CLONE))


def has_compiled_code(facts: Facts) -> bool:
    """Kernels of PyTorch's compiler run, by their name prefix (table ``operations``)."""
    return facts.has("operations", pl.col(C.name).str.contains(COMPILED_KERNEL))


def has_several_compiled_regions(facts: Facts) -> bool | None:
    """Graph breaks or recompilations divide the compiled code: the annotations number several
    regions; unknown without these annotations (table ``host_slices``)."""
    names = facts.table("host_slices", C.name).cast(pl.String)[C.name]
    regions = names.str.extract(COMPILED_REGION).drop_nulls().n_unique()
    return regions > 1 if regions else None


def runs_next_to_products(facts: Facts, subject: Subject) -> bool:
    """Most GPU work of the operations has a matrix product right before or after it on its stream
    (tables ``gpu_work``, ``operations``)."""
    products = facts.table("operations", C.uid, C.op_category)
    uids = products.filter(pl.col(C.op_category) == PRODUCT)[C.uid]
    is_product = pl.col(C.operation_uid).is_in(uids.implode()).fill_null(value=False)
    work = facts.table("gpu_work", *_STREAM, C.ts_ns, C.operation_uid).sort(*_STREAM, C.ts_ns)
    is_near = pl.any_horizontal(is_product.shift(n).over(_STREAM) for n in (1, -1))
    own = work.with_columns(is_near=is_near.fill_null(value=False)).filter(
        pl.col(C.operation_uid).is_in(subject.uids)
    )
    return own.height > 0 and bool(2 * own["is_near"].sum() > own.height)


def attention_reads_strides(facts: Facts, subject: Subject) -> bool:
    """The trace shows that the attention kernel reads strided tensors: the operator passes it views
    with heads and queries swapped, of a query that is contiguous (table ``operations``)."""
    return any(
        row[C.name] in SWAPS_HEADS and _is_contiguous_query(row)
        for row in facts.operations(subject)
    )


def _is_contiguous_query(row: Mapping[str, Any]) -> bool:
    """Return whether the first argument is [batch, heads, queries, size] in this memory order."""
    shapes, strides = map(parse_literal, (row[C.input_dims], row[C.input_strides]))
    if not shapes or not strides or not len(shapes[0]) == len(strides[0]) == 4:
        return False
    _, heads, queries, size = shapes[0]
    return min(heads, queries) > 1 and tuple(strides[0][1:]) == (queries * size, size, 1)


def has_graph_replay(facts: Facts) -> bool | None:
    """GPU graphs are replayed: a graph launch replays GPU work, or the launcher of GPU work or the
    name of an operation is such a call; unknown without host calls (tables ``inference_events``,
    ``gpu_work``, ``operations``)."""
    if facts.has("inference_events", replayed()):
        return True
    sources = {"gpu_work": C.launcher_name, "operations": C.name}
    if any(facts.has(t, pl.col(name).str.contains(GRAPH_LAUNCH)) for t, name in sources.items()):
        return True
    return False if has_host_calls(facts) else None


def has_loader_workers(facts: Facts) -> bool:
    """The data loader has worker processes, by its annotation (tables ``operations``,
    ``idle_gaps``, ``host_slices``)."""
    return _is_called(facts, WORKERS)


def has_loader_without_workers(facts: Facts) -> bool:
    """The data loader has no worker processes, by its annotation (tables ``operations``,
    ``idle_gaps``, ``host_slices``)."""
    return _is_called(facts, NO_WORKERS)


def has_host_reads(facts: Facts) -> bool:
    """The host reads values of tensors, as ``.item()`` and conditions on tensors do (tables
    ``operations``, ``idle_gaps``, ``host_slices``)."""
    return _is_called(facts, HOST_READ)


def has_barriers(facts: Facts) -> bool:
    """A barrier is recorded (tables ``operations``, ``idle_gaps``, ``host_slices``)."""
    return _is_called(facts, BARRIER)


def _is_called(facts: Facts, pattern: str) -> bool:
    columns = {
        "operations": (C.name,),
        "idle_gaps": (C.host_call, C.host_op),
        "host_slices": (C.name,),
    }
    return any(
        facts.has(table, pl.col(column).str.contains(pattern))
        for table, named in columns.items()
        for column in named
    )


def has_several_streams(facts: Facts) -> bool:
    """GPU work runs on at least two streams of one device (table ``gpu_work``)."""
    streams = facts.table("gpu_work", *_STREAM).drop_nulls().unique()
    return bool(streams[C.device].is_duplicated().any())


def communication_shares_compute_stream(facts: Facts) -> bool | None:
    """Communication runs on a stream that also computes; unknown without single GPU events (table
    ``gpu_work``)."""
    return _share_compute_stream(facts, pl.col(C.kind) == "communication", C.kind)


def copies_share_compute_stream(facts: Facts, subject: Subject) -> bool | None:
    """Copies in the direction of the finding run on a stream that also computes; unknown without
    single GPU events (table ``gpu_work``)."""
    return _share_compute_stream(facts, _is_copy(subject), C.kind, C.direction)


def _share_compute_stream(facts: Facts, condition: pl.Expr, *columns: str) -> bool | None:
    work = facts.table("gpu_work", *_STREAM, *columns)
    if work.is_empty():
        return None
    computing = work.filter(pl.col(C.kind) == "compute").select(_STREAM)
    return not work.filter(condition).join(computing, on=_STREAM, how="semi").is_empty()


def copies_are_pageable(facts: Facts, subject: Subject) -> bool:
    """A copy in the direction of the finding reads or writes pageable host memory, by its name
    (table ``gpu_work``)."""
    is_pageable = (pl.col(C.src_kind) == PAGEABLE) | (pl.col(C.dst_kind) == PAGEABLE)
    return facts.has("gpu_work", _is_copy(subject) & is_pageable)


def _is_copy(subject: Subject) -> pl.Expr:
    """Return whether an event of ``gpu_work`` is a copy in the subject's direction, if it has
    one."""
    is_copy = pl.col(C.kind) == "copy"
    if subject.direction is None:
        return is_copy
    return is_copy & (pl.col(C.direction) == subject.direction)


def is_reduction_collective(facts: Facts) -> bool | None:
    """Most communication time is in collectives that reduce, by kind, else by the kernel's name;
    unknown without single collectives (table ``collectives``)."""
    kind = pl.coalesce(C.collective, C.name)
    return _is_most_communication(facts, kind.str.contains(REDUCTION))


def reduces_gradients(facts: Facts) -> bool | None:
    """A backward pass runs, and most communication time is in collectives that reduce; unknown if
    one is not known and the other holds (tables ``operations``, ``collectives``)."""
    parts = has_backward(facts), is_reduction_collective(facts)
    return None if None in parts and False not in parts else all(parts)


def communication_starts_late(facts: Facts) -> bool | None:
    """Compute runs beside less than {LATE_PCT:.0f}% of most communication, taking together the
    collectives that are queued one after the other on a stream; unknown without single GPU events
    (table ``gpu_work``). Kernels that start beside it count."""
    events = facts.table("gpu_work", *_STREAM, C.kind, C.ts_ns, C.dur_ns)
    is_communication = pl.col(C.kind) == "communication"
    collectives = events.filter(is_communication).sort(*_STREAM, C.ts_ns)
    if collectives.is_empty():
        return None
    start, end = pl.col(C.ts_ns), pl.col(C.ts_ns) + pl.col(C.dur_ns)
    is_next = start > end.shift().over(_STREAM) + MAX_PAUSE_NS
    queued = (
        collectives.with_columns(run=is_next.fill_null(value=True).cum_sum())
        .group_by("run")
        .agg(start.min(), end.max().alias(C.end_ns))
        .sort(C.ts_ns)
    )
    compute = events.filter(pl.col(C.kind) == "compute").sort(C.ts_ns)
    placed = compute.join_asof(queued, on=C.ts_ns, strategy="backward")
    beside = placed.filter(start < pl.col(C.end_ns)).group_by("run").agg(pl.col(C.dur_ns).sum())
    length = pl.col(C.end_ns) - pl.col(C.ts_ns)
    is_late = 100 * pl.col(C.dur_ns).fill_null(0) < LATE_PCT * length
    rated = queued.join(beside, on="run", how="left").select(length.alias("length"), late=is_late)
    return 2 * int(rated.filter("late")["length"].sum()) > int(rated["length"].sum())


def messages_are_large(facts: Facts) -> bool | None:
    """Most communication time is in messages of at least {LARGE_MESSAGE_BYTES:,.0f} bytes; unknown
    without single collectives (table ``collectives``)."""
    nbytes = pl.col(C.message_mb) * BYTES_PER_MIB
    return _is_most_communication(facts, nbytes >= LARGE_MESSAGE_BYTES)


def _is_most_communication(facts: Facts, condition: pl.Expr) -> bool | None:
    times = facts.table("collectives", C.collective, C.name, C.message_mb, C.dur_us)
    if times.is_empty():
        return None
    return float(times.filter(condition)[C.dur_us].sum()) > float(times[C.dur_us].sum()) / 2


def replayed_operations(tables: Tables) -> frozenset[int]:
    """Return the rows of the operations table of which graph launches replay most GPU work.

    The launching call decides: captured kernels have an operator, and other kernels that of a
    compiled region.
    """
    events, work = tables("inference_events"), tables("gpu_work")
    if events is None or work is None:
        return frozenset()
    launches = events.select(C.uid, C.graph_launch_uid)
    by_row = (
        work.drop_nulls(C.operation_uid)
        .join(launches, on=C.uid, how="left")
        .group_by(C.operation_uid)
        .agg(is_most=2 * pl.col(C.dur_ns).filter(replayed()).sum() > pl.col(C.dur_ns).sum())
    )
    return frozenset(by_row.filter("is_most")[C.operation_uid])


def replayed() -> pl.Expr:
    """Return whether GPU events (``inference_events``) are replayed by a graph launch."""
    return pl.col(C.graph_launch_uid).is_not_null()


def has_replay_package(facts: Facts, subject: Subject) -> bool:
    """A replay package can be made of each of the operations: the operator is known and its
    arguments are recorded (table ``operations``)."""
    rows = facts.operations(subject)
    return bool(rows) and all(map(_can_be_replayed, rows))


def _can_be_replayed(row: Mapping[str, Any]) -> bool:
    try:
        replay_ir(row)
    except ReplayError:
        return False
    return True


def calls_are_independent(facts: Facts, subject: Subject) -> bool:
    """Most calls of the operations run right before or after another one of them, without GPU work
    between them on their stream, and the later one does not seem to read the earlier one's result
    (tables ``gpu_work``, ``operations``).

    Both must be in one module, as far as it is known. Work between two calls could read one and
    feed the other. A call may read a tensor as large as the one that the call before writes; an
    operator in place writes what it reads. Of two products, the second may read the first if its K
    is the first one's N, and its M the same; with N equal to K, both more likely read one input,
    because two products without an operator between them are one product.
    """
    events = facts.table("gpu_work", *_STREAM, C.ts_ns, C.operation_uid, C.launcher_uid)
    if events.is_empty():
        return False
    ordered = events.sort(*_STREAM, C.ts_ns, maintain_order=True)
    before = ordered.select(pl.all().shift().name.suffix("_before"))
    is_one = pl.col(C.operation_uid).is_in(subject.uids)
    calls = ordered.hstack(before).filter(is_one)
    is_next = (pl.col(name).eq_missing(pl.col(f"{name}_before")) for name in _STREAM)
    later, earlier = C.launcher_uid, f"{C.launcher_uid}_before"
    pair = (C.operation_uid, f"{C.operation_uid}_before")
    neighbors = calls.filter(
        *is_next, pl.col(pair[1]).is_in(subject.uids), pl.col(later) != pl.col(earlier)
    )
    rows = {row[C.uid]: row for row in facts.operations(subject)}
    independent = [
        (uid, uid_before)
        for uid, uid_before in neighbors.select(pair).unique().iter_rows()
        if not _may_read(rows[uid], rows[uid_before])
    ]
    known = pl.DataFrame(independent, schema=dict.fromkeys(pair, pl.Int64), orient="row")
    found = neighbors.join(known, on=pair, how="semi")
    joined = pl.concat([found[later], found[earlier]]).n_unique()
    return joined > calls[later].n_unique() / 2


def _may_read(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Return whether a call may read the result of the one before, or belongs elsewhere."""
    modules = [row[C.module_path][:-1] for row in (earlier, later) if row[C.module_path]]
    if len(modules) == 2 and modules[0] != modules[1]:
        return True
    first, second = (_products(row) for row in (earlier, later))
    if first and second:
        return first[1] == second[2] and first[0] == second[0] and first[1] != first[2]
    if str(earlier[C.name]).endswith("_"):
        return False
    written, read = _sizes(earlier), _sizes(later)
    return not written or not read or max(written) in read


def _products(row: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return M, N and K of a matrix product; None for other operators."""
    params = orjson.loads(row[C.params]) if row[C.params] else {}
    m, n, k = (params.get(side) for side in "MNK")
    if isinstance(m, int) and isinstance(n, int) and isinstance(k, int):
        return m, n, k
    return None


def _sizes(row: Mapping[str, Any]) -> list[int]:
    """Return the number of elements of each tensor argument; the result has that of the largest."""
    try:
        shapes = parse_literal(row[C.input_dims])
    except (ValueError, SyntaxError):
        return []
    return [prod(shape) for shape in shapes if shape and all(type(n) is int for n in shape)]


OF_TRACE: Mapping[str, Callable[[Facts], bool | None]] = {
    function.__name__: function
    for function in (
        has_stacks,
        has_shapes,
        has_host_calls,
        has_several_steps,
        is_served,
        has_backward,
        has_checkpointing,
        has_clones,
        has_compiled_code,
        has_several_compiled_regions,
        has_graph_replay,
        has_loader_workers,
        has_loader_without_workers,
        has_host_reads,
        has_barriers,
        has_several_streams,
        communication_shares_compute_stream,
        is_reduction_collective,
        reduces_gradients,
        communication_starts_late,
        messages_are_large,
    )
}
"""The facts of a whole trace, by name."""

OF_SUBJECT: Mapping[str, Callable[[Facts, Subject], bool | None]] = {
    function.__name__: function
    for function in (
        copies_share_compute_stream,
        copies_are_pageable,
        has_replay_package,
        runs_next_to_products,
        attention_reads_strides,
        calls_are_independent,
    )
}
"""The facts of the subject of a finding, by name."""

FACTS: Mapping[str, Callable[..., bool | None]] = {**OF_TRACE, **OF_SUBJECT}
"""All facts; a function returns None if the tables do not show whether its fact holds."""
