"""Findings in the layout that other tools read: numbered items, scores, rows.

The scores of an item are in HTML comments around its impact and come from ``run.estimates``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding, Range
from jarvis.impact import FULL_PCT
from jarvis.reports import sections
from jarvis.reports.details import Details
from jarvis.reports.messages import MESSAGES
from jarvis.run.agent_layout.metrics import MISSING, cell_text, operation_entry
from jarvis.run.agent_layout.priorities import Recommended, scores
from jarvis.schemas.names import C
from jarvis.text.format import decimal
from jarvis.text.markdown import Markdown, code, prose, table
from jarvis.text.messages import Message, to_text

COLUMNS = (
    "Operation",
    "Args",
    "Kernel Path",
    "Kernel Name",
    "Time (ms)",
    "%E2E",
    "Count",
    "FLOPS/Byte",
    "Efficiency",
    "Bound",
)
ROWS_SHOWN = 25
"""Rows of an item's table; the metrics have all."""

NUMBER_ICONS = ("🔴", "🟡")
LATER_ICON = "🟢"
CONFIDENCE_ICONS = {"high": "🔴", "medium": "🟡", "low": "🟢"}

NOT_QUANTIFIED = "Not quantifiable from trace data"
"""The words by which tools recognize an item without scores."""

NO_HYPOTHESIS = (
    "A trace shows what is slow, not why: profile the kernel with the platform's "
    "hardware-counter profiler to diagnose it."
)
DEFAULT_VERIFY = "Record the trace again after the change and compare the same rows."
HEURISTIC_WARNING = (
    "the scores come from experience with such changes, not from a model of this trace."
)
ITEM, ESTIMATE = "p_item", "detail_estimate"

_END_IN_PARENTHESES = re.compile(r" \(([^()]*)\)$")
_EFFICIENCY_SOURCE = "operations[].efficiency.efficiency_percent"


