"""Compare simulated steps of several ranks with traces that were written with changed kernels.

python -m benchmarks.simulated_ranks

Prints for each change the error of the ranks together, and the gain of one rank alone: at least, at
most, and in truth. Faster kernels have to gain what lies between; slower ones need not.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulation.generated import CHANGES, generate
from tests.simulation.test_truth import RANKS, STEPS_OF_RANKS, interval_ns, joint_error_pct


def main() -> None:
    """Print the table."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        ranks = generate(folder, patch, RANKS, STEPS_OF_RANKS)
        print("| kernels | x | error % | gain ms: at least | in truth | at most |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for factor, families in CHANGES:
            truth = generate(folder, patch, RANKS, STEPS_OF_RANKS, factor, families)
            error = joint_error_pct(ranks, truth, factor, families)
            low, high = interval_ns(ranks[0], factor, families)
            gain = ranks[0].graph.window_ns - truth[0].graph.window_ns
            gains = " | ".join(f"{each / 1e6:.3f}" for each in (low, gain, high))
            print(f"| {', '.join(families) or 'all'} | {factor:g} | {error:.4f} | {gains} |")


if __name__ == "__main__":
    main()
