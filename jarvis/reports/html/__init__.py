"""The report for stakeholders as one HTML file: inline charts, no scripts, no external
resources."""

from pathlib import Path

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.reporter import Reporter, run_folder
from jarvis.run import Run


class HtmlReporter(Reporter):
    """Written on demand; works offline and in print, in light and dark mode."""

    name = "html"
    suffix = ".html"
    in_run = False
    has_notes = True

    def place(self, paths: RunPaths) -> Path:
        return paths.standalone_html

    def render(self, run: Run, out: Path) -> None:
        write_output(out, html_document(run, run_folder(run, out), self.edits, self.page_url))


def html_document(
    run: Run, root: Path, edits: Edits = UNEDITED, page_url: str | None = None
) -> str:
    """Return the document of a run whose directory is ``root``, with the author's edits.

    The chart libraries are imported lazily.

    Args:
        run: the run.
        root: its directory.
        edits: the notes of its team.
        page_url: address of the report's page, to link to it.
    """
    from jarvis.reports.html.document import document

    return document(run, root, edits, page_url)


REPORTER = HtmlReporter()
