"""The downloads of the report page; each file is made when its button is clicked."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.controls import list_choice
from jarvis.dashboard.links import note_control
from jarvis.dashboard.small_table import small_table
from jarvis.dashboard.state import Opened
from jarvis.replay.package import automatic_rule
from jarvis.reports.edits import Edits
from jarvis.reports.fair import fair_markdown
from jarvis.reports.html import html_document
from jarvis.reports.markup import cell, prose
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.server.catalogue import name_of
from jarvis.server.downloads import (
    REPLAY_OFFERED_PCT,
    Replay,
    exported,
    replay_package,
    replays,
    zipped,
)
from jarvis.workspace import RunPaths, safe_name

_ZIP = "application/zip"
_REPLAY_COLUMNS = (
    Column("name", "Operator", TEXT, meaning="the operator whose calls are replayed"),
    Column("percent_of_compute", "Compute (%)", NUMBER, "%", ",.1f", "share of compute time"),
    Column("efficiency_pct", "Efficiency (%)", NUMBER, "%", ",.1f", "share of the roofline"),
    Column("package", "Package", TEXT, meaning="made with the analysis, or why not"),
)


def downloads(now: Opened, edits: Edits) -> None:
    """Reports for people on the left, data for tools on the right."""
    people, tools = st.columns(2)
    with people.container(border=True, height="stretch"):
        st.markdown("**Read and pass on**")
        _reports(now, edits)
    with tools.container(border=True, height="stretch"):
        st.markdown("**Compute with it**")
        _data(now)


def _reports(now: Opened, edits: Edits) -> None:
    run, root, paths = now.run, now.root, RunPaths(now.root)
    with st.container(horizontal=True, gap="small"):
        _button(
            now,
            "HTML with charts",
            paths.standalone_html.name,
            lambda: html_document(run, root, edits).encode(),
            "One file for any browser: no network, prints well. As edited above.",
            "text/html",
        )
        _button(
            now,
            "fair.md",
            paths.standalone_report("fair").name,
            lambda: fair_markdown(run, root, edits).encode(),
            "The clean report for stakeholders, as edited above.",
        )
        _file(now, "rough.md", paths.standalone_report("rough"), "The working, unedited.")
        _file(
            now,
            "analysis.md",
            paths.analysis_report,
            "The report in the layout that other tools read, unedited.",
        )
        parts = [paths.findings(result.key, result.tier) for result in run.results.values()]
        _button(
            now,
            "Findings (zip)",
            "findings.zip",
            lambda: zipped(root, parts),
            "The findings of each analysis as Markdown, unedited.",
            _ZIP,
        )


def _data(now: Opened) -> None:
    run, root, paths = now.run, now.root, RunPaths(now.root)
    csvs = paths.perf_report_csvs
    with st.container(horizontal=True, gap="small"):
        _file(now, "Workbook (xlsx)", paths.perf_report_xlsx, "One tab for each sheet.")
        _button(
            now,
            "CSV (zip)",
            f"{csvs.name}.zip",
            lambda: zipped(root, [csvs]),
            "One file for each sheet.",
            _ZIP,
        )
        _button(
            now,
            "JSON",
            "run.json",
            lambda: exported(run, "json"),
            "Manifest, findings and tables; single events are left out, and listed.",
            "application/json",
        )
        _button(
            now,
            "Whole run (zip)",
            "run.zip",
            lambda: zipped(root),
            "Every file of the analysis; `jarvis validate` checks it.",
            _ZIP,
        )


def replay_packages(now: Opened) -> None:
    """Packages that time single operators elsewhere: a table, and a download for each; worked out
    only where it is opened."""
    with st.expander(
        "Replay packages of single operators",
        icon=":material/replay:",
        key="report_packages",
        on_change="rerun",
        bind="query-params",
    ) as card:
        if not card.open:
            return
        note_control("report_packages", "true")
        offered = replays(now.run, now.root)
        if not offered:
            st.info(
                f"No operator takes {REPLAY_OFFERED_PCT:g}% of compute, so none is worth replaying."
            )
            return
        st.caption(
            "The recorded calls of one operator with a program that times them: for a kernel team. "
            "It needs Python and torch. One is made with the analysis for each operator that takes "
            f"{automatic_rule()}."
        )
        frame = pl.DataFrame(
            [
                {
                    "name": replay.name,
                    "percent_of_compute": replay.percent_of_compute,
                    "efficiency_pct": replay.efficiency_pct,
                    "package": _words(replay),
                }
                for replay in offered
            ],
            schema_overrides={"efficiency_pct": pl.Float64},
        )
        small_table(
            frame,
            columns_of(_REPLAY_COLUMNS),
            "Operators by their share of compute, and whether they have a replay package",
            widths={"name": 260, "percent_of_compute": 100, "efficiency_pct": 110},
        )
        _replay_buttons(now, offered)


def _replay_buttons(now: Opened, offered: list[Replay]) -> None:
    run, root, paths = now.run, now.root, RunPaths(now.root)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        with st.container(width=360):
            name = list_choice(
                "report_replay", "Operator", [r.name for r in offered], "Whose calls to replay."
            )
        package = replay_package(run, name)
        _button(
            now,
            "Package (zip)",
            paths.replay_package(name).name,
            lambda: package if isinstance(package, bytes) else b"",
            f"The calls of {cell(name)}.",
            _ZIP,
            is_there=isinstance(package, bytes),
        )
        files = [paths.replay_package(replay.name) for replay in offered if replay.is_ready]
        _button(
            now,
            "Packages of the analysis (zip)",
            "replay_packages.zip",
            lambda: zipped(root, files),
            "All packages that the analysis made.",
            _ZIP,
            is_there=bool(files),
        )
    if isinstance(package, str):
        st.warning(f"No package for {cell(name)}: {prose(package)}")


def _words(replay: Replay) -> str:
    if replay.is_ready:
        return "made with the analysis"
    return f"none: {replay.reason}" if replay.reason else "made on click"


def _file(now: Opened, label: str, path: Path, meaning: str) -> None:
    _button(now, label, path.name, path.read_bytes, meaning, is_there=path.is_file())


def _button(
    now: Opened,
    label: str,
    file_name: str,
    make: Callable[[], bytes],
    meaning: str,
    mime: str | None = None,
    *,
    is_there: bool = True,
) -> None:
    """A button that makes the file on click; the model's name stands before the file's."""
    st.download_button(
        label,
        data=make,
        file_name=f"{safe_name(name_of(now.run.manifest))}_{file_name}",
        mime=mime,
        key=f"report_download_{label}",
        icon=":material/folder_zip:" if mime == _ZIP else ":material/download:",
        on_click="ignore",
        disabled=not is_there,
        help=meaning if is_there else "This run does not have it: analyse the trace again.",
    )
