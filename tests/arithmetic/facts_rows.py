"""What the rows of a finding add up to, and what the shapes of the heaviest one tell."""

import math
import re
from typing import Any

from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.units import (
    FILL_OR_CAST,
    TRANSPOSE,
    Facts,
    compute_pct,
    efficiency_pct,
    share,
    time_ms,
)

QUERIES_OF_BLOCK = 128

ACTIVATION = re.compile("relu|gelu|silu|swish|sigmoid|tanh|softplus|threshold|act_and_mul|mish")


def of_rows(facts: Facts, run: RunDirectory, finding: dict[str, Any], rows: list[Row]) -> None:
    heaviest = rows[0]
    total_ms, calls = time_ms(rows), sum(row.calls for row in rows)
    launches = sum(row.launches for row in rows)
    facts["time_ms"].append(total_ms)
    facts["compute_pct"].append(compute_pct(rows, run))
    facts["category_pct"].append(share(total_ms, time_ms(run.category(finding["category"]))))
    facts["calls"].append(calls)
    facts["row_calls"] += [row.calls for row in rows]
    arguments = [arguments_of(row) for row in rows]
    distinct = set(arguments) - {None}
    facts["signatures"].append(len(distinct) + arguments.count(None))
    facts["launches"].append(launches)
    facts["heaviest_launches"].append(heaviest.launches)
    alike = [r for r in rows if r is heaviest or arguments_of(r) == (arguments_of(heaviest) or 0)]
    facts["heaviest_calls"].append(sum(row.calls for row in alike))
    facts["mean_ms"].append(total_ms / calls)
    facts["heaviest_mean_ms"].append(heaviest.time_us / heaviest.calls / 1000)
    facts["row_mean_ms"] += [row.time_us / row.calls / 1000 for row in rows]
    facts["operator_names"].append(len({row.name for row in rows}))
    _alike(facts, run, rows)
    if (reached := efficiency_pct(rows)) is not None:
        facts["efficiency_pct"].append(reached)
    norms = [row for row in run.category("batchnorm") if re.search("batch_?norm", row.name)]
    facts["batch_norm_pct"].append(compute_pct(norms, run))
    if heaviest.efficiency_pct:
        facts["roofline_times"].append(100 / heaviest.efficiency_pct)
    if heaviest.bytes is not None:
        facts["bytes"].append(heaviest.bytes)
    if heaviest.flops_per_byte is not None:
        facts["flops_per_byte"].append(heaviest.flops_per_byte)
    _call_groups(facts, run, rows)
    _rates(facts, rows)
    _shape_facts(facts, run, heaviest)


def arguments_of(row: Row) -> tuple[str, ...] | None:
    """The recorded arguments of a row; None without."""
    names = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    found = tuple(row.cells[name] for name in names)
    return found if found[0] else None


def _alike(facts: Facts, run: RunDirectory, rows: list[Row]) -> None:
    """Calls with the kernel or the place of the heaviest row, and calls below 10 µs."""
    for name, of in {"calls_at_place": _place, "site_calls": _site}.items():
        facts[name].append(sum(row.calls for row in rows if of(row) == of(rows[0])))
    kernel = _main_kernel(rows[0])
    facts["calls_of_kernel"].append(
        sum(
            min(row.calls, sum(k["count"] for k in run.kernels_of[row.uid] if k["name"] == kernel))
            for row in rows
        )
    )
    short = [row for row in rows if row.time_us < 10 * row.calls]
    if short:
        facts["short_calls"].append(sum(row.calls for row in short))
        facts["short_mean_us"].append(1000 * time_ms(short) / facts["short_calls"][-1])
    passive = [row for row in short if not ACTIVATION.search(row.name)]
    facts["short_launches"].append(sum(row.launches for row in passive))
    facts["short_ms"].append(time_ms(passive))


def _main_kernel(row: Row) -> str:
    """The longest kernel, of convolutions without transposes."""
    return row.cells["main_kernel"]


def _place(row: Row) -> str:
    return row.cells["called_from"]


def _site(row: Row) -> str:
    return row.cells["entry_point"] or _place(row)


