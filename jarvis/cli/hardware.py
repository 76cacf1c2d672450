"""``jarvis hardware``: what is described, one GPU in full, and descriptions of one's own.

``jarvis reproject``: a stored run against another GPU.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from jarvis.cli.shared import (
    ARCH_HELP,
    PLATFORM_HELP,
    PRESET_HELP,
    Commands,
    print_step,
    warn,
)
from jarvis.workspace import HOME_VARIABLE, RunPaths

MAIN_PRECISIONS = ("matrix_bf16", "matrix_fp16", "matrix_fp8")


def add_hardware(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its actions; without one it lists."""
    command = commands.add_parser(
        "hardware",
        help="list the GPUs with their peaks, show one, or describe your own",
        description="List the described GPUs with bandwidth, memory and main compute peaks.",
    )
    command.set_defaults(run=_list)
    actions = command.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="list all GPUs and presets")
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="every figure of a GPU with its source and doubts")
    check = actions.add_parser("check", help="check an architecture description (JSON)")
    add = actions.add_parser("add", help=f"keep such a description in {HOME_VARIABLE}")
    remove = actions.add_parser("remove", help="delete a description that was added")
    for action, run in ((show, _show), (remove, _remove)):
        action.add_argument("gpu", metavar="GPU", help="name as `jarvis hardware` lists it")
        action.add_argument("--preset", help=PRESET_HELP)
        action.set_defaults(run=run)
    for action, run in ((check, _check), (add, _add)):
        action.add_argument("file", metavar="FILE", type=Path, help=ARCH_HELP)
        action.set_defaults(run=run)


def add_reproject(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "reproject",
        help="judge an analysis against another GPU, without its trace",
        description="Work rooflines, findings and reports of an analysis out against another GPU, "
        "from what its run directory stores. The result is a run directory of its own, the same "
        "as an analysis of the trace with that GPU.",
    )
    command.add_argument("directory", metavar="RUN", type=Path, help="run directory of an analysis")
    gpu = command.add_mutually_exclusive_group()
    gpu.add_argument("--platform", metavar="GPU", help=PLATFORM_HELP)
    gpu.add_argument(
        "--gpu_arch_json_path",
        "--gpu-arch-json-path",
        metavar="FILE",
        type=Path,
        help=ARCH_HELP,
    )
    command.add_argument("--preset", help=PRESET_HELP)
    command.add_argument(
        "--output-dir", "--output_dir", metavar="DIR", type=Path, required=True, help="new folder"
    )
    command.set_defaults(run=_reproject, usage_error=command.error)


def _reproject(arguments: argparse.Namespace) -> int:
    if arguments.gpu_arch_json_path and arguments.preset:
        arguments.usage_error("--preset chooses among described GPUs, not in a file")
    from jarvis.pipeline import reproject

    run = reproject(
        arguments.directory,
        platform=arguments.platform,
        preset=arguments.preset,
        arch_json=arguments.gpu_arch_json_path,
        output_dir=arguments.output_dir,
        progress=print_step,
    )
    if run.manifest.platform_warning:
        warn([run.manifest.platform_warning])
    paths = RunPaths(arguments.output_dir)
    for path in (paths.root, paths.standalone_report("fair"), paths.standalone_report("rough")):
        print(path)
    return 0


def _list(_: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware

    titles = [precision.replace("_", " ") for precision in MAIN_PRECISIONS]
    print("Bandwidth in TB/s, memory in GB, dense peaks in TFLOPS/s; - where not known.")
    print(_line("GPU", "preset", ["bandwidth", "memory", *titles]))
    hardware = load_hardware()
    for spec in hardware:
        peaks = [spec.peak_tflops(precision) for precision in MAIN_PRECISIONS]
        figures = [spec.tb_per_s, spec.memory_gb, *peaks]
        print(_line(spec.name, spec.preset, ["-" if f is None else f"{f:.5g}" for f in figures]))
    warn(f"{path} cannot be used. {reason}" for path, reason in hardware.failures.items())
    return 0


def _line(name: str, preset: str, cells: Sequence[str]) -> str:
    return f"{name:<16} {preset:<12}" + "".join(f"{cell:>13}" for cell in cells)


def _show(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware

    hardware = load_hardware()
    spec = hardware.get(arguments.gpu, arguments.preset)
    print(spec.title)
    values = {
        "memory_gb": (spec.memory_gb, "GB"),
        "mem_bw_gbps": (spec.mem_bw_gbps, "GB/s"),
        **{compute: (peak, "TFLOPS/s") for compute, peak in spec.max_achievable_tflops.items()},
    }
    for figure, (value, unit) in values.items():
        doubt = spec.doubt_of(figure)
        about = f"{spec.source_of(figure)}{f' [in doubt: {doubt}]' if doubt else ''}"
        print(f"  {figure:<12} {value:>9.6g} {unit:<9} {about}")
    others = [preset for preset in hardware.presets(spec.name) if preset != spec.preset]
    if others:
        print(f"Other presets: {', '.join(others)}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware
    from jarvis.pipeline import read_arch_json

    spec = read_arch_json(arguments.file)
    load_hardware().check_new(spec)
    print(f"{spec.title}: {len(spec.figures)} figures, and the name is free")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    from jarvis.pipeline import read_arch_json
    from jarvis.server.custom_hardware import keep_hardware

    print(keep_hardware(read_arch_json(arguments.file)))
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware
    from jarvis.server.custom_hardware import remove_hardware

    spec = load_hardware().get(arguments.gpu, arguments.preset)
    remove_hardware(spec)
    print(f"{spec.title} is deleted")
    return 0
