"""``jarvis sample``: write simulated traces."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from jarvis.cli.atomic_output import atomic_output
from jarvis.cli.options import Commands, add_flag
from jarvis.cli.output import ExitCode, add_json, print_result
from jarvis.core.workspace import SAMPLE_WORLD_SIZE, TRUTH_NAME

if TYPE_CHECKING:
    from jarvis.sample import Faults


def add_sample(commands: Commands) -> None:
    command = commands.add_parser(
        "sample",
        help="write a simulated trace",
        description="Write the trace of simulated training steps, marked as simulated; with "
        "several ranks, one file each, and truth.json with the faults, and with the arrival, wait "
        "and transfer of each rank in each collective.",
    )
    command.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        type=Path,
        default=Path("sample.json.gz"),
        help="file to write (default: sample.json.gz)",
    )
    command.add_argument("--steps", type=int, default=2, help="training steps (default: 2)")
    command.add_argument(
        "--ranks", type=int, help="traces to write (default: 1, or all of --parallel)"
    )
    add_flag(
        command,
        "world_size",
        type=int,
        help="number of training processes (default: --ranks, or "
        f"{SAMPLE_WORLD_SIZE} for one trace)",
    )
    command.add_argument(
        "--parallel",
        metavar="tp=N,pp=N,dp=N,ep=N",
        help="divide tensors, layers, batches and experts over the processes",
    )
    command.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    command.add_argument("--scale", default="small", help="model size (default: small)")
    _add_faults(command)
    add_json(command)
    command.set_defaults(run=_sample, usage_error=command.error)


_OF_RANK = {
    "slow": ("RANK:FACTOR[:FAMILY]", "its kernels take FACTOR times as long, all or a family"),
    "late": (
        "RANK:MS[:CAUSE[:STEP]]",
        "it loses MS in one step (default: in the middle), to its data loader (loader, the "
        "default) or elsewhere on the host (host)",
    ),
    "slow_link": ("RANK:SHARE", "its link has this share of the bandwidth left"),
    "hot_expert": ("RANK:FACTOR", "its experts get FACTOR times as many tokens"),
    "clock_offset": ("RANK:US", "its clock is ahead; uniform:US draws one for each rank"),
    "clock_drift": ("RANK:PPM", "its clock runs faster"),
    "steps_shift": ("RANK:STEPS", "its recording begins later"),
    "drop_events": ("RANK:COUNT", "COUNT of its collectives are not recorded"),
    "mixed_gpus": ("RANK:GPU", "it has this GPU instead"),
}
_SUFFIXES = (".json", ".json.gz")
"""Of the traces of several ranks: `jarvis analyze FOLDER` finds them by these."""

_RANKS = {
    "skip": "ranks without a trace",
    "truncate": "ranks of whose trace the second half is missing",
    "duplicate": "ranks with a second trace of equal bytes",
}
_SWITCHES = {
    "base_shift": "each trace counts time from a base of its own",
    "no_metadata": "traces state neither ranks nor what collectives move",
    "seq": "collectives have sequence numbers",
    "even": "all hosts take the same pauses",
}


def _add_faults(command: argparse.ArgumentParser) -> None:
    """Add an option for each fault."""
    faults = command.add_argument_group("faults of the job, by rank")
    for name, (metavar, text) in _OF_RANK.items():
        add_flag(faults, name, metavar=metavar, nargs="+", default=[], help=text)
    for name, text in _RANKS.items():
        add_flag(faults, name, metavar="RANK", type=int, nargs="+", default=[], help=text)
    for name, text in _SWITCHES.items():
        add_flag(faults, name, action="store_true", help=text)


def _faults(arguments: argparse.Namespace, world_size: int) -> "Faults":
    from jarvis.sample import faults

    def integers(texts: list[str]) -> dict[int, int]:
        return {rank: int(value) for rank, value in faults.numbers_by_rank(texts).items()}

    return faults.Faults(
        slow=faults.slow_ranks(arguments.slow),
        late=faults.late_ranks(arguments.late, arguments.steps),
        slow_links=faults.numbers_by_rank(arguments.slow_link),
        hot_experts=faults.numbers_by_rank(arguments.hot_expert),
        clock_offset_us=faults.clock_offsets(arguments.clock_offset, world_size, arguments.seed),
        clock_drift_ppm=faults.numbers_by_rank(arguments.clock_drift),
        has_own_base=arguments.base_shift,
        skipped=frozenset(arguments.skip),
        truncated=frozenset(arguments.truncate),
        duplicated=frozenset(arguments.duplicate),
        steps_shift=integers(arguments.steps_shift),
        dropped=integers(arguments.drop_events),
        has_metadata=not arguments.no_metadata,
        has_seq=arguments.seq,
        gpus=faults.texts_by_rank(arguments.mixed_gpus),
        is_even=arguments.even,
    )


def _sample(arguments: argparse.Namespace) -> int:
    """Write the traces; of several ranks beside each other, with TRUTH_NAME."""
    from jarvis.sample import Job, Parallel, write_job

    parallel = Parallel.of(arguments.parallel) if arguments.parallel else None
    count = arguments.ranks or (parallel.world_size if parallel else 1)
    usual = count if count > 1 else SAMPLE_WORLD_SIZE
    world_size = arguments.world_size or (parallel.world_size if parallel else usual)
    job = Job(
        arguments.steps,
        world_size,
        arguments.seed,
        arguments.scale,
        _faults(arguments, world_size),
        parallel,
    )
    output = arguments.output
    job.check(count - 1)
    if count == 1:
        with atomic_output(output) as place:
            write_job(job, {0: place})
        print_result(arguments, {"traces": [output]}, [output])
        return ExitCode.OK
    if not output.name.endswith(_SUFFIXES):
        arguments.usage_error(f"--output needs a name with {' or '.join(_SUFFIXES)}, not {output}")
    folder = output.parent
    with atomic_output(folder) as place:
        name = output.name.removeprefix("rank") if _is_rank(output) else f"_{output.name}"
        paths = {rank: place / f"rank{rank}{name}" for rank in range(count)}
        truth = write_job(job, paths)
        options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
        (place / TRUTH_NAME).write_bytes(orjson.dumps(truth, option=options))
        traces = [folder / path.name for path in paths.values() if path.exists()]
    result = {"traces": traces, "truth": folder / TRUTH_NAME}
    print_result(arguments, result, [*traces, folder / TRUTH_NAME])
    return ExitCode.OK


def _is_rank(output: Path) -> bool:
    """Return whether a name is ``rank`` alone, which the number follows: ``rank0.json``."""
    return output.name.partition(".")[0] == "rank"
