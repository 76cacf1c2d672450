"""Jobs that make a file of an analysis, to be taken home."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.errors import JarvisError, ReplayError
from jarvis.pipeline import Progress, Step
from jarvis.replay import select
from jarvis.reports import load_reporters
from jarvis.run import Run
from jarvis.server.catalogue import analysis_root, name_of
from jarvis.server.database import JobKind
from jarvis.server.downloads import zipped
from jarvis.server.job_kinds.base import Made, Request, keep_file
from jarvis.wording import counted
from jarvis.workspace import safe_name

WHOLE_RUN = "zip"
"""The export that is the run directory itself."""


@dataclass(frozen=True, slots=True)
class Export(Request):
    """Write an analysis in a report format, or its whole folder as ``WHOLE_RUN``."""

    analysis: str
    format_name: str

    kind = JobKind.EXPORT

    @property
    def title(self) -> str:
        """The format and the analysis."""
        return f"Export {self.analysis} as {self.format_name}"

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives the ``file``; formats that write a folder are zipped."""
        progress(Step("Write the file", 1, 1, "started"))
        root = analysis_root(self.analysis)
        run = Run.load(root)
        if self.format_name == WHOLE_RUN:
            return _file(run, job_id, self.analysis, ".zip", zipped(root))
        reporters = load_reporters()
        if self.format_name not in reporters:
            known = ", ".join((WHOLE_RUN, *reporters))
            raise JarvisError(f"There is no format {self.format_name!r}. Choose one of {known}.")
        reporter = reporters[self.format_name]
        with TemporaryDirectory() as folder:
            out = Path(folder) / reporter.name
            reporter.render(run, out)
            content = zipped(out) if out.is_dir() else out.read_bytes()
        return _file(run, job_id, self.analysis, reporter.suffix or ".zip", content)


@dataclass(frozen=True, slots=True)
class Replay(Request):
    """Package operations of an analysis by uid, or all of some operators, to be timed elsewhere."""

    analysis: str
    operators: tuple[str, ...] = ()
    uids: tuple[int, ...] = ()

    kind = JobKind.REPLAY

    @property
    def title(self) -> str:
        """How many, or which one, and the analysis."""
        chosen = len(self.operators) + len(self.uids)
        named = self.operators[0] if chosen == 1 and self.operators else counted(chosen, "choice")
        return f"Package {named} of {self.analysis} for replay"

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives the ``file``, a zip; ReplayError where nothing of it can be packaged."""
        progress(Step("Package the calls", 1, 1, "started"))
        run = Run.load(analysis_root(self.analysis))
        selection = select(run, self.uids, self.operators)
        if not selection.entries:
            reasons = "; ".join(dict.fromkeys(refusal.reason for refusal in selection.refusals))
            raise ReplayError(f"None of this can be packaged: {reasons}")
        return _file(run, job_id, self.analysis, "_replay.zip", selection.package())


def _file(run: Run, job_id: str, analysis: str, suffix: str, content: bytes) -> Made:
    name = f"{safe_name(name_of(run.manifest))}_{analysis}{suffix}"
    return Made(analysis, keep_file(job_id, name, content))
