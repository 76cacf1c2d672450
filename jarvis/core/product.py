"""What this product is called where packages are installed, and which version of it is here."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "jarvis-perf"


def product_version() -> str:
    """The installed version; "unknown" where the package is used without being installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
