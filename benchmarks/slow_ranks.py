"""Simulate jobs in which one rank is slower by 5%, and even ones: the rank is named, or none.

python -m benchmarks.slow_ranks [--ranks N] [--steps N] [--seeds N]

Exits with 1 if another rank is named in any job, or the factor is off by more than MAX_ERROR.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from jarvis.ranks.findings import rank_findings
from jarvis.ranks.join import join
from jarvis.sample import Faults, Job
from jarvis.sample.faults import Slow
from tests.ranks.simulated import simulated

FACTOR, MAX_ERROR = 1.05, 0.005


def is_right(job: Job, slow_rank: int | None) -> bool:
    """Print what is found in a job; return whether it is the slow rank alone."""
    begin = process_time()
    with TemporaryDirectory() as name:
        _, members = simulated(Path(name), job)
    joined = join(members, job.world_size)
    named = {
        finding.check: finding.evidence["rank"]
        for finding in rank_findings(joined, job.world_size).findings
        if finding.check in ("slow_gpu", "late_rank")
    }
    ratios = dict(joined.tables["ranks"].select("rank", "speed_ratio").iter_rows())
    usual = [ratio for rank, ratio in ratios.items() if rank != slow_rank]
    factor = 1.0 if slow_rank is None else ratios[slow_rank]
    print(
        f"seed {job.seed}: slow {slow_rank}, named {named}, factor {factor:.4f}, others "
        f"{min(usual):.4f} to {max(usual):.4f}, {process_time() - begin:.0f} s",
        flush=True,
    )
    if slow_rank is None:
        return not named
    is_named = named.get("slow_gpu") == slow_rank and set(named.values()) == {slow_rank}
    return is_named and abs(factor - FACTOR) <= MAX_ERROR


def main() -> int:
    """Print each job, and how many are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    right, jobs = 0, 0
    for seed in range(arguments.seeds):
        rank = seed * 7 % arguments.ranks
        for slow_rank, slow in ((rank, (Slow(rank, FACTOR),)), (None, ())):
            faults = Faults(is_even=True, slow=slow)
            job = Job(arguments.steps, arguments.ranks, seed=seed, faults=faults)
            right, jobs = right + is_right(job, slow_rank), jobs + 1
    print(f"{right} of {jobs} jobs are right")
    return int(right < jobs)


if __name__ == "__main__":
    sys.exit(main())
