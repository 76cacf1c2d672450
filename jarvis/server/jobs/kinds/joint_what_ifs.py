"""Jobs that replay the steps of all ranks of a distributed run under changes."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from jarvis.core.workspace import RunPaths
from jarvis.pipeline import Progress
from jarvis.pipeline.joint_what_if import ranks_what_if
from jarvis.pipeline.steps import step
from jarvis.ranks.manifest import MemberEntry
from jarvis.ranks.run import DistributedRun, read_manifest
from jarvis.server.access.rights import may_see
from jarvis.server.database import JobKind, database
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.storage.analysis_rows import context_person, stored_rows
from jarvis.server.storage.catalog import analysis_root

ANSWER = "what_if"
"""Key of the answer in the job's result."""


@dataclass(frozen=True, slots=True)
class RanksWhatIf(Request):
    """Replay the steps of a distributed run with all ``changes``."""

    analysis: str
    changes: tuple[str, ...]

    kind = JobKind.WHAT_IF

    @property
    def title(self) -> str:
        """Return the title with the changes."""
        run = read_manifest(analysis_root(self.analysis))
        return f"What if {', '.join(self.changes) or 'nothing changes'} on {run.title}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the distributed run."""
        return (self.analysis,)

    @property
    def stamp(self) -> str:
        """Return the digest of the manifest."""
        return sha256(RunPaths(analysis_root(self.analysis)).manifest.read_bytes()).hexdigest()

    @property
    def is_personal(self) -> bool:
        """Return True: another person may see the analyses of fewer ranks."""
        return True

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Return a ``JointWhatIf`` as ``ANSWER`` of the result."""
        person, rows = context_person(), stored_rows(database())

        def find(member: MemberEntry) -> Path | None:
            row = rows.get(str(member.analysis_id))
            return analysis_root(row.id) if row is not None and may_see(person, row) else None

        with step(0, progress, ("Replay the steps",)):
            run = DistributedRun.load(analysis_root(self.analysis))
            found = ranks_what_if(run, self.changes, find)
        return JobOutput(self.analysis, {ANSWER: found.model_dump(mode="json")})