@dataclass(frozen=True)
class FindingCard:
    """One recommendation with its number in a section; ``prefix`` precedes the number.

    ``rows`` are its operations (none outside the compute tier); ``confidence`` and ``coverage``
    (kernels with a perf model, all kernels) are those of a fusion finding.
    """

    details: Details
    number: int
    rows: pl.DataFrame | None = None
    prefix: str = ""
    category: str | None = None
    confidence: str | None = None
    coverage: tuple[int, int] | None = None

    @property
    def finding(self) -> Finding:
        """Return the finding."""
        return self.details.finding

    @property
    def tier(self) -> str:
        """Return ``compute``, ``fusion`` or ``system``."""
        return self.details.recommendation.result.tier

    @property
    def icon(self) -> str:
        """Return the icon by number, for a fusion finding by confidence."""
        if self.tier == "fusion":
            return CONFIDENCE_ICONS.get(self.confidence or "", LATER_ICON)
        return [*NUMBER_ICONS, LATER_ICON][min(self.number, len(NUMBER_ICONS) + 1) - 1]

    @property
    def heading(self) -> Markdown:
        """Return ``P1: title (library)``; tools read the trailing parentheses as library."""
        title = _END_IN_PARENTHESES.sub(r", \1", to_text(self.finding.title))
        library = self._heaviest["library"] if self._heaviest else None
        suffix = f" ({code(library)})" if library else ""
        return Markdown(f"{self.prefix}P{self.number}: {prose(title)}{suffix}")

    @property
    def anchor(self) -> str:
        """Return the anchor of its details in ``analysis.md``."""
        mark = "P" if self.tier == "fusion" else "p"
        return f"detailed-analysis-{self.tier}-{mark}{self.number}"

    @property
    def action(self) -> str:
        """Return both paths."""
        return f"(A) {to_text(self.finding.algorithmic)} (B) {to_text(self.finding.kernel)}"

    @property
    def impact(self) -> Markdown:
        """Return the line with its middle score."""
        text = to_text(self.score) if self.score else f"{NOT_QUANTIFIED}."
        return _marked(ITEM, self._scores, f"**Impact**: {prose(text)}", self.category)

    @property
    def score(self) -> Message | None:
        """Return its middle score and saving; for a fusion finding how many kernels have a perf
        model."""
        if (found := self._scores) is None:
            return None
        if self.coverage:
            modelled, kernels = self.coverage
            values = {"score": found.mid, "modelled": modelled, "kernels": kernels}
            return MESSAGES("score.fusion", **values)
        return MESSAGES("score", score=found.mid, saved=self.details.short_saving)

    @property
    def estimate(self) -> Markdown:
        """Return its low and high score."""
        if not self.ends:
            return Markdown(f"Impact estimate is {NOT_QUANTIFIED.lower()}.")
        lines = "\n".join(f"- {to_text(end)}" for end in self.ends)
        return _marked(ESTIMATE, self._scores, lines)

    @property
    def ends(self) -> tuple[Message, ...]:
        """Return its low and high score."""
        if (found := self._scores) is None:
            return ()
        return tuple(
            MESSAGES(f"score.{end}", score=score)
            for end, score in (("low", found.low), ("high", found.high))
        )

    @property
    def warning(self) -> str | None:
        """Return a warning that the scores are not measured, if applicable."""
        gain = self.finding.impact
        return HEURISTIC_WARNING if gain and gain.method == "heuristic" else None

    @property
    def identification(self) -> Markdown:
        """Return how it was found, from which file and keys."""
        result = self.details.recommendation.result
        found = f"The check {code(self.finding.check)} of the analysis {prose(result.title)}"
        metrics = RunPaths(Path()).metrics(result.key).name
        if self.extent is None:
            place = "the tree of calls" if self.tier == "fusion" else "the GPU timeline"
            sentences = [f"{found} finds it in {place}."]
            keys = ["category_findings[].evidence"]
        else:
            sentences = [f"{found} finds {to_text(self.extent)}.", *self._origin()]
            keys = ["operations[].time_ms", _EFFICIENCY_SOURCE]
            keys += ["operations[].library"] if self._heaviest and self._heaviest["library"] else []
        source = f"(source: {code(metrics)} → {', '.join(code(key) for key in keys)})"
        return Markdown(" ".join([*sentences, source]))

    @property
    def data(self) -> Markdown:
        """Return its rows, or the measurements of the whole system."""
        if self.rows is None:
            return self.details.evidence
        entries = (operation_entry(row) for row in self.rows.head(ROWS_SHOWN).to_dicts())
        return operations_table(entries)

    @property
    def evidence(self) -> Markdown | None:
        """Return the numbers of its text, if ``data`` shows rows."""
        return None if self.rows is None else self.details.evidence

    @property
    def left_out(self) -> Message | None:
        """Return a note on rows that ``data`` omits."""
        return None if self.rows is None else sections.left_out(self.rows, ROWS_SHOWN)

    @property
    def reasoning(self) -> str:
        """Return what the trace shows of the slowdown, and the likely cause if there is one."""
        cause = to_text(self.finding.hypothesis)
        return (
            f"{self._observed}{f'Likely cause (hypothesis): {cause}' if cause else NO_HYPOTHESIS}"
        )

    @property
    def resolution(self) -> str:
        """Return how much time either path can save, and how to verify it."""
        finding = self.finding
        verify = to_text(finding.verify) or DEFAULT_VERIFY
        parts = [to_text(self.potential), verify, to_text(finding.caveat), to_text(finding.capture)]
        return " ".join(part for part in parts if part)

    @property
    def _heaviest(self) -> dict[str, Any] | None:
        rows = self.rows
        return None if rows is None or rows.is_empty() else rows.row(0, named=True)

    @property
    def _scores(self) -> Range | None:
        return scores(self.finding)

    @property
    def extent(self) -> Message | None:
        """Return rows, calls, time and share of its rows."""
        rows = self.rows
        if rows is None:
            return None
        return MESSAGES(
            "extent",
            rows=rows.height,
            calls=int(rows[C.operation_count].sum()),
            time_ms=float(rows[C.kernel_time_us].sum()) / 1000,
            share_pct=float(rows[C.percent_of_total].sum()),
        )

    def _origin(self) -> list[str]:
        heaviest = self._heaviest or {}
        library, modules = heaviest.get("library"), heaviest.get(C.called_from)
        return [
            *([f"The name of its main kernel points to {code(library)}."] if library else []),
            *([f"The heaviest row is called from {code(modules)}."] if modules else []),
        ]

    @property
    def _observed(self) -> str:
        heaviest = self._heaviest
        if heaviest is None or heaviest[C.pct_roofline] is None or heaviest[C.bound] is None:
            return ""
        return (
            f"The heaviest row reaches {efficiency_of_peak(operation_entry(heaviest))} at "
            f"{decimal(heaviest[C.flops_per_byte])} FLOPS/Byte. "
        )

    @property
    def potential(self) -> Message:
        """Return how much of the time can be saved, and how reliable that estimate is."""
        gain = self.finding.impact
        if gain is None:
            return MESSAGES("potential.none")
        if gain.step_ms is not None and self.finding.time_pool is not None:
            return MESSAGES("potential.pool", saving=self.details.short_saving)
        step = MESSAGES("potential.step", saving=self.details.short_saving)
        values = {
            "saved_ms": gain.saved_ms.high,
            "time_ms": gain.time_ms,
            "step": step if gain.step_ms else None,
        }
        return MESSAGES(f"potential.{gain.method}", **values)


