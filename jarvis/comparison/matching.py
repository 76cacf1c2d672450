"""Match operations of the two sides.

Operations match by name, shapes and dtypes first; then by their position in the call tree; then
matrix products of different operators by their dimensions. A row is in one pair, or in several with
shares of at most 1 in total, so that no time counts twice.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import polars as pl

from jarvis.comparison.sides import Role, Side
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.schemas.names import C

VIEW = "classes"
_CALLS = ("module", "op")

Path = tuple[str, ...]
"""The names of the calls from below the root to a node."""

PLACE_NAMES = 3
"""Number of calls in the name of a place, innermost last."""


@dataclass(frozen=True, slots=True)
class OperationPart:
    """Part of an operation below one call: the share of its time, and its number of calls."""

    uid: int
    share: float
    calls: float


@dataclass(frozen=True)
class Tree:
    """Calls of one side: number of calls of each, and the operation parts directly below it."""

    calls: dict[Path, int] = field(default_factory=dict)
    modules: set[Path] = field(default_factory=set)
    parts: dict[Path, list[OperationPart]] = field(default_factory=dict)


@dataclass
class CommonCall:
    """Operation parts of both sides below one call that both have in common."""

    path: Path
    parts: dict[Role, list[OperationPart]] = field(default_factory=lambda: defaultdict(list))


def call_tree(side: Side, uids: pl.Series) -> Tree:
    """Return the calls of a side with the parts of these operations."""
    nodes = side.rows("call_tree").filter(pl.col(C.view) == VIEW).sort(C.node)
    tree, path_of = Tree(), dict[int, Path]()
    columns = nodes.select(C.node, C.parent, C.kind, C.name, C.calls)
    for node, parent, kind, name, calls in columns.iter_rows():
        above = path_of.get(parent, ())
        path_of[node] = path = (*above, name) if kind in _CALLS else above
        if kind in _CALLS:
            tree.calls[path] = calls
        if kind == "module":
            tree.modules.add(path)
    time = pl.col(C.gpu_ns)
    work = (
        side.rows("call_tree_operations")
        .filter(pl.col(C.node).is_in(nodes[C.node].implode()))
        .with_columns(
            share=pl.when(time.sum().over(C.operation_uid) > 0).then(
                time / time.sum().over(C.operation_uid)
            )
        )
        .filter(pl.col(C.operation_uid).is_in(uids.implode()) & pl.col("share").is_not_null())
    )
    sums: dict[tuple[Path, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for node, uid, share, calls in work.select(C.node, C.operation_uid, "share", C.calls).rows():
        total = sums[path_of[node], uid]
        total[0] += share
        total[1] += calls
    for (path, uid), (share, calls) in sums.items():
        tree.parts.setdefault(path, []).append(OperationPart(uid, share, calls))
    return tree


def common_path(path: Path, other: Tree) -> Path:
    """Return the longest prefix of a path that the other tree has too."""
    while path and path not in other.calls:
        path = path[:-1]
    return path


def groups(target: Tree, reference: Tree) -> Iterator[CommonCall]:
    """Yield operation parts of both sides by their nearest common call, each part at most once.

    If only one side has parts below a call, the search continues with the operator around it, up to
    the innermost module. Parts that have only the root in common do not match, nor those below an
    outermost module that wraps different models.
    """
    waiting: dict[Path, CommonCall] = {}
    sides = ((Role.TARGET, target, reference), (Role.REFERENCE, reference, target))
    for role, tree, other in sides:
        for path, parts in tree.parts.items():
            place = common_path(path, other)
            waiting.setdefault(place, CommonCall(place)).parts[role] += parts
    while waiting:
        path = max(waiting, key=lambda path: (len(path), path))
        group = waiting.pop(path)
        if not path or (len(path) == 1 and _wraps_others(path, target, reference)):
            continue
        if len(group.parts) == len(sides):
            yield group
        elif path not in target.modules and len(path) > 1:
            above = waiting.setdefault(path[:-1], CommonCall(path[:-1]))
            for role, parts in group.parts.items():
                above.parts[role] += parts


def _wraps_others(path: Path, *trees: Tree) -> bool:
    """Return whether a module contains modules on both sides, but none that both have."""
    inside = [
        {module for module in tree.modules if len(module) > 1 and module[:1] == path}
        for tree in trees
    ]
    return all(inside) and not set.intersection(*inside)


def place_name(path: Path) -> str:
    """Return the last calls of a path in one line."""
    return " / ".join(name.removeprefix(MODULE_PREFIX) for name in path[-PLACE_NAMES:])


KEYS = (C.name, C.input_dims, C.input_types)
"""Operations match by name, shapes and dtypes; strides and threads may differ."""

CALLERS = {"aten::softmax": "aten::_softmax", "aten::log_softmax": "aten::_log_softmax"}
"""Operators that only call another one, which a trace may lack; their first argument is its."""

_ENDS_OF_FIRST = {C.input_dims: ")", C.input_types: ","}
"""What ends the first argument in the texts of the arguments."""

_PRODUCT = ("M", "N", "K")
_MIN_SHARE = 1e-6
"""Smaller shares of an operation are rounding errors."""

Product = tuple[int, ...]


class MatchedBy(StrEnum):
    """How a pair was matched."""

    ARGUMENTS = "arguments"
    CALL_TREE = "call tree"
    PRODUCT = "product"


@dataclass(frozen=True)
class Matches:
    """Pairs and their members.

    ``pairs``: ``pair, matched_by, place``. ``members``: ``pair, side, uid, share`` (of the row's
    time) ``, calls`` (of the pair on that side). ``rest``: ``side, uid, share, place`` of work
    without a counterpart.
    """

    pairs: pl.DataFrame
    members: pl.DataFrame
    rest: pl.DataFrame


class _Builder:
    """Collector of pairs."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str | None]] = []
        self.members: list[tuple[int, str, int, float, float]] = []

    def add(
        self,
        matched_by: MatchedBy,
        place: str | None,
        parts: Mapping[Role, list[OperationPart]],
        calls: Mapping[Role, float],
    ) -> None:
        pair = len(self.pairs)
        self.pairs.append((matched_by.value, place))
        self.members += [
            (pair, role.value, part.uid, part.share, calls[role])
            for role, parts_of_side in parts.items()
            for part in parts_of_side
        ]


