"""Which fact of ``recomputed`` each value of a finding is: by name, or by message and name."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.arithmetic.facts_groups import steps_of
from tests.arithmetic.names import name_problems, shape_problems
from tests.arithmetic.printed import numbers
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.units import Facts

FACTS: dict[str, str] = {
    "gpu_time_ms": "time_ms",
    "peak TB/s": "peak_tb_per_s",
    "peak TFLOP/s": "peak_tflops",
    "achieved TB/s": "tb_per_s",
    "achieved TFLOP/s": "tflops_per_s",
    "achieved_mb_per_s TB/s": "mb_per_s",
    "mean_kernel_time_us": "mean_us",
    "mean_gpu_time_us": "mean_us",
    "achieved_tb_per_s": "tb_per_s",
    "achieved_tflops_per_s": "tflops_per_s",
    "peak_tflops_per_s": "peak_tflops",
    "best_row_pct": "baseline_best_pct",
    "best_pct": "baseline_best_pct",
    "transpose_ms": "overhead_ms",
    "fill_ms": "overhead_ms",
    "fill_and_cast_ms": "overhead_ms",
    "convolution_pct": "overhead_of_category_pct",
    "overhead_pct": "overhead_of_category_pct",
    "transpose_launches": "overhead_launches",
    "forward_ms": "overhead_forward_ms",
    "backward_ms": "overhead_backward_ms",
    "convolution_ms": "category_ms",
    "channels_last_pct": "overhead_in_channels_last_pct",
    "transpose_pct": "heaviest_transpose_pct",
    "copies_ms": "time_ms",
    "copies_per_call": "copies_each",
    "total_ms": "copy_ms",
    "exposed_ms": "exposed_copy_ms",
    "mean_size_bytes": "copy_bytes",
    "least_bytes": "copy_bytes",
    "most_bytes": "copy_bytes",
    "wall_pct": "share_of_wall_pct",
    "traffic_mb": "step_mb",
    "fused_traffic_mb": "fused_mb",
    "added_traffic_mb": "fused_mb",
    "products_ms": "product_ms",
    "products_needed_elsewhere": "kept",
    "fused_roofline_ms": "fused_ms",
    "attention_fused_roofline_ms": "fused_ms",
    "gaps": "gap_count",
    "short_kernels_pct": "short_pct",
    "operator_pct": "helper_pct",
    "estimated_passes": "passes",
    "estimated_bandwidth_pct": "estimated_pct",
    "exposed_communication_ms": "exposed_comm_ms",
    "communication_ms": "comm_ms",
    "communication_kernels": "comm_kernels",
    "hidden_target_pct": "overlap_target_pct",
    "compute_free_ms": "free_compute_ms",
    "free_ms": "free_compute_ms",
    "moved_bytes": "bytes",
    "count": "calls",
    "call_time_ms": "heaviest_mean_ms",
    "mean_time_ms": "mean_ms",
    "products": "param B",
    "slowdown": "roofline_times",
    "std_over_mean": "variation",
    "operation_count": "heaviest_calls",
    "length_ms": "beside_longest_ms",
    "times": "baseline_times",
    "low_pct": "band_low",
    "high_pct": "band_high",
    "per_module": "merged",
    "output_tiles": "tiles",
    "m": "param M",
    "n": "param N",
    "k": "param K",
    "b": "param B",
    "n_q": "param N_Q",
    "n_kv": "param N_KV",
    "head_dim": "param d_h_qk",
    "heads_kv": "param H_KV",
    "heads_q": "param H_Q",
    "step_ms": "longest_step_ms",
    "batch": "param B",
    "queries": "param N_Q",
    "keys": "param N_KV",
    "dim": "param d_h_qk",
    "heads": "attention_heads",
    "ranks": "longest_ranks",
    "message_bytes": "longest_message_bytes",
}
"""The fact of a value by its name; without an entry the fact has the name of the value. Rates have
their unit behind the name."""

OF_CHECK: dict[tuple[str, str], str] = {
    ("idle_causes", "idle_ms"): "own_cause_ms",
    ("step_edges", "idle_ms"): "edge_idle_ms",
    ("step_edges", "step_ms"): "step_time_ms",
    ("step_edges", "share_pct"): "step_pct",
    ("step_edges", "steps"): "step_count",
    ("idle_causes", "idle_pct"): "step_pct",
    ("idle_causes", "excluded_ms"): "own_cause_ms",
    ("idle_causes", "excluded_pct"): "step_pct",
    ("layout_transposes", "compute_pct"): "overhead_of_compute_pct",
    ("fills_and_casts", "compute_pct"): "overhead_of_compute_pct",
    ("layout_transposes", "launches"): "overhead_launches",
    ("fills_and_casts", "launches"): "overhead_launches",
    ("layout_transposes", "share_pct"): "overhead_of_heaviest_pct",
    ("fills_and_casts", "share_pct"): "overhead_of_heaviest_pct",
    ("gpu_idle", "kernels"): "kernel_count",
    ("idle_causes", "kernels"): "kernel_count",
    ("short_kernels", "kernels"): "kernel_count",
    ("low_baseline", "calls"): "baseline_calls",
    ("low_baseline", "reached_pct"): "baseline_pct",
    ("memory_copies", "time_ms"): "copy_ms",
    ("exposed_communication", "total_ms"): "comm_ms",
    ("exposed_communication", "exposed_ms"): "exposed_comm_ms",
    ("exposed_communication", "mean_ms"): "longest_collective_ms",
    ("exposed_communication", "gb_per_s"): "longest_collective_gb_per_s",
    ("unfused_attention", "operators"): "steps",
    ("estimated_bandwidth", "reached_pct"): "estimated_pct",
    ("estimated_bandwidth", "tb_per_s"): "estimated_tb_per_s",
}
"""Where a name means something else in the findings of one check."""

OF_MESSAGE: dict[tuple[str, str], str] = {
    ("cpu_idle.call.beside", "longest_gap_ms"): "named_gap_ms",
    ("elementwise.many.short", "some"): "short_calls",
    ("elementwise.many.short", "short_us"): "short_mean_us",
    ("cpu_idle.call.most", "gaps"): "place_gaps",
    ("cpu_idle.call.most", "time_ms"): "place_ms",
    ("cpu_idle.what.few_launches", "kernels"): "all_kernels",
    ("cpu_idle.call.after", "gaps"): "after_waits",
    ("cpu_idle.call.after", "time_ms"): "after_waits_ms",
    ("cpu_idle.wait", "gaps"): "after_wait",
    ("cpu_idle.wait", "time_ms"): "after_wait_ms",
    ("cpu_idle.wait", "waits"): "place_waits",
    ("cpu_idle.wait", "wait_ms"): "place_wait_ms",
    ("efficiency.band_scale", "reached_pct"): "compute_peak_pct",
    ("gemm_shapes.last_round", "idle_pct"): "idle_units_pct",
    ("gemm_shapes.few_tiles", "idle_pct"): "idle_units_pct",
    ("gemm_shapes.rows.other", "idle_pct"): "idle_units_pct",
    ("efficiency.reason.of_some", "some"): "heaviest_calls",
    ("places.kernel", "some"): "calls_of_kernel",
    ("places.some", "some"): "calls_at_place",
    ("elementwise.many.kernel", "launches"): "short_launches",
    ("elementwise.many.kernel", "time_ms"): "short_ms",
    ("normalization.rows", "extent"): "norm_extent|norm_positions",
    ("normalization.rows", "reductions"): "norm_rows|norm_channels",
    ("normalization", "extent"): "norm_positions",
    ("normalization", "reductions"): "norm_channels",
    ("reduce", "extent"): "reduced_extent",
    ("reduce", "results"): "reduced_rows",
    ("cpu_idle.average", "steps"): "step_count",
    ("communication.kind", "count"): "longest_collectives",
    ("kernel_fusion.issue.moved", "step_bytes"): "step_bytes_each",
    ("kernel_fusion.issue.moved", "fused_bytes"): "fused_bytes_each",
    ("kernel_fusion.title", "kernels"): "kernels_each",
    ("kernel_fusion.issue", "kernels"): "kernels_each",
    ("kernel_fusion.issue.of_calls", "kernels"): "kernels_each",
    ("epilogues.issue", "operators"): "steps",
    ("epilogues.kernel", "operators"): "steps",
    ("attention_copies.kind", "copies"): "row_copies",
    ("chains.step", "time_ms"): "step_ms",
    ("unfused_attention.step", "time_ms"): "step_ms",
    ("copies.evidence.launcher", "copies"): "copied_by",
    ("cpu_idle.evidence.host_call", "count"): "host_calls",
    ("cpu_idle.evidence.host_call", "longest_ms"): "host_call_ms",
    ("cpu_idle.evidence.wait", "time_ms"): "waits_ms",
    ("efficiency.part", "time_ms"): "part_ms",
    ("savings", "high_pct"): "step_high_pct",
    ("savings", "time_ms"): "impact_ms",
    ("call_times.range", "shortest_us"): "shortest_group_us",
    ("call_times.range", "longest_us"): "longest_group_us",
}
"""Where a name means something else in one message; ``|`` is between the facts of two kinds."""

OF_REPORT: dict[tuple[str, str], str] = {
    ("reports.time", "time_ms"): "impact_ms",
    ("reports.time", "share_pct"): "impact_share_pct",
    ("reports.efficiency", "efficiency_pct"): "start_pct",
    ("reports.saving", "e2e_pct"): "saved_total_pct",
    ("reports.saving.over", "steps"): "whole_steps",
    ("reports.saving.step", "high_ms"): "step_high_ms",
    ("reports.saving.step", "high_pct"): "step_high_pct",
    ("reports.saving.short.step", "high_ms"): "step_high_ms",
    ("reports.saving.short.step", "high_pct"): "step_high_pct",
    ("reports.saving.compute", "compute_pct"): "saved_compute_pct",
    ("reports.saving.target", "target_pct"): "target_pct",
    ("reports.score.fusion", "modelled"): "modelled_steps",
    ("reports.score.fusion", "kernels"): "kernels_each",
    ("reports.extent", "rows"): "listed_rows",
    ("reports.extent", "calls"): "listed_calls",
    ("reports.extent", "time_ms"): "listed_ms",
    ("reports.extent", "share_pct"): "listed_pct",
    ("reports.potential", "saved_ms"): "high_ms",
    ("reports.potential", "time_ms"): "impact_ms",
    ("reports.left_out", "rows"): "rows_left",
    ("reports.left_out", "time_ms"): "left_ms",
    ("reports.overview", "time_ms"): "category_ms",
    ("reports.overview", "calls"): "category_calls",
    ("reports.overview", "rows"): "category_rows",
    ("reports.overview.efficiency", "efficiency_pct"): "category_pct",
    ("reports.overview.efficiency", "coverage_pct"): "category_rated_pct",
    ("reports.overview.of_compute", "compute_pct"): "category_of_compute_pct",
    ("reports.title", "compute_pct"): "category_of_compute_pct",
    ("no_perf_model.note", "rows"): "unmodelled_rows",
    ("no_perf_model.note", "time_ms"): "unmodelled_ms",
}
"""The facts of sentences that reports compose."""


def of_score(end: str) -> dict[tuple[str, str], str]:
    """``OF_REPORT`` for a sentence about the low, the middle or the high score."""
    return {**OF_REPORT, ("reports.score", "score"): f"score_{end}"}


OF_EVIDENCE: dict[tuple[str, str], str] = {
    ("cpu_idle.evidence.place", "count"): "place_gaps",
    ("cpu_idle.evidence.place", "time_ms"): "place_ms",
    ("communication.kind", "count"): "collectives",
    ("communication.kind", "message_bytes"): "message_bytes",
    ("communication.kind", "ranks"): "ranks",
    ("communication.kind", "mean_ms"): "collective_ms",
    ("communication.kind", "gb_per_s"): "collective_gb_per_s",
}
"""Where a message of the evidence is about each of several things, not about the first."""

LENGTHS: dict[tuple[str, str], str] = {
    ("layout_transposes", "kernels"): "kernel_names",
    ("fills_and_casts", "kernels"): "kernel_names",
    ("convolution_kernel_team", "kernels"): "kernel_names",
    ("kernel_fusion.issue", "operators"): "operator_names",
    ("chains.steps.named", "names"): "operator_names",
}
"""The number of names in a list, of which the sentence prints some."""

FIXED: dict[tuple[str, str], float] = {
    ("layout_transposes.algorithmic.high", "low_pct"): 30,
    ("layout_transposes.algorithmic.high", "high_pct"): 45,
    ("efficiency.caveat.good", "good_pct"): 60,
    ("kernel_fusion.caveat", "target_pct"): 80,
    ("epilogues.caveat", "target_pct"): 80,
    ("epilogues.caveat", "overlap_pct"): 15,
    ("unfused_attention.caveat.model", "target_pct"): 80,
    ("cpu_idle.verify", "target_pct"): 20,
    ("communication.overlap", "target_pct"): 70,
    ("communication.evidence", "target_pct"): 70,
    ("unfused_attention", "least"): 3,
    ("unfused_attention", "most"): 10,
    ("unfused_attention", "least_pct"): 10,
    ("unfused_attention", "most_pct"): 30,
    ("cpu_idle.issue.short_kernels", "limit_us"): 10,
    ("gemm_shapes.slow_batch", "tiny_slowdown"): 5,
    ("elementwise.chain", "more_neighbors"): 0,
}
"""Documented thresholds, by the beginning of the id of the message."""


TEXTS = (
    *("title", "issue", "algorithmic", "kernel", "hypothesis", "caveat", "verify", "capture"),
    "priority_reason",
)
"""The fields of a finding that hold sentences."""

NAMES = (
    *("name", "names", "kernel", "kernels", "main_kernel", "helpers", "neighbors", "operators"),
    *(
        "product",
        "step",
        "operator",
        "place",
        "frame",
        "annotation",
        "called_from",
        "site",
        "first",
        "library",
    ),
)
"""Values that are names of the trace."""

LOOSE = {
    "whole": ("whole_steps",),
    "channels": ("channels",),
    "arguments": ("tensors",),
    "shapes": ("tensors",),
    "heaviest_call": ("tensors",),
    "first_step": ("tensors",),
    "misaligned": ("param M", "param N", "param K"),
    "odd_rows": ("param M", "param N", "param K", "side_bytes"),
    "capture": ("options",),
    "layer": ("layer",),
    "kind": ("kind",),
}
"""The facts that numbers inside a text may be."""

CHAINS = ("chain_context.evidence.part", "chain_context.attention", "chain_context.composition")
"""Messages about a chain that is another finding's."""


