"""What several commands say and print."""

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jarvis.pipeline import Step

EXTENSION_HELP = "Python file with perf models and op categories of your own; it is run"
TRACE_HELP = "trace of the PyTorch profiler (.json, .json.gz, or a .zip of one)"
PLATFORM_HELP = "GPU to judge against, as `jarvis hardware` lists it (default: the trace's own)"
ARCH_HELP = "GPU described in a JSON file as TraceLens takes it"
PRESET_HELP = "which figures of that GPU, where there are several (default: its first)"

LONG_STEP_S = 1.0
"""A step that takes longer says so."""

Commands = argparse._SubParsersAction

ERASE_REST = "\x1b[K"
"""What a terminal takes as: nothing more in this line."""


def print_step(step: "Step") -> None:
    """Say to stderr which step begins, to a terminal how far it is, and how long it took."""
    if step.state == "running":
        if sys.stderr.isatty():
            print(f"      {step.reading}{ERASE_REST}", end="\r", file=sys.stderr)
    elif step.elapsed_s is None:
        print(f"[{step.number}/{step.total}] {step.name}", file=sys.stderr)
    elif step.elapsed_s >= LONG_STEP_S:
        rest = ERASE_REST if sys.stderr.isatty() else ""
        print(f"      took {step.elapsed_s:.1f} s{rest}", file=sys.stderr)


def note(lines: Iterable[str]) -> None:
    """Say to stderr what is good to know, a line each."""
    for line in lines:
        print(f"note: {line}", file=sys.stderr)


def warn(lines: Iterable[str]) -> None:
    """Say warnings to stderr, a line each."""
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)
