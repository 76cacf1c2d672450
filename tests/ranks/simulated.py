"""Ranks of a simulated job, with what is true of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jarvis.perf_report import PerfReport
from jarvis.ranks.members import Member
from jarvis.sample import Job, write_job
from jarvis.simulation.simulation import NEEDED
from jarvis.simulation.stored import simulation_tables
from jarvis.trace import read_trace

TABLES = (*NEEDED, "gpu_timeline", "timeline_states", "idle_gaps")


def simulated(folder: Path, job: Job) -> tuple[dict[str, Any], list[Member]]:
    """Simulate a job; return what is true of it, and its ranks with their graphs."""
    paths = [folder / f"rank{rank}.json" for rank in range(job.world_size)]
    truth = write_job(job, dict(enumerate(paths)))
    return truth, recorded(paths)


def recorded(paths: Sequence[Path]) -> list[Member]:
    """Return the ranks of traces in their order."""
    found = []
    for rank, path in enumerate(paths):
        trace = read_trace(path)
        report = PerfReport(trace, None)
        tables = {name: report.table(name) for name in TABLES}
        graph, info = simulation_tables(trace)
        found.append(Member(rank, path.name, trace.info, {**tables, **graph}, simulation=info))
    return found
