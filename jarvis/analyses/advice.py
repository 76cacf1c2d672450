"""Advice of an analysis for a pattern of rows, as messages.

The texts of ``Advice`` are templates: they may name the columns of the heaviest row and the values
of ``values_of``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from jarvis.analyses.base import Advice, CategoryData
from jarvis.analyses.kernel_names import count_of
from jarvis.analyses.operations import OperationGroup
from jarvis.schemas.names import C
from jarvis.text.messages import Action, Message, MessageTable, action

SHARED = "shared"
"""Key of the advice that applies to all categories."""

PLACES = MessageTable(
    "places",
    {
        "in": " in {place:name}",
        "some": "{some:,} of {calls}",
        "kernel": "{kernel:name} ({some:,} of {calls})",
        "mostly_in": " (mostly in {place:name})",
        "each_of": "each of the {count:,} calls",
        "the_call": "the call",
        "each_time": "{calls} of {mean_time_ms} each",
        "only_time": "{calls} of {mean_time_ms}",
    },
)

PARTS = MessageTable(
    "parts",
    {
        "package": "a replay package of {arguments}",
        "reproduced": "; a replay package of it can be made",
        "reproduced_step": ", for which a replay package can be made",
        "run_package": "run the replay package of {arguments}",
        "on_package": " in a replay package of {arguments}",
        "grouped_gemm": action(
            "Use a grouped GEMM for the {calls} where they follow one another. ",
            "calls_are_independent",
        ),
        "grouped_kernel": action(
            "Use a multi-tensor or grouped kernel for the {calls} where they follow one another. ",
            "calls_are_independent",
        ),
    },
)
"""Parts of advice that depend on a precondition, by the name of the value in a template."""


def replay_parts(uid: int, arguments: str | None) -> dict[str, Message]:
    """Return the parts about a replay package of a row of the operations table, by name."""
    names = ("package", "reproduced", "run_package", "on_package")
    return {name: if_replayed(uid, PARTS.pick(name, {"arguments": arguments})) for name in names}


def reproduced(uid: int) -> Message:
    """Return that a replay package of this row of the operations table can be made."""
    return if_replayed(uid, PARTS("reproduced_step"))


def if_replayed(uid: int, part: Message, *, can_be: bool = True) -> Message:
    """Return a message that holds if a replay package of this row can be made, or cannot be."""
    need = f"has_replay_package({uid})"
    return needing(part, need if can_be else f"not {need}")


def needing(message: Message, *needs: str) -> Message:
    """Return a message with these preconditions (``jarvis.preconditions``)."""
    return message.model_copy(update={"needs": needs})


@dataclass(frozen=True, slots=True)
class ChosenAdvice:
    """The advice for one pattern and the analysis whose table holds it."""

    key: str
    pattern: str
    advice: Advice

    def message(self, field: str, values: Mapping[str, Any]) -> Message | None:
        """Return the message of a text of the advice (``reason``, ...), or None if it has none."""
        if getattr(self.advice, field) is None:
            return None
        return register_advice(self.key, {self.pattern: self.advice}).pick(
            f"{self.pattern}.{field}", values
        )


def register_advice(key: str, advice: Mapping[str, Advice]) -> MessageTable:
    """Add the advice texts of an analysis to its message table and return the table."""
    return MessageTable.extended(
        f"{key}_advice",
        {
            f"{pattern}.{field.name}": Action(text, each.needs.get(field.name, ()))
            for pattern, each in advice.items()
            for field in fields(each)
            if field.name in TEXTS and (text := getattr(each, field.name)) is not None
        },
    )


TEXTS = ("reason", "algorithmic", "kernel", "caveat", "verify", "capture")
"""The fields of ``Advice`` that are templates."""


def choose(data: CategoryData, *patterns: str | None) -> ChosenAdvice | None:
    """Return the category's advice for the first pattern of the data that has any."""
    for pattern in patterns:
        if pattern is not None and pattern in data.advice:
            return ChosenAdvice(data.key, pattern, data.advice[pattern])
    return None


def values_of(group: OperationGroup) -> dict[str, Any]:
    """Return the values that a template may name.

    The columns of the heaviest row, its ``kernel`` and ``its_calls``, those called from the same
    place; of the whole group ``calls, mean_time_ms, moved_bytes, place, each, each_time``, and the
    ``PARTS``. ``mean_time_ms`` is a message if the times of the calls lie apart, ``kernel`` if
    other rows have another one, and ``its_calls`` is None if all calls have one place.
    """
    heaviest = group.heaviest
    mean_time_ms = group.time_per_call
    is_many = group.calls > 1
    grouped = ("grouped_gemm", "grouped_kernel")
    return {
        **values_of_row(heaviest),
        "name": group.name,
        "kernel": _kernel_of(group),
        "calls": group.calls,
        "mean_time_ms": mean_time_ms,
        "place": place_of(group),
        "its_calls": _calls_at_place(group),
        "each": PLACES("each_of", count=group.calls) if is_many else PLACES("the_call"),
        "each_time": PLACES(
            "each_time" if is_many else "only_time", calls=group.calls, mean_time_ms=mean_time_ms
        ),
        **replay_parts(heaviest[C.uid], heaviest["arguments"]),
        **{name: PARTS(name, calls=group.calls) for name in grouped},
    }


OF_ROW = ("arguments", C.main_kernel, C.bytes)
"""The columns that ``values_of_row`` needs."""


def values_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row, and its ``arguments, kernel, moved_bytes``."""
    return {
        **{name: "?" if value is None else value for name, value in row.items()},
        "arguments": row["arguments"] or None,
        "kernel": row[C.main_kernel] or None,
        "moved_bytes": row[C.bytes] or None,
    }


def _kernel_of(group: OperationGroup) -> str | Message | None:
    """Return the kernel of the heaviest row, with the number of calls if others have another.

    Calls with equal arguments may run different kernels, so its launches count.
    """
    kernel: str | None = group.heaviest[C.main_kernel] or None
    if kernel is None:
        return None
    launches = count_of(f"^{re.escape(kernel.lower())}$")
    rows = group.select(C.kernels, C.operation_count)
    calls = int(rows.select(pl.min_horizontal(launches, C.operation_count).sum()).item())
    if calls in (0, group.calls):
        return kernel
    return PLACES("kernel", kernel=kernel, some=calls, calls=group.calls)


def _calls_at_place(group: OperationGroup) -> Message | None:
    """Return how many calls run where the heaviest row does; None if all do."""
    place = group.heaviest[C.called_from]
    rows = group.select(C.called_from, C.operation_count)
    is_there = rows[C.called_from].is_null() if place is None else rows[C.called_from] == place
    calls = int(rows[C.operation_count].filter(is_there).sum())
    return None if calls == group.calls else PLACES("some", some=calls, calls=group.calls)


def place_of(group: OperationGroup) -> Message | None:
    """Return `` in `Model / Layer` `` of the row with most time; None if it is not known."""
    place = group.heaviest[C.called_from]
    if not place:
        return None
    is_only = group.select(C.called_from)[C.called_from].n_unique() == 1
    return PLACES("in" if is_only else "mostly_in", place=place)
