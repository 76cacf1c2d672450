"""``standalone_analysis_fair.md``: the report for stakeholders."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from jarvis.core.notes import FindingNotes
from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import IDLE_POOL, Finding, Impact, Priority, Status
from jarvis.perf_report.timeline.host_spans import KERNEL_LOADING
from jarvis.reports import appendix, sections, summary
from jarvis.reports.account import recomputed_ns
from jarvis.reports.details import Details, details_of
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.figures import target_words
from jarvis.reports.gaps import warnings_of
from jarvis.reports.health import health_of
from jarvis.reports.messages import MESSAGES
from jarvis.reports.rendering import render
from jarvis.reports.reporter import Reporter, run_folder
from jarvis.reports.uncertainty import uncertainty
from jarvis.run import Run
from jarvis.simulation.quality import Grade
from jarvis.text.format import MISSING, counted, milliseconds, percent, quoted
from jarvis.text.markdown import Markdown, anchor, cell, prose, table
from jarvis.text.messages import to_text
from jarvis.trace_health import Severity

MAX_WORDS = 1500
"""Words of a report of any trace, tables and headings included."""

MIN_ROWS, MAX_ROWS = 3, 12
"""Rows of the table of findings: up to the last one above low priority, within these limits."""

TOP_SHOWN = 5
"""Rows of the table of operations."""

ISSUE_WORDS, ACTION_WORDS = 48, 28
"""Words of a card's sentences; the findings file has the whole text."""

LABEL_WORDS = 14
"""Words of the labels and the link of a card."""

INSIDE = RunPaths(Path())
"""The run directory's layout, for paths relative to the report."""

PARTS_OF_LINKED = ("launched_before", "launches_without_arrow", "gpu_span_all")
"""Facts that are parts of the warning about GPU time without a link."""


def packages(root: Path) -> list[Markdown]:
    """Return the replay packages, or why an operation has none."""
    index = _index(root)
    folder = INSIDE.replay_packages
    return [
        cell(str(folder / package["package"]))
        if package["package"]
        else prose(f"{quoted(package['op_name'])}: none, {package['reason']}")
        for package in (index["operations"] if index else ())
    ]


def _index(root: Path) -> dict[str, Any] | None:
    """Return the index of the packages; None if none were built."""
    path = RunPaths(root).replay_index
    return orjson.loads(path.read_bytes()) if path.is_file() else None


BASIS = (
    "{order}{words}{target}{stacks}{recomputed} Savings of the same time do not add up. Action A "
    "may change the model; action B does not change its code."
)
TARGET = " Operations with a perf model have a target of {target} of the roofline{usual}."
USUAL = ", or the usual efficiency that a finding states"
WORDS = " Priorities also weigh efficiency, and whether a trace of one rank only bounds a saving."
RECOMPUTED = " Activation checkpointing computes {time} of kernels again in the backward pass."
STACKS = " Recording Python stacks lengthened the host's part of the recording."
REPLAYED = "Ordered by the step time that they save in a replay of the recorded steps."
ESTIMATED = (
    "Ordered by the step time that they save: estimated from what bounds it, for GPU work with the "
    "host's time unchanged, not simulated."
)
ORDER_WITHOUT_STEPS = "Ordered by the GPU time that they save; the step time is not known."
FORMER_ORDER = "Ordered by priority, and within a priority by saving."
OF_AUTHOR = "Listed in the order of the author. "
ORDERED, NUMBERED = "Ordered", "Numbered"
UNREPORTED = (
    "Not reported by this analysis, or not at its target. The notes were written for an earlier "
    "version of the report."
)


def _basis(run: Run, details: list[Details], *, is_reordered: bool) -> str:
    """Return how findings are ordered, what they assume, and what their actions are."""
    totals, order = run.manifest.totals, FORMER_ORDER
    if totals.step is not None:
        info = run.manifest.simulation
        is_replayed = info is not None and info.quality.grade is not Grade.NOT_SIMULATED
        order = REPLAYED if is_replayed else ESTIMATED
        if why := uncertainty(run) if is_replayed else None:
            order = f"{order} {why}"
        if totals.step.step_ms is None:
            order = ORDER_WITHOUT_STEPS
    if is_reordered:
        order = f"{OF_AUTHOR}{order.replace(ORDERED, NUMBERED, 1)}"
    gains = (each.finding.impact for each in details)
    targets = {gain.target_pct for gain in gains if gain is not None} - {None}
    shown = (d.finding.impact for d in details[:MAX_ROWS] if d.finding.priority is not Priority.LOW)
    own = {gain.target_pct for gain in shown if gain is not None} - {None, *run.targets.all}
    aim = TARGET.format(target=target_words(run), usual=USUAL if own else "") if targets else ""
    words, ns = [each.finding.priority.rank for each in details], recomputed_ns(run)
    return BASIS.format(
        order=order,
        words=WORDS if words != sorted(words) else "",
        target=aim,
        stacks=STACKS if _is_lengthened(run, details) else "",
        recomputed=RECOMPUTED.format(time=milliseconds(ns / 1e6)) if ns else "",
    )


