"""The definition of an analysis: rows it claims, checks, advice, page; and its stored manifest."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, TypeVar

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from jarvis.analyses.baseline import Baseline
from jarvis.findings import Finding, Tier
from jarvis.hardware import HardwareSpec
from jarvis.impact import TARGET_PCT
from jarvis.perf_report import Totals
from jarvis.schemas import FLAG, INTEGER, NAMES, NUMBER, TEXT, Column
from jarvis.schemas.names import C

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Claim:
    """The operations that belong to a category.

    ``op_categories`` are exact op categories of the report, ``op_names`` case-insensitive patterns
    with ``*``, of which a leading one ends where a word begins (``*gemm*`` is not in ``fbgemm``).
    Operators that a compiled kernel lists in its name are ignored. Categories take precedence,
    except those derived only from a kernel's name; if patterns of several analyses match, the
    lowest ``order`` wins. Rows whose longest kernel is of a kind in ``kernel_kinds`` (of the table
    of communication names; copies that FSDP launches are staging) come before all others.
    ``blocks`` (``perf_report.kernel_blocks``) of kernels decide for kernels without an operator,
    and for operators that nothing else claims.
    ``rest`` claims all unclaimed operations.
    """

    op_categories: tuple[str, ...] = ()
    op_names: tuple[str, ...] = ()
    order: int = 100
    kernel_kinds: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """Texts about inefficient rows of one pattern.

    ``rule`` says when it applies (for the documentation), ``reason`` continues the sentence that
    states the inefficiency, ``caveat`` is its limitation; ``verify`` and ``capture`` replace those
    of the check. The texts may name columns of the heaviest row in braces. ``expected_pct`` is the
    expected efficiency of such rows, as a share of the roofline or of the compute peak;
    ``is_notable`` raises the priority. ``needs`` has the preconditions of texts, by field
    (``jarvis.preconditions``): where one does not hold, the text is left out.
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
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


PanelKind = Literal["roofline", "savings", "bars", "scatter"]
"""The kinds of panels; ``jarvis.dashboard.widgets.panel_kinds`` draws each."""

OF_OPERATIONS: tuple[PanelKind, ...] = ("roofline", "savings")
"""Kinds that show the operations of a category; the others show columns of a table as x and y."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of a page, as data.

    ``source`` names the table (``operations`` or one of the analysis's ``needs``), ``x``, ``y`` and
    ``color`` its columns.
    """

    kind: PanelKind
    title: str
    source: str = "operations"
    x: str | None = None
    y: str | None = None
    color: str | None = None


SAVINGS = Panel("savings", "Largest savings at the target")
SHARED_PANELS = (Panel("roofline", "Roofline"), SAVINGS)
"""Panels of most compute categories."""


