"""Options of a performance report, and the groups of sheets that can be compared.

The command line reads both without importing the sheets.
"""

from dataclasses import dataclass

SHORT_KERNEL_THRESHOLD_US = 10.0
SHORT_KERNEL_BINS = 100

GROUPS = ("gpu_timeline", "ops_summary", "kernel_summary", "ops_all", "roofline")
"""Groups of sheets that can be compared, with TraceLens's names."""

ALL = "all"
"""All groups that every report has."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of a performance report, with TraceLens's names.

    ``include_unlinked_kernels`` counts GPU work without a recorded launch in the GPU timeline and
    for overlaps. ``micro_idle_thresh_us`` splits idle time into gaps shorter than that, and others.
    ``topk_*`` limit sheets to the rows with most time. ``detect_recompute`` and
    ``include_call_stack`` use the call tree with Python frames. ``enable_pseudo_ops`` adds ops
    around the kernels of fused layers (``with_pseudo_ops``). ``inference`` chooses the sheets and
    columns of the inference report (``INFERENCE``).
    """

    include_unlinked_kernels: bool = False
    micro_idle_thresh_us: float | None = None
    disable_coll_analysis: bool = False
    enable_kernel_summary: bool = False
    short_kernel_study: bool = False
    short_kernel_threshold_us: float = SHORT_KERNEL_THRESHOLD_US
    short_kernel_histogram_bins: int = SHORT_KERNEL_BINS
    topk_short_kernels: int | None = None
    topk_ops: int | None = None
    topk_roofline_ops: int | None = None
    group_by_num_kernels: bool = False
    include_overlap_info: bool = False
    detect_recompute: bool = False
    include_first_occurrence_time: bool = False
    include_call_stack: bool = False
    enable_pseudo_ops: bool = False
    group_by_parent_module: bool = False
    inference: bool = False

    @property
    def needs_python_tree(self) -> bool:
        """Whether the call tree with Python frames is needed."""
        return self.detect_recompute or self.include_call_stack or self.group_by_parent_module


DEFAULT_OPTIONS = ReportOptions()

INFERENCE = (
    "enable_pseudo_ops",
    "group_by_num_kernels",
    "group_by_parent_module",
    "include_call_stack",
    "inference",
)
"""The options of the inference report."""
