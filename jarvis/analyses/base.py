"""What an analysis is: the rows that it claims, its checks, its advice, and what its page shows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.baseline import Baseline
from jarvis.findings import Finding, Tier
from jarvis.hardware import HardwareSpec
from jarvis.impact import TARGET_PCT
from jarvis.perf_report import Totals
from jarvis.schemas import Column


@dataclass(frozen=True, slots=True)
class Claim:
    """Which operations belong to a category.

    ``op_categories`` are exact op categories of the report, ``op_names`` patterns with ``*`` (upper
    and lower case alike). Categories come first, except those that only a kernel's name suggests;
    where patterns of several analyses match, the lowest ``order`` wins. ``rest`` takes what nobody
    else claims.
    """

    op_categories: tuple[str, ...] = ()
    op_names: tuple[str, ...] = ()
    order: int = 100
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """What to say about inefficient rows of one pattern, on both paths.

    ``rule`` says when it applies (for the documentation), ``reason`` continues the sentence that
    states the inefficiency, ``caveat`` what it cannot tell; ``verify`` and ``capture`` stand for
    those of the check. The texts may name columns of the heaviest row in braces.
    ``expected_pct`` is the efficiency to expect of such rows, as a share of the roofline or of the
    compute peak; ``is_notable`` raises the priority.
    """

    rule: str
    reason: str
    algorithmic: str
    kernel: str
    expected_pct: tuple[float, float] | None = None
    expected_of: Literal["roofline", "compute peak"] = "roofline"
    is_notable: bool = False
    caveat: str | None = None
    verify: str | None = None
    capture: str | None = None


PanelKind = Literal["roofline", "savings", "bars", "scatter"]
"""The kinds of panels; ``jarvis.dashboard.widgets.panel_kinds`` draws each."""

OF_OPERATIONS: tuple[PanelKind, ...] = ("roofline", "savings")
"""Kinds that show the operations of a category; the others show columns of a table as x and y."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of a page, as data; the dashboard draws it.

    ``source`` names the table (``operations`` or one of the analysis's ``needs``), ``x``, ``y`` and
    ``color`` its columns.
    """

    kind: PanelKind
    title: str
    source: str = "operations"
    x: str | None = None
    y: str | None = None
    color: str | None = None


@dataclass(frozen=True)
class CategoryData:
    """What one analysis is given to see, and nothing else.

    ``operations`` are the claimed rows of the operations table, most time first, with the columns
    that ``jarvis.analyses.operations.describe`` and the analysis's ``classify`` add (none for
    system analyses). ``tables`` are those that it ``needs`` and that the report has. ``baseline``
    is the bandwidth that simple operators reach in the whole trace, None where none moves enough.
    ``explained_uids`` are the rows that the analysis's ``specific`` checks found inefficient.
    """

    key: str
    title: str
    operations: pl.DataFrame
    totals: Totals
    hardware: HardwareSpec | None
    advice: Mapping[str, Advice] = field(default_factory=dict)
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    target_pct: float = TARGET_PCT
    baseline: Baseline | None = None
    explained_uids: frozenset[int] = frozenset()

    @property
    def bases(self) -> dict[str, float]:
        """What savings are shares of, as ``jarvis.impact`` takes it."""
        return {
            "compute_ms": self.totals.compute_time_ms,
            "total_ms": self.totals.total_time_ms,
        }

    @property
    def peak_tb_per_s(self) -> float | None:
        """The bandwidth to judge against; None where the hardware is not known."""
        return self.hardware.tb_per_s if self.hardware else None

    @property
    def gpu_time_ms(self) -> float:
        """GPU time of the claimed operations."""
        return float(self.operations["kernel_time_us"].sum()) / 1000


Check = Callable[[CategoryData], Iterator[Finding]]
Classify = Callable[[pl.DataFrame, int | None], pl.DataFrame]
Measure = Callable[[CategoryData], dict[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class Target:
    """What the slider of a system analysis aims at, and what reaching it would recover.

    ``recovered_ms(totals, pct)`` is the time saved at a target of ``pct`` percent; it takes the
    place of the middle estimate in the findings of ``check``.
    """

    label: str
    meaning: str
    default_pct: float
    recovered_ms: Callable[[Totals, float], float]
    check: str


@dataclass(frozen=True)
class Analysis:
    """One analysis; ``key`` and ``tier`` come from its file's name and folder.

    ``classify(rows, compute_units)`` adds columns to the claimed rows (described by ``details``),
    among them ``pattern``, which picks the ``advice``; ``measure`` gives the category's own
    metrics. Analyses of other tiers claim nothing and name the tables that they need; ``prepare``
    gives the numbers that they start from, kept beside their metrics, ``target`` what their page's
    slider stands for (that of the compute tier is always the efficiency). Rows that ``specific``
    checks report are explained: the shared checks do not call them inefficient once more. A
    category without operations has a result all the same where a table of ``also_in``, some of its
    ``needs``, has rows.
    """

    title: str
    icon: str
    checks: tuple[Check, ...]
    specific: tuple[Check, ...] = ()
    claim: Claim | None = None
    panels: tuple[Panel, ...] = ()
    needs: tuple[str, ...] = ()
    also_in: tuple[str, ...] = ()
    advice: Mapping[str, Advice] = field(default_factory=dict)
    classify: Classify | None = None
    details: tuple[Column, ...] = ()
    measure: Measure | None = None
    prepare: Measure | None = None
    target: Target | None = None
    key: str = ""
    tier: Tier = "compute"

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """The checks in the order in which they run."""
        return (*self.specific, *self.checks)
