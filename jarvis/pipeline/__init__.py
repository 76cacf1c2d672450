"""From a trace to a run directory: defines the order of the steps."""

from jarvis.pipeline.analysis import analyze, generate_report, read_info
from jarvis.pipeline.assembly import compare
from jarvis.pipeline.inputs import (
    choose_hardware,
    chosen_options,
    gpu_properties,
    read_arch_json,
    read_served_model,
    reprojected_options,
)
from jarvis.pipeline.reprojection import at_targets, has_fixed_findings, opened_at, reproject
from jarvis.pipeline.simulated_steps import WhatIf, simulated, what_if
from jarvis.pipeline.steps import REPROJECTION_STEPS, STEPS, Progress, Step

__all__ = [
    "REPROJECTION_STEPS",
    "STEPS",
    "Progress",
    "Step",
    "WhatIf",
    "analyze",
    "at_targets",
    "choose_hardware",
    "chosen_options",
    "compare",
    "generate_report",
    "gpu_properties",
    "has_fixed_findings",
    "opened_at",
    "read_arch_json",
    "read_info",
    "read_served_model",
    "reproject",
    "reprojected_options",
    "simulated",
    "what_if",
]