@dataclass(frozen=True)
class Values:
    """Compares the values of a finding, or of the notes of an analysis, with the facts."""

    run: RunDirectory
    check: str
    facts: Facts
    rows: list[Row]
    names: list[str]

    def of_finding(self, finding: dict[str, Any]) -> Iterator[str]:
        """What is wrong with the messages and the quantities of a finding."""
        for texts in finding["messages"].values():
            for message in texts:
                yield from self.of_message(message)
        for quantity in finding["quantities"]:
            name, value = quantity["name"], quantity["value"]
            if quantity["message"]:
                yield from self.of_message(quantity["message"], OF_EVIDENCE)
            elif isinstance(value, str):
                yield from self._of_text(name, value)
            else:
                expected = self.facts.get(self._fact("", name), [])[:1]
                yield from _differs(name, value, expected)

    def of_message(self, message: dict[str, Any], special: Any = None) -> Iterator[str]:
        """What is wrong with a message and the messages in its values."""
        if message["id"] in CHAINS:
            yield from chain_problems(message, self.run, {row.uid for row in self.rows})
            return
        for name, value in message["values"].items():
            for problem in self._of_value(message, name, value, special or {}):
                yield f"{message['id']}: {problem}"

    def _of_value(
        self, message: dict[str, Any], name: str, value: Any, special: Any
    ) -> Iterator[str]:
        if isinstance(value, list):
            if (fact := longest(LENGTHS, message["id"], name)) and value:
                yield from _differs(f"length of {name}", len(value), self.facts.get(fact, []))
            for each in value:
                yield from self._of_value(message, name, each, special)
        elif isinstance(value, dict):
            yield from self.of_message(value, special)
        elif isinstance(value, str):
            yield from self._of_text(name, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            unit = message["values"].get("unit")
            fixed = longest(FIXED, message["id"], name)
            fact = longest(special, message["id"], name)
            fact = fact or self._fact(message["id"], f"{name} {unit}" if unit else name)
            found = [v for each in fact.split("|") for v in self.facts.get(each, [])]
            yield from _differs(name, value, found if fixed is None else [fixed])

    def _fact(self, message_id: str, name: str) -> str:
        found = longest(OF_MESSAGE, message_id, name)
        return str(found or OF_CHECK.get((self.check, name)) or FACTS.get(name, name))

    def _of_text(self, name: str, text: str) -> Iterator[str]:
        if not re.search(r"\d", text):
            return
        if name in NAMES:
            yield from name_problems(text, self.names)
            return
        if text.startswith("N "):
            yield from self._of_lengths(text)
            return
        yield from shape_problems(text, self.rows, is_tile=name == "tile")
        expected = [value for fact in LOOSE.get(name, ()) for value in self.facts.get(fact, [])]
        for number in numbers(text):
            yield from _differs(f"{name} {text!r}", number.value, expected)

    def _of_lengths(self, text: str) -> Iterator[str]:
        """The range of lengths of an attention call: ``N 512-1023``."""
        (start,), (below,) = self.facts["length_from"], self.facts["length_below"]
        known = (f"N {start:.0f}-{below - 1:.0f}", f"N under {below:.0f}", f"N from {start:.0f}")
        if text not in known:
            yield f"{text}: one of {known} expected"


def chain_problems(message: dict[str, Any], run: RunDirectory, uids: set[int]) -> Iterator[str]:
    """A message about a chain: the chain's figures, and the part of its time that rows take."""
    values, summary = message["values"], message["values"]["chain"]["values"]
    subject = _named(summary["subject"])
    chain = next((each for each in run.fusion_chains if _subject(each) == subject), None)
    if chain is None:
        yield f"{message['id']}: there is no chain {subject}"
        return
    steps = steps_of(run, chain)
    expected = {
        "kernels": chain["kernel_count"] / chain["instance_count"],
        "instances": chain["instance_count"],
        "time_ms": math.fsum(step["kernel_time_us"] for step in steps) / 1000,
    }
    for name, value in expected.items():
        yield from _differs(f"{message['id']}: {name} of the chain", summary[name], [value])
    if message["id"].endswith(".part"):
        own_us = math.fsum(s["kernel_time_us"] for s in steps if s["operation_uid"] in uids)
        yield from _differs("own part", values["time_ms"], [own_us / 1000])
    if message["id"].endswith(".attention"):
        yield from _attention_problems(values["part"], chain, run)


def _attention_problems(part: Any, chain: dict[str, Any], run: RunDirectory) -> Iterator[str]:
    """How many instances of a chain attention reads, no more than it has calls, and their time."""
    count, part_ms = chain["attention_count"], chain["attention_time_us"] / 1000
    calls = sum(row.calls for row in run.category("sdpa_fwd"))
    if not 0 < count <= min(chain["instance_count"], calls):
        yield f"attention reads {count} of {chain['instance_count']} in {calls} calls"
    if part_ms > chain["kernel_time_us"] / 1000 * (1 + 1e-9):
        yield f"a part of {part_ms} ms is more than the whole"
    if part is None and count != chain["instance_count"]:
        yield f"attention reads {count} of {chain['instance_count']}"
    if part is not None:
        yield from _differs("instances", part["values"]["instances"], [count])
        yield from _differs("time_ms", part["values"]["time_ms"], [part_ms])


def _subject(chain: dict[str, Any]) -> tuple[Any, ...]:
    if chain["product_name"] is None:
        return (chain["scope_name"] or f"{chain['step_names'][0]} ... {chain['step_names'][-1]}",)
    return tuple(chain["step_names"]), chain["product_name"], chain["scope_name"]


def _named(subject: dict[str, Any]) -> tuple[Any, ...]:
    values = subject["values"]
    if "name" in values:
        return (values["name"],)
    place = values["place"]["values"]["name"] if values["place"] else None
    return tuple(values["steps"]["values"]["names"]), values["product"], place


def same(value: float, expected: float) -> bool:
    """Whether two numbers are equal but for the order of sums."""
    return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9)


def _differs(name: str, value: Any, expected: list[float]) -> Iterator[str]:
    if not any(same(value, each) for each in expected):
        yield f"{name} is {value}; {expected[:6]} expected"


def longest(table: dict[tuple[str, str], Any], message_id: str, name: str) -> Any:
    """The entry for the longest beginning of an id."""
    parts = message_id.split(".")
    beginnings = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((table[b, name] for b in beginnings if (b, name) in table), None)
