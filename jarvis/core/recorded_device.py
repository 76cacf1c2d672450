"""The properties of a GPU that profilers record, and what a compiler target says about them."""

from typing import Protocol

ARCHITECTURE = r"^(sm_\d{2,3}|gfx\d{1,2}[0-9a-f]{2})$"
"""Pattern of compiler targets: ``sm_90`` of CUDA, ``gfx942`` of HIP."""


class RecordedDevice(Protocol):
    """The GPU of a trace, as the profiler recorded it; None for what it did not record."""

    @property
    def device_name(self) -> str | None:
        """Return the name that the driver reports."""

    @property
    def compute_units(self) -> int | None:
        """Return the number of streaming multiprocessors or compute units."""

    @property
    def memory_bytes(self) -> int | None:
        """Return the usable memory in bytes."""

    @property
    def warp_size(self) -> int | None:
        """Return the number of threads in a warp or wavefront."""

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Return the major and minor version of the architecture: ``(9, 0)`` for ``sm_90``."""


def has_architecture(device: RecordedDevice, architecture: str) -> bool:
    """Return whether no recorded property of a device contradicts a compiler target."""
    is_amd = architecture.startswith("gfx")
    # The last digit of an AMD target is a stepping, which HIP does not report.
    version = architecture.removeprefix("gfx")[:-1] if is_amd else architecture.removeprefix("sm_")
    capability = int(version[:-1]), int(version[-1], 16)
    warp_size = 64 if architecture.startswith("gfx9") else 32
    return device.compute_capability in (None, capability) and device.warp_size in (None, warp_size)
