"""Jobs that write an analysis, or a part of it, as a file."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.core.errors import ReplayError
from jarvis.pipeline import Progress, opened_at
from jarvis.pipeline.steps import step
from jarvis.replay import select
from jarvis.reports import reporter
from jarvis.run import Run, TargetPct
from jarvis.server.database import JobKind
from jarvis.server.jobs.kinds.base import JobOutput
from jarvis.server.jobs.kinds.files import FileRequest, file_name_of, subject_of
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.downloads import write_zip
from jarvis.text.format import counted

WHOLE_RUN = "zip"
"""The export that is the run directory itself."""

_ZIP = ".zip"


@dataclass(frozen=True, slots=True)
class Export(FileRequest):
    """Write an analysis in a report format, or its whole folder as ``WHOLE_RUN``.

    ``target_pct`` is the target efficiency of the findings; None for that of the analysis.
    """

    analysis: str
    format_name: str
    target_pct: TargetPct | None = None

    kind = JobKind.EXPORT

    @property
    def title(self) -> str:
        """The format and the analysis, and the target where one is asked for."""
        target = "" if self.target_pct is None else f" at {self.target_pct:g}% of the roofline"
        return f"Export {subject_of(self.analysis)} as {self.format_name}{target}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """The one."""
        return (self.analysis,)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the ``file``; formats that write a folder are zipped."""
        root = analysis_root(self.analysis)
        with (
            step(0, progress, ("Write the file",)),
            opened_at(root, self.target_pct) as run,
            self.keeping(job_id) as folder,
        ):
            if self.format_name == WHOLE_RUN:
                name = file_name_of(run, f"{self._stem}{_ZIP}")
                write_zip(folder / name, run.root or root)
            else:
                name = self._rendered(run, folder)
        return self.made(job_id, name)

    @property
    def _stem(self) -> str:
        """The id of the analysis, and the target where one is asked for."""
        target = "" if self.target_pct is None else f"_at_{self.target_pct:g}_percent"
        return f"{self.analysis}{target}"

    def _rendered(self, run: Run, folder: Path) -> str:
        """Write it in its format into a folder; under which name."""
        chosen = reporter(self.format_name)
        name = file_name_of(run, f"{self._stem}{chosen.suffix or _ZIP}")
        if chosen.suffix:
            chosen.render(run, folder / name)
            return name
        with TemporaryDirectory() as written:
            out = Path(written) / chosen.name
            chosen.render(run, out)
            write_zip(folder / name, out)
        return name


@dataclass(frozen=True, slots=True)
class Replay(FileRequest):
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
        return f"Package {named} of {subject_of(self.analysis)} for replay"

    @property
    def analyses(self) -> tuple[str, ...]:
        """The one."""
        return (self.analysis,)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the ``file``, a zip; ReplayError where nothing of it can be packaged."""
        run = Run.load(analysis_root(self.analysis))
        with step(0, progress, ("Package the calls",)):
            selection = select(run, self.uids, self.operators)
            if not selection.entries:
                reasons = "; ".join(dict.fromkeys(refusal.reason for refusal in selection.refusals))
                raise ReplayError(f"None of this can be packaged: {reasons}")
            name = file_name_of(run, selection.file_name)
            with self.keeping(job_id) as folder:
                (folder / name).write_bytes(selection.package())
        return self.made(job_id, name)