def _call_groups(facts: Facts, run: RunDirectory, rows: list[Row]) -> None:
    """Times of the groups of calls: as single rows have them, and with like groups of several rows
    joined."""
    each = []
    for row in rows:
        groups = [(g["count"], g["total_us"]) for g in run.call_groups_of[row.uid]]
        if groups:
            assert sum(count for count, _ in groups) == row.calls
            assert math.isclose(math.fsum(us for _, us in groups), row.time_us, rel_tol=0.01)
        each += groups or [(row.calls, row.time_us)]
    joined: list[list[tuple[int, float]]] = []
    for group in sorted(each, key=lambda group: group[1] / group[0]):
        mean_us = group[1] / group[0]
        last_us = joined[-1][-1][1] / joined[-1][-1][0] if joined else math.inf
        if not joined or (mean_us >= 1.5 * last_us and mean_us - last_us > 1):
            joined.append([])
        joined[-1].append(group)
    summed = [(sum(n for n, _ in part), math.fsum(us for _, us in part)) for part in joined]
    facts["group_calls"] += [count for count, _ in (*each, *summed)]
    facts["group_us"] += [us / count for count, us in (*each, *summed)]
    facts["group_ms"] += [us / 1000 for us in facts["group_us"]]
    heaviest = run.call_groups_of[rows[0].uid]
    for end, index in (("shortest", 0), ("longest", -1)):
        facts[f"{end}_group_us"].append(facts["group_us"][-len(summed) :][index])
        if heaviest:
            facts[f"{end}_group_us"].append(heaviest[index]["mean_us"])
    if heaviest:
        largest = max(heaviest, key=lambda group: group["total_us"])
        facts["heaviest_mean_ms"] = [largest["mean_us"] / 1000]


def _rates(facts: Facts, rows: list[Row]) -> None:
    """What the rows reach on either side of the roofline, and the peaks."""
    seconds = math.fsum(row.time_us for row in rows) / 1e6
    if all(row.bytes is not None for row in rows):
        moved = math.fsum((row.bytes or 0) * row.calls for row in rows)
        facts["tb_per_s"].append(moved / 1e12 / seconds)
        facts["mb_per_s"].append(moved / 1e6 / seconds)
    if all(row.flops is not None for row in rows):
        done = math.fsum((row.flops or 0) * row.calls for row in rows)
        facts["tflops_per_s"].append(done / 1e12 / seconds)
    heaviest = rows[0]
    if heaviest.peak_tb_per_s is not None:
        facts["peak_tb_per_s"].append(heaviest.peak_tb_per_s)
    if heaviest.peak_tflops is not None:
        facts["peak_tflops"].append(heaviest.peak_tflops)
    known = [row for row in rows if row.flops is not None and row.peak_tflops]
    if known:
        at_peak_us = math.fsum(
            (row.flops or 0) * row.calls / (row.peak_tflops or 1) / 1e6 for row in known
        )
        facts["compute_peak_pct"].append(share(at_peak_us, sum(row.time_us for row in known)))


def _shape_facts(facts: Facts, run: RunDirectory, heaviest: Row) -> None:
    for name, value in heaviest.parameters.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            facts[f"param {name}"].append(value)
    if heaviest.parameters.get("H_KV"):
        facts["gqa_ratio"].append(heaviest.parameters["H_Q"] / heaviest.parameters["H_KV"])
    if run.compute_units:
        facts["compute_units"].append(run.compute_units)
    _tiles(facts, run, heaviest)
    size = {"float": 4, "c10::Half": 2, "c10::BFloat16": 2}
    for name in heaviest.parameters.get("dtype_A_B", [])[:1]:
        sides = [value for side in "MNK" for value in facts[f"param {side}"]]
        facts["side_bytes"] += [side * size[name] for side in sides if name in size]
        loads = [int(n) for n in re.findall(r"_align[abc]?(\d+)", _main_kernel(heaviest) or "")]
        if loads and name in size:
            facts["load_elements"].append(min(loads))
            facts["load_bytes"].append(min(loads) * size[name])
    _merging(facts, run, heaviest)
    _memory_rows(facts, heaviest)
    if {"N_Q", "H_Q"} <= heaviest.parameters.keys():
        blocks = (
            math.ceil(heaviest.parameters["N_Q"] / QUERIES_OF_BLOCK) * heaviest.parameters["H_Q"]
        )
        facts["blocks"].append(blocks * heaviest.parameters["B"])
    _extents(facts, heaviest)
    filter_shape = heaviest.parameters.get("filter_shape")
    if filter_shape:
        facts["channels"] += list(filter_shape[:2])
        transposes_us = heaviest.kernel_time_us(TRANSPOSE.search)
        others_us = transposes_us + heaviest.kernel_time_us(FILL_OR_CAST.search)
        facts["heaviest_transpose_pct"].append(share(transposes_us, heaviest.time_us))
        if heaviest.efficiency_pct is not None and heaviest.time_us > others_us:
            convolving = heaviest.efficiency_pct * heaviest.time_us / (heaviest.time_us - others_us)
            facts["convolving_pct"].append(convolving)
    groups = [shape for shape in heaviest.shapes if shape and isinstance(shape[0], tuple)]
    facts["tensors"] += [len(group) for group in groups]


