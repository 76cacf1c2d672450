"""What several commands say and print."""

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jarvis.pipeline import Step

TRACE_HELP = "trace of the PyTorch profiler (.json or .json.gz)"
PLATFORM_HELP = "GPU to judge against, as `jarvis hardware` lists it (default: the trace's own)"
PRESET_HELP = "which figures of that GPU, where there are several (default: its first)"

LONG_STEP_S = 1.0
"""A step that takes longer says so."""

Commands = argparse._SubParsersAction


def print_step(step: "Step") -> None:
    """Say to stderr which step begins, and how long it took if that was long."""
    if step.elapsed_s is None:
        print(f"[{step.number}/{step.total}] {step.name}", file=sys.stderr)
    elif step.elapsed_s >= LONG_STEP_S:
        print(f"      took {step.elapsed_s:.1f} s", file=sys.stderr)


def warn(lines: Iterable[str]) -> None:
    """Say warnings to stderr, a line each."""
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)
