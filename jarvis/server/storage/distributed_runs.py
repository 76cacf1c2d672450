"""Store a distributed run: each rank as an analysis of its own, and what joins them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.ranks.run import DistributedRun
from jarvis.server.storage import artifacts


class SharedRanksError(JarvisError):
    """Distributed runs are not stored in a shared artifact root."""

    def __init__(self) -> None:
        super().__init__(
            "Several ranks are stored in the home only, not in a shared artifact root. "
            "Analyze them with --output-dir."
        )


def store_ranks(make: Callable[[Path], DistributedRun]) -> DistributedRun:
    """Store the distributed run that ``make`` writes to a folder.

    Analyses of ranks that are stored already stay as they are.

    Raises:
        SharedRanksError: Analyses are stored in a shared artifact root.
    """
    if artifacts.is_shared():
        raise SharedRanksError
    root = analyses_dir()
    root.mkdir(parents=True, exist_ok=True)
    work = root / f".ranks-{uuid4().hex[:8]}"
    try:
        manifest = make(work / "run").manifest
        paths = RunPaths(work / "run")
        for entry in manifest.usable:
            place = root / str(entry.analysis_id)
            if entry.rank is not None and not place.exists():
                paths.member(entry.rank).rename(place)
        shutil.rmtree(paths.members, ignore_errors=True)
        target = root / manifest.distributed_id
        if target.exists():
            target.rename(work / "replaced")
        paths.root.rename(target)
        return DistributedRun.load(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
