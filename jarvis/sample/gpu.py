"""Durations on the simulated GPU: roofline time divided by the efficiency of a kernel family."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from jarvis.hardware import HardwareSpec

HOST_LINK_GB_PER_S = 50.0
"""Host-device copies: practical bandwidth of a PCIe 5 x16 link."""

COLLECTIVE_BUS_GB_PER_S = 300.0
"""Bus bandwidth of a ring all-reduce between the GPUs of one node."""

_KERNEL_FLOOR_NS = 1_600
_COPY_FLOOR_NS = 1_500
_COLLECTIVE_FLOOR_NS = 25_000

# Fraction of the roofline that a kernel of a family reaches, lowest and highest. One random value
# per family and size, so that equal calls are about equally fast.
_EFFICIENCY = {
    "gemm": (0.55, 0.82),
    "gemm_misaligned": (0.17, 0.27),
    "gemm_tall_skinny": (0.18, 0.32),
    "gemm_tiny_batched": (0.04, 0.09),
    "attention": (0.36, 0.48),
    "attention_backward": (0.24, 0.34),
    "convolution": (0.28, 0.48),
    "transpose": (0.42, 0.60),
    "elementwise": (0.55, 0.78),
    "copy": (0.60, 0.80),
    "reduce": (0.30, 0.55),
    "softmax": (0.30, 0.45),
    "norm": (0.35, 0.60),
    "batch_norm": (0.12, 0.26),
    "gather": (0.25, 0.45),
    "optimizer": (0.50, 0.70),
}


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one kernel: FLOPs on a compute unit, bytes to and from memory."""

    family: str
    flops: float
    nbytes: float
    compute: str = "vector_bf16"


class Gpu:
    """A GPU with the peaks of ``spec`` and random efficiencies from ``seed``.

    Kernels of a family of ``slowdown`` take that many times as long; those of None are all.
    """

    def __init__(
        self, spec: HardwareSpec, seed: int, slowdown: Mapping[str | None, float] | None = None
    ) -> None:
        self.spec = spec
        self._seed = seed
        self._slowdown = slowdown or {}
        self._expected_ns: dict[Work, float] = {}

    def kernel_ns(self, work: Work, rng: random.Random) -> int:
        """Return the duration of one kernel, up to 4% longer than the expected one of its work."""
        expected = self._expected_ns.get(work)
        if expected is None:
            expected = self._expected_ns[work] = self._draw(work)
        return int(expected * (1 + 0.04 * rng.random()))

    def copy_ns(self, nbytes: int, rng: random.Random) -> int:
        """Return the duration of a copy between host and device."""
        return int((_COPY_FLOOR_NS + nbytes / HOST_LINK_GB_PER_S) * (1 + 0.1 * rng.random()))

    def _draw(self, work: Work) -> float:
        draw = random.Random(f"{self._seed} {work}")
        efficiency = draw.uniform(*_EFFICIENCY[work.family])
        factor = self._slowdown.get(None, 1.0) * self._slowdown.get(work.family, 1.0)
        return factor * (_KERNEL_FLOOR_NS + self.roofline_ns(work) / efficiency)

    def roofline_ns(self, work: Work) -> float:
        """Return the minimum time that compute peak and memory bandwidth allow."""
        peak_tflops = self.spec.max_achievable_tflops[work.compute]
        return max(work.flops / peak_tflops / 1e3, work.nbytes / self.spec.mem_bw_gbps)


def all_reduce_ns(nbytes: int, ranks: int, bandwidth_left: float = 1.0) -> int:
    """Return the duration of a ring all-reduce after every rank has arrived.

    ``bandwidth_left`` is the share of the bandwidth that the slowest link has left.
    """
    return transfer_ns(2 * (ranks - 1) / ranks * nbytes, bandwidth_left)


def transfer_ns(nbytes: float, bandwidth_left: float = 1.0) -> int:
    """Return the duration of a transfer in which a link moves so many bytes."""
    return int(_COLLECTIVE_FLOOR_NS + nbytes / (COLLECTIVE_BUS_GB_PER_S * bandwidth_left))