def match(target: Side, reference: Side, rows: Mapping[Role, pl.DataFrame]) -> Matches:
    """Return the pairs of two sides; ``rows``: their operations with GPU time."""
    exact = _by_arguments(rows)
    builder = _Builder()
    sides = {Role.TARGET: target, Role.REFERENCE: reference}
    left = {role: rows[role].join(exact[role], on=C.uid, how="anti") for role in Role}
    trees = {role: call_tree(sides[role], left[role][C.uid]) for role in Role}
    products = {role: _products(left[role]) for role in Role}
    for group in groups(trees[Role.TARGET], trees[Role.REFERENCE]):
        _add_group(builder, group, trees, products)
    _add_products(builder, left, products)
    return _matches(exact, builder, rows, trees)


def _by_arguments(rows: Mapping[Role, pl.DataFrame]) -> dict[Role, pl.DataFrame]:
    """Return ``uid, pair, calls`` of the rows of each side whose key the other side has too."""
    calls = pl.col(C.operation_count).sum().cast(pl.Float64)
    keyed = {
        role: rows[role].group_by(_spelled(), maintain_order=True).agg(C.uid, calls.alias(C.calls))
        for role in Role
    }
    both = keyed[Role.TARGET].join(
        keyed[Role.REFERENCE], on=list(KEYS), nulls_equal=True, maintain_order="left"
    )
    pair = pl.int_range(pl.len(), dtype=pl.Int64)
    columns = {Role.TARGET: (C.uid, C.calls), Role.REFERENCE: ("uid_right", "calls_right")}
    return {
        role: both.select(
            pair.alias(C.pair), pl.col(uid).alias(C.uid), pl.col(count).alias(C.calls)
        ).explode(C.uid)
        for role, (uid, count) in columns.items()
    }


def _spelled() -> tuple[pl.Expr, ...]:
    """Return ``KEYS``, equal for both spellings of an operator of ``CALLERS``."""
    is_either = pl.col(C.name).is_in([*CALLERS, *CALLERS.values()])
    first = (pl.col(name).str.split(end).list.first() for name, end in _ENDS_OF_FIRST.items())
    parts = [
        pl.when(is_either).then(part).otherwise(name).alias(name)
        for part, name in zip(first, _ENDS_OF_FIRST, strict=True)
    ]
    return (pl.col(C.name).replace(CALLERS), *parts)


