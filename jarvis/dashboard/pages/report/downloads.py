"""Downloads of the report page: small files are made on click, large ones by a job."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.state import HASH_OPENED, Opened
from jarvis.dashboard.widgets.controls import keyed_segments, list_choice
from jarvis.dashboard.widgets.file_jobs import file_button, file_job
from jarvis.pipeline import reproject
from jarvis.replay.package import automatic_rule
from jarvis.reports import reporter
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.fair import fair_markdown
from jarvis.reports.html import html_document
from jarvis.reports.rough import rough_markdown
from jarvis.run import Run
from jarvis.server.jobs.kinds import WHOLE_RUN, Export
from jarvis.server.jobs.kinds.files import file_name_of
from jarvis.server.storage.downloads import zipped

FAIR, HTML, ROUGH, ANALYSIS, FINDINGS = "fair", "html", "rough", "analysis", "findings"
_VIEWS = {
    FAIR: "report",
    HTML: "report with charts",
    ROUGH: "detailed report",
    ANALYSIS: "fixed layout",
    FINDINGS: "findings",
}
_EXPLAINED = {
    FAIR: "The clean report for stakeholders, as edited above.",
    HTML: "The same report with charts in one file, as edited above.",
    ROUGH: "The detailed report: steps, raw tables, call paths, comments, gaps, open questions.",
    ANALYSIS: "The report in a fixed layout for other tools. Unedited.",
    FINDINGS: "The findings of one analysis. Unedited.",
}
_HTML_PX = 900
_MAX_CACHED, _MAX_WRITTEN = 32, 8


def preview(now: Opened, edits: Edits) -> None:
    """Draw the choice of a report, and its preview."""
    left, right = st.columns([3, 2])
    with left:
        view = keyed_segments("report_view", "Preview", _VIEWS, "Report to preview.")
    st.caption(_EXPLAINED[view])
    if view == HTML:
        # The document's content security policy forbids scripts and external resources.
        st.iframe(_html(now, edits), height=_HTML_PX, alt="The HTML report")
        return
    paths = RunPaths(now.root)
    if view == FINDINGS:
        with right:
            keys = [r.key for r in now.run.results.values()]
            key = list_choice(
                "report_category", "Analysis", keys, "Analysis whose findings to show."
            )
        path = paths.findings(key, now.run.results[key].tier)
    else:
        path = paths.analysis_report if view == ANALYSIS else paths.standalone_report(view)
    with st.container(border=True):
        if view == FAIR and (edits != UNEDITED or now.run.stored):
            st.markdown(_with_page_links(now, _fair(now, edits)))
            return
        if view == ROUGH and edits != UNEDITED:
            st.markdown(_rough(now, edits))
            return
        path = _written(now, path)
        if path.is_file():
            st.markdown(_with_page_links(now, path.read_text(encoding="utf-8")))
        else:
            st.info(f"This run has no {path.name}: analyze the trace again to create it.")


def _with_page_links(now: Opened, report: str) -> str:
    """Return a report whose links to findings files lead to the pages with these findings."""
    for key, result in now.run.results.items():
        file = RunPaths(Path()).findings(key, result.tier)
        report = report.replace(f"]({file})", f"]({navigation.own_address(key)})")
    return report


def _written(now: Opened, file: Path) -> Path:
    """Return a file of the run directory, as it is at the targets of the page."""
    if now.run.stored is None:
        return file
    return Path(_written_again(now).name, file.relative_to(now.root))


@st.cache_resource(
    max_entries=_MAX_WRITTEN,
    show_spinner="Writing the reports",
    hash_funcs=HASH_OPENED,
    on_release=TemporaryDirectory.cleanup,
)
def _written_again(now: Opened) -> TemporaryDirectory[str]:
    """Return a run directory at the targets of the page, removed with its cache entry."""
    folder = TemporaryDirectory(prefix="jarvis-targets-", ignore_cleanup_errors=True)
    pct, own = now.other_targets
    reproject(now.root, target_pct=pct, category_targets=own, output_dir=folder.name)
    return folder


def _written_run(now: Opened) -> Run:
    """Return the run at the targets of the page with all its tables."""
    return now.run if now.run.stored is None else Run.load(_written(now, now.root))


@st.cache_data(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _html(now: Opened, edits: Edits) -> str:
    return html_document(now.run, now.root, edits)


@st.cache_data(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _rough(now: Opened, edits: Edits) -> str:
    return rough_markdown(_written_run(now), edits)


@st.cache_data(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _fair(now: Opened, edits: Edits) -> str:
    return fair_markdown(now.run, now.root, edits)


PAGE = "report"
_ZIP, _ZIP_ICON = "application/zip", ":material/folder_zip:"
_MENU_PX = 560


def place() -> DeltaGenerator:
    """Return the place of the downloads, which is above the editor that they depend on."""
    return st.container()


def downloads(now: Opened, edits: Edits, place: DeltaGenerator) -> None:
    """Draw the download of the report, and a menu of all other formats by reader."""
    with place:
        _downloads(now, edits)


def _downloads(now: Opened, edits: Edits) -> None:
    run, root = now.run, now.root
    document, whole = (Export(now.id, name, *now.other_targets) for name in ("json", WHOLE_RUN))
    page_url = _page_url(now)  # the file is made outside the page's script
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _button(
            now,
            "Report (HTML)",
            RunPaths(root).standalone_html.name,
            lambda: html_document(run, root, edits, page_url).encode(),
            "One self-contained file with charts for any browser, printable. As edited below.",
            "text/html",
            is_primary=True,
        )
        with st.popover("Other formats", width="content"):
            _for_managers(now, edits)
            _for_engineers(now, edits)
            _for_tools(now, document, whole)
    file_job(PAGE, document, whole)


def _page_url(now: Opened) -> str | None:
    """Return the address of this page, for readers of a file; None if it is not known."""
    here = urlsplit(st.context.url or "")
    if not here.netloc:
        return None
    query = urlencode({links.ANALYSIS: now.id})
    return urlunsplit((here.scheme, here.netloc, here.path, query, ""))


def _menu(title: str, meaning: str) -> DeltaGenerator:
    """Draw a heading of the menu; return the row for its buttons."""
    st.markdown(f"**{title}** · :small[{meaning}]", width=_MENU_PX)
    return st.container(horizontal=True, gap="small")


def _for_managers(now: Opened, edits: Edits) -> None:
    with _menu("Manager", "the report as text"):
        _button(
            now,
            "Report (Markdown)",
            RunPaths(now.root).standalone_report("fair").name,
            lambda: fair_markdown(now.run, now.root, edits).encode(),
            "The clean report for stakeholders, with status and owner of each finding.",
        )


def _for_engineers(now: Opened, edits: Edits) -> None:
    run, root, paths = now.run, now.root, RunPaths(now.root)
    parts = [paths.findings(result.key, result.tier) for result in run.results.values()]
    csvs = paths.perf_report_csvs
    with _menu("Engineer", "evidence and tables"):
        _edited(
            now,
            "Detailed report (Markdown)",
            paths.standalone_report("rough"),
            edits,
            "rough",
            "The detailed report, with the comments on its findings.",
        )
        _edited(
            now,
            "Workbook (xlsx)",
            paths.perf_report_xlsx,
            edits,
            "xlsx",
            "A summary, the findings with status, owner and comments, and a tab for each sheet.",
        )
        _button(
            now,
            "Findings (zip)",
            "findings.zip",
            lambda: zipped(_written(now, root), [_written(now, part) for part in parts]),
            "The findings of each analysis as Markdown, unedited.",
            _ZIP,
        )
        _button(
            now,
            "CSV (zip)",
            f"{csvs.name}.zip",
            lambda: zipped(root, [csvs]),
            "One file for each sheet.",
            _ZIP,
        )


def _for_tools(now: Opened, document: Export, whole: Export) -> None:
    with _menu("Tools", "fixed layouts, without notes"):
        _file(
            now,
            "Fixed layout (Markdown)",
            RunPaths(now.root).analysis_report,
            "The report in a fixed layout for other tools, unedited.",
        )
        file_button(
            PAGE,
            "JSON",
            document,
            "Manifest, findings and tables, without single events (their tables are listed).",
        )
        file_button(
            PAGE,
            "Whole run (zip)",
            whole,
            "Every file of the analysis; `jarvis validate` checks it.",
            _ZIP_ICON,
        )


def replay_packages(now: Opened) -> None:
    """Draw the download of the analysis's replay packages, and a link to make others."""
    index = RunPaths(now.root).replay_packages
    files = sorted(index.glob("*.zip"))
    with st.container(border=True):
        st.markdown("**Replay packages of single operators**")
        st.caption(
            "The recorded calls of an operator and a program that times them, for a kernel team. "
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
                is_available=bool(files),
            )
            navigation.link(
                navigation.REPLAY, "Choose operators to package", icon=":material/replay:"
            )


