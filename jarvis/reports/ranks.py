"""``ranks_analysis_fair.md``: the report on several ranks."""

from collections.abc import Iterator, Sequence

import polars as pl

from jarvis.findings import AnalysisResult, Finding, shown_evidence
from jarvis.ranks.findings.facts import MIN_GAIN_PCT
from jarvis.ranks.identity import missing_text
from jarvis.ranks.manifest import DistributedManifest
from jarvis.ranks.per_step import COLUMNS, Tables, basis, ranks_per_step, shown_columns
from jarvis.reports.sections import measured
from jarvis.text.format import MISSING, decimal, milliseconds, percent
from jarvis.text.markdown import Markdown, escape, prose, table
from jarvis.text.quantities import title_of

NO_FINDING = (
    "No finding: no check of the ranks and their collectives found a gain of at least "
    f"{MIN_GAIN_PCT:g}% of the median step."
)
"""What a report without findings says."""


PARTS = ("slow_gpu", "work_imbalance")
"""Checks that find a part of what a late rank takes longer in."""


def nested(findings: Sequence[Finding]) -> list[tuple[int, Finding, int | None]]:
    """Return findings with their numbers, each followed by those that it contains, which have its
    number.

    That a rank is late contains what the same rank computes more slowly, or more, if that saves no
    more.
    """
    found = [(n, each, _container(each, findings)) for n, each in enumerate(findings, 1)]
    return sorted(found, key=lambda row: (row[2] or row[0], row[0]))


def _container(part: Finding, findings: Sequence[Finding]) -> int | None:
    if part.check not in PARTS or part.impact is None:
        return None
    for number, each in enumerate(findings, 1):
        is_late = each.check == "late_rank" and each.evidence["rank"] == part.evidence["rank"]
        if is_late and each.impact is not None and each.impact.gain_ms >= part.impact.gain_ms:
            return number
    return None


def part_of(number: int) -> str:
    """Return the note on a finding that another one contains."""
    return f"Part of P{number}: it saves the same time."


def ranks_report(manifest: DistributedManifest, result: AnalysisResult, tables: Tables) -> str:
    """Return the report as Markdown.

    Args:
        manifest: The manifest of the distributed run.
        result: The findings on its ranks.
        tables: Its tables.
    """
    parts = [
        "# Ranks",
        *_facts(manifest, result),
        "## Findings",
        _overview(result.findings) if result.findings else NO_FINDING,
        *(part for row in nested(result.findings) for part in _card(*row)),
        "## Ranks",
        _table(ranks_per_step(tables)),
        f"Times are {basis(tables)}. Waiting of others adds up over the ranks; a step gains far "
        "less. Step saved: by how much the median step would be shorter if the rank were as fast "
        "as the median.",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(manifest: DistributedManifest, result: AnalysisResult) -> Iterator[str]:
    step_ms = result.metrics.get("step_ms")
    step = ""
    if isinstance(step_ms, float) and step_ms > 0:  # 0 without marked steps
        step = f" The median step takes {milliseconds(step_ms)}."
    yield f"{escape(manifest.title)}, {manifest.matching.instances:,} matched collectives.{step}"
    size = manifest.world_size
    known = [prose(note) for note in result.notes]
    if manifest.missing:
        text = missing_text(manifest.missing, size.value, size.source)
        known.insert(0, escape(text[0].upper() + text[1:]))
    known += [escape(f"{entry.file_name}: {entry.error}") for entry in manifest.failed]
    if known:
        yield "\n".join(f"- {line}" for line in known)


def _overview(findings: Sequence[Finding]) -> Markdown:
    rows = (
        (
            f"{'' if whole is None else '↳ '}P{n}",
            each.priority.value,
            prose(each.title),
            *_gain(each),
        )
        for n, each, whole in nested(findings)
    )
    return table(("", "Priority", "Finding", "Step gain, at least", "At most"), rows)


def _gain(finding: Finding) -> tuple[str, str]:
    gain = finding.impact
    if gain is None or gain.step_ms is None or gain.step_pct is None:
        return MISSING, MISSING
    return (
        f"{milliseconds(gain.step_ms.low)} ({percent(gain.step_pct.low)})",
        f"{milliseconds(gain.step_ms.high)} ({percent(gain.step_pct.high)})",
    )


def _card(number: int, finding: Finding, whole: int | None) -> Iterator[str]:
    yield f"### P{number}: {prose(finding.title)}"
    if whole is not None:
        yield part_of(whole)
    yield prose(finding.issue)
    yield "\n".join(f"- {prose(action)}" for action in (*finding.algorithmic, *finding.kernel))
    facts = shown_evidence(finding)
    yield table(
        ("Evidence", "Value"),
        ((title_of(name), measured(title_of(name), value)) for name, value in facts.items()),
    )
    yield prose((*finding.caveat, *finding.verify))


def _table(ranks: pl.DataFrame) -> Markdown:
    labels = {column.name: column.label for column in COLUMNS}
    shown = shown_columns(ranks)
    rows = (
        tuple(
            decimal(value) if isinstance(value, float) else MISSING if value is None else str(value)
            for value in row
        )
        for row in ranks.select(shown).iter_rows()
    )
    return table([labels[name] for name in shown], rows)
