"""``jarvis hardware``: list and show GPU descriptions, add and remove your own."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, complete_gpu, completed_by, explained
from jarvis.cli.output import ExitCode, add_json, print_result, warn
from jarvis.core.workspace import HOME_VARIABLE

if TYPE_CHECKING:
    from jarvis.hardware import HardwareSpec

MAIN_PRECISIONS = ("matrix_bf16", "matrix_fp16", "matrix_fp8")


def add_hardware(commands: Commands) -> None:
    """Add the command with its actions; the default action is ``list``."""
    command = commands.add_parser(
        "hardware",
        help="list GPUs with their peaks, show one, or add your own",
        description="List the known GPUs with bandwidth, memory and main compute peaks.",
    )
    add_json(command)
    command.set_defaults(run=_list)
    actions = command.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="list all GPUs and presets")
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="show all figures of a GPU with sources and doubts")
    check = actions.add_parser("check", help="validate a GPU description (JSON)")
    add = actions.add_parser("add", help=f"store such a description in {HOME_VARIABLE}")
    remove = actions.add_parser("remove", help="delete an added description")
    for action, run in ((show, _show), (remove, _remove)):
        gpu = action.add_argument(
            "gpu", metavar="GPU", help="name in the list of `jarvis hardware`"
        )
        completed_by(gpu, complete_gpu)
        action.add_argument("--preset", help=explained("preset"))
        action.set_defaults(run=run)
    for action, run in ((check, _check), (add, _add)):
        action.add_argument("file", metavar="FILE", type=Path, help=explained("arch_json"))
        action.set_defaults(run=run)
    for action in (listing, show, check, add, remove):
        add_json(action, default=argparse.SUPPRESS)


def _list(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware

    hardware = load_hardware()
    failures = [f"{path} cannot be used. {why}" for path, why in hardware.failures.items()]
    print_result(
        arguments,
        {"gpus": [_described(spec) for spec in hardware], "warnings": failures},
        _table(list(hardware)),
    )
    warn(failures)
    return ExitCode.OK


def _table(specs: Sequence["HardwareSpec"]) -> Iterator[str]:
    titles = [precision.replace("_", " ") for precision in MAIN_PRECISIONS]
    yield "Bandwidth in TB/s, memory in GB, compute units, dense peaks in TFLOP/s; - if unknown."
    yield _line("GPU", "preset", ["bandwidth", "memory", "units", *titles])
    for spec in specs:
        peaks = [spec.peak_tflops(precision) for precision in MAIN_PRECISIONS]
        figures = [spec.tb_per_s, spec.memory_gb, spec.compute_units, *peaks]
        yield _line(spec.name, spec.preset, ["-" if f is None else f"{f:.5g}" for f in figures])


def _line(name: str, preset: str, cells: Sequence[str]) -> str:
    return f"{name:<16} {preset:<12}" + "".join(f"{cell:>13}" for cell in cells)


def _described(spec: "HardwareSpec") -> Mapping[str, object]:
    return {"title": spec.title, **spec.model_dump(mode="json")}


def _show(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware

    hardware = load_hardware()
    spec = hardware.get(arguments.gpu, arguments.preset)
    others = [preset for preset in hardware.presets(spec.name) if preset != spec.preset]
    print_result(arguments, {**_described(spec), "other_presets": others}, _figures(spec, others))
    return ExitCode.OK


def _figures(spec: "HardwareSpec", others: Sequence[str]) -> Iterator[str]:
    yield spec.title
    values = {
        "memory_gb": (spec.memory_gb, "GB"),
        "mem_bw_gbps": (spec.mem_bw_gbps, "GB/s"),
        "compute_units": (spec.compute_units, ""),
        **{compute: (peak, "TFLOP/s") for compute, peak in spec.max_achievable_tflops.items()},
    }
    for figure in spec.figures:
        value, unit = values[figure]
        doubt = spec.doubt_of(figure)
        source = f"{spec.source_of(figure)}{f' [uncertain: {doubt}]' if doubt else ''}"
        yield f"  {figure:<13} {value:>9.6g} {unit:<9} {source}"
    if others:
        yield f"Other presets: {', '.join(others)}"


def _check(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware
    from jarvis.pipeline import read_arch_json

    spec = read_arch_json(arguments.file)
    load_hardware().check_new(spec)
    message = f"{spec.title}: {len(spec.figures)} figures; the name is available"
    print_result(arguments, _described(spec), [message])
    return ExitCode.OK


def _add(arguments: argparse.Namespace) -> int:
    from jarvis.pipeline import read_arch_json
    from jarvis.server.storage.custom_hardware import store_hardware

    path = store_hardware(read_arch_json(arguments.file))
    print_result(arguments, {"file": path}, [path])
    return ExitCode.OK


def _remove(arguments: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware
    from jarvis.server.storage.custom_hardware import remove_hardware

    spec = load_hardware().get(arguments.gpu, arguments.preset)
    remove_hardware(spec)
    print_result(arguments, {"removed": spec.title}, [f"{spec.title} was deleted"])
    return ExitCode.OK
