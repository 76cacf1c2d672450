"""The name and version of this product, and the constants of its HTTP API and upload protocol."""

from functools import cache

API = "/api"
UPLOADS = f"{API}/uploads"

REPORT_PAGE = "/report"
"""Path of the report's page; its parameter ``analysis`` names the analysis."""

BEARER = "Bearer"
"""Scheme of the header ``Authorization``."""

TOKEN_VARIABLE = "JARVIS_TOKEN"
"""Environment variable with the API token of a client."""

TUS_HEADER, TUS_VERSION = "Tus-Resumable", "1.0.0"
"""Header and version of the upload protocol (https://tus.io)."""

PIECE_TYPE = "application/offset+octet-stream"
"""Content type of an upload chunk."""

DISTRIBUTION = "jarvis-perf"


@cache
def product_version() -> str:
    """Return the installed version, or "unknown" if the package is not installed."""
    from importlib.metadata import (  # takes longer than shell completion
        PackageNotFoundError,
        version,
    )

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