def _tiles(facts: Facts, run: RunDirectory, heaviest: Row) -> None:
    """Tiles over the output of a product, and how unevenly they fill the compute units."""
    edges = re.findall(r"\d+", heaviest.cells.get("tile") or "")[:2]
    size = heaviest.parameters
    if len(edges) < 2 or not {"M", "N"} <= size.keys():
        return
    for along_m, along_n in (edges, edges[::-1]):
        tiles = (
            size.get("B", 1)
            * math.ceil(size["M"] / int(along_m))
            * math.ceil(size["N"] / int(along_n))
        )
        facts["tiles"].append(tiles)
        output = size.get("B", 1) * size["M"] * size["N"]
        facts["useful_pct"].append(share(output, tiles * int(along_m) * int(along_n)))
        if run.compute_units:
            rounds = math.ceil(tiles / run.compute_units)
            facts["rounds"].append(rounds)
            facts["idle_units_pct"].append(100 - share(tiles, rounds * run.compute_units))


def _merging(facts: Facts, run: RunDirectory, heaviest: Row) -> None:
    """How often a product runs for each run of another one in the same outer module."""
    if not heaviest.module_path or "N" not in heaviest.parameters:
        return
    outer = _outer_module(heaviest)
    beside = [row.calls for row in run.category(heaviest.category) if _outer_module(row) == outer]
    ratio = heaviest.calls / min(beside)
    facts["merged"].append(ratio)
    facts["merged_n"].append(ratio * heaviest.parameters["N"])


def _memory_rows(facts: Facts, heaviest: Row) -> None:
    """Bytes of the innermost dimension, if it has stride 1 in the first two tensors."""
    sizes = {"float": 4, "c10::Half": 2, "c10::BFloat16": 2}
    tensors = list(zip(heaviest.shapes, heaviest.strides, strict=False))[:2]
    if all(shape and strides and strides[-1] == 1 for shape, strides in tensors):
        types = [sizes[name] for name in heaviest.types[:2] if name in sizes]
        facts["run_bytes"] += [shape[-1] * min(types) for shape, _ in tensors if types]


def _outer_module(row: Row) -> tuple[str, ...]:
    modules = [re.sub(r"_\d+$", "", module) for module in row.module_path.split(" / ")]
    return tuple(modules[:-1])


def _extents(facts: Facts, heaviest: Row) -> None:
    """Rows and elements of a reduction, channels and positions of a normalization."""
    shape = next((s for s in heaviest.shapes if s and not isinstance(s[0], tuple)), None)
    if shape is None:
        return
    if len(shape) > 1:
        channels = shape[0] * shape[1] if "instance_norm" in heaviest.name else shape[1]
        facts["norm_channels"].append(channels)
        facts["norm_positions"].append(math.prod(shape) / channels)
    size = heaviest.parameters.get("num_channels")
    if size:
        facts["norm_rows"].append(math.prod(shape) / size)
        facts["norm_extent"].append(size)
    dims = _reduced(heaviest, len(shape))
    extent = math.prod(shape[dim] for dim in dims)
    if extent:
        facts["reduced_extent"].append(extent)
        facts["reduced_rows"].append(math.prod(shape) / extent)


def _reduced(row: Row, rank: int) -> list[int]:
    """The dimensions that a reduction reduces: those that the call names, else all."""
    index = 2 if "norm" in row.name or "softmax_backward" in row.name else 1
    text = row.concrete[index] if index < len(row.concrete) else ""
    named = re.findall(r"-?\d+", str(text)) if re.fullmatch(r"\[?[-\d, ]*\]?", str(text)) else []
    return sorted({int(dim) % rank for dim in named}) if named else list(range(rank))
