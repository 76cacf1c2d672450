"""Store a distributed run: each rank as an analysis of its own, and what joins them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from jarvis.core.staging import scratch_folder, staged_folder
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.ranks.run import DistributedRun
from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import check_joinable, may_replace, reserved, stored_rows
from jarvis.server.storage.artifacts import store_analysis
from jarvis.server.storage.catalog import analysis_root, is_stored


def store_ranks(make: Callable[[Path], Sequence[DistributedRun]]) -> list[DistributedRun]:
    """Store the distributed runs that ``make`` writes to a folder, and the runs of ranks in them.

    Analyses of ranks that are stored already stay as they are, and so does a distributed run that
    the owner of the context may not replace: it joins the same analyses.

    Raises:
        PrivateAnalysisError: it exists and is private to another person.
    """
    with scratch_folder(analyses_dir(), "ranks") as scratch:
        return [_stored(made) for made in make(scratch / "run")]


def _stored(run: DistributedRun) -> DistributedRun:
    made, manifest = RunPaths(run.root), run.manifest
    for entry in manifest.usable:
        member = made.member(entry.rank or 0)
        if member.is_dir() and not is_stored(str(entry.analysis_id)):
            _store(member, str(entry.analysis_id))
    shutil.rmtree(made.members, ignore_errors=True)
    row = stored_rows(database()).get(manifest.distributed_id)
    check_joinable(row)
    if row is None or may_replace(row):
        _store(made.root, manifest.distributed_id)
    return DistributedRun.load(analysis_root(manifest.distributed_id))


def _store(written: Path, identifier: str) -> None:
    def place(root: Path) -> None:
        with staged_folder(root, lambda: None) as folder:
            written.rename(folder)

    with reserved(database(), identifier):
        store_analysis(identifier, place)
