"""Jobs that write a distributed run as a file."""

from dataclasses import dataclass

from jarvis.core.workspace import safe_name
from jarvis.pipeline import Progress
from jarvis.pipeline.steps import step
from jarvis.ranks.identity import as_ranges
from jarvis.ranks.manifest import MemberEntry
from jarvis.ranks.run import DistributedRun, read_manifest
from jarvis.reports.ranks_export import PERFETTO, SUFFIXES, write_ranks_export
from jarvis.server.database import JobKind
from jarvis.server.jobs.kinds.base import JobOutput
from jarvis.server.jobs.kinds.exports import WHOLE_RUN
from jarvis.server.jobs.kinds.files import FileRequest
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.downloads import write_zip


@dataclass(frozen=True, slots=True)
class RanksExport(FileRequest):
    """Write a distributed run in a format of ``ranks_export``, or its folder as ``WHOLE_RUN``.

    Attributes:
        ranks: ranks of a trace; all if it is empty.
    """

    analysis: str
    format_name: str
    ranks: tuple[int, ...] = ()

    kind = JobKind.RANKS_EXPORT

    @property
    def title(self) -> str:
        """Return the title with the format and the ranks."""
        title = read_manifest(analysis_root(self.analysis)).title
        chosen = f" of ranks {as_ranges(self.ranks)}" if self.ranks else ""
        return f"Export {title} as {self.format_name}{chosen}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the distributed run, and the analyses of the ranks that are read."""
        return (self.analysis, *(str(member.analysis_id) for member in self._members()))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Write the ``file``."""
        run = DistributedRun.load(analysis_root(self.analysis))
        name = safe_name(f"{self.analysis}_ranks{SUFFIXES.get(self.format_name, '.zip')}")
        with step(0, progress, ("Write the file",)), self.output_folder(job_id) as folder:
            if self.format_name == WHOLE_RUN:
                write_zip(folder / name, run.root)
            else:
                members = {
                    member.rank or 0: analysis_root(str(member.analysis_id))
                    for member in self._members()
                }
                write_ranks_export(run, self.format_name, members, folder / name)
        return self.output(job_id, name)

    def _members(self) -> tuple[MemberEntry, ...]:
        if self.format_name != PERFETTO:
            return ()
        return read_manifest(analysis_root(self.analysis)).chosen(self.ranks)
