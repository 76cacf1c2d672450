"""The downloads of the report page: small files are made on a click, large ones by a job."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.file_jobs import file_button, file_job
from jarvis.replay.package import automatic_rule
from jarvis.reports.edits import Edits
from jarvis.reports.fair import fair_markdown
from jarvis.reports.html import html_document
from jarvis.server.jobs.kinds import WHOLE_RUN, Export
from jarvis.server.jobs.kinds.files import file_name_of
from jarvis.server.storage.downloads import zipped

PAGE = "report"
_ZIP, _ZIP_ICON = "application/zip", ":material/folder_zip:"


def downloads(now: Opened, edits: Edits) -> None:
    """Reports for people on the left, data for tools on the right."""
    people, tools = st.columns(2)
    with people.container(border=True, height="stretch"):
        st.markdown("**Documents**")
        _reports(now, edits)
    with tools.container(border=True, height="stretch"):
        st.markdown("**Data**")
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
    root, paths = now.root, RunPaths(now.root)
    csvs = paths.perf_report_csvs
    document, whole = Export(now.id, "json"), Export(now.id, WHOLE_RUN)
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
        file_button(
            PAGE,
            "JSON",
            document,
            "Manifest, findings and tables; single events are left out, and listed.",
        )
        file_button(
            PAGE,
            "Whole run (zip)",
            whole,
            "Every file of the analysis; `jarvis validate` checks it.",
            _ZIP_ICON,
        )
    file_job(PAGE, document, whole)


def replay_packages(now: Opened) -> None:
    """The packages that the analysis made, and where to make others."""
    index = RunPaths(now.root).replay_packages
    files = sorted(index.glob("*.zip"))
    with st.container(border=True):
        st.markdown("**Replay packages of single operators**")
        st.caption(
            "The recorded calls of an operator with a program that times them: for a kernel team. "
            f"The analysis makes one for each operator that takes {automatic_rule()}."
        )
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            _button(
                now,
                f"Packages of the analysis ({len(files)})",
                "replay_packages.zip",
                lambda: zipped(now.root, files),
                "All packages that the analysis made.",
                _ZIP,
                is_there=bool(files),
            )
            navigation.link(
                navigation.REPLAY, "Choose operators to package", icon=":material/replay:"
            )


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
        file_name=file_name_of(now.run, file_name),
        mime=mime,
        key=f"report_download_{label}",
        icon=_ZIP_ICON if mime == _ZIP else ":material/download:",
        on_click="ignore",
        disabled=not is_there,
        help=meaning if is_there else "This run does not have it: analyze the trace again.",
    )