def _add_group(
    builder: _Builder,
    group: CommonCall,
    trees: Mapping[Role, Tree],
    products: Mapping[Role, Mapping[int, Product]],
) -> None:
    """Add a pair, or one for each matrix product if both sides of the group have the same ones."""
    place = place_name(group.path)
    by_product: dict[Role, dict[Product | None, list[OperationPart]]] = {}
    for role, parts in group.parts.items():
        of_side = by_product.setdefault(role, {})
        for part in parts:
            of_side.setdefault(products[role].get(part.uid), []).append(part)
    of_target, of_reference = by_product[Role.TARGET], by_product[Role.REFERENCE]
    if of_target.keys() == of_reference.keys() and None not in of_target:
        for product in of_target:
            parts_of = {role: by_product[role][product] for role in Role}
            calls = {role: sum(part.calls for part in parts_of[role]) for role in Role}
            builder.add(MatchedBy.CALL_TREE, place, parts_of, calls)
        return
    calls = {role: float(trees[role].calls[group.path]) for role in Role}
    builder.add(MatchedBy.CALL_TREE, place, group.parts, calls)


def _add_products(
    builder: _Builder,
    left: Mapping[Role, pl.DataFrame],
    products: Mapping[Role, Mapping[int, Product]],
) -> None:
    """Add pairs of the matrix products that have not been matched by position."""
    taken = {(side, uid) for _, side, uid, *_ in builder.members}
    by_product: dict[Product, dict[Role, list[OperationPart]]] = {}
    for role in Role:
        for uid, count in left[role].select(C.uid, C.operation_count).iter_rows():
            product = products[role].get(uid)
            if product is not None and (role.value, uid) not in taken:
                parts = by_product.setdefault(product, {}).setdefault(role, [])
                parts.append(OperationPart(uid, 1.0, count))
    for parts_of in by_product.values():
        if len(parts_of) == len(Role):
            calls = {role: sum(part.calls for part in parts_of[role]) for role in Role}
            builder.add(MatchedBy.PRODUCT, None, parts_of, calls)


def _products(rows: pl.DataFrame) -> dict[int, Product]:
    """Return M, N, K and batch of the rows that are matrix products, by uid."""
    products = {}
    for uid, text in rows.select(C.uid, C.params).drop_nulls().iter_rows():
        params = json.loads(text)
        if all(isinstance(params.get(name), int) for name in _PRODUCT):
            products[uid] = (*(params[name] for name in _PRODUCT), params.get("B") or 1)
    return products


def _matches(
    exact: Mapping[Role, pl.DataFrame],
    builder: _Builder,
    rows: Mapping[Role, pl.DataFrame],
    trees: Mapping[Role, Tree],
) -> Matches:
    first = exact[Role.TARGET][C.pair].n_unique()
    schema = {
        C.pair: pl.Int64,
        C.side: pl.String,
        C.uid: pl.Int64,
        "share": pl.Float64,
        C.calls: pl.Float64,
    }
    later = pl.DataFrame(builder.members, schema=schema, orient="row")
    parts = [
        exact[role].select(
            C.pair, C.uid, C.calls, pl.lit(role.value).alias(C.side), share=pl.lit(1.0)
        )
        for role in Role
    ]
    members = pl.concat(
        [part.select(list(schema)) for part in parts] + [later.with_columns(pl.col(C.pair) + first)]
    )
    pairs = pl.DataFrame(
        [(MatchedBy.ARGUMENTS.value, None)] * first + builder.pairs,
        schema={C.matched_by: pl.String, C.place: pl.String},
        orient="row",
    ).with_row_index(C.pair)
    return Matches(
        pairs.with_columns(pl.col(C.pair).cast(pl.Int64)), members, _rest(members, rows, trees)
    )


def _rest(
    members: pl.DataFrame,
    rows: Mapping[Role, pl.DataFrame],
    trees: Mapping[Role, Tree],
) -> pl.DataFrame:
    """Return the share of each row that is in no pair."""
    taken = members.group_by(C.side, C.uid).agg(taken=pl.col("share").sum())
    every = pl.concat(rows[role].select(C.uid, pl.lit(role.value).alias(C.side)) for role in Role)
    left = (
        every.join(taken, on=[C.side, C.uid], how="left", maintain_order="left")
        .with_columns(share=1.0 - pl.col("taken").fill_null(0.0))
        .filter(pl.col("share") > _MIN_SHARE)
    )
    places: dict[tuple[str, int], tuple[float, str]] = {}
    for role, other in ((Role.TARGET, Role.REFERENCE), (Role.REFERENCE, Role.TARGET)):
        for path, parts in trees[role].parts.items():
            place = place_name(common_path(path, trees[other]))
            for part in parts:
                key = role.value, part.uid
                places[key] = max(places.get(key, (0.0, "")), (part.share, place))
    names = [places.get(key, (0.0, ""))[1] or None for key in left.select(C.side, C.uid).rows()]
    return left.select(C.side, C.uid, "share", pl.Series(names, dtype=pl.String).alias(C.place))
