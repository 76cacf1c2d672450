"""The names in the tables of a run: operations, kernels, host calls, modules, source lines."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

COLUMNS = {
    "operations": ("name", "launcher_names", "module_path", "entry_point"),
    "gpu_work": ("name", "launcher_name"),
    "host_slices": ("name",),
    "idle_gaps": ("launcher_name", "host_call", "host_op", "host_frame", "host_annotation"),
    "step_gaps": ("launcher_name", "host_call", "host_op", "host_frame", "host_annotation"),
    "steps": ("name", "slow_call"),
    "call_tree": ("name",),
    "collectives": ("name", "collective"),
    "fusion_chains": ("scope_name",),
    "attention_groups": ("scope_name",),
}
"""Columns of names by table; of lists, each item."""

CUT = "…"
_INSTANCE = re.compile(r"_\d+$")


@dataclass(frozen=True)
class RecordedNames:
    """The names of one run: those of its kernels, and those in tables.

    ``read`` returns columns of a table.
    """

    kernels: Iterable[str]
    read: Callable[[str, str], pl.DataFrame]

    def has(self, text: str) -> bool:
        """Return whether a name is recorded; of one that was cut, whether its beginning is."""
        return text in self._names or (text.endswith(CUT) and text.rstrip(CUT) in self._joined)

    def contains(self, text: str) -> bool:
        """Return whether a recorded name contains a text."""
        return self.has(text) or text in self._joined

    @cached_property
    def _names(self) -> frozenset[str]:
        found = set(self.kernels)
        for table, columns in COLUMNS.items():
            for column in columns:
                found.update(self._column(table, column))
        return frozenset(found | {_INSTANCE.sub("", name) for name in found})

    def _column(self, table: str, column: str) -> list[str]:
        values = self.read(table, column)[column]
        if isinstance(values.dtype, pl.List):
            values = values.explode(empty_as_null=False, keep_nulls=False)
        return values.drop_nulls().unique().cast(pl.String).to_list()

    @cached_property
    def _joined(self) -> str:
        return "\n".join(sorted(self._names))
