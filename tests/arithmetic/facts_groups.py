"""What operators make up together: chains to fuse, attention in parts, copies around attention."""

import math
import re
from ast import literal_eval
from collections import defaultdict
from typing import Any

from tests.arithmetic.run_directory import Row, RunDirectory, by_time
from tests.arithmetic.units import KERNEL_FLOOR_US, Facts, share, time_ms


def of_chain(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """The chain of a finding, and the operators that it names."""
    chain_facts(facts, run, chain_of(run, finding))
    facts["tensors"] += [
        len(shape)
        for uid in finding["shared_uids"]
        for shape in run.rows[uid].shapes
        if shape and isinstance(shape[0], tuple)
    ]


def of_epilogue(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """What follows a matrix product, and the products themselves."""
    chain = chain_of(run, finding)
    of_chain(facts, run, finding)
    facts["product_ms"].append(chain["product_time_us"] / 1000)
    facts["kept"].append(chain["kept_count"])
    facts["steps"].append(len(chain["step_names"]))


def products_of(run: RunDirectory, finding: dict[str, Any]) -> list[Row]:
    """The rows of the product that an epilogue follows in its first instance; else none."""
    if finding["check"] != "gemm_epilogue":
        return []
    chain = chain_of(run, finding)
    shapes = literal_eval(chain["product_dims"])
    named = [row for row in run.rows.values() if row.name == chain["product_name"]]
    return [row for row in named if row.shapes == shapes]


def chain_facts(facts: Facts, run: RunDirectory, chain: dict[str, Any]) -> None:
    """Times and traffic of a chain, as it is and as one kernel."""
    steps = steps_of(run, chain)
    total_ms = math.fsum(step["kernel_time_us"] for step in steps) / 1000
    by_position: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for step in steps:
        by_position[step["position"]].append(step)
    step_ms = {
        position: math.fsum(step["kernel_time_us"] for step in same) / 1000
        for position, same in by_position.items()
    }
    instances, kernels = chain["instance_count"], chain["kernel_count"]
    facts["operator_names"].append(len(chain["step_names"]))
    facts["time_ms"].append(total_ms)
    facts["compute_pct"].append(share(total_ms, run.compute_ms))
    facts["instances"].append(instances)
    facts["scope_calls"].append(chain["scope_calls"])
    facts["kernels"].append(kernels)
    facts["kernels_each"].append(kernels / instances)
    longest = max(step_ms, key=lambda position: step_ms[position])
    of_longest = by_position[longest]
    facts["longest_step_ms"].append(max(step["kernel_time_us"] for step in of_longest) / 1000)
    facts["modelled_steps"].append(
        sum(
            all(run.rows[step["operation_uid"]].bytes is not None for step in same)
            for same in by_position.values()
        )
    )
    for position in sorted(step_ms):
        facts["step_ms"].append(step_ms[position])
    moved = math.fsum(
        (run.rows[step["operation_uid"]].bytes or 0) * step["calls"] for step in steps
    )
    if run.hardware and chain["fused_bytes"] is not None:
        facts["step_bytes"].append(moved)
        facts["fused_bytes"].append(chain["fused_bytes"])
        facts["step_mb"].append(moved / 1e6)
        facts["fused_mb"].append(chain["fused_bytes"] / 1e6)
        facts["step_bytes_each"].append(moved / instances)
        facts["fused_bytes_each"].append(chain["fused_bytes"] / instances)
        facts["fused_ms"].append(_fused_ms(run, chain))


def _fused_ms(run: RunDirectory, chain: dict[str, Any]) -> float:
    """Memory or arithmetic time at the peaks, the longer and 15% of the shorter."""
    hardware = run.hardware or {}
    memory_ms = chain["fused_bytes"] / hardware["mem_bw_gbps"] / 1e6
    peak = hardware["max_achievable_tflops"].get(chain["compute"] or "")
    arithmetic_ms = chain["flops"] / peak / 1e9 if peak else 0.0
    return max(memory_ms, arithmetic_ms) + 0.15 * min(memory_ms, arithmetic_ms)


def chain_of(run: RunDirectory, finding: dict[str, Any]) -> dict[str, Any]:
    """The chain of a finding, known by its rows and its name."""
    mine = set(finding["shared_uids"])
    for chain in run.fusion_chains:
        is_named = (chain["scope_name"] or chain["step_names"][0]) in finding["title"]
        if is_named and {step["operation_uid"] for step in steps_of(run, chain)} == mine:
            return chain
    raise AssertionError(f"No chain is that of {finding['title']}")


def steps_of(run: RunDirectory, chain: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a chain, one for each operation row."""
    return [step for step in run.fusion_steps if step["chain"] == chain["chain"]]


def of_attention_copies(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    copies = by_time(run.rows[uid] for uid in finding["shared_uids"])
    name = re.findall(r"`([^`]*)`", finding["title"])[0]
    attention = [row for row in run.category("sdpa_fwd") if row.name == name]
    calls = sum(row.calls for row in attention)
    count = sum(row.calls for row in copies)
    facts["time_ms"].append(time_ms(copies))
    facts["compute_pct"].append(share(time_ms(copies), run.compute_ms))
    facts["attention_ms"].append(time_ms(attention))
    facts["calls"].append(calls)
    facts["copies"].append(count)
    facts["row_copies"] += [row.calls for row in copies]
    facts["copies_each"].append(count / calls)


def of_unfused_attention(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """A softmax between two products, with all its calls."""
    mine = set(finding["shared_uids"])
    (group,) = [
        group
        for group in run.table("attention_groups")
        if {s["operation_uid"] for s in _attention_steps(run, group)} == mine
    ]
    steps = _attention_steps(run, group)
    by_position: dict[int, float] = defaultdict(float)
    for step in steps:
        by_position[step["position"]] += step["kernel_time_us"] / 1000
    total_ms = math.fsum(by_position.values())
    facts["time_ms"].append(total_ms)
    facts["compute_pct"].append(share(total_ms, run.compute_ms))
    facts["calls"].append(group["instance_count"])
    facts["kernels"].append(group["kernel_count"])
    facts["steps"].append(len(group["step_names"]))
    facts["step_ms"] += by_position.values()
    facts["longest_step_ms"].append(max(step["kernel_time_us"] for step in steps) / 1000)
    facts["least_ms"].append(total_ms * 0.1)
    facts["most_ms"].append(total_ms * 0.3)
    for name, column in (("N_Q", "n_q"), ("N_KV", "n_kv"), ("d_h_qk", "d_qk"), ("B", "batch")):
        facts[f"param {name}"].append(group[column])
    facts["attention_heads"].append(group["heads"] or 0)
    if run.hardware and group["fused_flops"]:
        peak = run.hardware["max_achievable_tflops"][group["compute"]]
        each_ms = max(
            group["fused_flops"] / peak / 1e9,
            group["fused_bytes"] / run.hardware["mem_bw_gbps"] / 1e6,
            KERNEL_FLOOR_US / 1000,
        )
        facts["fused_ms"].append(each_ms * group["instance_count"])


def _attention_steps(run: RunDirectory, group: dict[str, Any]) -> list[dict[str, Any]]:
    return [s for s in run.table("attention_steps") if s["group"] == group["group"]]
