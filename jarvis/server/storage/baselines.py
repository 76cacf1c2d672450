"""Choice of the stored runs of a project that a run is checked against."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jarvis.core.errors import JarvisError
from jarvis.run import Manifest, RunFigures
from jarvis.run.baseline import (
    LAST_RUNS,
    THRESHOLD_PCT,
    BaselineCheck,
    check_run,
    incomparable_reason,
)
from jarvis.server.storage.catalog import Entry
from jarvis.text.format import counted


class NoBaselineError(JarvisError):
    """A project has no run that a run can be checked against."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The last runs of a project that are like a run, newest first.

    ``left_out`` counts the runs of the project that were passed over, by reason.
    """

    project: str
    branch: str | None
    runs: tuple[Entry, ...]
    left_out: Mapping[str, int]

    def check(self, run: Manifest, threshold_pct: float = THRESHOLD_PCT) -> BaselineCheck:
        """Return the check of the run."""
        figures = [RunFigures.of(entry.manifest) for entry in self.runs]
        return check_run(RunFigures.of(run), figures, threshold_pct)


def baseline_of(
    entries: Iterable[Entry],
    run: Manifest,
    project: str,
    branch: str | None = None,
    last: int = LAST_RUNS,
) -> Baseline:
    """Return the baseline of a run: the last ``last`` runs before it, each trace once.

    Args:
        entries: the catalog, newest first.

    Raises:
        NoBaselineError: there is none.
    """
    found: list[Entry] = []
    left_out: Counter[str] = Counter()
    traces = {run.trace.sha256}
    of_project = [
        entry
        for entry in entries
        if entry.labels.project == project and branch in (None, entry.labels.branch)
    ]
    for entry in of_project:
        manifest = entry.manifest
        if len(found) == last:
            break
        if manifest.trace.sha256 in traces:
            continue  # the run itself, or re-projected
        if manifest.created > run.created:
            left_out["later than the run"] += 1
        elif (reason := incomparable_reason(run, manifest)) is not None:
            left_out[reason] += 1
        else:
            traces.add(manifest.trace.sha256)
            found.append(entry)
    if not found:
        raise NoBaselineError(_nothing(project, branch, of_project, left_out))
    return Baseline(project, branch, tuple(found), dict(left_out))


def _nothing(
    project: str, branch: str | None, of_project: Sequence[Entry], left_out: Mapping[str, int]
) -> str:
    where = f"The project {project!r}" + (f" has on the branch {branch!r}" if branch else " has")
    if not of_project:
        return (
            f"{where} no runs. Store some with `jarvis analyze TRACE --id --project {project}`, or "
            "`jarvis push`."
        )
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(left_out.items()))
    if not reasons:
        reasons = "all are of the same trace"
    return f"{where} {counted(len(of_project), 'run')}, but none to compare with: {reasons}."
