"""Distribution name and installed version of Jarvis."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "jarvis-perf"


def product_version() -> str:
    """Return the installed version, or "unknown" if the package is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