def _edited(
    now: Opened, label: str, path: Path, edits: Edits, format_name: str, meaning: str
) -> None:
    """Draw the download of a report in which notes are written; without any, its file."""

    def made() -> bytes:
        with TemporaryDirectory() as folder:
            out = Path(folder) / path.name
            reporter(format_name).with_notes(edits).render(_written_run(now), out)
            return out.read_bytes()

    if edits == UNEDITED and path.is_file():
        _file(now, label, path, meaning)
    else:
        _button(now, label, path.name, made, meaning)


def _file(now: Opened, label: str, path: Path, meaning: str) -> None:
    def content() -> bytes:
        return _written(now, path).read_bytes()

    _button(now, label, path.name, content, meaning, is_available=path.is_file())


def _button(
    now: Opened,
    label: str,
    file_name: str,
    make: Callable[[], bytes],
    meaning: str,
    mime: str | None = None,
    *,
    is_available: bool = True,
    is_primary: bool = False,
) -> None:
    """Draw a download that is made on click; the file name begins with the model's name."""
    st.download_button(
        label,
        data=make,
        file_name=file_name_of(now.run, file_name),
        mime=mime,
        key=f"report_download_{label}",
        icon=_ZIP_ICON if mime == _ZIP else ":material/download:",
        type="primary" if is_primary else "secondary",
        on_click="ignore",
        disabled=not is_available,
        help=meaning if is_available else "Not in this run: analyze the trace again.",
    )