def cards_of(chosen: Recommended, details: Iterable[Details]) -> list[FindingCard]:
    """Return the cards of one analysis with its own numbers; findings of low priority get none."""
    shown = [d for d in details if d.finding.has_agent_card]
    return [
        FindingCard(
            d,
            number,
            chosen.rows(d.finding) if d.recommendation.result.tier == "compute" else None,
            prefix=d.recommendation.local_label.removesuffix(f"P{number}"),
            **fusion_facts(d),
        )
        for d in shown
        for number in (d.recommendation.local_number,)
    ]


def fusion_facts(details: Details) -> dict[str, Any]:
    """Return ``confidence`` and ``coverage`` of a fusion finding, nothing for others."""
    result, finding = details.recommendation.result, details.finding
    if result.tier != "fusion":
        return {}
    chain = _of_chain(finding, result.metrics.get("candidates"))
    estimate = _of_chain(finding, result.metrics.get("impact_estimates"))
    rated = chain.get("confidence")
    return {
        "confidence": rated if rated in CONFIDENCE_ICONS else None,
        "coverage": (estimate["modeled_kernel_count"], estimate["kernel_count"])
        if estimate
        else None,
    }


def _of_chain(finding: Finding, entries: Any) -> Mapping[str, Any]:
    """Return the metrics entry of a fusion finding's chain: the one with its time and its number of
    instances. Empty without one."""
    chain = finding.evidence.get("gpu_time_ms"), finding.evidence.get("instances")
    if None in chain:
        return {}
    same = (
        entry
        for entry in entries or ()
        if (entry.get("time_ms"), entry.get("instance_count")) == chain
    )
    return next(same, {})


def operations_table(entries: Iterable[Mapping[str, Any]]) -> Markdown:
    """Return rows of operations with the same cells as in the metrics."""
    return table(COLUMNS, map(_cells, entries))


def _cells(entry: Mapping[str, Any]) -> Sequence[str]:
    efficiency = entry["efficiency"]
    cells = (
        cell_text(entry["name"]),
        entry["args"],
        entry["launcher_path"],
        entry["kernel_name_trunc"],
        _fixed(entry["time_ms"], 3),
        _fixed(entry["percent_of_total"], 2),
        str(entry["count"]),
        _fixed(efficiency["flops_per_byte"], 2),
        efficiency_of_peak(entry),
        f"{efficiency['bound_type']}-bound" if efficiency["bound_type"] else None,
    )
    return [Markdown(cell or MISSING) for cell in cells]


def efficiency_of_peak(entry: Mapping[str, Any]) -> str:
    """Return ``18.24% of 708 TFLOPS``; with a mark above the peak, MISSING if not known."""
    efficiency = entry["efficiency"]
    value, is_compute = efficiency["efficiency_percent"], efficiency["bound_type"] == "compute"
    peak = efficiency["resolved_peak_maf" if is_compute else "resolved_peak_hbm_bw"]
    if value is None or peak is None:
        return MISSING
    mark = f" ⚠ {efficiency['assessment'].partition(':')[0]}" if value > FULL_PCT else ""
    return f"{value:.2f}% of {peak:g} {'TFLOPS' if is_compute else 'TB/s'}{mark}"


def _fixed(value: float | None, digits: int) -> str | None:
    """Return a number for tools: no separators, more digits for small values."""
    if value is None:
        return None
    is_small = 0 < abs(value) < 10 ** (1 - digits)
    return f"{value:.{digits}g}" if is_small else f"{value:.{digits}f}"


def _marked(kind: str, found: Range | None, text: str, category: str | None = None) -> Markdown:
    """Return ``text`` between the comments that hold its scores."""
    names = ("low", "mid", "high") if kind == ITEM else ("low", "high")
    fields = {"kind": kind} | ({"category": category} if category else {})
    fields |= {name: f"{getattr(found, name):.2f}" if found else "null" for name in names}
    attributes = " ".join(f"{name}={value}" for name, value in fields.items())
    return Markdown(f"<!-- impact-begin {attributes} -->\n{text}\n<!-- impact-end -->")
