"""Quantities that findings use as evidence: name, label and unit."""

from collections.abc import Mapping
from typing import NamedTuple


class Quantity(NamedTuple):
    """Label and unit of a quantity; ``unit`` is empty for texts, counts and ratios."""

    label: str
    unit: str = ""

    @property
    def title(self) -> str:
        """Label with unit: ``GPU time (ms)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


QUANTITIES: Mapping[str, Quantity] = {
    "gpu_time_ms": Quantity("GPU time", "ms"),
    "called_from": Quantity("Called from"),
    "compute_pct": Quantity("Share of compute", "%"),
    "category_pct": Quantity("Share of category", "%"),
    "efficiency_pct": Quantity("Efficiency", "% of roofline"),
    "target_pct": Quantity("Target", "% of roofline"),
    "good_pct": Quantity("Time at or above target or expectation", "% of category"),
    "bound": Quantity("Bound"),
    "calls": Quantity("Calls"),
    "launches": Quantity("Launches"),
    "operators": Quantity("Operators"),
    "kernels": Quantity("Kernels"),
    "kernel_times": Quantity("Kernel times per call"),
    "mean_kernel_time_us": Quantity("Mean kernel time per call", "µs"),
    "mean_gpu_time_us": Quantity("Mean GPU time per call", "µs"),
    "flops_per_byte": Quantity("FLOPs/byte of the heaviest call"),
    "achieved_tb_per_s": Quantity("Achieved", "TB/s"),
    "peak_tb_per_s": Quantity("Peak", "TB/s"),
    "achieved_tflops_per_s": Quantity("Achieved", "TFLOP/s"),
    "peak_tflops_per_s": Quantity("Peak", "TFLOP/s"),
    "good_bf16_tflops_per_s": Quantity("Rate of a good bf16 product", "TFLOP/s"),
    "heaviest_call": Quantity("Heaviest call"),
    "main_kernel": Quantity("Main kernel"),
    "library": Quantity("Library"),
    "tile": Quantity("Tile"),
    "model_parts": Quantity("Part of the model"),
    "baseline_tb_per_s": Quantity("Bandwidth baseline", "TB/s"),
    "baseline_pct": Quantity("Bandwidth baseline", "% of peak"),
    "best_row_pct": Quantity("Best row", "% of peak"),
    "aim_ms": Quantity("Target time", "ms"),
    "contiguous_pct": Quantity("Time in contiguous operands", "% of the measured time"),
    "launch_bound_pct": Quantity("Launch-bound time", "% of category"),
    "copies": Quantity("Copies"),
    "copies_per_call": Quantity("Copies per attention call"),
    "attention_ms": Quantity("Time of attention", "ms"),
    "copies_ms": Quantity("Time of the copies", "ms"),
    "operator_pct": Quantity("Share of the operator", "%"),
    "cache_write_ms": Quantity("Time of cache writes", "ms"),
    "estimated_tb_per_s": Quantity("Estimated bandwidth", "TB/s"),
    "estimated_bandwidth_pct": Quantity("Estimated efficiency", "% of bandwidth"),
    "estimated_passes": Quantity("Estimated passes over the input"),
    "convolution_ms": Quantity("Convolution time", "ms"),
    "fill_and_cast_ms": Quantity("Fill and cast time", "ms"),
    "convolution_pct": Quantity("Share of convolution time", "%"),
    "channels_last_pct": Quantity("Inputs in channels_last", "% of transpose time"),
    "transpose_kernels": Quantity("Transpose kernels"),
    "transpose_launches": Quantity("Transpose launches"),
    "transpose_ms": Quantity("Transpose time", "ms"),
    "forward_ms": Quantity("Forward", "ms"),
    "backward_ms": Quantity("Backward", "ms"),
    "helper_kernels": Quantity("Helper kernels"),
    "helper_ms": Quantity("Helper time", "ms"),
    "looks_like": Quantity("Looks like"),
    "kernel_names": Quantity("Different kernels"),
    "confidence": Quantity("Confidence"),
    "first_product": Quantity("First matrix product"),
    "instances": Quantity("Instances"),
    "products_ms": Quantity("Matrix products, time of all instances", "ms"),
    "added_traffic_mb": Quantity("Memory traffic added to the products when fused", "MB"),
    "traffic_mb": Quantity("Memory traffic now, all instances", "MB"),
    "fused_traffic_mb": Quantity("Memory traffic when fused, all instances", "MB"),
    "products_needed_elsewhere": Quantity("Results of the product needed elsewhere too"),
    "steps": Quantity("Operators, time of all instances"),
    "computes": Quantity("Computes"),
    "first_step": Quantity("Inputs of the first operator"),
    "fused_roofline_ms": Quantity("Time at the roofline when fused", "ms"),
    "attention_fused_roofline_ms": Quantity("Roofline time of a fused kernel, all calls", "ms"),
    "part_of_chain": Quantity("Part of a chain to fuse"),
    "operators_of_calls": Quantity("Operators, time of all calls"),
    "shape": Quantity("Shape"),
    "mean_us": Quantity("Mean", "µs"),
    "std_us": Quantity("Standard deviation", "µs"),
    "std_over_mean": Quantity("Std / mean"),
    "idle_ms": Quantity("Idle", "ms"),
    "idle_pct": Quantity("Idle", "% of the GPU window"),
    "excluded_ms": Quantity("Excluded time", "ms"),
    "excluded_pct": Quantity("Excluded time", "% of the GPU window"),
    "compute_wall_pct": Quantity("Compute", "% of the GPU window"),
    "exposed_communication_wall_pct": Quantity("Exposed communication", "% of the GPU window"),
    "exposed_copies_wall_pct": Quantity("Exposed copies", "% of the GPU window"),
    "possible_speedup": Quantity("Possible speedup of the GPU window"),
    "gaps": Quantity("Gaps"),
    "longest_gap_ms": Quantity("Longest gap", "ms"),
    "share_of_idle_pct": Quantity("Share of idle time", "%"),
    "step_idle_ms": Quantity("Idle time per step", "ms"),
    "step_ms": Quantity("Step time", "ms"),
    "step_pct": Quantity("Share of step time", "%"),
    "step_count": Quantity("Steps"),
    "before_first_kernel_ms": Quantity("Before the first kernel", "ms"),
    "host_calls": Quantity("Host in the gaps"),
    "waits_before": Quantity("Idle time before"),
    "short_kernels": Quantity("Kernels below 10 µs"),
    "floor_us": Quantity("Shortest tenth, at most", "µs"),
    "fused_pairs": Quantity("Neighbors to fuse"),
    "layers": Quantity("Slow layers"),
    "median_layer_us": Quantity("Median layer", "µs"),
    "padding_pct": Quantity("Padding", "% of the batch"),
    "share_pct": Quantity("Share", "%"),
    "gpu_time_pct": Quantity("Share of GPU time", "%"),
    "graph_launches": Quantity("Graph launches"),
    "data_loading_idle_ms": Quantity("Data loading", "ms"),
    "host_work_idle_ms": Quantity("Host work", "ms"),
    "synchronization_idle_ms": Quantity("Synchronization", "ms"),
    "launch_bound_idle_ms": Quantity("Launch-bound", "ms"),
    "kernel_loading_idle_ms": Quantity("Kernel loading", "ms"),
    "allocator_idle_ms": Quantity("Memory allocation", "ms"),
    "communication_idle_ms": Quantity("Waiting for communication", "ms"),
    "stalled_queue_idle_ms": Quantity("Queued work that does not start", "ms"),
    "queued_idle_ms": Quantity("Between queued kernels", "ms"),
    "unlinked_work_idle_ms": Quantity("Work without a recorded launch", "ms"),
    "carried_in_idle_ms": Quantity("Work from before the recording", "ms"),
    "window_edge_idle_ms": Quantity("Edge of the recording", "ms"),
    "unknown_idle_ms": Quantity("Unknown", "ms"),
    "mean_kernel_us": Quantity("Mean kernel time", "µs"),
    "short_kernels_pct": Quantity("Share of short kernels", "%"),
    "compute_free_ms": Quantity("Compute without communication", "ms"),
    "exposed_communication_ms": Quantity("Exposed communication", "ms"),
    "overlap_pct": Quantity("Overlap", "% of communication"),
    "wall_pct": Quantity("Share of the GPU window", "%"),
    "hidden_target_pct": Quantity("Target", "% of communication"),
    "communication_ms": Quantity("Total communication", "ms"),
    "direction": Quantity("Direction"),
    "largest_collectives": Quantity("Largest by time"),
    "communication_kernels": Quantity("Communication kernels"),
    "staging_ms": Quantity("Copies for collectives", "ms"),
    "exposed_ms": Quantity("Exposed time", "ms"),
    "exposed_copies_ms": Quantity("Exposed copies", "ms"),
    "mean_size_bytes": Quantity("Mean size", "bytes"),
    "copied_by": Quantity("Copied by"),
    "copy_sizes": Quantity("Sizes"),
    "pageable_copies": Quantity("Copies from or to pageable memory"),
    "pinned_copies": Quantity("Copies from or to pinned memory"),
    "rank": Quantity("Rank"),
    "late_step_count": Quantity("Steps in which it is late"),
    "caused_wait_ms": Quantity("Waiting that it causes, all ranks and steps", "ms"),
    "caused_exposed_wait_ms": Quantity("Of that without compute", "ms"),
    "speed_ratio": Quantity("Time of its kernels / median of the ranks"),
    "launch_lead_us": Quantity("From launch to start of its kernels, median", "µs"),
    "usual_launch_lead_us": Quantity("The same on the other ranks", "µs"),
    "signatures": Quantity("Compared signatures"),
    "excess_pct": Quantity("Latest rank beyond the median", "% of the step"),
    "more_pct": Quantity("More than the mean", "%"),
    "tera_flops": Quantity("FLOPs per step", "TFLOPs"),
    "mean_tera_flops": Quantity("Mean of the ranks", "TFLOPs"),
    "communicator": Quantity("Communicator"),
    "bus_gb_per_s": Quantity("Bus bandwidth", "GB/s"),
    "peak_gb_per_s": Quantity("Peak of the link", "GB/s"),
    "total_ms": Quantity("Total time", "ms"),
    "operators_or_kernels": Quantity("Operators or kernels"),
    "longest_kernels": Quantity("Longest kernels"),
    "not_modeled_reason": Quantity("Why there is none"),
    "reference_gpu_time_ms": Quantity("Reference GPU time", "ms"),
    "attainable_ms": Quantity("Attainable", "ms"),
    "unexplained_ms": Quantity("Not explained", "ms"),
    "slower_pct": Quantity("Slower", "%"),
    "expected_pct": Quantity("Expected", "%"),
    "launches_per_call": Quantity("Launches per call"),
    "reference_launches_per_call": Quantity("Reference launches per call"),
    "arguments": Quantity("Heaviest arguments"),
    "kernel": Quantity("Kernel"),
    "reference_kernel": Quantity("Reference kernel"),
}
"""Quantities by name; the name of a number ends in its unit."""

_BY_TITLE = {quantity.title: name for name, quantity in QUANTITIES.items()}


def title_of(name: str) -> str:
    """Return the label of a quantity with its unit, or ``name`` if it is unknown."""
    quantity = QUANTITIES.get(name)
    return quantity.title if quantity else name


def name_of(title: str) -> str:
    """Return the name of the quantity with this title, or ``title`` if it is unknown.

    Runs of schema version 3 store titles.
    """
    return _BY_TITLE.get(title, title)


def idle_quantity(cause: str) -> str:
    """Return the quantity name of the idle time with a cause (a value of ``IdleCause``)."""
    return f"{cause}_idle_ms"