def _is_lengthened(run: Run, details: list[Details]) -> bool:
    """Return whether the host limits the first finding and stacks were recorded."""
    if not details or not any(fact.key == "stacks" and fact.value for fact in health_of(run)):
        return False
    finding, gain = details[0].finding, details[0].finding.impact
    pool = finding.time_pool or ""
    if pool.startswith(IDLE_POOL):
        return not pool.endswith(KERNEL_LOADING)  # the driver does that
    return gain is not None and gain.step_ms is not None and gain.step_ms.high < gain.saved_ms.high


@dataclass(frozen=True)
class Card:
    """One finding in the report: its first sentences; the findings file has everything."""

    details: Details
    actions: tuple[tuple[str, Markdown], ...]
    """What to do, by the letter of the path."""

    @property
    def label(self) -> str:
        """Return ``P2``."""
        return self.details.recommendation.label

    @property
    def priority(self) -> Priority:
        """Return the priority of the finding."""
        return self.details.finding.priority

    @property
    def title(self) -> Markdown:
        """Return the title of the finding."""
        return self.details.recommendation.title

    @property
    def heading(self) -> str:
        """Return its heading as text, for the anchor."""
        title = to_text(self.details.finding.title)
        return f"{self.priority.icon} {self.label} ({self.priority.value}): {title}"

    @property
    def headed_actions(self) -> list[tuple[str, Markdown]]:
        """Return the actions with headings in place of letters."""
        headings = sections.action_headings(self.details.finding)
        return [(heading, text) for heading, (_, text) in zip(headings, self.actions, strict=True)]

    @property
    def issue(self) -> Markdown:
        """Return what the trace shows."""
        return sections.lead(self.details.finding.issue, ISSUE_WORDS, ".;:")

    @property
    def saving(self) -> str:
        """Return the saving with its upper bound."""
        is_known = self.details.finding.impact is not None
        return to_text(self.details.short_saving) if is_known else "not known"

    @property
    def words(self) -> int:
        """Return how many words it has."""
        texts = [self.heading, self.issue, self.saving, *(action for _, action in self.actions)]
        return LABEL_WORDS + sum(len(text.split()) for text in texts)

    @property
    def file(self) -> str:
        """Return the file with the evidence."""
        return _findings_file(self.details)


def _findings_file(details: Details) -> str:
    """Return the path of the file with the evidence of a finding, inside the run."""
    result = details.recommendation.result
    return str(INSIDE.findings(result.key, result.tier))


class FairReporter(Reporter):
    """The report for stakeholders."""

    name = "fair"
    suffix = ".md"
    has_notes = True

    def place(self, paths: RunPaths) -> Path:
        return paths.standalone_report(self.name)

    def render(self, run: Run, out: Path) -> None:
        write_output(out, fair_markdown(run, run_folder(run, out), self.edits))


def fair_markdown(run: Run, root: Path, edits: Edits = UNEDITED) -> str:
    """Return the report of a run whose directory is ``root``, with the author's edits."""
    return render("fair", **fair_parts(run, root, edits))


def fair_parts(run: Run, root: Path, edits: Edits = UNEDITED) -> dict[str, Any]:
    """Return the content of the report, by the names of its templates; texts are Markdown or
    plain."""
    everything = details_of(run)
    details, left_out = edits.partition(everything)
    ordered = edits.ordered(details)
    listed = ordered[: listed_count(d.finding for d in ordered)]
    parts: dict[str, Any] = {
        "model": sections.model_name(run),
        "platform": sections.platform_name(run),
        "summary": edits.summary or prose(summary.paragraph(run, details, is_whole=not left_out)),
        "author_note": _author_note(edits, left_out),
        "metrics": list(summary.metrics(run)),
        "top_operations": summary.top_operations(run, TOP_SHOWN),
        "warnings": warnings_of(run),
        "unsteady": [d for d in details if d.finding.check == "high_variance"],
        "failures": [r for r in run.results.values() if r.status is Status.ERROR],
        "basis": _basis(run, details, is_reordered=ordered != details),
        "cards": [],
        "listed": listed,
        "findings": _ranked_table(listed, [], edits) if listed else None,
        "more": len(details) - len(listed),
        "left_out": _ranked_table(left_out, None, edits) if left_out else None,
        "unreported": _unreported(edits.unreported(everything)),
        "unreported_note": UNREPORTED,
        "sections": _sections(run),
        "notes": [
            fact
            for fact in health_of(run)
            if fact.severity is Severity.NOTE
            and fact.key not in PARTS_OF_LINKED
            and (fact.key != "device" or run.manifest.hardware)
        ],
        "source": appendix.source(run),
        "hardware": appendix.hardware_lines(run),
        "packages": packages(root),
    }
    if cards := _cards(ordered, MAX_WORDS - len(render("fair", **parts).split())):
        parts |= {"cards": cards, "findings": _ranked_table(listed, cards, edits)}
    return parts


