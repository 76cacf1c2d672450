"""A simulated training step as a Kineto trace, for demos, tests and benchmarks.

Host times are random, kernel times are roofline times of an MI300X divided by random efficiencies.
The trace is marked as simulated: ``metadata.jarvis_sample`` is ``"simulated"``. Equal arguments
give equal bytes.
"""

from pathlib import Path
from typing import Any

from jarvis.core.workspace import SAMPLE_WORLD_SIZE
from jarvis.sample.faults import Faults
from jarvis.sample.job import Job, rank_events, rank_header, write_job
from jarvis.sample.model import SCALES
from jarvis.sample.parallel import Parallel

__all__ = ["SCALES", "Faults", "Job", "Parallel", "simulate", "write_job", "write_sample"]


def simulate(
    steps: int = 2,
    rank: int = 0,
    world_size: int = SAMPLE_WORLD_SIZE,
    seed: int = 0,
    scale: str = "small",
) -> dict[str, Any]:
    """Return the trace of ``rank`` of ``world_size`` data-parallel processes over ``steps`` steps.

    A single process exchanges no gradients: its trace has no collectives. The traces of all ranks
    with one seed match: their collectives end at the same time.

    Args:
        scale: A key of ``SCALES``.

    Raises:
        JarvisError: Unknown scale, or a rank out of range.
    """
    job = Job(steps, world_size, seed, scale)
    job.check(rank)
    events = [event for chunk in rank_events(job, rank) for event in chunk]
    return rank_header(job, rank) | {"traceEvents": events}


def write_sample(
    path: Path,
    steps: int = 2,
    rank: int = 0,
    world_size: int = SAMPLE_WORLD_SIZE,
    seed: int = 0,
    scale: str = "small",
) -> Path:
    """Write the trace of ``simulate`` as ``.json`` or ``.json.gz``, step by step; return ``path``.

    Only one step is in memory at a time, so that traces of millions of events can be written.
    """
    job = Job(steps, world_size, seed, scale)
    job.check(rank)
    write_job(job, {rank: path})
    return path