@dataclass(frozen=True)
class CategoryData:
    """The input of one analysis.

    ``operations`` are the claimed rows of the operations table, most time first, with the columns
    that ``jarvis.analyses.operations.describe`` and the analysis's ``classify`` add (none for
    system analyses). ``tables`` are those that it ``needs`` and that the report has. ``baseline``
    is the bandwidth that simple operators reach in the whole trace, None if none moves enough.
    ``explained_uids`` are the rows that the analysis's ``specific`` checks found inefficient,
    ``replayed_uids`` those whose GPU work graphs replay for the most part. ``known`` keeps what is
    the same at every target (``once``).
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
    replayed_uids: frozenset[int] = frozenset()
    known: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: object, make: Callable[["CategoryData"], _Made]) -> _Made:
        """Return what a function makes of this input; that of another target if the function does
        not read the target."""
        key = (name, self.explained_uids)
        if key in self.known:
            known: _Made = self.known[key]
            return known
        watched = _Watched(**{each.name: vars(self)[each.name] for each in fields(CategoryData)})
        made = make(watched)
        if not watched.reads_target:
            self.known[key] = made
        elif isinstance(self, _Watched):
            self.note_target()
        return made

    def found(self, check: "Check") -> list[Finding]:
        """Return the findings of a check; those of another target if it does not read the
        target."""
        return self.once(check, lambda watched: list(check(watched)))

    @property
    def bases(self) -> dict[str, float]:
        """Return compute and total time in ms, which savings are shares of (keywords of
        ``jarvis.impact``)."""
        return {
            "compute_ms": self.totals.compute_time_ms,
            "total_ms": self.totals.total_time_ms,
        }

    @property
    def peak_tb_per_s(self) -> float | None:
        """Return the peak memory bandwidth in TB/s; None if the hardware is not known."""
        return self.hardware.tb_per_s if self.hardware else None

    @property
    def gpu_time_ms(self) -> float:
        """GPU time of the claimed operations."""
        return float(self.operations[C.kernel_time_us].sum()) / 1000


class _Watched(CategoryData):
    """Input of an analysis that notes whether its target is read."""

    reads_target = False

    def note_target(self) -> None:
        """Note that the target is read."""
        vars(self)["reads_target"] = True

    def __getattribute__(self, name: str) -> Any:
        if name == "target_pct":
            self.note_target()
        return super().__getattribute__(name)


Check = Callable[[CategoryData], Iterator[Finding]]
Classify = Callable[[pl.DataFrame, int | None], pl.DataFrame]
Measure = Callable[[CategoryData], dict[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class Target:
    """The slider of a system analysis and the saving that reaching its target brings.

    ``recovered_ms(totals, pct)`` is the time saved at a target of ``pct`` percent, at most what the
    findings of the time ``pool`` can save; it replaces the middle estimate in those of ``check``.
    It is a part of ``pool_ms(totals)``, of which the page replays the steps.
    """

    label: str
    meaning: str
    default_pct: float
    recovered_ms: Callable[[Totals, float], float]
    check: str
    pool: str | None = None
    pool_ms: Callable[[Totals], float] | None = None


@dataclass(frozen=True)
class Analysis:
    """One analysis; ``key`` and ``tier`` come from its file's name and folder.

    ``classify(rows, compute_units)`` adds columns to the claimed rows (described by ``details``),
    among them ``pattern``, which selects the ``advice``; ``measure`` returns the category's own
    metrics. Analyses of other tiers claim nothing and name the tables that they need; ``prepare``
    returns their input numbers, stored beside their metrics, ``target`` describes their page's
    slider (always the efficiency in the compute tier). Rows that ``specific`` checks report are
    explained: the shared checks skip them. A category without operations still has a result if a
    table of ``also_in``, some of its ``needs``, has rows. Runs in which a table of ``only_with``
    has no rows have no result of the analysis.
    """

    title: str
    icon: str
    checks: tuple[Check, ...]
    specific: tuple[Check, ...] = ()
    claim: Claim | None = None
    panels: tuple[Panel, ...] = ()
    needs: tuple[str, ...] = ()
    also_in: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()
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
        """Return the checks in the order in which they run."""
        return (*self.specific, *self.checks)


_DTYPES = {"text": TEXT, "number": NUMBER, "integer": INTEGER, "flag": FLAG, "names": NAMES}


class Detail(BaseModel):
    """A column that an analysis adds to its rows."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    label: str
    kind: str
    unit: str = ""
    format: str = ""
    meaning: str = ""

    @field_validator("kind", mode="before")
    @classmethod
    def _kind_of(cls, value: object) -> object:
        kinds = {str(dtype): kind for kind, dtype in _DTYPES.items()}
        if not isinstance(value, (pl.DataType, type)):
            return value
        if str(value) not in kinds:
            raise ValueError(f"use one of {', '.join(kinds)}, not {value}")
        return kinds[str(value)]

    def column(self) -> Column:
        """Return the column as a schema column."""
        dtype = _DTYPES[self.kind]
        return Column(self.name, self.label, dtype, self.unit, self.format, self.meaning)


class AnalysisManifest(BaseModel):
    """An analysis without its code."""

    model_config = ConfigDict(frozen=True, revalidate_instances="always")

    key: str
    title: str = Field(min_length=1, max_length=80)
    icon: str = Field(pattern=r"^:material/[a-z0-9_]+:$")
    tier: Tier
    claim: Claim | None
    panels: tuple[Panel, ...]
    details: tuple[Detail, ...]
    needs: tuple[str, ...]
    also_in: tuple[str, ...]

    @classmethod
    def of(cls, analysis: Analysis) -> Self:
        """Return the manifest of an analysis.

        Raises:
            pydantic.ValidationError: A field has a wrong type.
        """
        details = [
            {**{name: getattr(column, name) for name in Detail.model_fields if name != "kind"}}
            | {"kind": column.dtype}
            for column in analysis.details
        ]
        fields = {name: getattr(analysis, name) for name in cls.model_fields}
        return cls.model_validate({**fields, "details": details})

    def analysis(self) -> Analysis:
        """Return an analysis that has a page but no checks to run."""
        return Analysis(
            title=self.title,
            icon=self.icon,
            checks=(),
            claim=self.claim,
            panels=self.panels,
            needs=self.needs,
            also_in=self.also_in,
            details=tuple(detail.column() for detail in self.details),
            key=self.key,
            tier=self.tier,
        )