def listed_count(findings: Iterable[Finding]) -> int:
    """Return how many of these findings the table has at most."""
    numbered = enumerate(findings, start=1)
    urgent = (n for n, finding in numbered if finding.priority is not Priority.LOW)
    return min(max([MIN_ROWS, *urgent]), MAX_ROWS)


def _cards(details: list[Details], max_words: int) -> list[Card]:
    """Return the cards of the first findings above low priority, of at most ``max_words`` words.

    An action of an earlier card is not repeated; findings without a card are in the table alone.
    """
    cards, labels = list[Card](), dict[str, str]()
    for detail in details[:MAX_ROWS]:
        if detail.finding.priority is Priority.LOW:
            continue
        finding, label = detail.finding, detail.recommendation.label
        actions = [sections.lead(t, ACTION_WORDS) for t in (finding.algorithmic, finding.kernel)]
        shown = [prose(f"As for {labels[text]}.") if text in labels else text for text in actions]
        cards.append(Card(detail, tuple(zip("AB", shown, strict=True))))
        labels = dict.fromkeys(actions, label) | labels
    totals = accumulate(card.words for card in cards)
    return [card for card, total in zip(cards, totals, strict=True) if total <= max_words]


def _sections(run: Run) -> list[tuple[str, str, str]]:
    """Return key, title and findings file of each analysis with findings, most time first."""
    system = [(result, result.title) for result in sections.cross_results(run)]
    compute = [
        (
            result,
            to_text(MESSAGES("title", title=result.title, compute_pct=result.percent_of_compute)),
        )
        for result in sections.compute_results(run)
    ]
    return [
        (result.key, title, str(INSIDE.findings(result.key, result.tier)))
        for result, title in (*system, *compute)
        if result.findings
    ]


def _author_note(edits: Edits, left_out: list[Details]) -> str | None:
    """Return a note on the author's changes; None without any."""
    rewritten = "The author of this report wrote the summary." if edits.summary else ""
    listed = (
        f"The author left out {counted(len(left_out), 'finding')}; the appendix lists "
        f"{'it' if len(left_out) == 1 else 'them'}."
        if left_out
        else ""
    )
    return " ".join(filter(None, (rewritten, listed))) or None


def _ranked_table(details: list[Details], cards: list[Card] | None, edits: Edits) -> Markdown:
    """Return the findings with the share that they save and the team's decisions, if there are any.

    Those with a card are linked to it, others to their findings file; none if ``cards`` is None.
    """
    anchors = {card.label: f"#{anchor(card.heading)}" for card in cards or ()}
    notes = [edits.of_finding(d.recommendation.key) for d in details]
    has_decisions = any(each.has_decision for each in notes)
    return table(
        ("", "Finding", "Saving", *(DECISION if has_decisions else ())),
        (
            (
                label
                if cards is None
                else Markdown(f"[{label}]({anchors.get(label) or _findings_file(d)})"),
                d.recommendation.title,
                share(d.finding.impact),
                *(_decision(note) if has_decisions else ()),
            )
            for d, note in zip(details, notes, strict=True)
            for label in (d.recommendation.label,)
        ),
    )


DECISION = ("Status", "Owner")


def _decision(notes: FindingNotes) -> tuple[str, str]:
    return notes.status, notes.owner or MISSING


def _unreported(notes: list[FindingNotes]) -> Markdown | None:
    """Return the decisions on findings that the report does not have; None without any."""
    decided = [each for each in notes if each.has_decision]
    if not decided:
        return None
    return table(("Finding", *DECISION), ((prose(n.title), *_decision(n)) for n in decided))


def share(gain: Impact | None) -> str:
    """Return the share that a finding saves, as in the table of findings."""
    if gain is None:
        return MISSING
    return f"{'up to ' if gain.is_interval else ''}{percent(gain.gain_pct)}"


REPORTER = FairReporter()
