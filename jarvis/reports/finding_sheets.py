"""Sheets of the workbook for readers: a summary, and the findings with the notes of a team."""

from typing import Any

import polars as pl

from jarvis.reports import sections, summary
from jarvis.reports.details import Details, details_of
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.run import Run
from jarvis.savings import per_step, whole_name
from jarvis.text.format import percent, utc_minute
from jarvis.text.messages import to_text

SUMMARY, FINDINGS = "summary", "findings"
"""Names of the sheets; those of the performance report follow them."""

_TEXT = pl.String()
_NUMBER = pl.Float64()
_COLUMNS: dict[str, pl.DataType] = {
    "Finding": _TEXT,
    "Title": _TEXT,
    "Category": _TEXT,
    "Priority": _TEXT,
    "Saving (ms)": _NUMBER,
    "Saving (%)": _NUMBER,
    "Saving of": _TEXT,
    "GPU time (ms)": _NUMBER,
    "Efficiency (%)": _NUMBER,
    "Target (%)": _NUMBER,
    "Issue": _TEXT,
    "Change the model": _TEXT,
    "Improve the kernel": _TEXT,
    "Status": _TEXT,
    "Owner": _TEXT,
    "Comments": _TEXT,
    "In the report": _TEXT,
    "Key": _TEXT,
}


def summary_sheet(run: Run, edits: Edits = UNEDITED) -> pl.DataFrame:
    """Return the subject, the summary and the main metrics of a run, one in each row."""
    details, left_out = edits.partition(details_of(run))
    text = edits.summary or summary.paragraph(run, details, is_whole=not left_out)
    rows = [
        ("Model", sections.model_name(run)),
        ("GPU", sections.platform_name(run)),
        ("Trace", run.manifest.trace.file_name),
        ("Target", f"{percent(run.target_pct)} of the roofline"),
        ("Findings", str(len(details))),
        ("Summary", text),
        *summary.metrics(run),
    ]
    return pl.DataFrame(rows, schema=["Subject", "Value"], orient="row")


def findings_sheet(run: Run, edits: Edits = UNEDITED) -> pl.DataFrame:
    """Return all findings in the order of the report; those that it leaves out are last.

    Notes on findings that are not reported follow, without numbers.
    """
    everything = details_of(run)
    details, left_out = edits.partition(everything)
    rows = [_row(each, edits, run) for each in (*edits.ordered(details), *left_out)]
    rows += [
        {
            "Title": notes.title,
            "Status": notes.status.value,
            "Owner": notes.owner,
            "Comments": _comments(edits, notes.key),
            "In the report": "not reported",
            "Key": notes.key,
        }
        for notes in edits.unreported(everything)
    ]
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def _row(details: Details, edits: Edits, run: Run) -> dict[str, Any]:
    finding, key = details.finding, details.recommendation.key
    gain, notes = finding.impact, edits.of_finding(key)
    row: dict[str, Any] = {
        "Finding": details.recommendation.label,
        "Title": to_text(finding.title),
        "Category": details.recommendation.result.title,
        "Priority": finding.priority.value,
        "Issue": to_text(finding.issue),
        "Change the model": to_text(finding.algorithmic),
        "Improve the kernel": to_text(finding.kernel),
        "Status": notes.status.value,
        "Owner": notes.owner,
        "Comments": _comments(edits, key),
        "In the report": "no" if key in edits.left_out else "yes",
        "Key": key,
    }
    if gain is not None:
        whole = whole_name(run.manifest.totals) if gain.step_ms is not None else "GPU window"
        row |= {
            "Saving (ms)": per_step(gain, run.manifest.totals).gain_ms,
            "Saving (%)": gain.gain_pct,
            "Saving of": f"{whole}{', up to' if gain.is_interval else ''}",
            "GPU time (ms)": gain.time_ms,
            "Efficiency (%)": gain.efficiency_pct,
            "Target (%)": gain.target_pct,
        }
    return row


def _comments(edits: Edits, key: str) -> str:
    return "\n\n".join(
        f"{comment.stamp.name}, {utc_minute(comment.stamp.moment)}: {comment.text}"
        for comment in edits.of_finding(key).comments
    )
